package asynqsource

import (
	"strings"
	"time"
)

// keys are the names of what Redis holds of one queue: asynq's own, and ours beside
// them, in the same slot of a cluster.
type keys struct {
	prefix string // of all of asynq's
	task   string // before the id of a task
	group  string // before the name of a group

	pending, active, lease, paused, scheduled, retry, archived, completed, processed, failed, sets, groups string
	fence, tries, suspects                                                                                 string
}

// before and after a queue's name in the keys of asynq.
const (
	beforeQueue = "asynq:{"
	afterQueue  = "}:"
)

func keysOf(queue string) keys {
	p := beforeQueue + queue + afterQueue
	own := "{" + queue + "}:"
	return keys{
		prefix: p, task: p + "t:", group: p + "g:",
		pending: p + "pending", active: p + "active", lease: p + "lease", paused: p + "paused",
		scheduled: p + "scheduled", retry: p + "retry", archived: p + "archived", completed: p + "completed",
		processed: p + "processed", failed: p + "failed", sets: p + "aggregation_sets", groups: p + "groups",
		fence: own + "fence", tries: own + "tries", suspects: own + "suspects",
	}
}

// queueOf returns the queue that a key of asynq belongs to.
func queueOf(key string) (queue, rest string, ok bool) {
	after, ok := strings.CutPrefix(key, beforeQueue)
	if !ok {
		return "", "", false
	}
	return strings.Cut(after, afterQueue)
}

// day is the suffix of a counter of one day.
func day(t time.Time) string { return t.UTC().Format(":2006-01-02") }

// countersLive is how long asynq keeps the counters of a day.
const countersLive = 90 * 24 * time.Hour

// A kind is what a script of asynq does, as far as its keys tell.
type kind uint8

const (
	kindOther      kind = iota
	kindDequeue         // takes one task
	kindExpired         // lists tasks whose lease is over
	kindForward         // moves what is due
	kindTakeSet         // takes a set out of a group; 0: nothing is due
	kindEndSet          // deletes one
	kindOldSets         // puts back those that no task became of
	kindOldResults      // deletes tasks that were kept for long enough
	kindDone            // from here on: settles the task ARGV[1]
	kindComplete        // ... and keeps its result
	kindRetry
	kindArchive
	kindRequeue // gives it back
)

// settles reports whether a script says what became of a task.
func (k kind) settles() bool { return k >= kindDone }

// tends reports whether a script looks from time to time whether there is something to do.
func (k kind) tends() bool { return k == kindTakeSet || k == kindOldSets || k == kindOldResults }

// kindOf reads off its keys what a script of asynq does, and on which queue. A script
// that touches no queue has none.
func kindOf(names []string) (k kind, queue string) {
	const (
		hasPending = 1 << iota
		hasActive
		hasLease
		hasPaused
		hasCompleted
		hasRetry
		hasArchived
		hasScheduled
		hasSets
		hasGroups
	)
	has := 0
	for _, name := range names {
		q, rest, ok := queueOf(name)
		if !ok {
			continue
		}
		if queue == "" { // the lock of a unique task is the last one, and of the queue that an ingress has moved it from
			queue = q
		}
		switch rest {
		case "pending":
			has |= hasPending
		case "active":
			has |= hasActive
		case "lease":
			has |= hasLease
		case "paused":
			has |= hasPaused
		case "completed":
			has |= hasCompleted
		case "retry":
			has |= hasRetry
		case "archived":
			has |= hasArchived
		case "scheduled":
			has |= hasScheduled
		case "aggregation_sets":
			has |= hasSets
		case "groups":
			has |= hasGroups
		}
	}
	switch {
	case has&(hasActive|hasLease) == hasActive|hasLease:
		switch {
		case has&hasPaused != 0:
			return kindDequeue, queue
		case has&hasCompleted != 0:
			return kindComplete, queue
		case has&hasRetry != 0:
			return kindRetry, queue
		case has&hasArchived != 0:
			return kindArchive, queue
		case has&hasPending != 0:
			return kindRequeue, queue
		}
		return kindDone, queue
	case has == hasLease && len(names) == 1:
		return kindExpired, queue
	case has&hasPending != 0 && has&(hasScheduled|hasRetry) != 0:
		return kindForward, queue
	case has == hasSets|hasGroups:
		return kindTakeSet, queue
	case has == hasSets && len(names) == 1:
		return kindOldSets, queue
	case has == hasSets && len(names) == 2:
		return kindEndSet, queue
	case has == hasCompleted && len(names) == 1:
		return kindOldResults, queue
	}
	return kindOther, queue
}

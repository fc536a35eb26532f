package asynqsource

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/hibiken/asynq"
)

// asynq makes a task of a group in steps: it takes a set out of the group, has the
// aggregator make a task of it, enqueues that, and deletes the set. A queue that changes
// hands in between is asked a step under an old token: the next owner puts the set back
// into its group, and what is enqueued already is made once more. So a stream that closes
// takes out no set, and waits for those that are.

// regroupScript stands for asynq's own, which puts back those sets that nothing came of for
// two minutes, and lists their groups not again.
var regroupScript = newScript(before + regroup + "regroup(KEYS[1], KEYS[2], ARGV[1], ARGV[2])\nreturn 0" + after)

// setTime is how long after a set was taken out it is waited for at most: asynq does not
// delete one of which nothing came.
const setTime = 10 * time.Second

// aggregate makes one task of those of a group. Where the caller's function panics asynq hears of no
// task, and asks again some minutes later: the panic would end the peer, and the next owner would have
// the same set at once.
func (e *Engine) aggregate(group string, tasks []*asynq.Task) (one *asynq.Task) {
	e.shield("GroupAggregator", fmt.Sprintf("group %q, whose %d tasks wait", group, len(tasks)), func() {
		one = e.cfg.GroupAggregator.Aggregate(group, tasks)
	})
	return one
}

// setOf is the key of the set that a script takes out of a group, or deletes.
func setOf(k kind, names []string) string {
	if k == kindTakeSet {
		return names[1] // behind that of the group
	}
	return names[0]
}

// takeSet reports whether a set of that key may be taken out of a group. It is followed by endSet,
// unless nothing comes of the set.
func (s *stream) takeSet(key string) bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.noSets != nil {
		return false
	}
	if s.sets == nil {
		s.sets = make(map[string]time.Time)
	}
	s.forgetSets()
	s.sets[key] = time.Now()
	return true
}

// forgetSets forgets the sets that are waited for no more. The caller holds the lock.
func (s *stream) forgetSets() {
	maps.DeleteFunc(s.sets, func(_ string, at time.Time) bool { return time.Since(at) >= setTime })
}

// endSet notes that a set is a task, or that there was none to take out.
func (s *stream) endSet(key string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if delete(s.sets, key); len(s.sets) == 0 && s.noSets != nil {
		select {
		case <-s.noSets:
		default:
			close(s.noSets)
		}
	}
}

// awaitSets waits until all sets that were taken out are tasks. From now on none is.
func (s *stream) awaitSets(ctx context.Context) {
	s.Mu.Lock()
	if s.noSets == nil {
		s.noSets = make(chan struct{})
	}
	s.forgetSets()
	var last time.Time
	for _, at := range s.sets {
		if at.After(last) {
			last = at
		}
	}
	none, over := s.noSets, len(s.sets) == 0 || s.Lost()
	s.Mu.Unlock()
	if over {
		return
	}
	t := time.NewTimer(time.Until(last.Add(setTime)))
	defer t.Stop()
	select {
	case <-none:
	case <-t.C:
	case <-ctx.Done():
	}
}

package transition

import (
	"cmp"
	"slices"
	"time"
)

// A Begun says that a peer has begun a record.
type Begun struct {
	Peer      string
	Partition int32
	Offset    int64
	Key       string
	Born      time.Time // when it was produced
	At        time.Time
	// Handled says that the peer has come to the end of the record, which it began earlier.
	Handled bool
}

// A place is where a record is in its topic.
type place struct {
	partition int32
	offset    int64
}

// lost counts the records that were produced from an event on until the next one, and that
// nobody has handled to their end: not even begun, or begun by a peer that was killed, and
// never again.
func lost(produced map[place]time.Time, handled map[place]bool, from, to time.Time) int {
	n := 0
	for at, born := range produced {
		if !handled[at] && !born.Before(from) && born.Before(to) {
			n++
		}
	}
	return n
}

// A Verdict is what an event has cost.
type Verdict struct {
	Moved      int           // partitions that had another owner afterwards
	PauseMoved time.Duration // the longest of a partition that moved
	PauseOther time.Duration // ... of one that stayed
	Balanced   time.Duration // from the event to the last first record of a new owner
	Again      int           // records that were begun once more
	Behind     int           // records that were begun after a later one of their key
	Lost       int           // records that were not handled by the end of the play
}

// judge looks at what was begun from an event on, until the next one. lines are all of the
// play, in any order.
func judge(lines []Begun, from, to time.Time) Verdict {
	var v Verdict
	byPartition := make(map[int32][]Begun)
	for _, l := range lines {
		byPartition[l.Partition] = append(byPartition[l.Partition], l)
	}
	for _, all := range byPartition {
		slices.SortFunc(all, func(a, b Begun) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Offset, b.Offset)) })
		seen := make(map[int64]bool, len(all))
		owner, before, pause := "", "", time.Duration(0)
		highest := make(map[string]int64) // by key
		var last time.Time
		for _, l := range all {
			if !l.At.Before(to) {
				break
			}
			if !l.At.Before(from) {
				if seen[l.Offset] {
					v.Again++
				} else if l.Offset < highest[l.Key] {
					v.Behind++
				}
				if since := later(last, l.Born); !last.IsZero() {
					pause = max(pause, l.At.Sub(since))
				}
				if owner != "" && l.Peer != owner {
					v.Balanced = max(v.Balanced, l.At.Sub(from))
				}
			} else {
				before = l.Peer
			}
			seen[l.Offset] = true
			owner, last = l.Peer, l.At
			highest[l.Key] = max(highest[l.Key], l.Offset)
		}
		if before != "" && owner != before {
			v.Moved++
			v.PauseMoved = max(v.PauseMoved, pause)
		} else {
			v.PauseOther = max(v.PauseOther, pause)
		}
	}
	return v
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// shares is how many partitions each peer has, by the last record of each.
func shares(lines []Begun) map[string]int {
	last := make(map[int32]Begun)
	for _, l := range lines {
		if l.At.After(last[l.Partition].At) {
			last[l.Partition] = l
		}
	}
	n := make(map[string]int)
	for _, l := range last {
		n[l.Peer]++
	}
	return n
}

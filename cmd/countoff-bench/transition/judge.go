package transition

import (
	"cmp"
	"fmt"
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

// gaps says where the records are that nobody has handled, row by row, with who began what
// is in it and beside it.
func gaps(lines []Begun, produced map[place]time.Time, handled map[place]bool) (rows []string) {
	var open []place
	for at := range produced {
		if !handled[at] {
			open = append(open, at)
		}
	}
	slices.SortFunc(open, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	by := make(map[place]string)
	for _, l := range lines {
		by[place{l.Partition, l.Offset}] += l.Peer
	}
	for len(open) > 0 {
		n, begun := 0, ""
		for n < len(open) && open[n] == (place{open[0].partition, open[0].offset + int64(n)}) {
			begun += by[open[n]]
			n++
		}
		first, last := open[0], open[n-1]
		rows = append(rows, fmt.Sprintf("partition %d lost %d-%d, produced %s to %s; begun by %q, before by %q, behind by %q",
			first.partition, first.offset, last.offset, produced[first].Format("05.000"), produced[last].Format("05.000"),
			begun, by[place{first.partition, first.offset - 1}], by[place{first.partition, last.offset + 1}]))
		open = open[n:]
	}
	return rows
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

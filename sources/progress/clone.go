package progress

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Clone returns a log that goes on from here by itself: for tests that try every way
// on from a moment.
func (l *Log) Clone() *Log {
	c := *l
	size := 4
	for size < int(l.end-l.first)+1 {
		size *= 2
	}
	c.ring = make([]entry, size)
	for i := l.first; i < l.end; i++ {
		*c.at(i) = *l.at(i)
	}
	c.done, c.lifted, c.queue = slices.Clone(l.done), slices.Clone(l.lifted), slices.Clone(l.queue)
	c.due, c.waited, c.keys = maps.Clone(l.due), maps.Clone(l.waited), nil
	return &c
}

// String tells all of the log that decides what it says and hands out next, but for
// the number of writes it has seen. Verdicts are numbered from the last answered one.
func (l *Log) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "base %d read %d gate %d suspects %d done %v sent %d solo %d alone %d", l.base, l.read, l.gate, l.suspects,
		l.done, l.sent, l.solo, l.alone)
	for _, key := range slices.Sorted(maps.Keys(l.waited)) {
		fmt.Fprintf(&b, " waited %d", key)
	}
	if l.announced != None {
		b.WriteString(" announced")
	}
	if l.told {
		b.WriteString(" told")
	}
	if l.permit {
		b.WriteString(" permit")
	}
	fmt.Fprintf(&b, " at %d %d of %d %d %d;", l.ahead, l.next-l.first, l.running, l.parked, l.held)
	for e := range l.all {
		fmt.Fprintf(&b, " %d/%d", e.pos, e.state)
		if e.named || e.suspect || e.accused || e.passed || e.tries > 0 {
			fmt.Fprint(&b, e.named, e.suspect, e.accused, e.passed, e.tries)
		}
	}
	for _, v := range l.queue {
		fmt.Fprint(&b, "; ", v.Seq-l.answered, " ", v.Position, " ", v.Outcome, " ", v.Attempt)
	}
	return b.String()
}

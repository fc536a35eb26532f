package redisledger

import (
	"slices"
	"sync"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// quiet remembers for each session what was last said and answered in full.
type quiet struct {
	mu   sync.Mutex
	last map[partition.Session]said
}

// said is a Sync that was answered in full. The zero value is none.
type said struct {
	request machine.Request
	stamp   string
	answer  machine.Answer
}

func (q *quiet) of(s partition.Session) said {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last[s]
}

func (q *quiet) keep(r machine.Request, stamp string, a machine.Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.State == machine.Gone {
		delete(q.last, r.Session)
		return
	}
	if q.last == nil {
		q.last = make(map[partition.Session]said)
	}
	r.Hold = slices.Clone(r.Hold)
	r.Release, r.Claim = slices.Clone(r.Release), slices.Clone(r.Claim)
	q.last[r.Session] = said{request: r, stamp: stamp, answer: copied(a)}
}

// same reports whether r, sent to a store in which nothing changed since, would change
// nothing but the lease and be answered as before.
//
// That is so if it says what was said before, claims and releases nothing, and holds
// nothing but what was granted. A claim is never quiet: its partition may become free
// without anything of the caller's having changed, and the last to ask is who waits,
// so that asking again means something. A hold that was refused is not either: it would be
// honoured once the partition is free.
func (s said) same(r machine.Request) bool {
	was := s.request
	if s.stamp == "" || r.State == machine.Gone || len(r.Claim)+len(r.Release)+len(was.Claim)+len(was.Release) > 0 {
		return false
	}
	return r.State == was.State && r.View == was.View && r.Peer == was.Peer && r.Weight == was.Weight && r.Unwell == was.Unwell && r.Tags == was.Tags &&
		r.Barrier == was.Barrier && r.Arrived == was.Arrived && r.Strategy == was.Strategy &&
		slices.Equal(r.Hold, was.Hold) && s.granted(r.Hold)
}

func (s said) granted(hold []partition.Grant) bool {
	mine := make(map[partition.Grant]bool, len(s.answer.Mine))
	for _, h := range s.answer.Mine {
		mine[h.Grant] = true
	}
	return !slices.ContainsFunc(hold, func(g partition.Grant) bool { return !mine[g] })
}

// again returns the answer once more, with what depends on the clock, and on who is
// behind, from the reply of same.lua.
func (s said) again(reply []string) (machine.Answer, error) {
	a := copied(s.answer)
	p := parser{words: reply[1:]}
	a.Behind = int(p.number())
	p.times(&a)
	return a, p.wrong("quiet answer")
}

// copied returns a with nothing shared.
func copied(a machine.Answer) machine.Answer {
	a.Mine = slices.Clone(a.Mine)
	if a.Line != nil {
		l := *a.Line
		l.Partitions = slices.Clone(l.Partitions)
		a.Line = &l
	}
	return a
}

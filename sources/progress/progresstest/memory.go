package progresstest

import (
	"maps"
	"slices"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// Memory is the reference: the rules of docs/protocol.md, line by line. With list
// false it keeps no elements, as beside a topic of Kafka.
type Memory struct {
	list bool
	// broken names a guard that is out, to show that the world sees it.
	broken string

	state memory
}

type memory struct {
	token             partition.Token // zero: closed
	epoch             partition.Epoch
	b, n, h, s, alone int64
	pending           []string
	done              map[int64]bool
	lifted            map[int64]string
	tries             map[int64]Tried
	delayed, dead     []string
}

// NewMemory returns an empty store.
func NewMemory(list bool) *Memory {
	return &Memory{list: list, state: memory{
		alone: progress.None, done: map[int64]bool{}, lifted: map[int64]string{}, tries: map[int64]Tried{},
	}}
}

func (m *Memory) end() int64 { return m.state.b + int64(len(m.state.pending)) }

func (m *Memory) open(x int64) bool {
	s := &m.state
	if _, ok := s.lifted[x]; ok && m.broken != "settle ignores lifted" {
		return true
	}
	return x >= s.b && !s.done[x] && (!m.list || x < m.end())
}

// Push appends an element.
func (m *Memory) Push(element string) { m.state.pending = append(m.state.pending, element) }

// Announce notes that what was just pushed to pos may be started, and reports whether that
// is so: not if something before it may not be.
func (m *Memory) Announce(pos int64) bool {
	s := &m.state
	if s.h < pos {
		return false
	}
	s.h = max(s.h, pos+1)
	return true
}

// Move appends the delayed elements.
func (m *Memory) Move() []string {
	moved := m.state.delayed
	m.state.pending = append(m.state.pending, moved...)
	m.state.delayed = nil
	return moved
}

// Open installs the fence.
func (m *Memory) Open(tok partition.Token) Opened {
	s := &m.state
	if s.token != tok || m.broken == "open again counts" {
		if tok.Epoch <= s.epoch && s.token != tok {
			return Opened{Refused: true}
		}
		if a := s.alone; a != progress.None && m.open(a) {
			t := s.tries[a]
			t.Crashes++
			s.tries[a] = t
		} else if !s.token.IsZero() {
			s.s = max(s.s, s.h)
			if m.broken == "blame all" {
				for x := s.b; x < s.h; x++ {
					if m.open(x) {
						t := s.tries[x]
						t.Crashes++
						s.tries[x] = t
					}
				}
			}
		}
		s.token, s.epoch, s.alone = tok, tok.Epoch, progress.None
		s.n++
	}
	o := Opened{
		Opened: progress.Opened{Base: s.b, Suspects: s.s, Gate: max(s.h, s.b), Writes: s.n},
		Tried:  maps.Clone(s.tries),
	}
	if m.broken != "done not read" {
		o.Done = slices.Sorted(maps.Keys(s.done))
	}
	for _, x := range slices.Sorted(maps.Keys(s.lifted)) {
		o.Lifted = append(o.Lifted, Lifted{x, s.lifted[x]})
	}
	return o
}

// Read returns elements of the list.
func (m *Memory) Read(from, n int64) []string {
	p := m.state.pending
	from = min(max(from, 0), int64(len(p)))
	return slices.Clone(p[from:min(from+n, int64(len(p)))])
}

// Settle carries out r.
func (m *Memory) Settle(tok partition.Token, r *progress.Request, content []string) progress.Answer {
	s := &m.state
	if s.token != tok && m.broken != "no fence" {
		return progress.Answer{Status: progress.Stale}
	}
	if m.broken != "no witness" && s.n < r.Seen || m.list && m.end() < r.Read {
		return progress.Answer{Status: progress.Forgot}
	}
	before, nb := s.b, r.Base
	if m.broken == "relative trim" {
		nb = s.b + r.Base - r.Before
	}
	if m.broken == "base before effects" {
		m.raise(nb, r.Lift)
	}
	retried := m.effects(r, content, max(before, nb))
	m.raise(nb, r.Lift)
	if s.alone != progress.None && (!m.open(s.alone) || retried[s.alone]) {
		s.alone = progress.None
	}
	if x := r.Alone; x != progress.None && m.open(x) && (s.tries[x].Tries == r.AloneTries || m.broken == "alone comes late") {
		s.alone = x
	}
	gate := r.Gate
	if m.list {
		gate = min(gate, m.end())
	}
	s.h = max(s.h, gate)
	s.n++
	return progress.Answer{Status: progress.Admitted, Before: before, Base: s.b, Writes: s.n, Gate: s.h}
}

// effects carries out the verdicts, each tied to its position being open.
func (m *Memory) effects(r *progress.Request, content []string, floor int64) (retried map[int64]bool) {
	s := &m.state
	finish := func(x int64) {
		delete(s.lifted, x)
		delete(s.tries, x)
		if x >= floor {
			s.done[x] = true
		}
	}
	if m.broken == "done replaced" {
		clear(s.done)
	}
	retried = map[int64]bool{}
	for _, v := range r.Others { // before the ends: one that ended since leaves nothing
		x := v.Position
		if v.Outcome != progress.Retry || !m.open(x) {
			continue
		}
		if t := s.tries[x]; v.Attempt > t.Tries || m.broken == "attempts overwrite" {
			t.Tries = v.Attempt
			s.tries[x] = t
			retried[x] = true
		}
	}
	for _, x := range r.Done {
		if m.open(x) {
			finish(x)
		}
	}
	for i, v := range r.Others {
		x := v.Position
		if v.Outcome == progress.Retry || !m.open(x) && !(m.broken == "requeue not tied" && v.Outcome == progress.Requeue) {
			continue
		}
		switch {
		case v.Outcome == progress.Requeue:
			s.delayed = append(s.delayed, content[i])
		case m.list:
			s.dead = append(s.dead, content[i])
		}
		finish(x)
	}
	return retried
}

// raise moves the base, with what is stuck.
func (m *Memory) raise(nb int64, lift []int64) {
	s := &m.state
	if nb <= s.b {
		return
	}
	for _, x := range lift {
		if x >= s.b && x < nb && (!s.done[x] || m.broken == "lift unchecked") {
			s.lifted[x] = ""
			if m.list {
				s.lifted[x] = s.pending[x-s.b]
			}
		}
	}
	if m.list {
		s.pending = s.pending[min(nb-s.b, int64(len(s.pending))):]
	}
	maps.DeleteFunc(s.done, func(x int64, _ bool) bool { return x < nb })
	s.b = nb
}

// Close clears the fence.
func (m *Memory) Close(tok partition.Token) {
	if s := &m.state; s.token == tok {
		s.token, s.h, s.alone = partition.Token{}, s.b, progress.None
	}
}

// State returns all that is kept.
func (m *Memory) State() State {
	s := &m.state
	st := State{
		Base: s.b, Gate: s.h, Pending: s.pending, Done: slices.Sorted(maps.Keys(s.done)), Tries: len(s.tries),
		Delayed: s.delayed, Dead: s.dead,
	}
	for x, e := range s.lifted {
		st.Lifted = append(st.Lifted, Lifted{x, e})
	}
	return st
}

// Snapshot copies the store; restore puts the copy back.
func (m *Memory) Snapshot() (restore func()) {
	c := m.state.clone()
	return func() { m.state = c.clone() }
}

func (s memory) clone() memory {
	s.pending, s.delayed, s.dead = slices.Clone(s.pending), slices.Clone(s.delayed), slices.Clone(s.dead)
	s.done, s.lifted, s.tries = maps.Clone(s.done), maps.Clone(s.lifted), maps.Clone(s.tries)
	return s
}

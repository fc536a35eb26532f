package progresstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A fact is the truth about one task of an exploration.
type fact struct {
	running   int    // the owner that runs it, counted from 1
	runs      uint64 // attempts that were begun, a bit each
	finals    int    // runs that ended with done or dead
	done      int    // ... with done
	answered  int    // the highest try whose retry or requeue was answered
	requeued  bool   // gave up its place
	elsewhere bool   // a dead letter that the store does not keep
	lost      bool   // its push was lost with the store

	places int // where the store has it
	buried bool
}

// count looks where the store has each task.
func (m *moment) count() {
	for i := range m.facts {
		m.facts[i].places, m.facts[i].buried = 0, m.facts[i].elsewhere
	}
	s := &m.store.state
	end := m.end()
	for pos := s.b; pos < end; pos++ {
		if s.done[pos] {
			continue
		}
		task := m.at[pos]
		if !m.x.Away {
			task = m.parse(s.pending[pos-s.b]).task
		}
		m.facts[task].places++
	}
	for pos := range s.lifted {
		m.facts[m.at[pos]].places++
	}
	for _, e := range s.delayed {
		m.facts[m.parse(e).task].places++
	}
	for _, e := range s.dead {
		t := &m.facts[m.parse(e).task]
		t.places++
		t.buried = true
	}
}

// check looks at what the store keeps.
func (m *moment) check() {
	m.count()
	if n := len(m.store.state.lifted); n > m.x.Lifted {
		m.violated("%d positions are lifted, %d may be", n, m.x.Lifted)
	}
	for i := range m.facts {
		t := &m.facts[i]
		switch {
		case (t.lost || t.elsewhere) && t.places == 0:
		case t.places > 1:
			m.violated("I3: t%d is in %d places", i, t.places)
		case t.places == 0 && t.done == 0:
			m.violated("I3: t%d is lost", i)
		}
	}
}

// isAt checks what was taken for position pos.
func (m *moment) isAt(o *owner, pos int64, task int) {
	if pos >= int64(len(m.at)) || m.at[pos] != task {
		m.violated("M: %v takes t%d for position %d of %v", o, task, pos, m.at)
	}
}

// charged checks what tasks are charged with, where nothing but the poison ends a
// peer.
func (m *moment) charged(o *owner, task, crashes int) {
	b := &m.x.Budget
	if task != m.x.Poison-1 && crashes > 0 && b.Crash+b.Lapse+b.Failover == 0 {
		m.violated("C1: %v finds t%d charged with %d crashes; it did nothing", o, task, crashes)
	}
}

// started checks the start of a run.
func (m *moment) started(o *owner, r *held) {
	t := &m.facts[r.task]
	m.say("%v starts t%d at %d, attempt %d", o, r.task, r.pos, r.attempt)
	failover := m.x.Budget.Failover > 0
	if s := &m.store.state; r.pos >= s.h && r.pos >= s.b && !failover {
		m.violated("C1: t%d starts at %d, the store knows of starts below %d", r.task, r.pos, s.h)
	}
	if t.running != 0 {
		m.violated("I4: t%d starts at %v while it runs at p%d", r.task, o, t.running)
	}
	// After a fail-over an older token may stand for a moment, and what its owner says
	// is true, but the newer owner has not read it.
	if r.attempt <= t.answered && !failover {
		m.violated("A1: t%d starts its attempt %d, %d were answered", r.task, r.attempt, t.answered)
	}
	if !m.rough && (t.runs&(1<<r.attempt) != 0 || t.finals > 0) {
		m.violated("I5: t%d starts attempt %d again, with %d ends, and nobody crashed", r.task, r.attempt, t.finals)
	}
	key := m.x.Keys[r.task]
	for i := range m.facts {
		e := &m.facts[i]
		if i == r.task || key == 0 || m.x.Keys[i] != key {
			continue
		}
		if e.running != 0 {
			m.violated("O2: t%d starts while t%d of its key runs", r.task, i)
		}
		if i < r.task && !e.requeued && !t.requeued && e.finals == 0 && !e.lost && !e.buried {
			m.violated("O1: t%d starts before t%d of its key is done", r.task, i)
		}
	}
	t.running = o.index + 1
	t.runs |= 1 << r.attempt
}

// waitsForNobody checks o, which has nothing to do but to write the letter of what it withholds:
// all else has ended.
func (m *moment) waitsForNobody(o *owner) {
	m.count()
	for i := range m.facts {
		if m.facts[i].places > 0 && !slices.ContainsFunc(o.withheld, func(r held) bool { return r.task == i }) {
			m.violated("progress: t%d waits for a letter that is not its own: %v", i, o.log)
		}
	}
}

// over reports whether every task is, as far as the store knows.
func (m *moment) over() bool {
	m.count()
	for i := range m.facts {
		if t := &m.facts[i]; t.places > 0 && !(t.buried && !m.x.Away) && !t.lost {
			return false
		}
	}
	if m.holder < 0 {
		return true
	}
	o := m.owners[m.holder]
	return o.log == nil || o.log.Seq() == o.log.Answered()
}

// left checks that nothing is left behind.
func (m *moment) left() {
	s := &m.store.state
	for pos := s.b; pos < m.end(); pos++ {
		if !s.done[pos] {
			m.violated("progress: position %d is open", pos)
		}
	}
	if len(s.lifted) > 0 || len(s.tries) > 0 || !m.x.Away && len(s.done) > len(s.pending) {
		m.violated("progress: left behind: %+v", s)
	}
}

// key is everything that what follows depends on.
func (m *moment) key() string {
	var b strings.Builder
	fmt.Fprint(&b, m.holder, m.installed, m.newest, m.rough, m.budget, m.faults, m.at, "\n")
	m.store.state.write(&b)
	if m.replica != nil {
		r := m.replica
		fmt.Fprint(&b, "replica ", r.at, r.installed, r.newest, m.store.state.n-r.store.n)
		r.store.write(&b)
	}
	for i := range m.facts {
		t := m.facts[i]
		t.places, t.buried = 0, false
		fmt.Fprint(&b, t)
	}
	// Writes count as far as a store that falls back could have fewer than were seen.
	n := m.store.state.n
	forgets := m.budget.Failover > 0 || m.replica != nil
	behind := func(seen int64) int64 {
		if forgets {
			return seen - n
		}
		return max(0, seen-n)
	}
	for _, o := range m.owners {
		if o.over {
			b.WriteString("\nover")
			continue
		}
		fmt.Fprint(&b, "\n", o.draining, o.ghost, o.unsure, o.need, o.read, o.lane, o.withheld, o.heard)
		if o.log == nil {
			continue
		}
		fmt.Fprint(&b, behind(o.log.Seen()), o.log)
		for _, c := range o.content {
			fmt.Fprint(&b, c.seq-o.log.Answered(), c.body, " ")
		}
		if o.trip != nil {
			o.trip.write(&b, behind)
		}
	}
	fmt.Fprint(&b, "\n", m.words)
	for _, l := range m.late {
		fmt.Fprint(&b, "\nlate ", l.owner, l.what)
		if l.trip != nil {
			l.trip.write(&b, behind)
		}
	}
	return b.String()
}

func (t *trip) write(b *strings.Builder, behind func(int64) int64) {
	r := &t.request
	fmt.Fprint(b, " trip ", behind(r.Seen), r.Read, r.Base, r.Gate, r.Alone, r.AloneTries, r.Done, r.Lift, r.Fetch, r.Before)
	for _, v := range r.Others {
		fmt.Fprint(b, " ", v.Position, v.Outcome, v.Attempt)
	}
	fmt.Fprint(b, t.content, t.elements, t.confirms)
}

// write writes all but the number of writes.
func (s *memory) write(b *strings.Builder) {
	fmt.Fprint(b, s.token.Epoch, s.epoch, s.b, s.h, s.s, s.alone, s.pending, s.delayed, s.dead, "\n")
	for _, x := range slices.Sorted(maps.Keys(s.done)) {
		fmt.Fprint(b, " ", x)
	}
	for _, x := range slices.Sorted(maps.Keys(s.lifted)) {
		fmt.Fprint(b, " lifted ", x, s.lifted[x])
	}
	for _, x := range slices.Sorted(maps.Keys(s.tries)) {
		fmt.Fprint(b, " tries ", x, s.tries[x])
	}
}

package progresstest

import (
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// An Exploration is a small world in which everything that can happen does, in every
// order: requests are sent, carried out, lost, repeated and late, handlers end in
// every way, owners hand over, crash and lose their lease, the store falls back. What
// may go wrong is bounded by a budget. Waiting times are over at once, and a task is
// started as soon as it may be.
type Exploration struct {
	Name   string
	Large  bool     // not for every test run
	Away   bool     // the log is elsewhere: the store keeps no list
	Letter bool     // ... and so are the dead letters: what ended its peers too often is withheld until its own is there
	Keys   []uint64 // of the tasks, in the order they are pushed; 0: none
	Later  int      // so many of them are pushed while owners work
	Poison int      // the task that kills whoever runs it, counted from 1; 0: none
	Owners int      // how many ownerships there may be
	Window int      // see progress.Config
	Lifted int
	Limit  int // handlers that run at once
	Faults int // how many at most in one history
	Budget Budget
}

// Budget says how often each may happen in one history. Retry, Requeue and Dead are
// ends of handlers, not faults.
// Announce is pushes that tell the owner what they push.
type Budget struct{ Crash, Lapse, Lose, Late, Twice, Failover, Retry, Requeue, Dead, Announce int }

// Explored says what an exploration has seen. Ends are moments in which nothing goes
// on without a fault, and that were followed without faults until all was over.
type Explored struct{ States, Moves, Ends int }

// A Way is what was chosen at each point, from the beginning: the place of the move in
// the list of all that could happen.
type Way []int

// A moment is a state of an exploration.
type moment struct {
	x      *Exploration
	store  *Memory
	owners []*owner // every ownership so far
	holder int      // who was granted the log and has not lost it, as the ledger sees it; -1: nobody
	facts  []fact   // of the tasks that were pushed
	at     []int    // the task by the position it was pushed to
	late   []*message
	words  []word // announcements that were not heard; each may come any time later, or never

	installed partition.Epoch // whose token may settle; 0: nobody's
	newest    partition.Epoch // that was ever installed
	replica   *replica        // what a fail-over leaves, once its replica has fallen behind
	rough     bool            // an owner crashed or lapsed, or the store fell back
	calm      bool            // no more faults
	budget    Budget
	faults    int
	tell      func(string)
}

// A replica is the store as it was when it heard the last write, and what was true
// then.
type replica struct {
	store             memory
	at                []int
	installed, newest partition.Epoch
}

// A message is a request under way for longer than its sender waits.
type message struct {
	what  string
	owner int
	trip  *trip // nil: an open or a close
}

// A word announces a task to the owner whose token stood when it was pushed.
type word struct {
	owner   int
	pos     int64
	element string
}

type explorer struct {
	Exploration
	seed maphash.Seed
	seen map[uint64]struct{}
	sum  Explored
	way  Way
	most int
}

// Explore looks at every state, but not at more than most, unless that is 0. It
// returns what it saw, and the first violation with the way there, or "".
func (x Exploration) Explore(most int) (sum Explored, violated string, way Way) {
	return x.explore(NewMemory(!x.Away), most)
}

func (x Exploration) explore(store *Memory, most int) (sum Explored, violated string, way Way) {
	e := &explorer{Exploration: x, seed: maphash.MakeSeed(), seen: make(map[uint64]struct{}), most: most}
	defer func() { sum, way = e.sum, e.way }()
	defer catch(&violated)
	e.walk(x.begin(store, nil))
	return
}

// Replay goes a way, tells each move and what it does, and returns what is violated at
// its end.
func (x Exploration) Replay(way Way, tell func(string)) (violated string) {
	return x.replay(NewMemory(!x.Away), way, tell)
}

func (x Exploration) replay(store *Memory, way Way, tell func(string)) (violated string) {
	defer catch(&violated)
	m := x.begin(store, tell)
	for _, i := range way {
		moves, _ := m.moves()
		if i >= len(moves) {
			return "the way leads nowhere"
		}
		m.say("-- %s", m.describe(moves[i]))
		m.do(moves[i])
	}
	m.say("-- from here on without faults")
	m.night()
	return ""
}

// catch turns a violation, or what the code under test panics with, into words.
func catch(violated *string) {
	switch v := recover().(type) {
	case nil:
	case violation:
		*violated = v.what
	default:
		*violated = fmt.Sprintf("panic: %v\n%s", v, debug.Stack())
	}
}

func (x Exploration) begin(store *Memory, tell func(string)) *moment {
	m := &moment{x: &x, store: store, holder: -1, budget: x.Budget, faults: x.Faults, tell: tell}
	for range len(x.Keys) - x.Later {
		m.push()
	}
	return m
}

// walk looks at all ways on from m, depth first. What goes on without a fault comes
// first: a moment from which it ends well is one from which it can end well.
func (e *explorer) walk(m *moment) {
	key := maphash.String(e.seed, m.key())
	if _, ok := e.seen[key]; ok || e.most > 0 && e.sum.States >= e.most {
		return
	}
	e.seen[key] = struct{}{}
	e.sum.States++
	moves, goes := m.moves()
	if !goes {
		e.sum.Ends++
		m.clone().night()
	}
	for i, next := range moves {
		e.sum.Moves++
		e.way = append(e.way, i)
		n := m.clone()
		n.do(next)
		e.walk(n)
		e.way = e.way[:len(e.way)-1]
	}
}

func (m *moment) clone() *moment {
	c := *m
	c.store = &Memory{list: m.store.list, broken: m.store.broken, state: m.store.state.clone()}
	c.owners = make([]*owner, len(m.owners))
	for i, o := range m.owners {
		c.owners[i] = o.clone()
	}
	c.facts, c.at, c.late, c.words = slices.Clone(m.facts), slices.Clone(m.at), slices.Clone(m.late), slices.Clone(m.words)
	return &c
}

func (m *moment) say(format string, args ...any) {
	if m.tell != nil {
		m.tell(fmt.Sprintf(format, args...))
	}
}

func (m *moment) violated(format string, args ...any) {
	panic(violation{fmt.Sprintf(format, args...)})
}

// push appends the next task.
func (m *moment) push() {
	t := len(m.facts)
	m.facts = append(m.facts, fact{})
	if !m.x.Away {
		m.store.Push(element{task: t}.String())
	}
	m.at = append(m.at, t)
}

// announce pushes the next task and tells the owner of the fence, if the store notes that it
// may be started.
func (m *moment) announce() {
	m.budget.Announce--
	pos := m.end()
	e := element{task: len(m.facts)}.String()
	m.push()
	if m.store.Announce(pos) {
		m.words = append(m.words, word{int(m.installed) - 1, pos, e})
	}
}

// moved moves what is delayed to the end of the list.
func (m *moment) moved() {
	for _, s := range m.store.Move() {
		m.at = append(m.at, m.parse(s).task)
	}
}

// end is the position after the last element.
func (m *moment) end() int64 {
	if m.x.Away {
		return int64(len(m.at))
	}
	return m.store.end()
}

// arrive carries out a request that is late. Nobody hears the answer.
func (m *moment) arrive(i int) {
	l := m.late[i]
	m.late = slices.Delete(m.late, i, i+1)
	o := m.owners[l.owner]
	switch {
	case l.trip != nil:
		m.execute(o, l.trip)
	case l.what == "open":
		m.install(o)
	default:
		m.uninstall(o)
	}
}

// install carries out an open.
func (m *moment) install(o *owner) Opened {
	a := m.store.Open(o.token())
	if a.Refused {
		return a
	}
	if o.epoch < m.newest {
		m.violated("I2: %v is installed after %d was", o, m.newest)
	}
	m.installed, m.newest = o.epoch, o.epoch
	m.check()
	return a
}

// uninstall carries out a close.
func (m *moment) uninstall(o *owner) {
	m.store.Close(o.token())
	if m.installed == o.epoch {
		m.installed = 0
	}
}

// execute carries out a settlement.
func (m *moment) execute(o *owner, t *trip) progress.Answer {
	a := m.store.Settle(o.token(), &t.request, t.content)
	if a.Status == progress.Admitted && o.epoch != m.installed {
		m.violated("I2: a settlement of %v is admitted, %d stands", o, m.installed)
	}
	m.check()
	return a
}

// failOver puts the replica in the store's place. A request belongs to its
// connection: none that was under way reaches the new store.
func (m *moment) failOver() {
	r := m.replica
	m.replica, m.rough, m.late = nil, true, nil
	m.store.state = r.store.clone()
	m.at, m.installed, m.newest = slices.Clone(r.at), r.installed, r.newest
	for _, o := range m.owners {
		if !o.over {
			o.trip = nil
		}
	}
	m.count()
	for i := range m.facts {
		t := &m.facts[i]
		t.answered = 0
		t.lost = t.lost || t.places == 0 && t.done == 0
	}
	m.check()
}

// night ends all faults: everything must get done, and nothing be left behind.
func (m *moment) night() {
	const evening = 1000
	m.calm = true
	for len(m.facts) < len(m.x.Keys) {
		m.push()
	}
	for n := 0; ; n++ {
		for len(m.late) > 0 {
			m.arrive(0)
		}
		m.moved()
		if m.over() {
			break
		}
		if n > evening {
			m.violated("progress: after %d steps without faults not everything is over", n)
		}
		m.goOn()
	}
	for n := 0; m.holder >= 0; n++ {
		m.owners[m.holder].draining = true
		m.goOn()
		if n > evening {
			m.violated("progress: the last owner cannot close")
		}
	}
	m.left()
}

// goOn does the first thing that goes on without a fault; claims are not counted.
func (m *moment) goOn() {
	if m.holder < 0 {
		m.do(move{kind: claims})
		return
	}
	moves := m.goesOn(m.owners[m.holder], nil)
	if len(moves) == 0 {
		m.violated("progress: %v stands still: %v", m.owners[m.holder], m.owners[m.holder].log)
	}
	m.say("-- %s", m.describe(moves[0]))
	m.do(moves[0])
}

package simulation

import (
	"cmp"
	"container/heap"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// An Exploration is a small world in which everything that can happen does: every
// order of what happens at one instant, and each fault at every point, as often as
// its budget and the sum of all allow. Between instants time passes as the machines
// want it; their spread of times is that of one seed.
type Exploration struct {
	Name       string
	Large      bool // not for every test run
	Barrier    bool
	Peers      int
	Partitions int
	From       time.Duration // before, the peers start undisturbed; 0: they start within
	For        time.Duration // how long faults may happen
	Faults     int           // how many at most in one history
	Budget     Budget
}

// Budget says how often each fault may happen in one history.
type Budget struct {
	Crash, Pause, Cut, Lose, Late, Twice    int
	Restart, Setback, Forget, Leave, Joined int
	// Hurry is a Leave at once, Lost is data that forgets who works on it, Mood another health,
	// Require another thing that partition 0 asks for, Rest a pause of the name or its end, and Drain
	// that of a peer.
	Hurry, Lost, Mood, Require, Rest, Drain int
}

// Explored says what an exploration has seen. Ends are histories that were followed
// until nothing moves any more.
type Explored struct{ States, Moves, Ends int }

// A Way is what was chosen at each point, from the beginning: the move's place in the
// list of all that could happen.
type Way []int

// asleepUntil is when a stopped peer would wake by itself.
const asleepUntil = time.Duration(1 << 61)

// returnsIn is how long handlers take to return, at most, drained or cancelled.
const returnsIn = time.Second

// cutFor is how long a peer that is cut off does not reach the store: longer than its
// lease, and than another takes to notice.
const cutFor = 13 * time.Second

// moment is a state of an exploration.
type moment struct {
	w      *World
	late   []event // calls that are under way for longer than anything else
	budget Budget
	faults int
}

// move is one thing that can happen. It changes the moment it is given.
type move struct {
	do   func(*moment)
	what string // of whom and what it tells, for fmt: few moves are ever told
	of   []any
}

func (m move) String() string { return fmt.Sprintf(m.what, m.of...) }

// explorer walks through all moments, depth first. What happens without a fault comes
// first, so that the first way on from each moment is one without another fault: if
// all ends are good, a good end is reached from every moment.
type explorer struct {
	Exploration
	digest digest
	seen   map[uint64]struct{}
	sum    Explored
	way    Way
	most   int
}

// Explore looks at every state, but not at more than most, unless that is 0. It
// returns what it saw, and the first violation with the way there.
func (x Exploration) Explore(most int) (Explored, *Violation, Way) {
	e := &explorer{Exploration: x, digest: digest{seed: maphash.MakeSeed()}, seen: make(map[uint64]struct{}), most: most}
	v := e.walk(x.begin(nil))
	return e.sum, v, e.way
}

// Replay goes a way, tells each move and what it does, and returns the violation at
// its end.
func (x Exploration) Replay(way Way, tell func(string)) *Violation {
	m := x.begin(tell)
	m.settleLocal()
	for _, i := range way {
		moves := m.moves()
		if i >= len(moves) {
			return &Violation{Invariant: "way", What: "it leads nowhere", At: m.w.now}
		}
		m.w.say("-- %v", moves[i])
		moves[i].do(m)
		m.settleLocal()
	}
	if m.w.truth.violation == nil {
		m.w.say("-- from here on without faults")
		return m.end()
	}
	return m.w.truth.violation
}

func (x Exploration) begin(tell func(string)) *moment {
	w := &World{
		mix:    Mix{Name: x.Name, Barrier: x.Barrier, Handler: returnsIn, Disturbed: 1}, // after calm it may take as long as there
		timing: transition.Timing{}.WithDefaults(),
		random: *rand.NewPCG(1, 0x636f756e746f6666),
		trace:  tell,
		truth:  newTruth(),
		still:  true,
	}
	w.config = partition.Config{Total: x.Partitions}.WithDefaults()
	w.store = newStore(w)
	for range x.Peers {
		w.join("", false)
	}
	for len(w.queue) > 0 && w.queue[0].at < x.From {
		w.Next()
	}
	w.now = x.From
	return &moment{w: w, budget: x.Budget, faults: x.Faults}
}

// walk returns the first violation on any way on from m.
func (e *explorer) walk(m *moment) *Violation {
	m.settleLocal()
	if v := m.w.truth.violation; v != nil {
		return v
	}
	key := m.key(&e.digest)
	if _, ok := e.seen[key]; ok || e.most > 0 && e.sum.States >= e.most {
		return nil
	}
	e.seen[key] = struct{}{}
	e.sum.States++
	moves := m.moves()
	if m.w.now >= e.From+e.For || len(moves) == 0 {
		e.sum.Ends++
		return m.clone().end()
	}
	for i, next := range moves {
		e.sum.Moves++
		e.way = append(e.way, i)
		n := m.clone()
		next.do(n)
		if v := e.walk(n); v != nil {
			return v
		}
		e.way = e.way[:len(e.way)-1]
	}
	return nil
}

// end lets the world run on without faults: everything must find its place.
func (m *moment) end() *Violation {
	for _, p := range m.w.peers {
		if p.asleep && p.runs() {
			m.wake(p)
		}
	}
	for i := range m.w.queue {
		m.w.queue[i].at = max(m.w.queue[i].at, m.w.now)
	}
	heap.Init(&m.w.queue)
	for _, ev := range m.late {
		m.w.after(0, ev)
	}
	m.late = nil
	m.w.becalm()
	_, v := m.w.Run()
	return v
}

func (m *moment) clone() *moment {
	c := *m
	c.w = m.w.Clone()
	c.late = slices.Clone(m.late)
	return &c
}

// settleLocal does what is due and concerns one peer alone: in which order these
// happen makes no difference to anybody else.
func (m *moment) settleLocal() {
	w := m.w
	for w.truth.violation == nil {
		first, nobody := -1, false
		for i, ev := range w.queue {
			if ev.concernsPeer() && (!w.peers[ev.peer].runs() || ev.kind == kWake && ev.gen != w.peers[ev.peer].gen) {
				first, nobody = i, true // nobody hears of it
				break
			}
			if ev.at <= w.now && ev.local() && (first < 0 || before(ev, w.queue[first])) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		ev, _ := heap.Remove(&w.queue, first).(event)
		if !nobody {
			w.happen(ev)
		}
	}
}

// concernsPeer says that ev is nothing when its peer has ended.
func (ev event) concernsPeer() bool { return ev.kind >= kWake && ev.kind <= kResume }

// local says that ev changes nothing but its peer.
func (ev event) local() bool {
	switch ev.kind {
	case kSync, kCensus, kSeal, kOpened, kDrained:
		return false
	}
	return true
}

func before(a, b event) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.peer, b.peer), cmp.Compare(a.seq, b.seq)) < 0
}

// moves returns all that can happen next, faults last.
func (m *moment) moves() []move {
	var must, may, faults []move
	w := m.w
	next := asleepUntil
	for _, ev := range w.sortedQueue() {
		switch {
		case ev.at == asleepUntil || ev.concernsPeer() && w.peers[ev.peer].asleep:
		case ev.kind == kDrained && ev.at <= w.now:
			if ends := ev.at + returnsIn; ends > w.now {
				may = append(may, m.take(ev))
				next = min(next, ends)
			} else {
				must = append(must, m.take(ev))
			}
		case ev.at > w.now:
			next = min(next, ev.at)
		case ev.kind == kOpened:
			must = append(must, m.take(ev))
		default:
			must = append(must, m.take(ev))
			faults = append(faults, m.disturb(ev)...)
		}
	}
	if len(must) == 0 && next < asleepUntil {
		must = []move{{func(n *moment) { n.pass(next) }, "time passes until %v", []any{next}}}
	}
	for i, ev := range m.late {
		may = append(may, move{func(n *moment) {
			n.late = slices.Delete(n.late, i, i+1)
			ev.at = n.w.now
			n.w.happen(ev)
		}, "late: %v", []any{ev}})
	}
	for _, p := range w.peers {
		if p.asleep && p.runs() {
			may = append(may, move{func(n *moment) { n.wake(n.w.peers[p.place]) }, "%v wakes", []any{p}})
		}
	}
	return slices.Concat(must, may, faults, m.faultsNow())
}

func (w *World) sortedQueue() []event {
	return slices.SortedFunc(slices.Values(w.queue), func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.peer, b.peer),
			cmp.Compare(a.call, b.call), cmp.Compare(a.grant.ID, b.grant.ID), cmp.Compare(a.seq, b.seq))
	})
}

// take lets ev happen.
func (m *moment) take(ev event) move {
	return move{func(n *moment) {
		n.drop(ev)
		n.w.happen(ev)
	}, "%v", []any{ev}}
}

func (m *moment) drop(ev event) {
	i := slices.IndexFunc(m.w.queue, func(o event) bool { return o.seq == ev.seq })
	heap.Remove(&m.w.queue, i)
}

// pass lets time pass. A store that falls back falls back to what it was one or two
// instants ago.
func (m *moment) pass(until time.Duration) {
	s := &m.w.store
	s.old = append(slices.Clip(s.old), s.Store.Clone())
	s.old = s.old[max(0, len(s.old)-2):]
	m.w.now = until
}

func (m *moment) wake(p *peer) {
	p.resumeAt = m.w.now
	for i := range m.w.queue { // what waited for it
		if ev := &m.w.queue[i]; ev.peer == p.place && ev.at == asleepUntil {
			ev.at = m.w.now
		}
	}
	heap.Init(&m.w.queue)
	m.w.resumed(p)
}

// spend returns the move if its budget allows another of it.
func (m *moment) spend(budget func(*Budget) *int, do func(*moment), what string, of ...any) []move {
	if m.faults == 0 || *budget(&m.budget) == 0 {
		return nil
	}
	return []move{{func(n *moment) {
		n.faults--
		*budget(&n.budget)--
		do(n)
	}, what, of}}
}

// disturb returns what can become of a call beside being carried out and answered.
func (m *moment) disturb(ev event) []move {
	lost := ev
	lost.lost = true
	return slices.Concat(
		m.spend(func(b *Budget) *int { return &b.Lose }, func(n *moment) { n.drop(ev) }, "lost: %v", ev),
		m.spend(func(b *Budget) *int { return &b.Lose }, func(n *moment) {
			n.drop(ev)
			n.w.happen(lost)
		}, "its answer is lost: %v", ev),
		m.spend(func(b *Budget) *int { return &b.Late }, func(n *moment) {
			n.drop(ev)
			n.late = append(n.late, ev)
		}, "is under way: %v", ev),
		m.spend(func(b *Budget) *int { return &b.Twice }, func(n *moment) {
			n.drop(ev)
			n.w.happen(ev)
			n.late = append(n.late, lost)
		}, "is carried out twice: %v", ev),
	)
}

// faultsNow returns the faults that can happen at any time.
func (m *moment) faultsNow() []move {
	var all []move
	for _, p := range m.w.peers {
		if !p.runs() || p.stopping && p.asleep {
			continue
		}
		i := p.place
		all = append(all, m.spend(func(b *Budget) *int { return &b.Crash },
			func(n *moment) { n.w.crash(n.w.peers[i]) }, "%v crashes", p)...)
		if p.asleep {
			continue
		}
		all = append(all, m.spend(func(b *Budget) *int { return &b.Pause },
			func(n *moment) { n.w.pause(n.w.peers[i], asleepUntil-n.w.now) }, "%v is stopped", p)...)
		all = append(all, m.spend(func(b *Budget) *int { return &b.Cut },
			func(n *moment) { n.w.peers[i].cutUntil = n.w.now + cutFor }, "%v does not reach the store for %v", p, cutFor)...)
		all = append(all, m.spend(func(b *Budget) *int { return &b.Lost },
			func(n *moment) { n.w.lose(n.w.peers[i]) }, "data of %v forgets it", p)...)
		all = append(all, m.spend(func(b *Budget) *int { return &b.Mood },
			func(n *moment) { n.w.feel(n.w.peers[i], n.w.peers[i].unwell) }, "%v is well: %v", p, p.unwell)...)
		if p.stopping {
			continue
		}
		if !m.w.store.down {
			all = append(all, m.spend(func(b *Budget) *int { return &b.Drain },
				func(n *moment) { n.w.dismiss(n.w.peers[i]) }, "%v is drained, or recalled", p)...)
		}
		leave := func(now bool) func(*moment) {
			return func(n *moment) {
				n.w.peers[i].stopping = true
				n.w.after(0, event{kind: kStop, peer: i, ok: now})
			}
		}
		all = append(all, m.spend(func(b *Budget) *int { return &b.Leave }, leave(false), "%v is to leave", p)...)
		all = append(all, m.spend(func(b *Budget) *int { return &b.Hurry }, leave(true), "%v is to leave at once", p)...)
	}
	if m.w.store.down {
		return all
	}
	all = append(all, m.spend(func(b *Budget) *int { return &b.Joined },
		func(n *moment) { n.w.join("", false) }, "a peer joins")...)
	all = append(all, m.spend(func(b *Budget) *int { return &b.Require },
		func(n *moment) { n.w.requireAnother() }, "partition 0 asks for something else")...)
	all = append(all, m.spend(func(b *Budget) *int { return &b.Rest },
		func(n *moment) { n.w.rest() }, "the name is paused, or resumed")...)
	all = append(all, m.spend(func(b *Budget) *int { return &b.Restart },
		func(n *moment) { n.w.restart("restarts", n.w.store.Store) }, "the store restarts")...)
	all = append(all, m.spend(func(b *Budget) *int { return &b.Forget },
		func(n *moment) { n.w.restart("forgets everything", &memledger.Store{}) }, "the store forgets")...)
	if len(m.w.store.old) > 0 {
		all = append(all, m.spend(func(b *Budget) *int { return &b.Setback },
			func(n *moment) { n.w.restart("falls back", n.w.store.old[0].Clone()) }, "the store falls back")...)
	}
	return all
}

// key is the hash of everything that what follows depends on.
func (m *moment) key(d *digest) uint64 {
	w := m.w
	d.reset()
	d.add(w.now, m.budget, m.faults, w.store.runs, w.store.down, w.restAt, len(w.peers))
	for _, p := range w.peers {
		d.add(p.name, p.crashed, p.left, p.stopping, p.asleep, p.cutUntil, p.disturbed, p.unwell, p.rests, p.view, p.works)
		if p.runs() {
			d.add(p.machine)
		}
	}
	d.addStore(w.store.Store)
	old := w.store.old[:min(len(w.store.old), m.budget.Setback)]
	d.add(len(old))
	for _, s := range old {
		d.addStore(s)
	}
	d.add(len(w.queue))
	for _, ev := range w.sortedQueue() {
		ev.seq, ev.gen = 0, 0
		d.add(&ev)
	}
	d.add(len(m.late))
	for _, ev := range m.late {
		ev.at, ev.seq, ev.gen = 0, 0, 0
		d.add(&ev)
	}
	d.add(w.truth.fence, w.truth.closed, w.truth.worked, w.truth.claimed)
	return d.sum()
}

// String tells an event as the move that it is.
func (ev event) String() string {
	switch ev.kind {
	case kSync:
		return fmt.Sprintf("sync %d of peer %d: %v", ev.call, ev.peer+1, *ev.request)
	case kCensus:
		return fmt.Sprintf("census %d of peer %d", ev.call, ev.peer+1)
	case kSeal:
		return fmt.Sprintf("seal %d of peer %d: %v", ev.call, ev.peer+1, *ev.roll)
	case kOpened:
		return fmt.Sprintf("peer %d opens %v", ev.peer+1, ev.grant)
	case kDrained:
		return fmt.Sprintf("handlers of peer %d return: %v", ev.peer+1, ev.grant)
	}
	s := fmt.Sprintf("%d of peer %d, call %d %v", ev.kind, ev.peer+1, ev.call, ev.ok)
	if ev.answer != nil {
		s += fmt.Sprint(" ", *ev.answer)
		if ev.answer.Line != nil {
			s += fmt.Sprint(" ", *ev.answer.Line)
		}
	}
	if ev.census != nil {
		s += fmt.Sprint(" ", *ev.census)
	}
	return s
}

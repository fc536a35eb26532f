package simulation

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// Phases of a run.
const (
	faulty   = 60 * time.Second // faults happen
	settleBy = 60 * time.Second // after calm everything must have its place; a late call may come at latest
	still    = 15 * time.Second // then nothing moves
)

// A World is one run: peers, a store, a network and the truth. It is a plain value
// of one goroutine; Clone copies it.
type World struct {
	mix    Mix
	config partition.Config
	timing transition.Timing
	random rand.PCG
	trace  func(string)
	still  bool // explored: nothing takes time or goes wrong by chance

	now    time.Duration
	queue  queue
	events uint64

	store   store
	peers   []*peer
	views   uint64        // version of the last view, where an indexer is simulated
	named   int           // peer ids given out
	restAt  time.Duration // the last time that the name was paused or resumed, or that the store came back as another
	calm    bool
	calmAt  time.Duration
	settled time.Duration // when after calm everything had its place; 0: not yet
	before  activity      // at that moment

	truth truth
	stats Stats
}

// Stats says what happened in a run.
type Stats struct {
	Rolls, Serves, Drains, Aborts int
	Stray                         int           // grants that reached a peer which no longer wished them
	Settled                       time.Duration // after calm
	Leave, Gap                    time.Duration // longest: from stop to left, and of a partition without an owner
	Halt                          time.Duration // longest: nobody worked on anything
	Steps                         int
}

// A Violation is an invariant that did not hold.
type Violation struct {
	Invariant string // its letter
	What      string
	At        time.Duration
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s violated at %v: %s", v.Invariant, v.At, v.What)
}

// New returns the world of a seed. Trace is told what happens, line by line; nil is
// nobody.
func New(mix Mix, seed uint64, trace func(string)) *World {
	w := &World{
		mix:    mix,
		timing: transition.Timing{}.WithDefaults(),
		random: *rand.NewPCG(seed, 0x636f756e746f6666),
		trace:  trace,
		truth:  newTruth(),
	}
	w.config = partition.Config{Total: w.between(mix.Partitions[0], mix.Partitions[1])}.WithDefaults()
	w.store = newStore(w)
	for range w.between(mix.Peers[0], mix.Peers[1]) {
		w.join("", false)
	}
	w.schedule(event{at: w.upTo(3 * time.Second), kind: kFault})
	w.schedule(event{at: faulty, kind: kCalm})
	w.schedule(event{at: snapshotEvery, kind: kSnapshot})
	if mix.Views {
		w.schedule(event{at: 0, kind: kViews})
	}
	return w
}

// Run runs the world to its end and returns what happened, and the first violation.
func (w *World) Run() (Stats, *Violation) {
	for w.truth.violation == nil && w.Next() {
	}
	return w.stats, w.truth.violation
}

// Next lets one thing happen. It reports whether there is more to come.
func (w *World) Next() bool {
	if len(w.queue) == 0 {
		return false
	}
	ev, _ := heap.Pop(&w.queue).(event)
	w.now = ev.at
	if w.calm && w.settled == 0 && w.now > w.calmAt+w.settlesBy() {
		w.violate("L", "not settled %v after calm: %s", w.settlesBy(), w.unsettled())
		return false
	}
	if w.settled != 0 && w.now > w.settled+still {
		return false
	}
	w.happen(ev)
	w.stats.Steps++
	return true
}

// Clone returns a world that goes on by itself from here.
func (w *World) Clone() *World {
	c := *w
	c.queue = slices.Clone(w.queue)
	c.store = w.store.clone()
	c.peers = nil
	for _, p := range w.peers {
		c.peers = append(c.peers, p.clone())
	}
	c.truth = w.truth.clone()
	return &c
}

// settlesBy is how long after calm everything must have its place. Beside peers with a short lease,
// also dead ones until a grace is over, the store's clock goes on by their step with each call, and who
// is left with a long one calls seldom.
func (w *World) settlesBy() time.Duration {
	if len(w.mix.Leases) == 0 {
		return settleBy
	}
	least := transition.Timing{Lease: slices.Min(w.mix.Leases)}
	longest := transition.Timing{Lease: slices.Max(w.mix.Leases)}
	calls := int(longest.Grace() / least.ClockStep())
	return settleBy + time.Duration(calls)*longest.Beat()
}

func (w *World) violate(invariant, format string, args ...any) {
	if w.truth.violation == nil {
		w.truth.violation = &Violation{Invariant: invariant, What: fmt.Sprintf(format, args...), At: w.now}
		w.say("VIOLATION of %s: %s", invariant, w.truth.violation.What)
	}
}

func (w *World) say(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%10.4fs ", w.now.Seconds()) + fmt.Sprintf(format, args...))
	}
}

// Randomness. All of it comes from here, in the order of events.

func (w *World) between(from, to int) int { return from + rand.New(&w.random).IntN(to-from+1) }

func (w *World) upTo(d time.Duration) time.Duration {
	if w.still {
		return 0
	}
	return time.Duration(rand.New(&w.random).Int64N(int64(d) + 1))
}

func (w *World) chance(p float64) bool { return !w.still && rand.New(&w.random).Float64() < p }

// living returns the peers that run and are not asked to stop.
func (w *World) living() []*peer {
	var alive []*peer
	for _, p := range w.peers {
		if p.runs() && !p.stopping {
			alive = append(alive, p)
		}
	}
	return alive
}

// kind is what an event is.
type kind uint8

const (
	// to a peer
	kWake kind = iota + 1
	kAnswer
	kSyncFailed
	kCensusAnswer
	kSealed
	kHint
	kOpened
	kDrained
	kFetch
	kView
	kStop
	kResume
	// at the store
	kSync
	kCensus
	kSeal
	kSnapshot
	kStoreUp
	kOutageOver
	// of the world
	kFault
	kCrash
	kViews
	kCalm
	kLook
)

// event is something that will happen.
type event struct {
	at   time.Duration
	seq  uint64
	kind kind
	peer int // whom it concerns
	gen  uint64
	call uint64
	ok   bool
	lost bool // the answer will be
	// What it carries is never changed.
	grant   partition.Grant
	request *machine.Request
	answer  *machine.Answer
	census  *machine.Census
	roll    *machine.Roll
	view    *partition.View
}

func (w *World) schedule(ev event) {
	w.events++
	ev.seq = w.events
	heap.Push(&w.queue, ev)
}

// after schedules ev in d.
func (w *World) after(d time.Duration, ev event) {
	ev.at = w.now + d
	w.schedule(ev)
}

func (w *World) happen(ev event) {
	switch ev.kind {
	case kSync, kCensus, kSeal:
		w.arrive(ev)
	case kSnapshot:
		w.store.snapshot(w)
	case kStoreUp:
		w.storeUp()
	case kOutageOver:
		w.store.outage = false
		w.say("the network is back")
	case kFault:
		w.fault()
	case kViews:
		w.giveViews()
	case kCalm:
		w.becalm()
	case kLook:
		w.look()
	case kCrash:
		w.crash(w.peers[ev.peer])
	default:
		w.toPeer(ev)
	}
}

// queue is a heap of events by time, then by order of scheduling.
type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if ev, ok := x.(event); ok {
		*q = append(*q, ev)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	ev := (*q)[last]
	*q = (*q)[:last]
	return ev
}

// sortedKeys makes the order in which maps are walked the same in every run.
func sortedKeys[V any](m map[partition.ID]V) []partition.ID {
	return slices.Sorted(maps.Keys(m))
}

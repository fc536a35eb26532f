package machine

import (
	"time"

	"github.com/countoff/countoff/partition"
)

// An Instant is a moment on one peer's own clock, which counts suspend and never
// goes back: nanoseconds since a beginning that only this peer knows. Instants of
// two peers cannot be compared.
type Instant int64

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns how long after u t is.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Spacing of Syncs and Seals.
const (
	hintSpacing  = 20 * time.Millisecond  // hints cause Syncs at most this often in the long run
	drainSpacing = 5 * time.Millisecond   // many drains that end together share Syncs
	burst        = 4                      // Syncs that a ration lets follow each other at once
	hintSpread   = 100 * time.Microsecond // for each peer of the roll: not all ask at once
	sealStep     = 50 * time.Millisecond  // index i seals i of these after a roll is due
	sealSpread   = 2 * time.Millisecond   // for each peer of the roll, where the index does not say who seals
)

// Times are the times of a peer. See transition.Timing, which they come from.
type Times struct {
	Beat        time.Duration // period of a Sync
	CallTimeout time.Duration // after which a call is unknown
	Validity    time.Duration // of a lease, from before the Sync was sent
	Settle      time.Duration
	Drain       time.Duration // of a partition, before it is overdue
	Shutdown    time.Duration // all of a peer may drain when it stops
	CancelGrace time.Duration // a handler returns after its context ended
}

// unknownCrowd is how many are reckoned with at most where no roll says how many there are.
const unknownCrowd = 1000

// A Config describes the peer of a Machine.
type Config struct {
	Session partition.Session
	Peer    string
	Weight  int // least and default 1; 0 with ClaimNothing
	// Tags are what the peer has, for partitions that ask for some.
	Tags partition.Tags
	// Unwell begins as a peer that is not well: see Health.
	Unwell bool
	Times  Times
	// Viewed means that the wishes come from Viewed events. Otherwise they come
	// from the ledger's rolls.
	Viewed bool
	// ClaimNothing makes a member that has an index but never asks for a partition.
	// It has wishes only where no other member claims any.
	ClaimNothing bool
	// Barrier means that this peer stops everything when it learns of a newer roll, and
	// goes on under it only when all others have stopped too. Not with Viewed.
	Barrier bool
	// Strategy names how this peer shares out the partitions, for others to compare.
	Strategy string
	// Seed of the random phase and spacing of Syncs.
	Seed uint64
}

// A Machine decides for one peer. It is a plain value: Clone copies it. Its methods
// must not be called concurrently.
//
// A partition on a peer goes
//
//	none -> serving -> draining -> none     handed over in good order
//	        serving -> aborting -> none     the lease lapsed, or somebody else has it
//	        draining -> aborting
//
// and none is reached only when nothing of it runs here any more: neither is an
// epoch given up before, nor a new one asked for.
type Machine struct {
	cfg  Config
	rand uint64

	now        Instant
	state      State
	top        uint64        // highest number ever seen
	longest    time.Duration // lease of all peers, as was heard last
	validUntil Instant       // 0: the lease is not valid
	parts      []part        // ascending by id
	working    int           // how many of them are not none
	view       view
	inGrace    bool
	paused     bool // as was heard last
	dismissed  bool // so too: this peer is drained
	done       bool

	calls   uint64 // the number of the last call
	sync    call
	pace    pace
	seal    sealing
	leaving leaving

	standing standing
	barrier  barrier
}

// view is what the peer knows of the others and should have itself.
type view struct {
	version  uint64 // of the newest roll known
	index    int    // in that roll
	replicas int    // of that roll
	wish     []partition.ID
}

// call is the one outstanding Sync.
type call struct {
	number uint64 // 0: none is outstanding
	sent   Instant
	// State and arrived are what the request said.
	state   State
	arrived uint64
	hinted  bool // a hint asked for it
}

// New returns the machine of a peer that starts at now. Its first Wake is at once.
func New(cfg Config, now Instant) *Machine {
	cfg.Weight = max(cfg.Weight, 1)
	if cfg.ClaimNothing {
		cfg.Weight = 0
	}
	now = max(now, 1) // 0 says "never" everywhere in here
	m := &Machine{cfg: cfg, rand: cfg.Seed, now: now, state: Live, view: view{index: -1}, standing: newStanding(cfg)}
	m.pace.phase = now.Add(m.random(0, cfg.Times.Beat))
	m.pace.soon = now
	m.pace.beat = m.nextBeat()
	m.seal.luck = m.draw()
	return m
}

// Clone returns a copy that shares nothing which either changes.
func (m *Machine) Clone() *Machine {
	c := *m
	c.parts = append([]part(nil), m.parts...)
	return &c // wishes are replaced, never changed
}

// Step takes in ev, which happened at now, and returns what to do about it.
// Instants must not decrease from call to call.
func (m *Machine) Step(now Instant, ev Event) []Effect {
	if m.done {
		return nil
	}
	m.now = max(m.now, now)
	var out []Effect
	if ev, ok := ev.(Drained); ok {
		m.drained(ev.Grant) // before elapse: nothing of it is left that could be aborted
	}
	m.elapse(&out)
	switch ev := ev.(type) {
	case Synced:
		m.synced(ev, &out)
	case SyncFailed:
		if m.sync.number != 0 && ev.Call == m.sync.number {
			m.syncFailed()
		}
	case SealEnded:
		m.sealEnded(ev)
	case Hinted:
		m.hinted()
	case Viewed:
		m.viewed(ev.View, &out)
	case Lost:
		m.lost(ev, &out)
	case Rename:
		m.cfg.Peer = ev.Peer
		m.soonest(m.now)
	case Weigh:
		m.standing.weigh(ev)
	case Health:
		m.standing.report(m.now, m.cfg.Times, ev.Well)
	case Stop:
		m.stop(ev)
	}
	m.act(&out)
	return out
}

// elapse is what the mere passing of time does, before the event: an answer that
// comes when its call has timed out finds it done.
func (m *Machine) elapse(out *[]Effect) {
	if m.sync.number != 0 && m.now >= m.sync.sent.Add(m.cfg.Times.CallTimeout) {
		m.syncFailed()
	}
	if m.validUntil != 0 && m.now >= m.validUntil {
		m.lapse(out)
	}
	m.seal.elapse(m.now, m.cfg.Times)
}

// act does what is due, after the event.
func (m *Machine) act(out *[]Effect) {
	m.leave(out)
	m.overdue(out)
	if m.done {
		return
	}
	m.declare(out)
	m.sealIfDue(out)
	m.syncIfDue(out)
}

// Wake returns the instant by which Step must be called again, if only with
// Ticked; false means that the peer has left.
func (m *Machine) Wake() (Instant, bool) {
	if m.done {
		return 0, false
	}
	at := m.nextSync()
	if m.sync.number != 0 {
		at = m.sync.sent.Add(m.cfg.Times.CallTimeout)
	}
	for _, t := range []Instant{m.validUntil, m.seal.wake(m.cfg.Times), m.leavingWake(), m.overdueWake(), m.standing.wake()} {
		if t != 0 {
			at = min(at, t)
		}
	}
	return at, true
}

// ValidUntil returns the instant up to which the peer may believe in its lease, 0
// if it may not.
func (m *Machine) ValidUntil() Instant { return m.validUntil }

// random returns a duration in [from, to).
func (m *Machine) random(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(m.draw()%uint64(to-from))
}

// draw returns any number: splitmix64.
func (m *Machine) draw() uint64 {
	m.rand += 0x9e3779b97f4a7c15
	z := m.rand
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ z>>31
}

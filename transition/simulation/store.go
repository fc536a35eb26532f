package simulation

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

const (
	latency       = 2 * time.Millisecond // of a call that nothing disturbs, each way, at most
	latest        = 15 * time.Second     // a disturbed call is carried out by then
	snapshotEvery = 500 * time.Millisecond
	snapshots     = 6   // how many there are to fall back to
	backups       = 110 // ... where a backup is restored
)

// store is the real store with what surrounds it.
type store struct {
	*memledger.Store
	call   memledger.Call // of everybody: configuration, times, run
	runs   int
	known  int           // the run in which somebody asked last: the ledger notices a restart then
	jumped time.Duration // the wall clock is off by
	down   bool
	outage bool
	old    []*memledger.Store
}

func newStore(w *World) store {
	s := store{call: memledger.Call{Config: w.config, Timing: w.timing}}
	s.Store = memledger.NewStore(s.at(0))
	return s
}

func (s store) clone() store {
	s.Store = s.Store.Clone()
	s.old = slices.Clone(s.old) // never changed
	return s
}

// at returns the call of an operation at now.
func (s store) at(now time.Duration) memledger.Call {
	c := s.call
	c.Now = (1_800_000_000*time.Second + now + s.jumped).Milliseconds()
	c.Run = strconv.Itoa(s.runs)
	return c
}

// by returns the call of an operation of p at now.
func (s store) by(p *peer, now time.Duration) memledger.Call {
	c := s.at(now)
	c.Timing = p.timing
	return c
}

func (s *store) snapshot(w *World) {
	s.old = append(s.old, s.Store.Clone())
	s.old = s.old[max(0, len(s.old)-w.mix.snapshots()):]
	w.after(snapshotEvery, event{kind: kSnapshot})
}

// send puts a call on the network.
func (w *World) send(p *peer, ev event) {
	delay := w.upTo(latency)
	if w.now < p.cutUntil {
		if w.chance(0.5) { // it is told so, or waits
			w.after(delay, event{kind: failure(ev.kind), peer: p.place, call: ev.call})
		}
		return
	}
	if w.calm || !w.chance(w.mix.Disturbed) {
		w.after(delay, ev)
		return
	}
	switch w.between(0, 4) {
	case 0: // the request is lost
	case 1: // its answer is
		ev.lost = true
		w.after(delay, ev)
	case 2: // it is late
		w.after(w.upTo(latest), ev)
	case 3: // it is carried out twice
		w.after(delay, ev)
		ev.lost = true
		w.after(delay+w.upTo(latest), ev)
	case 4: // it is slow, often slower than the peer waits
		w.after(w.upTo(2*p.timing.CallTimeout()), ev)
	}
	w.say("%v: its call %d is disturbed", p, ev.call)
}

// arrive carries a call out.
func (w *World) arrive(ev event) {
	p := w.peers[ev.peer]
	if w.store.down || w.store.outage {
		if w.chance(0.5) && !ev.lost { // refused; otherwise it never hears of it
			w.answer(ev, event{kind: failure(ev.kind), peer: ev.peer, call: ev.call})
		}
		return
	}
	switch ev.kind {
	case kSync:
		w.truth.asked(*ev.request)
		w.store.known = w.store.runs
		a, hints, err := w.store.Sync(w.store.by(p, w.now), *ev.request)
		if err != nil {
			w.violate("L", "%v is refused: %v", p, err)
			return
		}
		w.say("store: %v %v view %d top %d hold %v release %v claim %v arrived %d", p,
			ev.request.State, ev.request.View, ev.request.Top, ev.request.Hold, ev.request.Release, ev.request.Claim, ev.request.Arrived)
		w.hint(hints)
		w.answer(ev, event{kind: kAnswer, peer: ev.peer, call: ev.call, answer: &a})
	case kCensus:
		census, err := w.store.Census(w.store.by(p, w.now))
		w.answer(ev, event{kind: kCensusAnswer, peer: ev.peer, call: ev.call, census: &census, ok: err == nil})
	default:
		hints, err := w.store.Seal(w.store.by(p, w.now), *ev.roll)
		if err == nil {
			w.stats.Rolls++
			w.say("store: %v seals on %d, membership %d: %v", p, ev.roll.Version, ev.roll.Membership, lines(*ev.roll))
		}
		w.hint(hints)
		if ev.call == 0 {
			return // resealed: nobody waits for it
		}
		w.answer(ev, event{kind: kSealed, peer: ev.peer, call: ev.call, ok: err == nil || errors.Is(err, transition.ErrStale)})
	}
}

func failure(k kind) kind {
	if k == kSync {
		return kSyncFailed
	}
	return kSealed
}

func (w *World) answer(call, ev event) {
	if !call.lost {
		w.after(w.upTo(latency), ev)
	}
}

// sealOnTop makes the next roll of a census.
func (w *World) sealOnTop(p *peer, ev event) {
	next, _, due := machine.NextRoll(*ev.census, w.mix.strategy(p))
	if !due || !ev.ok {
		w.step(p, machine.SealEnded{Call: ev.call, OK: ev.ok})
		return
	}
	if !w.mix.Barrier && !w.mix.Mingled && len(ev.census.Config.Requires) == 0 { // other strategies move what they move
		w.checkLeast(*ev.census, next)
	}
	w.checkDrained(*ev.census, next)
	w.send(p, event{kind: kSeal, peer: p.place, call: ev.call, roll: &next})
}

// hint tells the peers. Hints are lost with the calls, and always where the mix
// says so.
func (w *World) hint(h memledger.Hints) {
	for _, p := range w.peers {
		if !p.runs() || !h.All && !slices.Contains(h.Sessions, p.session) {
			continue
		}
		if w.now < p.cutUntil || w.mix.NoHints || !w.calm && w.chance(w.mix.Disturbed) {
			continue
		}
		w.after(w.upTo(latency), event{kind: kHint, peer: p.place})
	}
}

// restart ends the run of the store; what it does to its memory is done already.
func (w *World) storeUp() {
	w.store.down = false
	w.store.runs++
	w.restAt = w.now
	w.say("the store is back")
}

func lines(r machine.Roll) [][]partition.ID {
	var all [][]partition.ID
	for _, m := range r.Members {
		all = append(all, m.Partitions)
	}
	return all
}

package machine_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// TestRules throws anything at a machine, in any order, and checks what must hold
// whatever a ledger answers.
func TestRules(t *testing.T) {
	for seed := range uint64(150) {
		r := newRules(t, seed)
		for range 400 {
			r.now = r.now.Add(time.Duration(r.random.Int64N(int64(400 * time.Millisecond))))
			r.step(r.event())
		}
	}
}

type rules struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	m       *machine.Machine
	now     machine.Instant
	sent    machine.Instant // of the outstanding Sync
	call    uint64          // 0: none
	last    uint64
	seal    uint64
	version uint64
	top     uint64
	left    bool
	// what runs, as the effects say
	works   map[partition.ID]partition.Epoch
	ends    map[partition.ID]bool
	aborted map[partition.ID]bool
	ended   map[partition.ID]partition.Epoch
}

func newRules(t *testing.T, seed uint64) *rules {
	r := &rules{
		t:       t,
		seed:    seed,
		random:  rand.New(rand.NewPCG(seed, 1)),
		now:     machine.Instant(time.Hour),
		works:   make(map[partition.ID]partition.Epoch),
		ends:    make(map[partition.ID]bool),
		aborted: make(map[partition.ID]bool),
		ended:   make(map[partition.ID]partition.Epoch),
	}
	r.m = machine.New(machine.Config{
		Session: "s",
		Times:   times,
		Viewed:  seed%3 == 0,
		Seed:    seed,
	}, r.now)
	return r
}

// event returns anything that could happen, or could not.
func (r *rules) event() machine.Event {
	switch r.random.IntN(12) {
	case 0, 1, 2, 3:
		return machine.Synced{Call: r.someCall(), Answer: r.answer()}
	case 4:
		return machine.SyncFailed{Call: r.someCall()}
	case 5:
		return machine.Hinted{}
	case 6:
		return machine.SealEnded{Call: r.seal, OK: r.random.IntN(2) == 0}
	case 7:
		r.version++
		return machine.Viewed{View: partition.View{Version: r.version, Wish: r.ids()}}
	case 8, 9:
		return machine.Drained{Grant: r.grant()}
	case 10:
		return machine.Lost{Grant: r.grant(), Stored: partition.Epoch(r.random.IntN(100))}
	}
	if r.random.IntN(100) == 0 {
		return machine.Stop{Now: r.random.IntN(2) == 0}
	}
	return machine.Ticked{}
}

func (r *rules) someCall() uint64 {
	if r.call != 0 && r.random.IntN(4) > 0 {
		return r.call
	}
	return uint64(r.random.IntN(int(r.last) + 1))
}

func (r *rules) ids() []partition.ID {
	var ids []partition.ID
	for id := range partition.ID(4) {
		if r.random.IntN(2) == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (r *rules) grant() partition.Grant {
	id := partition.ID(r.random.IntN(4))
	if e, ok := r.works[id]; ok && r.random.IntN(4) > 0 {
		return partition.Grant{ID: id, Epoch: e}
	}
	return partition.Grant{ID: id, Epoch: partition.Epoch(1 + r.random.IntN(60))}
}

func (r *rules) answer() machine.Answer {
	a := machine.Answer{Count: uint64(r.random.IntN(100)), Sealing: r.random.IntN(3) == 0}
	for _, id := range r.ids() {
		g := partition.Grant{ID: id, Epoch: partition.Epoch(1 + r.random.IntN(60))}
		if e, ok := r.works[id]; ok && r.random.IntN(4) > 0 {
			g.Epoch = e
		}
		a.Mine = append(a.Mine, machine.Held{Grant: g, Wanted: r.random.IntN(2) == 0})
	}
	if r.random.IntN(3) == 0 {
		r.version++
		a.Line = &machine.Line{Version: r.version, Replicas: 3, Index: r.random.IntN(4) - 1, Partitions: r.ids()}
	}
	if r.random.IntN(10) == 0 {
		a.Grace = time.Second
	}
	a.Expiry = time.Duration(r.random.IntN(3000)) * time.Millisecond
	return a
}

// drained tells whether ev ends what runs.
func (r *rules) drained(ev machine.Event) {
	if d, ok := ev.(machine.Drained); ok && r.works[d.Grant.ID] == d.Grant.Epoch && r.ends[d.Grant.ID] {
		delete(r.works, d.Grant.ID)
		delete(r.ends, d.Grant.ID)
		delete(r.aborted, d.Grant.ID)
		r.ended[d.Grant.ID] = max(r.ended[d.Grant.ID], d.Grant.Epoch)
	}
}

func (r *rules) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("seed %d: "+format, append([]any{r.seed}, args...)...)
}

func (r *rules) step(ev machine.Event) {
	r.t.Helper()
	r.drained(ev)
	switch ev := ev.(type) {
	case machine.Synced:
		if ev.Call == r.call {
			r.call = 0
		}
	case machine.SyncFailed:
		if ev.Call == r.call {
			r.call = 0
		}
	}
	if r.call != 0 && r.now >= r.sent.Add(times.CallTimeout) {
		r.call = 0
	}
	effects := r.m.Step(r.now, ev)
	if r.left && len(effects) > 0 {
		r.fail("after it left: %v", effects)
	}
	for _, e := range effects {
		r.check(e)
	}
	r.checkLease()
	r.checkWake()
}

func (r *rules) check(e machine.Effect) {
	r.t.Helper()
	switch e := e.(type) {
	case machine.Serve:
		g := e.Grant
		if _, works := r.works[g.ID]; works {
			r.fail("serves %v while it works on epoch %v", g, r.works[g.ID])
		}
		if g.Epoch <= r.ended[g.ID] {
			r.fail("serves %v after epoch %v ended here", g, r.ended[g.ID])
		}
		r.works[g.ID] = g.Epoch
	case machine.Drain:
		if r.works[e.Grant.ID] != e.Grant.Epoch || r.ends[e.Grant.ID] {
			r.fail("drains %v, works on %v, which ends: %v", e.Grant, r.works, r.ends)
		}
		r.ends[e.Grant.ID] = true
	case machine.Abort:
		if r.works[e.Grant.ID] != e.Grant.Epoch || r.aborted[e.Grant.ID] {
			r.fail("aborts %v, works on %v, aborted before: %v", e.Grant, r.works, r.aborted)
		}
		r.ends[e.Grant.ID], r.aborted[e.Grant.ID] = true, true
	case machine.Sync:
		if r.call != 0 {
			r.fail("a second Sync while %d is outstanding", r.call)
		}
		r.call, r.last, r.sent = e.Call, e.Call, r.now
		r.checkRequest(e.Request)
	case machine.Seal:
		r.seal = e.Call
	case machine.Left:
		r.left = true
		if len(e.Stuck) != len(r.works) {
			r.fail("left with %v stuck, works on %v", e.Stuck, r.works)
		}
	}
}

// checkRequest: what is held is worked on, what runs is neither released nor asked
// for, and the top only rises.
func (r *rules) checkRequest(q machine.Request) {
	r.t.Helper()
	if q.Top < r.top {
		r.fail("top %d after %d", q.Top, r.top)
	}
	r.top = q.Top
	for _, g := range q.Hold {
		if r.works[g.ID] != g.Epoch {
			r.fail("holds %v, works on %v", g, r.works)
		}
	}
	for _, g := range q.Release {
		if r.works[g.ID] == g.Epoch {
			r.fail("releases %v, which it works on", g)
		}
		r.ended[g.ID] = max(r.ended[g.ID], g.Epoch)
	}
	for _, id := range q.Claim {
		if _, works := r.works[id]; works {
			r.fail("claims %d, which it works on", id)
		}
	}
	if q.State == machine.Gone && len(r.works) > 0 {
		r.fail("says it is gone and works on %v", r.works)
	}
	if q.State != machine.Live && len(q.Claim) > 0 {
		r.fail("is %v and claims %v", q.State, q.Claim)
	}
}

// checkLease: without a lease everything that runs is being ended.
func (r *rules) checkLease() {
	r.t.Helper()
	if r.m.ValidUntil() > r.now || r.left {
		return
	}
	for id := range r.works {
		if !r.ends[id] {
			r.fail("works on %d with a lease that ended at %v, now is %v", id, r.m.ValidUntil(), r.now)
		}
	}
}

// checkWake: what Wake asks for brings time forward.
func (r *rules) checkWake() {
	r.t.Helper()
	at, ok := r.m.Wake()
	if ok == r.left {
		r.fail("left: %v, wakes: %v", r.left, ok)
	}
	if ok && at <= r.now {
		r.fail("wants to wake at %v, now is %v", at, r.now)
	}
}

// TestPhases: peers that start together do not beat together, and each keeps its
// period.
func TestPhases(t *testing.T) {
	var phases []time.Duration
	for seed := range uint64(50) {
		start := machine.Instant(time.Hour)
		m := machine.New(machine.Config{Session: "s", Times: times, Seed: seed}, start)
		var syncs []machine.Instant
		for now := start; now < start.Add(20*time.Second); {
			for _, e := range m.Step(now, machine.Ticked{}) {
				if call, ok := e.(machine.Sync); ok {
					syncs = append(syncs, now)
					m.Step(now, machine.Synced{Call: call.Call, Answer: machine.Answer{Count: 1, Expiry: time.Minute}})
				}
			}
			now, _ = m.Wake()
		}
		if syncs[0] != start {
			t.Fatalf("the first Sync comes %v after the start", syncs[0].Sub(start))
		}
		for i := 2; i < len(syncs); i++ {
			if got := syncs[i].Sub(syncs[i-1]); got != times.Beat {
				t.Fatalf("%v between two Syncs, want %v", got, times.Beat)
			}
		}
		phases = append(phases, syncs[1].Sub(start))
	}
	slices.Sort(phases)
	if spread := phases[len(phases)-1] - phases[0]; spread < times.Beat*3/4 {
		t.Errorf("the beats of 50 peers are within %v", spread)
	}
}

// TestHintsAreSpaced: however many hints come, Syncs keep a distance, after the first few.
func TestHintsAreSpaced(t *testing.T) {
	start := machine.Instant(time.Hour)
	m := machine.New(machine.Config{Session: "s", Times: times, Seed: 3}, start)
	syncs := 0
	for now := start; now < start.Add(time.Second); now = now.Add(time.Millisecond) {
		for _, e := range m.Step(now, machine.Hinted{}) {
			if call, ok := e.(machine.Sync); ok {
				syncs++
				m.Step(now, machine.Synced{Call: call.Call, Answer: machine.Answer{Count: 1}})
			}
		}
	}
	if syncs < 40 || syncs > 55 {
		t.Errorf("a hint a millisecond made %d Syncs a second, want about 50", syncs)
	}
}

// TestLongestLeaseIsSaidAgain: a request says what the last answer said of the longest lease, also once that
// is shorter.
func TestLongestLeaseIsSaidAgain(t *testing.T) {
	now := machine.Instant(time.Hour)
	m := machine.New(machine.Config{Session: "s", Times: times, Seed: 1}, now)
	var said []time.Duration
	for _, longest := range []time.Duration{time.Minute, 10 * time.Second, 0} {
		for _, e := range m.Step(now, machine.Ticked{}) {
			if call, ok := e.(machine.Sync); ok {
				said = append(said, call.Request.Longest)
				m.Step(now, machine.Synced{Call: call.Call, Answer: machine.Answer{Count: 1, Longest: longest}})
			}
		}
		now, _ = m.Wake()
	}
	if want := []time.Duration{0, time.Minute, 10 * time.Second}; !slices.Equal(said, want) {
		t.Errorf("said %v, want %v", said, want)
	}
}

// TestRollIsNotAskedForAtOnce: the peers of a large roll spread their Syncs.
func TestRollIsNotAskedForAtOnce(t *testing.T) {
	const peers = 2000
	start := machine.Instant(time.Hour)
	var first, last time.Duration = time.Hour, 0
	for seed := range uint64(200) {
		m := machine.New(machine.Config{Session: "s", Times: times, Seed: seed}, start)
		m.Step(start, machine.Ticked{})
		m.Step(start, machine.Synced{Call: 1, Answer: machine.Answer{
			Count: 9,
			Line:  &machine.Line{Version: 9, Replicas: peers, Index: 1},
		}})
		now := start.Add(time.Millisecond)
		m.Step(now, machine.Hinted{})
		at, _ := m.Wake()
		first, last = min(first, at.Sub(now)), max(last, at.Sub(now))
	}
	if last-first < peers*50*time.Microsecond || last > times.Beat/2 {
		t.Errorf("2000 peers ask within %v, the last after %v", last-first, last)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	start := machine.Instant(time.Hour)
	m := machine.New(machine.Config{Session: "s", Times: times}, start)
	m.Step(start, machine.Ticked{})
	m.Step(start, machine.Synced{Call: 1, Answer: machine.Answer{Count: 3, Line: &machine.Line{Version: 3, Replicas: 1, Partitions: []partition.ID{1, 2}}}})
	c := m.Clone()
	answer := machine.Synced{Call: 2, Answer: machine.Answer{Count: 5, Mine: []machine.Held{{Grant: partition.Grant{ID: 1, Epoch: 4}}}}}
	one, two := m.Step(start, answer), c.Step(start, answer)
	if len(one) == 0 || len(one) != len(two) {
		t.Fatalf("the original does %v, the copy %v", one, two)
	}
	c.Step(start, machine.Lost{Grant: partition.Grant{ID: 1, Epoch: 4}})
	if got := m.Step(start, machine.Lost{Grant: partition.Grant{ID: 1, Epoch: 4}}); len(got) == 0 {
		t.Error("what happened to the copy happened to the original")
	}
}

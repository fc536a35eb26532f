package transition_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

func TestPeersJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		a := n.peer("a", nil).start(t.Context())
		pass(1500 * time.Millisecond) // settle, seal, claim
		n.shares(a)
		before := a.holds()
		b := n.peer("b", nil).start(t.Context())
		c := n.peer("c", nil).start(t.Context())
		pass(2500 * time.Millisecond)
		n.shares(a, b, c)
		for id, g := range a.holds() {
			if before[id] != g {
				t.Errorf("%v was %v before: a partition that did not move has a new epoch", g, before[id])
			}
		}
		if v := c.co.View(); v.Replicas != 3 || v.Index < 0 || v.Index > 2 || len(v.Wish) != 4 {
			t.Errorf("c sees %+v", v)
		}
		b.co.Stop()
		pass(2500 * time.Millisecond)
		<-b.ended
		if b.err != nil {
			t.Errorf("b ended with %v", b.err)
		}
		n.shares(a, c)
		census, _ := n.ledger.Census(t.Context())
		for _, s := range census.Sessions {
			if s.Peer == "b" && s.State != machine.Gone {
				t.Errorf("b left and is %v", s.State)
			}
		}
		a.co.Stop()
		c.co.Stop()
		<-a.ended
		<-c.ended
		if a.err != nil || c.err != nil {
			t.Errorf("ended with %v, %v", a.err, c.err)
		}
		if len(n.works) != 0 {
			t.Errorf("work goes on: %v", n.works)
		}
	})
}

func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		mute := &faulty{Ledger: n.ledger}
		a := n.peer("a", nil).start(t.Context())
		b := n.peer("b", func(_ *peer, cfg *transition.Config) { cfg.Ledger = mute }).start(t.Context())
		pass(3 * time.Second)
		n.shares(a, b)
		mute.fail(errors.New("cut off"))
		died := time.Now()
		timing := transition.Timing{}.WithDefaults()
		pass(timing.Validity())
		if b.co.Valid(time.Now()) || len(b.holds()) != 0 {
			t.Fatalf("b trusts its lease longer than %v: serves %v", timing.Validity(), b.holds())
		}
		if !saw[transition.Lapsed](b) || !slices.Contains(b.causes, transition.ErrLapsed) {
			t.Errorf("b does not say that its lease lapsed: %v", b.causes)
		}
		for len(a.holds()) < total && time.Since(died) < 2*timing.Takeover() {
			pass(10 * time.Millisecond)
		}
		n.shares(a)
		if took := time.Since(died); took > timing.Lease+time.Second {
			t.Errorf("everything was taken over after %v, want a lease and a second", took)
		}
		// It comes back under the same session.
		mute.fail(nil)
		pass(5 * time.Second)
		n.shares(a, b)
		a.co.Stop()
		b.co.Stop()
		<-a.ended
		<-b.ended
	})
}

func TestStoreForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		a := n.peer("a", nil).start(t.Context())
		b := n.peer("b", nil).start(t.Context())
		pass(3 * time.Second)
		n.shares(a, b)
		before := a.holds()
		n.ledger.Forget()
		pass(15 * time.Second)
		n.shares(a, b)
		if !maps.Equal(a.holds(), before) {
			t.Errorf("a served %v, now %v: something moved", before, a.holds())
		}
		if !saw[transition.GraceOpened](a) || saw[transition.Aborted](a) || saw[transition.Draining](a) {
			t.Errorf("want a grace and no pause, saw %v", a.events)
		}
		a.co.Stop()
		b.co.Stop()
		<-a.ended
		<-b.ended
	})
}

// TestStoreForgetsALongLease: when the store forgets, a peer with a lease of 60 s does not reach it for a
// while. One with a lease of 3 s, which does, knows of the other.
func TestStoreForgetsALongLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		with := func(lease time.Duration) (*faulty, func(*peer, *transition.Config)) {
			timing := transition.Timing{Lease: lease}
			l := &faulty{Ledger: n.ledger.As(partition.Config{Total: total}, timing)}
			return l, func(_ *peer, cfg *transition.Config) { cfg.Timing, cfg.Ledger = timing, l }
		}
		network, long := with(time.Minute)
		a := n.peer("a", long).start(t.Context())
		pass(15 * time.Second)
		_, short := with(3 * time.Second)
		b := n.peer("b", short).start(t.Context())
		pass(15 * time.Second)
		n.shares(a, b)
		before := a.holds()
		network.fail(errors.New("cut off"))
		n.ledger.Forget()
		for range 60 {
			pass(500 * time.Millisecond)
			n.shares(a, b)
		}
		network.fail(nil)
		pass(time.Minute)
		n.shares(a, b)
		if !maps.Equal(a.holds(), before) {
			t.Errorf("a served %v, now %v: something moved", before, a.holds())
		}
		a.co.Stop()
		b.co.Stop()
		<-a.ended
		<-b.ended
	})
}

func TestFencedGetsAGreaterEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		a := n.peer("a", nil).start(t.Context())
		pass(3 * time.Second)
		g := a.holds()[5]
		a.co.Fenced(g, 900)
		pass(time.Second)
		if now := a.holds()[5]; now.Epoch <= 900 {
			t.Errorf("after a refusal by epoch 900 it serves %v", now)
		}
		forgot := errors.New("the store forgot")
		a.co.Lost(a.holds()[7], forgot)
		pass(time.Second)
		n.shares(a)
		if !slices.Contains(a.causes, forgot) {
			t.Errorf("aborted with %v, want the tenant's own cause", a.causes)
		}
		a.co.Stop()
		<-a.ended
	})
}

func TestLeaseCountsSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		start := time.Now()
		var mu sync.Mutex
		var asleep time.Duration
		a := n.peer("a", func(_ *peer, cfg *transition.Config) {
			cfg.Clock = func(time.Time) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Since(start) + asleep
			}
		}).start(t.Context())
		pass(3 * time.Second)
		n.shares(a)
		mu.Lock()
		asleep = time.Hour
		mu.Unlock()
		if a.co.Valid(time.Now()) {
			t.Error("the lease is valid after an hour of suspend")
		}
		pass(300 * time.Millisecond)
		if !saw[transition.Lapsed](a) {
			t.Error("the suspend went unnoticed")
		}
		pass(5 * time.Second)
		n.shares(a)
		a.co.Stop()
		<-a.ended
	})
}

// idler is a peer that says when it is idle.
type idler struct {
	*peer
	busy atomic.Bool
}

func (i *idler) Idle() bool { return !i.busy.Load() }

// A startler is idle when it is asked, and lets something run before it is believed.
type startler struct {
	idler
	armed atomic.Bool
}

func (s *startler) Idle() bool {
	if s.armed.CompareAndSwap(true, false) {
		s.busy.Store(true)
		s.co.Attend()
		return true
	}
	return s.idler.Idle()
}

// What begins while the tenant says that nothing runs is attended to.
func TestStartCrossesIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		start := time.Now()
		var asleep atomic.Int64
		var tenant startler
		a := n.peer("a", func(p *peer, cfg *transition.Config) {
			tenant.peer, cfg.Tenant = p, &tenant
			cfg.Clock = func(time.Time) time.Duration { return time.Since(start) + time.Duration(asleep.Load()) }
		})
		a.start(t.Context())
		pass(3 * time.Second)
		n.shares(a)
		tenant.busy.Store(true)
		a.co.Attend()
		syncs := func() (n int) {
			for _, e := range a.told() {
				if _, ok := e.(transition.Synced); ok {
					n++
				}
			}
			return n
		}
		for before := syncs(); syncs() == before; { // the next is a beat away: nothing else has it look
			pass(10 * time.Millisecond)
		}
		tenant.armed.Store(true)
		for tenant.armed.Load() {
			pass(10 * time.Millisecond)
		}
		asleep.Add(int64(time.Hour))
		pass(300 * time.Millisecond)
		if !saw[transition.Lapsed](a) {
			t.Error("the suspend went unnoticed by what began before it")
		}
		tenant.busy.Store(false)
		a.co.Stop()
		pass(10 * time.Second)
		<-a.ended
	})
}

func TestIdleTenantIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		start := time.Now()
		var asleep, looks atomic.Int64
		var tenant idler
		a := n.peer("a", func(p *peer, cfg *transition.Config) {
			tenant.peer = p
			cfg.Tenant = &tenant
			cfg.Clock = func(time.Time) time.Duration {
				looks.Add(1)
				return time.Since(start) + time.Duration(asleep.Load())
			}
		})
		a.start(t.Context())
		pass(3 * time.Second)
		n.shares(a)
		looksIn := func(d time.Duration) int64 {
			before := looks.Load()
			pass(d)
			return looks.Load() - before
		}
		idle := looksIn(20 * time.Second)
		tenant.busy.Store(true)
		a.co.Attend()
		busy := looksIn(20 * time.Second)
		if busy < 2*20*4 || idle > busy/3 {
			t.Errorf("the clock is read %d times in 20 s while nothing runs, %d while something does", idle, busy)
		}

		// What runs for a while already, and what has just begun, is ended after a suspend.
		asleep.Add(int64(time.Hour))
		pass(300 * time.Millisecond)
		if !saw[transition.Lapsed](a) {
			t.Error("the suspend went unnoticed")
		}
		tenant.busy.Store(false)
		pass(5 * time.Second)
		n.shares(a)
		a.mu.Lock()
		a.events = nil
		a.mu.Unlock()
		asleep.Add(int64(time.Hour))
		tenant.busy.Store(true)
		a.co.Attend()
		pass(time.Millisecond)
		if !saw[transition.Lapsed](a) {
			t.Error("the suspend went unnoticed by what began after it")
		}
		pass(5 * time.Second)
		n.shares(a)
		a.co.Stop()
		<-a.ended
	})
}

func TestSlowLedgerIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		slow := &faulty{Ledger: n.ledger}
		a := n.alone(slow)
		slow.delay(3 * time.Second) // longer than a call may take: carried out, never answered
		pass(transition.Timing{}.WithDefaults().Validity())
		if a.co.Valid(time.Now()) || len(a.holds()) != 0 {
			t.Error("answers that are too late count")
		}
		if !a.saw(func(e transition.Event) bool {
			f, ok := e.(transition.SyncFailed)
			return ok && errors.Is(f.Err, context.DeadlineExceeded) && f.Took == transition.Timing{}.WithDefaults().CallTimeout()
		}) {
			t.Errorf("no call was given up at its timeout: %v", a.events)
		}
		slow.delay(0)
		pass(5 * time.Second)
		n.shares(a)
		a.co.Stop()
		<-a.ended
	})
}

// A store that can promise nothing new keeps nobody from his work.
func TestOnlyRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		careful := &faulty{Ledger: n.ledger}
		a := n.alone(careful)
		few := fmt.Errorf("0 of 1 replicas have it: %w", transition.ErrRenewed)
		careful.promise(few)
		pass(3 * transition.Timing{}.WithDefaults().Lease)
		n.shares(a)
		if !a.co.Valid(time.Now()) || saw[transition.Lapsed](a) || saw[transition.Aborted](a) {
			t.Errorf("it was stopped: %v", a.events)
		}
		if !a.saw(func(e transition.Event) bool {
			f, ok := e.(transition.SyncFailed)
			return ok && errors.Is(f.Err, few)
		}) {
			t.Errorf("nobody is told: %v", a.events)
		}
		a.co.Stop()
		<-a.ended
	})
}

func TestHintsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		deaf := &faulty{Ledger: n.ledger}
		deaf.deafen(errors.New("subscription ended"))
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Ledger = deaf }).start(t.Context())
		pass(10 * time.Second)
		n.shares(a) // hints are never needed
		if !saw[transition.HintsLost](a) {
			t.Error("nobody is told that hints are lost")
		}
		before := len(a.told())
		pass(10 * time.Second) // longest wait twice over
		lost := func(e transition.Event) bool { _, ok := e.(transition.HintsLost); return ok }
		if !slices.ContainsFunc(a.told()[before:], lost) {
			t.Error("hints are not asked for again and again")
		}
		deaf.deafen(nil)
		pass(6 * time.Second)
		before = len(a.told())
		b := n.peer("b", nil).start(t.Context())
		pass(1300 * time.Millisecond) // less than a beat after the roll
		if !a.saw(func(e transition.Event) bool { v, ok := e.(transition.RollSeen); return ok && v.View.Replicas == 2 }) {
			t.Errorf("the roll was not hinted: %v", a.told()[before:])
		}
		a.co.Stop()
		b.co.Stop()
		<-a.ended
		<-b.ended
	})
}

func TestDrainOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		timing := transition.Timing{Drain: 5 * time.Second}
		a := n.peer("a", func(p *peer, cfg *transition.Config) { p.drains, cfg.Timing = 8*time.Second, timing }).start(t.Context())
		pass(3 * time.Second)
		b := n.peer("b", nil).start(t.Context())
		pass(7500 * time.Millisecond)
		if !saw[transition.DrainOverdue](a) {
			t.Error("a drain that takes longer than it may goes unsaid")
		}
		if len(b.holds()) != 0 {
			t.Errorf("b serves %v while a drains", b.holds())
		}
		pass(5 * time.Second)
		n.shares(a, b)
		a.co.Stop()
		b.co.Stop()
		<-a.ended
		<-b.ended
	})
}

// TestEventsOfAGrant follows one grant through its life.

// TestSealFails: a store that is full refuses the roll and answers everything else.
func TestSealFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		full := &faulty{Ledger: n.ledger}
		full.fill(errors.New("OOM"))
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Ledger = full }).start(t.Context())
		pass(20 * time.Second)
		if !saw[transition.SealFailed](a) {
			t.Error("nobody is told that no roll can be sealed")
		}
		if calls := full.calls; calls > 100 {
			t.Errorf("%d calls in 20 s: it asks without a pause", calls)
		}
		full.fill(nil)
		pass(5 * time.Second)
		n.shares(a)
		a.co.Stop()
		<-a.ended
	})
}

// TestSealStale: who seals second has not failed.
func TestSealStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		second := &faulty{Ledger: n.ledger}
		second.fill(transition.ErrStale)
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Ledger = second }).start(t.Context())
		pass(3 * time.Second)
		if saw[transition.SealFailed](a) {
			t.Error("another peer was faster, and it is told as a failure")
		}
		a.co.Stop()
		a.ends()
	})
}

// turning is a strategy that changes its mind.
type turning struct {
	partition.Modulo
	turned atomic.Bool
}

func (s *turning) Assign(ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table {
	table := s.Modulo.Assign(ids, members, previous)
	for id, session := range table {
		i := slices.IndexFunc(members, func(m partition.Member) bool { return m.Session != session })
		if s.turned.Load() && i >= 0 {
			table[id] = members[i].Session
		}
	}
	return table
}

// TestReshareStale: who shares out anew and is refused hears that it is to be asked for again.
func TestReshareStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		strategy, ledger := new(turning), &faulty{Ledger: n.ledger}
		change := func(_ *peer, cfg *transition.Config) { cfg.Strategy, cfg.Ledger = strategy, ledger }
		a, b := n.peer("a", change).start(t.Context()), n.peer("b", change).start(t.Context())
		pass(15 * time.Second)
		n.shares(a, b)
		before := a.holds()
		strategy.turned.Store(true)
		ledger.fill(transition.ErrStale)
		if err := a.co.Reshare(t.Context()); !errors.Is(err, transition.ErrStale) {
			t.Errorf("refused, and yet: %v", err)
		}
		ledger.fill(nil)
		if err := a.co.Reshare(t.Context()); err != nil {
			t.Error(err)
		}
		pass(15 * time.Second)
		n.shares(a, b)
		for id := range a.holds() {
			if _, had := before[id]; had {
				t.Errorf("%d has not moved", id)
			}
		}
		for _, p := range []*peer{a, b} {
			p.co.Stop()
			p.ends()
		}
	})
}

// silent is a strategy that gives nothing to anybody.
type silent struct{ partition.Sticky }

func (silent) Name() string { return "silent" }

func (silent) Assign([]partition.ID, []partition.Member, partition.Table) partition.Table { return nil }

// TestStrategyFails: a strategy that breaks its contract stops no work, and whoever seals by it says
// so with each roll.
func TestStrategyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		own := func(_ *peer, cfg *transition.Config) { cfg.Strategy = silent{} }
		a := n.peer("a", own).start(t.Context())
		pass(3 * time.Second)
		n.shares(a)
		b := n.peer("b", own).start(t.Context())
		pass(20 * time.Second)
		n.shares(a, b)
		sealed, blamed := 0, 0
		for _, p := range []*peer{a, b} {
			p.saw(func(e transition.Event) bool {
				switch e := e.(type) {
				case transition.Sealed:
					sealed++
				case transition.StrategyFailed:
					blamed++
					if e.Strategy != "silent" || !strings.Contains(e.What, "no living member") {
						t.Errorf("%+v", e)
					}
				}
				return false
			})
		}
		if sealed == 0 || blamed != sealed {
			t.Errorf("%d rolls were sealed, and the strategy is blamed %d times", sealed, blamed)
		}
		for _, p := range []*peer{a, b} {
			p.co.Stop()
			<-p.ended
		}
	})
}

// TestAbortCrossesDrained: a drain ends while its abort is under way, so that the
// coordinator hears of the end twice.
func TestAbortCrossesDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		cut := &faulty{Ledger: n.ledger}
		a := n.peer("a", func(p *peer, cfg *transition.Config) {
			cfg.Ledger, p.drains, p.crosses = cut, time.Minute, true
		}).start(t.Context())
		pass(3 * time.Second)
		b := n.peer("b", nil).start(t.Context())
		pass(2 * time.Second)
		cut.fail(errors.New("cut off")) // while half of it drains
		pass(10 * time.Second)
		if len(a.holds()) != 0 {
			t.Errorf("it serves %v without a lease", a.holds())
		}
		ends := make(map[partition.Grant]int)
		for _, e := range a.events {
			if d, ok := e.(transition.Drained); ok {
				ends[d.Grant]++
			}
		}
		for g, times := range ends {
			if times != 1 {
				t.Errorf("the end of %v is reported %d times", g, times)
			}
		}
		cut.fail(nil)
		pass(10 * time.Second)
		n.shares(a, b)
		a.co.Stop()
		b.co.Stop()
		pass(2 * time.Minute)
		<-a.ended
		<-b.ended
	})
}

// slow is a strategy that takes its time.
type slow struct {
	partition.Strategy
	takes        time.Duration
	running, ran atomic.Int32
	most         atomic.Int32
}

func (s *slow) Assign(ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table {
	s.most.Store(max(s.most.Load(), s.running.Add(1)))
	defer s.running.Add(-1)
	s.ran.Add(1)
	time.Sleep(s.takes) // virtual: in a bubble
	return s.Strategy.Assign(ids, members, previous)
}

// TestSlowStrategy: a strategy that takes longer than the machine waits for a Seal has not
// reckoned in vain, and not twice at once.
func TestSlowStrategy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		strategy := &slow{Strategy: partition.Sticky{}, takes: 9 * time.Second}
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Strategy = strategy }).start(t.Context())
		pass(15 * time.Second)
		n.shares(a)
		if most, ran := strategy.most.Load(), strategy.ran.Load(); most > 1 || ran > 1 {
			t.Errorf("the strategy ran %d times for one roll, %d times at once", ran, most)
		}
		a.co.Stop()
		a.ends()
		pass(10 * time.Second)
	})
}

// TestOneStrategyAtATime: of what is shared out anew at once one counts, the others are to be asked for
// again, and a roll that is due meanwhile waits for the strategy.
func TestOneStrategyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		strategy := &slow{Strategy: partition.Sticky{}, takes: 5 * time.Second}
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Strategy = strategy }).start(t.Context())
		pass(15 * time.Second)
		n.shares(a)
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- a.co.Reshare(t.Context()) }()
		pass(time.Second)
		go func() { second <- a.co.Reshare(t.Context()) }()
		a.co.SetWeight(2) // a roll is due within the five seconds
		pass(15 * time.Second)
		if err := <-first; err != nil {
			t.Errorf("nothing was in the way of the first, and yet: %v", err)
		}
		if err := <-second; !errors.Is(err, transition.ErrStale) {
			t.Errorf("the second, beside the first: %v", err)
		}
		if most, ran := strategy.most.Load(), strategy.ran.Load(); most > 1 || ran != 3 {
			t.Errorf("the strategy ran %d times, %d times at once, want 3 and 1", ran, most)
		}
		a.co.Stop()
		a.ends()
		pass(10 * time.Second)
	})
}

package transition_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

func TestRunEndsHard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		ctx, cancel := context.WithCancel(t.Context())
		a := n.peer("a", nil).start(ctx)
		b := n.peer("b", func(p *peer, _ *transition.Config) { p.stubborn = true }).start(ctx)
		pass(3 * time.Second)
		n.shares(a, b)
		held := len(b.holds())
		cancel()
		pass(100 * time.Millisecond)
		select {
		case <-a.ended:
		default:
			t.Error("a has nothing in work and did not end")
		}
		if a.err != nil || !slices.Contains(a.causes, transition.ErrShutdown) {
			t.Errorf("a ended with %v, causes %v", a.err, a.causes)
		}
		if a.co.Valid(time.Now()) {
			t.Error("a has ended and its lease is valid")
		}
		pass(2 * time.Second)
		<-b.ended
		for id := range partition.ID(total) {
			if a.co.Filter().Has(id) || b.co.Filter().Has(id) {
				t.Errorf("who has ended says that partition %v is its own", id)
			}
		}
		var stuck *transition.StuckError
		if !errors.As(b.err, &stuck) || len(stuck.Grants) != held {
			t.Errorf("b ended with %v, want %d grants stuck", b.err, held)
		}
		census, _ := n.ledger.Census(t.Context())
		for _, g := range census.Grants {
			if g.Session != b.co.Session() {
				t.Errorf("%v still stands for another than b", g)
			}
		}
		if len(census.Grants) != held {
			t.Errorf("%d grants stand, want the %d that are stuck", len(census.Grants), held)
		}
	})
}

func TestStopBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		a := n.peer("a", nil)
		a.co.Stop()
		a.start(t.Context())
		pass(time.Millisecond)
		<-a.ended
		if a.err != nil {
			t.Error(a.err)
		}
		if err := a.co.Run(t.Context()); err == nil {
			t.Error("a coordinator ran twice")
		}
	})
}

// ... nor does it ask a ledger that is away, though its first tick is due by then.
func TestStopBeforeRunAsksNothing(t *testing.T) {
	for range 50 { // which of the two came first was a matter of chance
		synctest.Test(t, func(t *testing.T) {
			n := newName(t)
			away := &faulty{Ledger: n.ledger}
			away.fail(errors.New("connection refused"))
			a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Ledger = away })
			a.co.Stop()
			began := time.Now()
			a.start(t.Context())
			<-a.ended
			if took := time.Since(began); took > 0 || away.calls > 0 {
				t.Errorf("it took %v, and the ledger was asked %d times", took, away.calls)
			}
		})
	}
}

// Who leaves without an answer says what nobody took back, and no more than that.
func TestStopWithTheStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		down := &faulty{Ledger: n.ledger}
		a := n.alone(down)
		down.fail(errors.New("connection refused"))
		a.co.Stop()
		pass(15 * time.Second)
		select {
		case <-a.ended:
		default:
			t.Fatal("it waits for a store that does not come back")
		}
		unheard, ok := errors.AsType[*transition.UnheardError](a.err)
		if !ok || len(unheard.Grants) != total {
			t.Errorf("it ended with %v, want that %d grants were not taken back", a.err, total)
		}
		for n, want := range map[int]string{8: "8] back", 9: "8] and 1 more partitions back"} {
			many := &transition.UnheardError{}
			for i := range n {
				many.Grants = append(many.Grants, partition.Grant{ID: partition.ID(i), Epoch: partition.Epoch(i + 1)})
			}
			if !strings.Contains(many.Error(), want) {
				t.Errorf("of %d grants it says %v", n, many)
			}
		}
		if i := slices.IndexFunc(a.events, func(e transition.Event) bool { l, ok := e.(transition.Left); return ok && len(l.Unheard) == total }); i < 0 {
			t.Errorf("no event says so: %v", a.events)
		}
	})
}

// What somebody else took over during an outage was not left to anybody by this peer, and
// who holds nothing has nothing that could be taken back.
func TestStopAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		down := &faulty{Ledger: n.ledger}
		a := n.alone(down)
		b := n.peer("b", nil).start(t.Context())
		pass(3 * time.Second)
		down.fail(errors.New("connection refused"))
		pass(15 * time.Second) // b has all
		down.fail(nil)
		pass(30 * time.Millisecond)
		b.co.Stop()
		a.co.Stop()
		pass(15 * time.Second)
		<-a.ended
		<-b.ended
		if a.err != nil || b.err != nil {
			t.Errorf("a ended with %v, b with %v", a.err, b.err)
		}
		c := n.peer("c", func(_ *peer, cfg *transition.Config) { cfg.Ledger = down })
		down.fail(errors.New("connection refused"))
		c.start(t.Context())
		pass(3 * time.Second)
		c.co.Stop()
		pass(15 * time.Second)
		<-c.ended
		if c.err != nil {
			t.Errorf("c, which never had anything, ended with %v", c.err)
		}
	})
}

// TestRunWaitsForItsCalls: a client may take a moment to give up a call.
func TestRunWaitsForItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		slow := &reluctant{Ledger: n.ledger}
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Ledger = slow }).start(t.Context())
		pass(3 * time.Second)
		a.co.Stop()
		<-a.ended
		if left := slow.inside.Load(); left != 0 {
			t.Errorf("%d calls of the ledger still run", left)
		}
	})
}

func TestConfigRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		other := partition.Config{Total: 2 * total}
		a := n.peer("a", func(_ *peer, cfg *transition.Config) {
			cfg.Config, cfg.Ledger = other, n.ledger.As(other, transition.Timing{})
		}).start(t.Context())
		a.ends()
		if !errors.Is(a.err, partition.ErrConfig) || !saw[transition.ConfigRefused](a) {
			t.Errorf("ended with %v after %v", a.err, a.events)
		}
	})
}

// A name that has another configuration all of a sudden has no ear for a last word, but the
// handlers of what was granted before have to return all the same.
func TestConfigRefusedWhileItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		cut := &faulty{Ledger: n.ledger}
		a := n.peer("a", func(p *peer, cfg *transition.Config) { cfg.Ledger, p.stubborn, p.drains = cut, true, time.Hour }).start(t.Context())
		pass(3 * time.Second)
		if len(a.holds()) == 0 {
			t.Fatal("it serves nothing")
		}
		cut.fail(partition.ErrConfig)
		for !saw[transition.ConfigRefused](a) {
			pass(10 * time.Millisecond)
		}
		pass(transition.Timing{}.WithDefaults().CancelGrace / 2)
		select {
		case <-a.ended:
			t.Error("it is over, and its handlers run")
		default:
		}
		pass(5 * time.Second)
		a.ends()
		if !errors.Is(a.err, partition.ErrConfig) {
			t.Errorf("ended with %v", a.err)
		}
	})
}

func TestEventsOfAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		a := n.peer("a", func(p *peer, _ *transition.Config) { p.drains = 50 * time.Millisecond }).start(t.Context())
		pass(3 * time.Second)
		a.co.Stop()
		<-a.ended
		var got []string
		for _, e := range a.events {
			switch e := e.(type) {
			case transition.Served:
				if e.Grant.ID == 3 {
					got = append(got, "served")
				}
			case transition.Draining:
				if e.Grant.ID == 3 {
					got = append(got, "draining")
				}
			case transition.Drained:
				if e.Grant.ID == 3 {
					got = append(got, fmt.Sprint("drained after ", e.Took))
				}
			case transition.Left:
				got = append(got, fmt.Sprint("left, stuck ", e.Stuck))
			}
		}
		want := []string{"served", "draining", "drained after 50ms", "left, stuck []"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if !saw[transition.Joined](a) || !saw[transition.Synced](a) || !saw[transition.Sealed](a) || !saw[transition.RollSeen](a) {
			t.Errorf("events are missing: %v", a.events)
		}
	})
}

func TestOtherIndexer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		views := &views{emits: make(chan partition.View), fails: make(chan error)}
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Indexer = views }).start(t.Context())
		pass(3 * time.Second)
		if len(a.holds()) != 0 {
			t.Errorf("it serves %v though the indexer has not said anything", a.holds())
		}
		views.emits <- partition.View{Version: 77, Index: 0, Replicas: 1, Wish: []partition.ID{2, 9}}
		pass(time.Second)
		if got := slices.Sorted(maps.Keys(a.holds())); !slices.Equal(got, []partition.ID{2, 9}) {
			t.Errorf("it serves %v, the indexer wishes 2 and 9", got)
		}
		if v := a.co.View(); v.Version != 77 {
			t.Errorf("it has %+v for its view", v)
		}
		broken := errors.New("the counter is gone")
		views.fails <- broken
		a.ends()
		if !errors.Is(a.err, broken) || len(a.holds()) != 0 {
			t.Errorf("ended with %v, serving %v", a.err, a.holds())
		}
	})
}

// What peers would have to know of one another is refused with an indexer that knows only how
// many they are, all at once.
func TestOnlyTheRollsKnowOfOthers(t *testing.T) {
	cfg := transition.Config{Weight: 2, Tags: "gpu", Unwell: true, Barrier: true, Indexer: &views{}}
	_, err := transition.NewCoordinator(cfg)
	for _, want := range []string{"weight 2", "tags gpu", "health check", "barrier"} {
		if err == nil || !strings.Contains(err.Error(), want+" need") {
			t.Errorf("nothing about %s in: %v", want, err)
		}
	}
	cfg.Indexer = nil
	if _, err := transition.NewCoordinator(cfg); err == nil || strings.Contains(err.Error(), "need") {
		t.Errorf("with the rolls: %v", err)
	}
}

// Tags that nobody could read back would be in a roll that no later one can follow; those in
// another order than they are kept in are put in it.
func TestTagsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		cfg := transition.Config{Ledger: n.ledger, Tags: "gpu/a100"}
		if _, err := transition.NewCoordinator(cfg); err == nil || !strings.Contains(err.Error(), `tag "gpu/a100"`) {
			t.Errorf("told is %v", err)
		}
		n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Tags = "gpu,eu" }).start(t.Context())
		pass(3 * time.Second)
		census, err := n.ledger.Census(t.Context())
		if err != nil || len(census.Sessions) != 1 || census.Sessions[0].Tags != "eu gpu" {
			t.Errorf("%+v, %v", census.Sessions, err)
		}
	})
}

// Who has the tags that a partition asks for no other indexer knows: nobody asks for it, from
// when it is known that it asks for some until it does not.
func TestOtherIndexerLeavesOutWhatAsksForTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		n.ledger.Require(partition.Requirement{First: 2, Last: 4, Tags: "gpu"})
		views := &views{emits: make(chan partition.View), fails: make(chan error)}
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Indexer = views }).start(t.Context())
		serves := func(want ...partition.ID) {
			t.Helper()
			if got := slices.Sorted(maps.Keys(a.holds())); !slices.Equal(got, want) {
				t.Errorf("it serves %v, want %v", got, want)
			}
		}
		views.emits <- partition.View{Version: 1, Index: 0, Replicas: 1, Wish: []partition.ID{1, 2, 3, 4, 5}}
		pass(5 * time.Second)
		serves(1, 5)
		n.ledger.Require(partition.Requirement{First: 3, Last: 4, Tags: "gpu"})
		pass(20 * time.Second)
		serves(1, 2, 5)
		views.emits <- partition.View{Version: 2, Index: 0, Replicas: 1, Wish: []partition.ID{3, 6}}
		pass(5 * time.Second)
		if v := a.co.View(); !slices.Equal(v.Wish, []partition.ID{6}) {
			t.Errorf("it wishes for %v, want 6 alone", v.Wish)
		}
		a.co.Stop()
		a.ends()
	})
}

// A counting ledger counts the censuses.
type counting struct {
	*memledger.Ledger
	censuses atomic.Int32
}

func (c *counting) Census(ctx context.Context) (transition.Census, error) {
	c.censuses.Add(1)
	return c.Ledger.Census(ctx)
}

// A census is as large as the name: what partitions ask for is had for less, where the ledger
// can.
func TestOtherIndexerReadsNoCensus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		n.ledger.Require(partition.Requirement{First: 2, Last: 4, Tags: "gpu"})
		ledger := &counting{Ledger: n.ledger}
		views := &views{emits: make(chan partition.View), fails: make(chan error)}
		a := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Ledger, cfg.Indexer = ledger, views }).start(t.Context())
		views.emits <- partition.View{Version: 1, Index: 0, Replicas: 1, Wish: []partition.ID{1, 2, 3}}
		pass(5 * time.Second) // the first roll is sealed by a census
		ledger.censuses.Store(0)
		pass(2 * transition.Timing{}.WithDefaults().Lease)
		if got := slices.Sorted(maps.Keys(a.holds())); !slices.Equal(got, []partition.ID{1}) {
			t.Errorf("it serves %v, want 1 alone", got)
		}
		if got := ledger.censuses.Load(); got != 0 {
			t.Errorf("it read %d censuses", got)
		}
		a.co.Stop()
		a.ends()
	})
}

func TestNewCoordinatorSaysAllThatIsWrong(t *testing.T) {
	_, err := transition.NewCoordinator(transition.Config{
		Config: partition.Config{Total: -1},
		Timing: transition.Timing{Lease: time.Second},
		Weight: -1,
		Peer:   "_",
	})
	for _, want := range []string{"ledger", "tenant", "partitions", "lease", "weight", `peer id "_"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about the %s in: %v", want, err)
		}
	}
}

// A ledger keeps a lease for as long as it was made for: a peer that believes in a longer one would
// work on what others have been given.
func TestALedgerOfAnotherLeaseIsRefused(t *testing.T) {
	layout := partition.Config{Total: 4}
	ledger := memledger.New(layout, transition.Timing{Lease: 20 * time.Second}, memledger.Options{})
	for lease, refused := range map[time.Duration]bool{0: true, 10 * time.Second: true, time.Minute: true, 20 * time.Second: false} {
		_, err := transition.NewCoordinator(transition.Config{
			Ledger: ledger, Config: layout, Timing: transition.Timing{Lease: lease, Drain: time.Hour}, Tenant: new(startler),
		})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "a lease of 20s") {
			t.Errorf("a peer with a lease of %v (0: 10s) at a ledger for one of 20s: %v", lease, err)
		}
	}
}

func TestEventsListsEveryType(t *testing.T) {
	seen := make(map[string]bool)
	for _, e := range transition.Events() {
		seen[fmt.Sprintf("%T", e)] = true
	}
	if len(seen) != 25 {
		t.Errorf("%d types of events are listed: a new one is missing, or this number is old", len(seen))
	}
}

// lastMoment is a ledger that answers a peer only when its lease has run out, and then once shortly
// before: that answer waits until it is let go.
type lastMoment struct {
	transition.Ledger
	left       func() time.Duration
	begun      atomic.Bool
	asked, let chan struct{}
}

func (l *lastMoment) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	if l.begun.Load() {
		switch left := l.left(); {
		case left > 800*time.Millisecond: // a call may take 1 s
			return transition.Answer{}, errors.New("not yet")
		case left > 0:
			l.begun.Store(false)
			a, err := l.Ledger.Sync(ctx, r)
			close(l.asked)
			<-l.let
			return a, err
		}
	}
	return l.Ledger.Sync(ctx, r)
}

// TestRenewedAtTheLastMoment: an answer that a peer takes in when its lease has just run out, as
// one that was suspended meanwhile, renews it. Until what it had was taken away, it has none.
func TestRenewedAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		var suspended atomic.Int64
		start := time.Now()
		l := &lastMoment{Ledger: n.ledger, asked: make(chan struct{}), let: make(chan struct{})}
		lapsed := 0
		a := n.peer("a", func(p *peer, cfg *transition.Config) {
			cfg.Ledger = l
			cfg.Clock = func(now time.Time) time.Duration { return now.Sub(start) + time.Duration(suspended.Load()) }
			cfg.Observer = func(e transition.Event) {
				switch e := e.(type) {
				case transition.Lapsed:
					lapsed++
					if p.co.ValidFor() > 0 {
						t.Error("the lease stands again before what was lost with it is taken away")
					}
				case transition.Aborted:
					if p.co.Valid(time.Now()) {
						t.Errorf("the lease stands again before %v is taken away", e.Grant)
					}
				}
			}
		})
		l.left = a.co.ValidFor
		a.start(t.Context())
		pass(3 * time.Second)
		n.shares(a)
		l.begun.Store(true)
		<-l.asked
		before := lapsed
		suspended.Add(int64(a.co.ValidFor() + time.Millisecond))
		close(l.let)
		synctest.Wait()
		if lapsed != before+1 || a.co.ValidFor() == 0 {
			t.Errorf("lapsed %d times, the lease stands for %v: the answer was not taken in with the lapse", lapsed-before, a.co.ValidFor())
		}
		pass(10 * time.Second)
		n.shares(a)
		a.co.Stop()
		a.ends()
		pass(10 * time.Second)
	})
}

// Who yields takes another id if somebody else lives under its own, also where the ledger does not
// say so at first. Itself is nobody else, nor is who left or who has another id.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		store := &faulty{Ledger: n.ledger}
		yields := func(_ *peer, cfg *transition.Config) { cfg.Ledger, cfg.Yield = store, true }
		start := func(id string) *peer {
			p := n.peer(id, yields).start(t.Context())
			pass(5 * time.Second)
			return p
		}
		stop := func(p *peer) {
			p.co.Stop()
			<-p.ended
		}
		renamed := func(p *peer) (to []string) {
			for _, e := range p.told() {
				if r, ok := e.(transition.Renamed); ok && r.Former == p.id {
					to = append(to, r.Peer)
				}
			}
			return to
		}
		stop(start("a"))
		first, other := start("a"), start("b")
		second := n.peer("a", func(p *peer, cfg *transition.Config) {
			yields(p, cfg)
			cfg.Ledger = unread{store, time.Now().Add(3 * time.Second)}
		}).start(t.Context())
		pass(3 * time.Second)
		if got := renamed(second); len(got) > 0 {
			t.Errorf("it could not read the ledger, and is called %v", got)
		}
		pass(5 * time.Second)
		want := "a-" + string(second.co.Session())[:8]
		if got := renamed(second); !slices.Equal(got, []string{want}) {
			t.Errorf("the second is called %v, want %s", got, want)
		}
		if a, b := renamed(first), renamed(other); len(a)+len(b) > 0 {
			t.Errorf("the first is called %v, another %v", a, b)
		}
		census, err := n.ledger.Census(t.Context())
		if err != nil || !slices.ContainsFunc(census.Sessions, func(s machine.Seat) bool { return s.Peer == want && s.Session == second.co.Session() }) {
			t.Errorf("the ledger knows %+v, %v", census.Sessions, err)
		}
		for _, p := range []*peer{first, second, other} {
			stop(p)
		}
	})
}

// unread is a ledger whose census cannot be had before an instant.
type unread struct {
	transition.Ledger
	until time.Time
}

func (u unread) Census(ctx context.Context) (transition.Census, error) {
	if time.Now().Before(u.until) {
		return transition.Census{}, errors.New("not now")
	}
	return u.Ledger.Census(ctx)
}

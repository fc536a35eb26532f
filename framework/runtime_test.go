package framework_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// pair is a runtime of a consumer that gets on and one whose handler outlasts its stop until
// the returned function is called.
func pair(t *testing.T) (f *fleet, r *framework.Runtime, ready, slow *framework.Consumer, release func()) {
	t.Helper()
	f = newFleet(t, 4)
	ready = f.consumer("ann", f.handler("ann", 0))
	other := newFleet(t, 4)
	other.push(1, 1)
	goOn := make(chan struct{})
	slow, err := framework.New("slow", other.store, framework.HandlerFunc(func(context.Context, *framework.Task) error {
		<-goOn
		return nil
	}), framework.WithLedger(other.ledger))
	if err != nil {
		t.Fatal(err)
	}
	if r, err = framework.NewRuntime(ready, slow); err != nil {
		t.Fatal(err)
	}
	return f, r, ready, slow, func() { close(goOn) }
}

// What bounds the end of all is that of the slowest.
func TestARuntimeTakesAsLongAsItsSlowest(t *testing.T) {
	long, short := newFleet(t, 4), newFleet(t, 4)
	times := transition.Timing{Lease: time.Minute, CancelGrace: 5 * time.Second}
	long.ledger = long.ledger.As(long.layout, times)
	slow, err := framework.New("slow", long.store, long.handler("ann", 0), framework.WithLedger(long.ledger),
		framework.WithConfig(framework.Config{Timing: times}))
	if err != nil {
		t.Fatal(err)
	}
	quick := short.consumer("ann", short.handler("ann", 0))
	for _, both := range [][]*framework.Consumer{{slow, quick}, {quick, slow}} {
		r, err := framework.NewRuntime(both...)
		if err != nil {
			t.Fatal(err)
		}
		if r.StopTimeout() != slow.StopTimeout() || r.CancelGrace() != 5*time.Second || slow.StopTimeout() <= quick.StopTimeout() {
			t.Errorf("a stop takes %v, cancelled handlers %v; want %v and 5s", r.StopTimeout(), r.CancelGrace(), slow.StopTimeout())
		}
	}
}

// With one ledger for two names each of the consumers gets a part of the partitions, and the tasks in
// the other part of its own wait for ever.
func TestALedgerIsForOneName(t *testing.T) {
	f := newFleet(t, 4)
	h := f.handler("ann", 0)
	var both []*framework.Consumer
	for _, name := range []string{"mails", "bills"} {
		c, err := framework.New(name, f.store, h, framework.WithLedger(f.ledger))
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, c)
	}
	if _, err := framework.NewRuntime(both...); err == nil || !strings.Contains(err.Error(), `"mails" and "bills" have one ledger`) {
		t.Errorf("a runtime of two names with one ledger: %v", err)
	}
	if _, err := framework.NewRuntime(both[0]); err != nil {
		t.Error(err)
	}
}

// patchy is a ledger that cannot be compared.
type patchy struct {
	transition.Ledger
	_ []int
}

// Consumers whose control makes the ledger, or whose ledger cannot be compared, may have one each:
// nobody knows better. A runtime of nothing is none.
func TestWhatARuntimeIsOf(t *testing.T) {
	f := newFleet(t, 4)
	control := framework.WithControl(func(partition.Config) (transition.Ledger, partition.Indexer, error) { return f.ledger, nil, nil })
	for what, opt := range map[string]framework.Option{"a control": control, "a ledger that cannot be compared": framework.WithLedger(patchy{Ledger: f.ledger})} {
		var both []*framework.Consumer
		for _, name := range []string{"mails", "bills"} {
			c, err := framework.New(name, f.store, f.handler("ann", 0), opt)
			if err != nil {
				t.Fatal(err)
			}
			both = append(both, c)
		}
		if _, err := framework.NewRuntime(both...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := framework.NewRuntime(); err == nil || !strings.Contains(err.Error(), "no consumer") {
		t.Errorf("a runtime of nothing: %v", err)
	}
}

// A start that comes to nothing has started nothing: the caller has nothing to stop, and fx
// stops nothing of what failed to start.
func TestAStartThatFailsHasStartedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r, ready, slow, release := pair(t)
		if err := slow.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		stopped := make(chan error, 1)
		go func() { stopped <- slow.Stop(context.Background()) }()
		synctest.Wait()
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := r.Start(soon)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("start returned %v", err)
		}
		if want := `framework: nothing was started: start consumer "slow": context deadline exceeded`; err.Error() != want {
			t.Errorf("start says %q, want %q", err, want)
		}
		synctest.Wait()
		if ready.Done() != nil {
			t.Error("the other one was started, and runs on")
		}
		if n, err := f.ledger.Census(t.Context()); err != nil || len(n.Sessions) > 0 {
			t.Errorf("the ledger has %d sessions: %v", len(n.Sessions), err)
		}
		release()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		// Once it can, all begin.
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if err := r.Ready(); err != nil {
			t.Error(err)
		}
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Whoever watches hears of each run that ends, also of those that were started since, until
// he has enough.
func TestEveryRunThatEndsIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, w := newFleet(t, 4), newTown(t, "a")
		ledger, others := &foreignLedger{Ledger: f.ledger}, &foreignLedger{Ledger: w.ledger}
		c := f.consumer("ann", f.handler("ann", 0), framework.WithLedger(ledger))
		u, err := framework.NewUnits("town", framework.UnitsConfig{
			Source: w, Handler: func(ctx context.Context, u framework.Unit) error { return w.work(ctx, "ann", u) },
			Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) { return others, nil, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := framework.RuntimeOf([]*framework.Consumer{c}, []*framework.Units{u})
		if err != nil {
			t.Fatal(err)
		}
		start := func() {
			t.Helper()
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		stop := func() {
			t.Helper()
			if err := r.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var failed, left int
		heard := func(when string, f, l int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if failed != f || left != l {
				t.Errorf("%s: heard of %d failures and %d stops, want %d and %d", when, failed, left, f, l)
			}
		}
		start()
		enough := r.Ended(func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, partition.ErrConfig) {
				failed++
			} else {
				left++
			}
		})
		stop()
		heard("stopped", 0, 2)
		start()
		heard("started again", 0, 2)
		ledger.foreign.Store(true)
		others.foreign.Store(true)
		time.Sleep(20 * time.Second)
		heard("failed", 2, 2)
		ledger.foreign.Store(false)
		others.foreign.Store(false)
		start()
		stop()
		enough()
		heard("stopped for good", 2, 4)
		start()
		enough()
		stop()
		heard("with nobody who listens", 2, 4)
	})
}

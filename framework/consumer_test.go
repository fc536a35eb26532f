package framework_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// A fleet is a store, a ledger and what happened.
// handler takes d for a task and checks that no key is handled twice at once.
// push enqueues n tasks over keys and returns the ids by key.
// open is how many tasks are not finished.
// until waits until ok, at most for d.
func TestPeersJoinAndLeaveWithoutLossDoubleOrDisorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		want := f.push(2000, 40)
		var peers []*framework.Consumer
		start := func(name string) {
			c := f.consumer(name, f.handler(name, 20*time.Millisecond), framework.WithConfig(framework.Config{Concurrency: 3}))
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			peers = append(peers, c)
		}
		start("ann")
		until(t, time.Minute, func() bool { return peers[0].Ready() == nil })
		time.Sleep(time.Second)
		start("ben")
		start("cid")
		time.Sleep(4 * time.Second)
		if err := peers[0].Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		until(t, time.Minute, func() bool { return f.open() == 0 })
		for _, p := range peers[1:] {
			if err := p.Stop(context.Background()); err != nil {
				t.Errorf("stop: %v", err)
			}
			if err := p.Err(); err != nil {
				t.Errorf("err: %v", err)
			}
		}
		f.checkOnceInOrder(want)
		for _, peer := range []string{"ann", "ben", "cid"} {
			if lost := eventsOf[framework.Lost](f, peer); len(lost) > 0 {
				t.Errorf("%s lost %d partitions although nothing went wrong: %v", peer, len(lost), lost[0].Cause)
			}
			if len(eventsOf[framework.Drained](f, peer)) == 0 {
				t.Errorf("%s handed over nothing", peer)
			}
		}
	})
}

func TestStartDoesNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		down := &downSource{Source: f.store}
		down.set(errors.New("connection refused"))
		var waited, begun int
		c, err := framework.New("test", down, f.handler("ann", 0), framework.WithLedger(f.ledger),
			framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
				switch e := e.(type) {
				case framework.StartFailed:
					if begun > 0 || !strings.Contains(e.Err.Error(), "connection refused") || e.Again <= 0 {
						t.Errorf("told %+v, having begun %d times", e, begun)
					}
					waited++
				case framework.Started:
					if e.Session == "" || e.Config.Total != 4 || e.Takeover <= 0 {
						t.Errorf("told %+v", e)
					}
					begun++
				}
			})))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) != 0 {
			t.Error("start waited")
		}
		time.Sleep(time.Minute)
		if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("ready: %v, want the reason why not", err)
		}
		down.set(nil)
		until(t, time.Minute, func() bool { return c.Ready() == nil })
		synctest.Wait()
		if waited == 0 || begun != 1 {
			t.Errorf("told %d times that it waits, and %d times that it has begun", waited, begun)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		begun = 0
		down.set(errors.New("connection refused"))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := c.Stop(context.Background()); err != nil { // while it still asks
			t.Error(err)
		}
		if err := c.Err(); err != nil {
			t.Errorf("it was stopped, and ended with %v", err)
		}
	})
}

// Who hears of a roll that it is not in yet has nothing to serve, and is not ready for all that: a deploy
// would go on to stop those that work.
func TestNotReadyBeforeItIsInARoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		ann, bob := f.consumer("ann", f.handler("ann", 0)), f.consumer("bob", f.handler("bob", 0))
		if err := ann.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if err := bob.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		outside := 0
		until(t, time.Minute, func() bool {
			v := bob.View()
			if v.Version > 0 && v.Index < 0 {
				outside++
				if bob.Ready() == nil {
					t.Errorf("ready with %+v", v)
				}
			}
			return v.Index >= 0
		})
		if outside == 0 {
			t.Error("it never heard of a roll without it")
		}
		for _, c := range []*framework.Consumer{ann, bob} {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestReadySaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		source := &downSource{Source: f.store, unopened: errors.New("disk full")}
		var stopping atomic.Int32
		c, err := framework.New("test", source, f.handler("ann", time.Second), framework.WithLedger(f.ledger), framework.WithPeer("ann", 1),
			framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
				if _, ok := e.(framework.Stopping); ok {
					stopping.Add(1)
				}
			})))
		if err != nil {
			t.Fatal(err)
		}
		says := func(want string) {
			t.Helper()
			if err := c.Ready(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ready says %v, want %q", err, want)
			}
		}
		says("not started")
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		says("not a member of a roll yet")
		time.Sleep(20 * time.Second)
		says("index 0 of 1: 4 of 4 partitions are neither served nor waited for: [0 1 2 3]")
		source.mu.Lock()
		source.unopened = nil
		source.mu.Unlock()
		time.Sleep(20 * time.Second)
		if err := c.Ready(); err != nil {
			t.Errorf("ready says %v", err)
		}
		if v := c.View(); v.Index != 0 || v.Replicas != 1 || len(v.Wish) != 4 {
			t.Errorf("view %+v", v)
		}
		f.push(1, 1)
		synctest.Wait() // its handler has begun
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(context.Background()) }()
		synctest.Wait()
		says("stopping")
		again := make(chan error, 1)
		go func() { again <- c.Stop(context.Background()) }()
		if err := errors.Join(<-stopped, <-again); err != nil {
			t.Error(err)
		}
		if n := stopping.Load(); n != 1 {
			t.Errorf("told %d times that it stops", n)
		}
		says("stopped")
		if v := c.View(); v.Version != 0 || v.Index != -1 || v.Replicas != 0 || v.Wish != nil {
			t.Errorf("stopped, it has the view %+v: another peer may have the index", v)
		}
	})
}

// A peer that is cut off notices, stops to work before its lease is over, and comes
// back.
func TestALeaseThatRunsOutTakesEverythingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		cut := &cutLedger{Ledger: f.ledger}
		causes := make(chan error, 10)
		c := f.consumer("ann", framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
			if len(causes) > 0 {
				return nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}), framework.WithLedger(cut))
		f.push(1, 1)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		cut.off.Store(true)
		began := time.Now()
		for len(causes) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		timing := c.Config().Timing
		if took := time.Since(began); took > timing.Validity()+time.Second {
			t.Errorf("the handler was cancelled after %v, want within %v", took, timing.Validity())
		}
		if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "no lease: connection refused") {
			t.Errorf("ready says %v, want that there is no lease, and why", err)
		}
		cut.off.Store(false)
		until(t, time.Minute, func() bool { return f.open() == 0 && c.Ready() == nil })
		if err := <-causes; !errors.Is(err, framework.ErrLost) || !errors.Is(err, transition.ErrLapsed) {
			t.Errorf("the handler was told %v, want ErrLost and ErrLapsed", err)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A cutLedger cannot be reached while off is set.
// A downSource does not answer as long as an error is set.
func TestANameWithAnotherConfigurationEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		other := memledger.New(partition.Config{Total: 8}, transition.Timing{}, memledger.Options{}).
			As(partition.Config{Total: 4}, transition.Timing{})
		c := f.consumer("ann", f.handler("ann", 0), framework.WithLedger(other))
		err := c.Run(t.Context())
		if !errors.Is(err, partition.ErrConfig) {
			t.Errorf("run returned %v, want ErrConfig", err)
		}
		if ready := c.Ready(); c.Err() == nil || ready == nil || !strings.HasPrefix(ready.Error(), `consumer "test": ended: `) {
			t.Errorf("Err says %v, Ready %v", c.Err(), ready)
		}
	})
}

// The tasks of partitions that the ledger does not know would wait for ever, and nobody would say so.
func TestALedgerOfAnotherLayoutEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		other := memledger.New(partition.Config{Total: 2}, transition.Timing{}, memledger.Options{})
		c := f.consumer("ann", f.handler("ann", 0), framework.WithLedger(other))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.Run(ctx); !errors.Is(err, transition.ErrLayout) {
			t.Errorf("run returned %v, want ErrLayout", err)
		}
	})
}

// A source that finds out when it opens a partition that its configuration is another's ends
// the run: that does not pass by itself.
func TestASourceWithAnotherConfigurationEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		source := &downSource{Source: f.store, unopened: fmt.Errorf("open: %w", partition.ErrConfig)}
		c, err := framework.New("test", source, f.handler("ann", 0), framework.WithLedger(f.ledger))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.Run(ctx); !errors.Is(err, partition.ErrConfig) || ctx.Err() != nil {
			t.Errorf("run returned %v, want ErrConfig without being asked to stop", err)
		}
	})
}

// A consumer and a peer of units that cannot go on wait for their handlers: who starts them
// meanwhile starts a run of their own.
func TestAStartWhileAFailureWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		ledger := &foreignLedger{Ledger: f.ledger}
		c := f.consumer("ann", framework.HandlerFunc(func(context.Context, *framework.Task) error {
			time.Sleep(2 * time.Minute)
			return nil
		}), framework.WithLedger(ledger))
		f.push(1, 1)
		w := newTown(t, "a")
		w.slow = 2 * time.Minute
		others := &foreignLedger{Ledger: w.ledger}
		u, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Control = func(partition.Config) (transition.Ledger, partition.Indexer, error) { return others, nil, nil }
		})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		ledger.foreign.Store(true)
		others.foreign.Store(true)
		time.Sleep(time.Minute)
		ledger.foreign.Store(false)
		others.foreign.Store(false)
		if err := errors.Join(c.Start(t.Context()), u.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if err := errors.Join(c.Ready(), u.Ready()); err != nil {
			t.Errorf("ready: %v", err)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		w.slow = 0
		w.leave(u)
	})
}

// A foreignLedger is another configuration's while foreign is set.
type foreignLedger struct {
	transition.Ledger
	foreign atomic.Bool
}

func (l *foreignLedger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	if l.foreign.Load() {
		return transition.Answer{}, partition.ErrConfig
	}
	return l.Ledger.Sync(ctx, r)
}

// What a control refuses does not pass by itself.
func TestAControlThatRefusesEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		refused := errors.New("wait for -1 replicas")
		c := f.consumer("ann", f.handler("ann", 0), framework.WithControl(func(partition.Config) (transition.Ledger, partition.Indexer, error) {
			return nil, nil, refused
		}))
		if err := c.Run(t.Context()); !errors.Is(err, refused) {
			t.Errorf("run returned %v", err)
		}
	})
}

func TestStartAndStopInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.push(200, 10)
		c := f.consumer("ann", f.handler("ann", 5*time.Millisecond))
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("stop of what was never started: %v", err)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 12 {
					time.Sleep(time.Duration((i*7+j*13)%11) * 10 * time.Millisecond)
					switch (i + j) % 4 {
					case 0, 1:
						if err := c.Start(context.Background()); err != nil {
							t.Error(err)
						}
					case 2:
						_ = c.Stop(context.Background())
					case 3:
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(j)*time.Millisecond)
						_ = c.Stop(ctx)
						cancel()
					}
					_, _ = c.Ready(), c.Lanes()
				}
			})
		}
		wg.Wait()
		if err := c.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Minute, func() bool { return f.open() == 0 })
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		<-c.Done()
	})
}

// One that is stopped by itself, as for maintenance, ends nothing else.
func TestARuntimeGoesOnWithoutOneThatWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		ann := f.consumer("ann", f.handler("ann", 0))
		other := newFleet(t, 4)
		ben, err := framework.New("other", other.store, other.handler("ben", 0), framework.WithLedger(other.ledger))
		if err != nil {
			t.Fatal(err)
		}
		r, err := framework.NewRuntime(ann, ben)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- r.Run(ctx) }()
		time.Sleep(20 * time.Second)
		if err := ann.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if err := ben.Ready(); err != nil {
			t.Errorf("the other one: %v", err)
		}
		stop()
		if err := <-ran; err != nil {
			t.Errorf("run returned %v", err)
		}
	})
}

func TestARuntimeEndsWithTheFirstThatCannotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		good := f.consumer("ann", f.handler("ann", 0))
		bad, err := framework.New("other", f.store, f.handler("ben", 0),
			framework.WithLedger(memledger.New(partition.Config{Total: 5}, transition.Timing{}, memledger.Options{}).As(partition.Config{Total: 4}, transition.Timing{})))
		if err != nil {
			t.Fatal(err)
		}
		r, err := framework.NewRuntime(good, bad)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); !errors.Is(err, partition.ErrConfig) {
			t.Errorf("run returned %v, want ErrConfig", err)
		}
		if good.Err() != nil {
			t.Errorf("the other one: %v", good.Err())
		}
		if _, err := framework.NewRuntime(good, good); err == nil {
			t.Error("two consumers of one name were taken")
		}
	})
}

// A tally is an observer that a program makes only if it is asked for.
type tally struct{ events atomic.Int64 }

func (t *tally) Observe(framework.Event) { t.events.Add(1) }

// What is nil where something has to be is an error, and where there is a default, the default.
func TestNilIsNoCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.push(4, 4)
		c := f.consumer("ann", framework.HandlerFunc(func(context.Context, *framework.Task) error { return errors.New("no") }),
			framework.WithObserver(nil), framework.WithObserver((*tally)(nil)), framework.WithObserver(framework.Observers{nil}), framework.WithObserver(framework.ObserverFunc(nil)), framework.WithHealth(nil), framework.WithStrategy(nil), framework.WithSurvey(nil))
		if _, err := framework.NewRuntime(c, nil); err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("a consumer that is nil: %v", err)
		}
		if _, err := framework.RuntimeOf(nil, []*framework.Units{nil}); err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("units that are nil: %v", err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return len(eventsOf[framework.Handled](f, "ann")) >= 8 })
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A runtime has what it was made with, whatever becomes of the slice.
func TestARuntimeKeepsItsConsumers(t *testing.T) {
	f := newFleet(t, 4)
	all := []*framework.Consumer{f.consumer("ann", f.handler("ann", 0))}
	r, err := framework.NewRuntime(all...)
	if err != nil {
		t.Fatal(err)
	}
	all[0] = nil
	if r.Consumers()[0] == nil {
		t.Error("it has lost its consumer")
	}
}

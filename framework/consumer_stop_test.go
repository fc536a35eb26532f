package framework_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
)

// interrupted is a consumer at work on one task, whose handler tells why its context ended.
func (f *fleet) interrupted(peer string) (*framework.Consumer, <-chan error) {
	f.t.Helper()
	cause := make(chan error, 1)
	c := f.consumer(peer, framework.HandlerFunc(func(ctx context.Context, _ *framework.Task) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	}))
	f.push(1, 1)
	if err := c.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	time.Sleep(20 * time.Second)
	return c, cause
}

func TestStopTurnsHard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		c, cause := f.interrupted("ann")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		err := c.Stop(ctx)
		if !errors.Is(err, framework.ErrStopped) {
			t.Errorf("stop returned %v, want ErrStopped", err)
		}
		if err := <-cause; !errors.Is(err, framework.ErrStopped) {
			t.Errorf("the handler was told %v, want ErrStopped", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a hard stop took %v", took)
		}
		if f.open() != 1 {
			t.Error("the task is gone")
		}
	})
}

// So it does by itself when its time is over, and says what it left behind.
func TestAStopWithoutAnEndTurnsHard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		c := f.consumer("ann", f.handler("ann", time.Hour))
		f.push(1, 1)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		err := c.Stop(context.Background())
		if _, stuck := errors.AsType[*transition.StuckError](err); !stuck || !errors.Is(err, framework.ErrStopped) {
			t.Errorf("stop returned %v, want a hard stop and what has not returned", err)
		}
		if c.Err() != nil {
			t.Errorf("it was stopped, and could not go on: %v", c.Err())
		}
	})
}

// Everything is handed over, and an observer takes its time with being told: a stop
// whose patience ends meanwhile has cut nothing.
func TestAStopThatIsOverDoesNotTurnHard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		c := f.consumer("ann", f.handler("ann", 0), framework.WithObserver(nil),
			framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
				if _, ok := e.(framework.Stopped); ok {
					time.Sleep(time.Minute)
				}
			})))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stop returned %v", err)
		}
	})
}

func TestShutdownCutsTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		c, cause := f.interrupted("ann")
		began := time.Now()
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := <-cause; !errors.Is(err, framework.ErrDrainOver) {
			t.Errorf("the handler was told %v, want ErrDrainOver", err)
		}
		if took, q := time.Since(began), c.Config().Timing.Shutdown; took < q || took > q+2*time.Second {
			t.Errorf("stopped after %v, want the shutdown %v and little more", took, q)
		}
		if e := eventsOf[framework.Stopped](f, "ann"); len(e) != 1 || e[0].Took != time.Since(began) {
			t.Errorf("told %+v, want that it took %v", e, time.Since(began))
		}
	})
}

// A handler that is cancelled at the end of the shutdown and ends its work within
// the cancel grace has done it: it must be settled, or the next owner does it again.
func TestWorkEndedWithinTheCancelGraceIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		c := f.consumer("ann", framework.HandlerFunc(func(ctx context.Context, _ *framework.Task) error {
			<-ctx.Done()
			time.Sleep(500 * time.Millisecond)
			return nil
		}))
		f.push(1, 1)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		if n := f.open(); n != 0 {
			t.Errorf("%d tasks open: the work is done twice", n)
		}
	})
}

// So it is with every budget that is accepted: a stop turns hard only when those that the end of
// the shutdown cancels have had their grace.
func TestAStopTurnsHardAfterTheCancelGrace(t *testing.T) {
	for what, c := range map[string]struct {
		cfg  framework.Config
		ends time.Duration // after its context, less than the cancel grace
	}{
		"a cancel grace of 5 s":  {framework.Config{Timing: transition.Timing{Lease: time.Minute, CancelGrace: 5 * time.Second}}, 3 * time.Second},
		"the least stop timeout": {framework.Config{StopTimeout: 26 * time.Second}, 500 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				f.ledger = f.ledger.As(f.layout, c.cfg.Timing)
				cause := make(chan error, 1)
				ann := f.consumer("ann", framework.HandlerFunc(func(ctx context.Context, _ *framework.Task) error {
					<-ctx.Done()
					cause <- context.Cause(ctx)
					time.Sleep(c.ends)
					return nil
				}), framework.WithConfig(c.cfg))
				f.push(1, 1)
				if err := ann.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				if err := ann.Stop(context.Background()); err != nil {
					t.Errorf("stop: %v", err)
				}
				if err := <-cause; !errors.Is(err, framework.ErrDrainOver) {
					t.Errorf("the handler was told %v, want ErrDrainOver", err)
				}
				if n := f.open(); n != 0 {
					t.Errorf("%d tasks open: the work is done twice", n)
				}
			})
		})
	}
}

// Who stops a consumer may close what its survey reads from: no call of that is under way any more.
func TestAStopWaitsForTheSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		asked, release := make(chan struct{}, 1), make(chan struct{})
		c := f.consumer("ann", f.handler("ann", 0), framework.WithSurvey(func(context.Context, []partition.ID) ([]coverage.Datum, error) {
			asked <- struct{}{}
			<-release
			return nil, nil
		}))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-asked
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(context.Background()) }()
		time.Sleep(10 * time.Second) // less than would turn it hard
		select {
		case err := <-stopped:
			t.Errorf("stopped, with %v, while its survey reads", err)
			close(release)
		default:
			close(release)
			if err := <-stopped; err != nil {
				t.Errorf("stop: %v", err)
			}
		}
	})
}

// A source that ignores its context keeps its partition as a handler does, which may be none: what
// the stop says has to lead to the source.
func TestAStopSaysThatTheSourceHasNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		source := obstinate{f.store, make(chan struct{})}
		c, err := framework.New("test", source, f.handler("ann", 0), framework.WithLedger(f.ledger))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return c.Ready() != nil && len(c.Lanes()) == 4 })
		time.AfterFunc(time.Minute, func() { close(source.release) })
		err = c.Stop(context.Background())
		if _, stuck := errors.AsType[*transition.StuckError](err); !stuck || !strings.Contains(err.Error(), "calls of the source, have not returned for [") {
			t.Errorf("stop returned %v, want that calls of the source have not returned", err)
		}
	})
}

// obstinate is a source whose Open ignores its context.
type obstinate struct {
	sources.Source
	release chan struct{}
}

func (o obstinate) Open(context.Context, partition.Grant, partition.Token) (sources.Stream, error) {
	<-o.release
	return nil, errors.New("too late")
}

// mute is a source that does not answer.
type mute struct {
	sources.Source
	asked chan struct{}
}

func (m mute) Layout(ctx context.Context) (partition.Config, error) {
	close(m.asked)
	<-ctx.Done()
	return partition.Config{}, ctx.Err()
}

// distant is a source that takes its time to answer.
type distant struct{ sources.Source }

func (d distant) Layout(ctx context.Context) (partition.Config, error) {
	select {
	case <-time.After(45 * time.Second):
		return d.Source.Layout(ctx)
	case <-ctx.Done():
		return partition.Config{}, ctx.Err()
	}
}

// What takes longer than a lease to find out is found out all the same: each try has more time than the one before.
func TestAStartThatTakesLongerThanALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		c, err := framework.New("test", distant{f.store}, f.handler("ann", 0), framework.WithLedger(f.ledger))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Minute, func() bool { return c.Ready() == nil })
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A stop breaks off what a consumer is still asking: that the answer did not come is no
// reason why it could not go on.
func TestAStopInTheMiddleOfAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		source := mute{f.store, make(chan struct{})}
		var told []error
		c, err := framework.New("test", source, f.handler("ann", 0), framework.WithLedger(f.ledger),
			framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.Stopped); ok {
					told = append(told, e.Err)
				}
			})))
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- c.Run(context.Background()) }()
		<-source.asked
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := errors.Join(<-ran, c.Err()); err != nil {
			t.Errorf("it was stopped, and ended with %v", err)
		}
		if len(told) != 1 || told[0] != nil {
			t.Errorf("told that it stopped with %v", told)
		}
	})
}

// A hard stop does not wait for a ledger that does not answer.
func TestAHardStopWaitsForNoLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		cut := &cutLedger{Ledger: f.ledger}
		c := f.consumer("ann", f.handler("ann", 0), framework.WithLedger(cut))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		cut.off.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := c.Stop(ctx); !errors.Is(err, framework.ErrStopped) {
			t.Errorf("stop returned %v, want ErrStopped", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a hard stop took %v", took)
		}
	})
}

// A stop that the ledger does not answer is told by Stop, though the consumer could go on.
func TestAStopThatNobodyHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		cut := &cutLedger{Ledger: f.ledger}
		c := f.consumer("ann", f.handler("ann", 0), framework.WithLedger(cut))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		cut.off.Store(true)
		err := c.Stop(context.Background())
		if unheard, ok := errors.AsType[*transition.UnheardError](err); !ok || len(unheard.Grants) != 4 {
			t.Errorf("stop returned %v, want that 4 grants were not taken back", err)
		}
		if err := c.Err(); err != nil {
			t.Errorf("the consumer could go on, and says %v", err)
		}
	})
}

// TestASigtermBeforeTheStart: a deploy may end a process that has not started yet.
func TestASigtermBeforeTheStart(t *testing.T) {
	ctx, term := context.WithCancel(t.Context())
	term()
	f := newFleet(t, 4)
	c := f.consumer("ann", f.handler("ann", 0))
	if err := c.Run(ctx); err != nil {
		t.Errorf("the consumer: %v", err)
	}
	u, err := framework.NewUnits("units", framework.UnitsConfig{
		Source:  newTown(t),
		Handler: func(context.Context, framework.Unit) error { return nil },
		Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) { return f.ledger, nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Run(ctx); err != nil {
		t.Errorf("the units: %v", err)
	}
	r, err := framework.RuntimeOf([]*framework.Consumer{c}, []*framework.Units{u})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(ctx); err != nil {
		t.Errorf("the runtime: %v", err)
	}
	if c.Done() != nil || u.Done() != nil {
		t.Error("something was started")
	}
}

// What runs already, since somebody else has started it, ends with a Run whose time is over, too: whoever
// ends the process after it ends no handler.
func TestASigtermBesideAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, term := context.WithCancel(t.Context())
		term()
		f := newFleet(t, 4)
		c := f.consumer("ann", f.handler("ann", 0))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		select {
		case <-c.Done():
		default:
			t.Error("it runs on")
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

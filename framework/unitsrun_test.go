package framework_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
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

// A keptList is a source that returns the list it keeps, and not a copy of it.
type keptList struct {
	*town
	all []string
}

func (l keptList) Units(context.Context) ([]string, error) { return l.all, nil }

// What a source returns is its own: it is read, and not put in order where it lies.
func TestTheListIsLeftToItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		list := keptList{w, []string{"b", "a", "two\nlines", "a", "c"}}
		before := slices.Clone(list.all)
		var told atomic.Int32
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Source = list
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if _, ok := e.(framework.UnitsTroubled); ok {
					told.Add(1)
				}
			})
		})
		time.Sleep(20 * time.Second)
		if !slices.Equal(list.all, before) {
			t.Errorf("the source has %q, it had %q", list.all, before)
		}
		_, starts := w.table()
		if len(starts) != 3 || starts["a"] != 1 || starts["b"] != 1 || starts["c"] != 1 || told.Load() != 1 {
			t.Errorf("started %v; told %d times of what is no unit", starts, told.Load())
		}
		w.leave(ann)
	})
}

// A stop with a context that has ended is hard where something runs, and nothing where all was
// handed over before: there is nothing to cut off any more.
func TestUnitsThatHaveStoppedAreNotStoppedHard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, cancel := context.WithCancel(t.Context())
		cancel()
		w := newTown(t, "a")
		var ends []error
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.Stopped); ok {
					ends = append(ends, e.Err)
				}
			})
		})
		time.Sleep(20 * time.Second)
		w.leave(ann)
		for range 100 {
			if err := ann.Stop(now); err != nil {
				t.Fatalf("after an orderly stop: %v", err)
			}
		}
		if err := ann.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		for range 2 {
			if err := ann.Stop(now); !errors.Is(err, framework.ErrStopped) {
				t.Errorf("after a hard stop: %v", err)
			}
		}
		if ann.Err() != nil {
			t.Errorf("it was stopped, and could not go on: %v", ann.Err())
		}
		if len(ends) != 2 || ends[0] != nil || !errors.Is(ends[1], framework.ErrStopped) {
			t.Errorf("told that it stopped with %v", ends)
		}
	})
}

// What a stop left behind is the stop's error; why a peer could not go on is its own.
func TestUnitsSayWhyTheyEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		w.slow = time.Hour
		ann, _ := w.enter("ann")
		time.Sleep(20 * time.Second)
		err := ann.Stop(context.Background())
		if _, stuck := errors.AsType[*transition.StuckError](err); !stuck || ann.Err() != nil {
			t.Errorf("a handler has not returned: stop says %v, and the peer %v", err, ann.Err())
		}

		if err := ann.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		now, cancel := context.WithCancel(t.Context())
		cancel()
		err = ann.Stop(now)
		if _, stuck := errors.AsType[*transition.StuckError](err); !stuck || !errors.Is(err, framework.ErrStopped) || ann.Err() != nil {
			t.Errorf("nor after a hard stop: stop says %v, and the peer %v", err, ann.Err())
		}

		other := memledger.New(partition.Config{Total: 5}, transition.Timing{}, memledger.Options{}).As(w.layout, transition.Timing{})
		bob, _ := w.enter("bob", func(c *framework.UnitsConfig) {
			c.Control = func(partition.Config) (transition.Ledger, partition.Indexer, error) { return other, nil, nil }
		})
		<-bob.Done()
		if err := bob.Stop(context.Background()); err != nil || !errors.Is(bob.Err(), partition.ErrConfig) {
			t.Errorf("the name is of others: stop says %v, and the peer %v", err, bob.Err())
		}
		time.Sleep(time.Hour)
	})
}

// Before anything runs there is nothing to say of it.
func TestUnitsThatHaveNotBegun(t *testing.T) {
	w := newTown(t, "a")
	u, err := framework.NewUnits("town", framework.UnitsConfig{
		Source:  w,
		Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) { return w.ledger, nil, nil },
		Handler: func(ctx context.Context, u framework.Unit) error { return w.work(ctx, "ann", u) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if v := u.View(); u.Owned() != nil || v.Version != 0 || v.Index != -1 || u.ValidFor() != 0 || u.Err() != nil || u.Done() != nil || u.Ready() == nil {
		t.Errorf("owns %v with %+v for %v, ended with %v, ready: %v", u.Owned(), v, u.ValidFor(), u.Err(), u.Ready())
	}
}

// A store that does not answer is asked again and told of; a control that fails ends the peer, and a
// stop ends the asking.
func TestUnitsThatWaitForTheirStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		away, control := errors.New("connection refused"), errors.New("no such server")
		var down, wrong atomic.Bool
		down.Store(true)
		var told []error
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Source = layoutOf{w, func() error {
				if down.Load() {
					return away
				}
				return nil
			}}
			of := c.Control
			c.Control = func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
				if wrong.Load() {
					return nil, nil, control
				}
				return of(layout)
			}
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.StartFailed); ok {
					told = append(told, e.Err)
				}
			})
		})
		time.Sleep(20 * time.Second)
		if err := ann.Ready(); !errors.Is(err, away) || !strings.Contains(err.Error(), "starting: ") {
			t.Errorf("ready says %v, want why it does not begin", err)
		}
		w.leave(ann)
		if len(told) == 0 || !errors.Is(told[0], away) || ann.Err() != nil {
			t.Errorf("told %v; a stop while it asks left %v", told, ann.Err())
		}
		down.Store(false)
		wrong.Store(true)
		if err := ann.Run(t.Context()); !errors.Is(err, control) || !errors.Is(ann.Err(), control) {
			t.Errorf("run returned %v, and it ended with %v", err, ann.Err())
		}
		if err := ann.Ready(); err == nil || !strings.Contains(err.Error(), "ended: ") || !errors.Is(err, control) {
			t.Errorf("ready says %v, want why it ended", err)
		}
		wrong.Store(false)
		if err := ann.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return ann.Ready() == nil })
		w.leave(ann)
	})
}

// A peer of units says what it waits for, and is ready when it is in a roll, well, and knows the list: not
// with the first roll that it hears of, which others are in.
func TestUnitsSayWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		w.slow = 3 * time.Second
		list := &brokenList{town: w}
		list.broken.Store(true)
		ann, _ := w.enter("ann")
		time.Sleep(20 * time.Second)
		var written atomic.Int32
		bob, ledger := w.enter("bob", func(c *framework.UnitsConfig) {
			c.Source = list
			c.Publish = func(context.Context, []string) error { written.Add(1); return nil }
		})
		says := func(want string) {
			t.Helper()
			if err := bob.Ready(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ready says %v, want %q", err, want)
			}
		}
		heard := false
		until(t, time.Minute, func() bool {
			v := bob.View()
			if v.Version > 0 && v.Index < 0 {
				heard = true
				says("not a member of a roll yet")
			}
			return v.Index >= 0
		})
		if !heard {
			t.Error("bob never heard of a roll without him")
		}
		says("the list of units was not read yet")
		w.leave(bob)
		says("stopped")
		if n := written.Load(); n != 0 {
			t.Errorf("without a list bob wrote the table %d times: what is in it is of others", n)
		}

		list.broken.Store(false)
		if err := bob.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return bob.Ready() == nil })
		ledger.cut.Store(true)
		time.Sleep(20 * time.Second)
		says("no lease: " + errCut.Error())
		ledger.cut.Store(false)
		until(t, time.Minute, func() bool { return bob.Ready() == nil })
		w.leave(ann)
		until(t, time.Minute, func() bool { return len(bob.Owned()) == 1 })
		gone := make(chan error, 1)
		go func() { gone <- bob.Stop(context.Background()) }()
		synctest.Wait()
		says("stopping")
		if err := <-gone; err != nil {
			t.Error(err)
		}
		says("stopped")
	})
}

// A layoutOf does not answer as long as fails says so.
type layoutOf struct {
	*town
	fails func() error
}

func (l layoutOf) Layout(ctx context.Context) (partition.Config, error) {
	if err := l.fails(); err != nil {
		return partition.Config{}, err
	}
	return l.town.Layout(ctx)
}

// The table is written once more when the last handler has returned, since nobody else may be there to
// take out what this peer had.
func TestTheTableIsWrittenAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b")
		var busy []int
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Publish = func(context.Context, []string) error {
				table, _ := w.table()
				busy = append(busy, len(table))
				return nil
			}
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		before := len(busy)
		w.leave(ann)
		if n := len(busy); before == 0 || busy[before-1] != 2 || busy[n-1] != 0 {
			t.Errorf("written with %v at work, of which the first %d before the stop", busy, before)
		}
	})
}

// A handler that ends its goroutine has failed: it runs again, and its unit can be handed over.
func TestUnitsWhoseHandlerEndsItsGoroutineMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		var once sync.Once
		var failed []error
		running := 0
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			work := c.Handler
			c.Handler = func(ctx context.Context, u framework.Unit) error {
				once.Do(runtime.Goexit)
				return work(ctx, u)
			}
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				switch e := e.(type) {
				case framework.UnitStarted:
					running++
				case framework.UnitEnded:
					running--
					if e.Cause == nil {
						failed = append(failed, e.Err)
					}
				}
			})
		})
		time.Sleep(20 * time.Second)
		bob, _ := w.enter("bob")
		if table, _ := w.table(); table["a"] != "ann" {
			t.Errorf("before: %v", table)
		}
		w.leave(ann)
		time.Sleep(20 * time.Second)
		if table, _ := w.table(); table["a"] != "bob" {
			t.Errorf("after ann has left: %v", table)
		}
		if running != 0 || len(failed) != 1 || failed[0] == nil {
			t.Errorf("told that %d handlers still run, and that it failed with %v", running, failed)
		}
		w.leave(bob)
	})
}

// A unit that the hash has no place for is nobody's, and told; the rest is worked on.
func TestUnitsThatTheHashRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "7", "ann's", "11")
		w.layout.Hash = partition.ByID
		w.ledger = memledger.New(w.layout, transition.Timing{}, memledger.Options{})
		var told []string
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.UnitsTroubled); ok {
					told = append(told, e.Err.Error())
				}
			})
		})
		time.Sleep(20 * time.Second)
		if _, starts := w.table(); len(starts) != 2 || starts["7"] != 1 || starts["11"] != 1 {
			t.Errorf("started %v", starts)
		}
		if len(told) != 1 || !strings.HasPrefix(told[0], "1 in the list") || !strings.Contains(told[0], `"ann's"`) {
			t.Errorf("told %q", told)
		}
		w.leave(ann)
	})
}

// Many changes in a row, each soon after the one before, put nothing off: the list is looked at
// and the table written while they go on.
func TestUnitsAreLookedAtWhileTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 20 * time.Millisecond
		units := names(200)
		w := newTown(t, units...)
		var written atomic.Int32
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Publish = func(context.Context, []string) error { written.Add(1); return nil }
			work := c.Handler
			c.Handler = func(ctx context.Context, u framework.Unit) error {
				err := work(ctx, u)
				time.Sleep(time.Duration(slices.Index(units, u.Name)) * each) // one after the other
				return err
			}
		})
		time.Sleep(20 * time.Second)
		w.set()
		time.Sleep(time.Second) // noticed; from now on for 4 s a handler returns every 20 ms
		written.Store(0)
		w.set("new")
		time.Sleep(2 * time.Second)
		if table, _ := w.table(); table["new"] != "ann" || written.Load() < 20 {
			t.Errorf("after 2 s of changes the new unit is %q's, and the table was written %d times", table["new"], written.Load())
		}
		w.leave(ann)
	})
}

// Who told that something is wrong says when it looks no more, as another peer does or it stops:
// nothing of it stands for ever.
func TestWhoLooksNoMoreSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		id, err := w.layout.Hash.Of("a", w.layout.Total)
		if err != nil {
			t.Fatal(err)
		}
		w.ledger.Require(partition.Requirement{First: id, Last: id, Tags: "gpu"})
		var mu sync.Mutex
		open := map[string]bool{} // by peer: it told that nobody has what is asked for
		tells := func(peer string) bool {
			mu.Lock()
			defer mu.Unlock()
			return open[peer]
		}
		enter := func(peer string) (*framework.Units, *severable) {
			return w.enter(peer, func(c *framework.UnitsConfig) {
				c.Observer = framework.ObserverFunc(func(e framework.Event) {
					mu.Lock()
					defer mu.Unlock()
					switch e.(type) {
					case framework.Uncovered:
						open[peer] = true
					case framework.Covered, framework.Relieved:
						open[peer] = false
					}
				})
			})
		}
		ann, ledger := enter("ann")
		time.Sleep(30 * time.Second)
		bob, _ := enter("bob")
		time.Sleep(30 * time.Second)
		if !tells("ann") || tells("bob") {
			t.Fatalf("before: %v", open)
		}
		ledger.cut.Store(true)
		time.Sleep(30 * time.Second)
		ledger.cut.Store(false)
		time.Sleep(30 * time.Second)
		if tells("ann") || !tells("bob") || ann.View().Index == 0 {
			t.Errorf("after ann was away and is %d: %v", ann.View().Index, open)
		}
		w.leave(bob)
		if tells("bob") {
			t.Error("bob has stopped, and what it told stands")
		}
		w.leave(ann)
	})
}

// A hollow error is a nil pointer by mistake: whoever asks what it wraps panics.
type hollow struct{ why error }

func (e *hollow) Error() string { return "failed: " + e.why.Error() }
func (e *hollow) Unwrap() error { return e.why }

// What the application returns is told to observers, who ask what it wraps. They are no place
// for a panic of it.
func TestAHollowErrorEndsNoProcess(t *testing.T) {
	var panics int
	ask := func(err error) {
		if p, ok := errors.AsType[*framework.PanicError](err); ok && strings.Contains(p.Error(), "nil pointer") {
			panics++
		}
	}
	observer := framework.ObserverFunc(func(e framework.Event) {
		switch e := e.(type) {
		case framework.UnitEnded:
			ask(e.Err)
		case framework.Checked:
			ask(e.Err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		first := true
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Observer = observer
			c.Handler = func(ctx context.Context, _ framework.Unit) error {
				if first {
					first = false
					return (*hollow)(nil)
				}
				<-ctx.Done()
				return nil
			}
		})
		time.Sleep(20 * time.Second)
		w.leave(ann)
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		c := f.consumer("ann", f.handler("ann", 0), framework.WithObserver(observer),
			framework.WithHealth(func(context.Context) error { return (*hollow)(nil) }))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		ask(c.Ready())
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		ctx, stop := context.WithCancel(t.Context())
		s.all.Go(func() {
			err := framework.Single(ctx, "backup", s.cfg("ann"), func(context.Context, partition.Token) error { return (*hollow)(nil) },
				func(err error) { ask(err); stop() })
			if err != nil {
				t.Error(err)
			}
		})
		s.all.Wait()
	})
	if panics != 4 {
		t.Errorf("%d panics were told, want that of a unit, of a health check, also by Ready, and of a job", panics)
	}
}

// An unruly list does as it is told before it is read.
type unrulyList struct {
	*town
	do func()
}

func (l unrulyList) Units(ctx context.Context) ([]string, error) {
	l.do()
	return l.town.Units(ctx)
}

// A list that panics, or ends its goroutine, is one that cannot be read, and so it is with who writes the
// table: all peers ask the same store, and what they have at work goes on.
func TestAListThatPanics(t *testing.T) {
	for what, misdeed := range map[string]func(){"a panic": func() { panic("no column of that name") }, "the end of its goroutine": runtime.Goexit} {
		for where, misdo := range map[string]func(*framework.UnitsConfig, *town, func()){
			"the list": func(c *framework.UnitsConfig, w *town, do func()) { c.Source = unrulyList{w, do} },
			"the table": func(c *framework.UnitsConfig, _ *town, do func()) {
				c.Publish = func(context.Context, []string) error { do(); return nil }
			},
		} {
			t.Run(what+" of "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newTown(t, "a")
					var wrong atomic.Bool
					var told atomic.Int32
					ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
						misdo(c, w, func() {
							if wrong.Load() {
								misdeed()
							}
						})
						c.Observer = framework.ObserverFunc(func(e framework.Event) {
							if e, ok := e.(framework.UnitsTroubled); ok && e.Err != nil {
								told.Add(1)
							}
						})
					})
					time.Sleep(20 * time.Second)
					wrong.Store(true)
					time.Sleep(20 * time.Second)
					if table, starts := w.table(); table["a"] != "ann" || starts["a"] != 1 || told.Load() != 1 {
						t.Errorf("has %v, which began %v times; told %d times, want once", table, starts, told.Load())
					}
					wrong.Store(false)
					w.set("a", "b")
					time.Sleep(20 * time.Second)
					if table, starts := w.table(); len(table) != 2 || starts["a"] != 1 {
						t.Errorf("once it can be read again it has %v, which began %v times", table, starts)
					}
					w.leave(ann)
				})
			})
		}
	}
}

// So it is where a peer begins: it tries again, and can be stopped meanwhile.
func TestAStartThatPanics(t *testing.T) {
	for what, misdeed := range map[string]func(){"a panic": func() { panic("no column of that name") }, "the end of its goroutine": runtime.Goexit} {
		for where, misdo := range map[string]func(*framework.UnitsConfig, *town, func()){
			"the layout": func(c *framework.UnitsConfig, w *town, do func()) {
				c.Source = layoutOf{w, func() error { do(); return nil }}
			},
			"the control": func(c *framework.UnitsConfig, _ *town, do func()) {
				of := c.Control
				c.Control = func(layout partition.Config) (transition.Ledger, partition.Indexer, error) { do(); return of(layout) }
			},
		} {
			t.Run(what+" of "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newTown(t, "a")
					var wrong atomic.Bool
					wrong.Store(true)
					var told atomic.Int32
					ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
						misdo(c, w, func() {
							if wrong.Load() {
								misdeed()
							}
						})
						c.Observer = framework.ObserverFunc(func(e framework.Event) {
							if _, ok := e.(framework.StartFailed); ok {
								told.Add(1)
							}
						})
					})
					time.Sleep(20 * time.Second)
					if told.Load() < 2 || ann.Ready() == nil {
						t.Errorf("told %d times that it does not begin, want each try; ready says %v", told.Load(), ann.Ready())
					}
					w.leave(ann)
					if err := ann.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					wrong.Store(false)
					until(t, time.Minute, func() bool { return len(ann.Owned()) == 1 })
					w.leave(ann)
				})
			})
		}
	}
}

// A stop writes the table as well, and ends whatever becomes of that.
func TestATableThatPanicsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		var wrong atomic.Bool
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Publish = func(context.Context, []string) error {
				if wrong.Load() {
					panic("no table of that name")
				}
				return nil
			}
		})
		time.Sleep(20 * time.Second)
		wrong.Store(true)
		w.leave(ann)
	})
}

// What was lost stays lost for the handler that had it: a process that stood still has a lease
// again a moment after it finds out, while the unit may be another's.
func TestWhatWasLostIsNotOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		type look struct {
			cause error
			owned bool
		}
		var looks []look
		first := true
		ann, ledger := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Handler = func(ctx context.Context, u framework.Unit) error {
				began := u.Owned()
				<-ctx.Done()
				if first {
					first = false
					time.Sleep(time.Minute) // it does not hear it; the ledger is back by then
				}
				looks = append(looks, look{nil, began}, look{context.Cause(ctx), u.Owned()})
				return nil
			}
		})
		time.Sleep(20 * time.Second)
		ledger.cut.Store(true)
		time.Sleep(10 * time.Second)
		ledger.cut.Store(false)
		time.Sleep(20 * time.Second)
		if ann.ValidFor() == 0 {
			t.Error("the lease does not stand again")
		}
		if mine := ann.Owned(); len(mine) != 0 {
			t.Errorf("while its handler does not hear it %v is said to be ann's", mine)
		}
		time.Sleep(time.Minute)
		w.leave(ann)
		if len(looks) != 4 {
			t.Fatalf("%d looks, want two of each of two runs", len(looks))
		}
		if !looks[0].owned || looks[1].owned || !errors.Is(looks[1].cause, transition.ErrLapsed) {
			t.Errorf("first it was owned %t, and after %v %t", looks[0].owned, looks[1].cause, looks[1].owned)
		}
		// What is handed over is owned until the handler has returned.
		if !looks[2].owned || !looks[3].owned || !errors.Is(looks[3].cause, framework.ErrLeaving) {
			t.Errorf("then it was owned %t, and after %v %t", looks[2].owned, looks[3].cause, looks[3].owned)
		}
	})
}

// So does what is lost while it is handed over: until then it was this peer's, with a handler that
// takes its time.
func TestWhatIsLostWhileItIsHandedOverIsNotOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		var ill atomic.Bool
		var looks []bool
		ann, ledger := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Health = func(context.Context) error {
				if ill.Load() {
					return errors.New("out of disk")
				}
				return nil
			}
			c.Handler = func(ctx context.Context, u framework.Unit) error {
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), framework.ErrHandedOver) && len(looks) == 0 {
					looks = append(looks, u.Owned())
					time.Sleep(time.Minute)
					looks = append(looks, u.Owned())
				}
				return nil
			}
		})
		time.Sleep(20 * time.Second)
		bob, _ := w.enter("bob")
		time.Sleep(20 * time.Second)
		ill.Store(true)
		time.Sleep(20 * time.Second)
		ledger.cut.Store(true)
		time.Sleep(15 * time.Second)
		ledger.cut.Store(false)
		time.Sleep(20 * time.Second)
		if ann.ValidFor() == 0 {
			t.Error("the lease does not stand again")
		}
		time.Sleep(time.Minute)
		w.leave(ann, bob)
		if !slices.Equal(looks, []bool{true, false}) {
			t.Errorf("owned while it was handed over, and after it was lost: %v", looks)
		}
	})
}

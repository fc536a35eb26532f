package framework_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
)

// An observer that panics ends its consumer as an error that does not pass: what runs ends, nothing is lost or run
// twice, the others hear everything, and Stop returns.
func TestAnObserverThatPanicsEndsItsConsumer(t *testing.T) {
	for _, at := range []framework.Event{
		framework.Warned{}, framework.Started{}, framework.Coordinated{}, framework.Opened{}, framework.Fetched{}, framework.Handled{},
		framework.Settled{}, framework.Stopping{}, framework.Draining{}, framework.Drained{}, framework.Stopped{},
	} {
		t.Run(fmt.Sprintf("%T", at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { panickingObserver(t, at) })
		})
	}
}

func panickingObserver(t *testing.T, at framework.Event) {
	f := newFleet(t, 2)
	wanted := f.push(20, 4)
	var heard []string
	c, err := framework.New("test", f.store, f.handler("ann", time.Millisecond), framework.WithLedger(f.ledger),
		framework.WithObserver(panicsAt(at)),
		framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
			f.mu.Lock()
			defer f.mu.Unlock()
			heard = append(heard, fmt.Sprintf("%T", e))
		})))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	if err := c.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
	err = c.Err()
	if want := fmt.Sprintf("consumer \"test\": the observer panicked: boom (told of %T)", at); err == nil || err.Error() != want {
		t.Errorf("ended with %v, want %q", err, want)
	}
	if p, is := errors.AsType[*framework.PanicError](err); !is || !strings.Contains(string(p.Stack), "observer_test.go") {
		t.Errorf("its stack is not that of the observer: %#v", err)
	}
	switch at.(type) {
	case framework.Draining, framework.Drained, framework.Stopped: // those are for the stop
	default:
		if slices.Index(heard, fmt.Sprintf("%T", framework.Stopping{})) < slices.Index(heard, fmt.Sprintf("%T", at)) {
			t.Errorf("another observer heard of the stop before what that is for: %q", heard)
		}
	}
	if last := heard[len(heard)-1]; last != fmt.Sprintf("%T", framework.Stopped{}) {
		t.Errorf("another observer heard %v last", last)
	}
	next := f.consumer("ben", f.handler("ben", time.Millisecond))
	if err := next.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, time.Minute, func() bool { return f.open() == 0 })
	if err := next.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	f.checkOnceInOrder(wanted)
}

// An observer that panics with a lock held, as one does that writes to a nil map, would wait for that at the next
// event: it is not told of it, so that its consumer ends.
func TestAnObserverThatPanicsIsToldNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		var mu sync.Mutex
		var events map[string]int // nobody has made it
		c, err := framework.New("test", f.store, f.handler("ann", time.Millisecond), framework.WithLedger(f.ledger),
			framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
				if !mu.TryLock() {
					t.Errorf("told of %T, it would wait for ever", e)
					return
				}
				events[fmt.Sprintf("%T", e)]++
				mu.Unlock()
			})))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), "nil map") {
			t.Errorf("ended with %v", err)
		}
	})
}

// What a source says by itself ends the consumer, too, and not the process of the source's goroutine.
func TestAnObserverThatPanicsAtItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		var heard []framework.Event
		c, err := framework.New("test", f.store, f.handler("ann", time.Millisecond), framework.WithLedger(f.ledger),
			framework.WithObserver(panicsAt(framework.Buried{})),
			framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
				if e, is := e.(framework.Buried); is {
					heard = append(heard, e)
				}
			})))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		c.Observer().Observe(framework.Buried{Consumer: "test"})
		<-c.Done()
		if err := c.Err(); err == nil || err.Error() != `consumer "test": the observer panicked: boom (told of framework.Buried)` {
			t.Errorf("ended with %v", err)
		}
		if len(heard) != 1 {
			t.Errorf("another observer heard %v", heard)
		}
	})
}

// Units end as a consumer does: what runs ends and is handed over, the others hear everything, and Stop returns.
func TestAnObserverThatPanicsEndsItsUnits(t *testing.T) {
	for _, at := range []framework.Event{
		framework.Started{}, framework.Coordinated{}, framework.Checked{}, framework.UnitsChanged{}, framework.UnitStarted{},
		framework.UnitEnded{}, framework.Stopped{},
	} {
		t.Run(fmt.Sprintf("%T", at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { panickingObserverOfUnits(t, at) })
		})
	}
}

func panickingObserverOfUnits(t *testing.T, at framework.Event) {
	w := newTown(t, "n", "e", "s", "w")
	ends := make(chan error, 1)
	var last string
	ann, _ := w.enter("ann", func(cfg *framework.UnitsConfig) {
		cfg.Health = func(context.Context) error { return nil }
		cfg.Observer = framework.Observers{panicsAt(at), framework.ObserverFunc(func(e framework.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			last = fmt.Sprintf("%T", e)
		})}
	})
	go func() {
		<-ann.Done()
		ends <- ann.Err()
	}()
	time.Sleep(30 * time.Second)
	w.set("n", "e", "s") // a unit ends
	time.Sleep(30 * time.Second)
	if err := ann.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
	err := <-ends
	if want := fmt.Sprintf("units \"town\": the observer panicked: boom (told of %T)", at); err == nil || err.Error() != want {
		t.Errorf("ended with %v, want %q", err, want)
	}
	if last != fmt.Sprintf("%T", framework.Stopped{}) {
		t.Errorf("another observer heard %v last", last)
	}
	ben, _ := w.enter("ben")
	until(t, time.Minute, func() bool { return len(ben.Owned()) == 3 })
	w.leave(ben)
}

// A share does, too: Run returns it, once what was admitted is released.
func TestAnObserverThatPanicsEndsItsShare(t *testing.T) {
	for _, at := range []framework.Event{framework.Coordinated{}, framework.Checked{}} {
		t.Run(fmt.Sprintf("%T", at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSharers(t, 4)
				cfg := s.cfg("ann")
				cfg.Health = func(context.Context) error { return nil }
				cfg.Observer = panicsAt(at)
				share, err := framework.NewShare("rows", cfg)
				if err != nil {
					t.Fatal(err)
				}
				err = share.Run(t.Context())
				if want := fmt.Sprintf("share \"rows\": the observer panicked: boom (told of %T)", at); err == nil || err.Error() != want {
					t.Errorf("ended with %v, want %q", err, want)
				}
				if _, is := errors.AsType[*framework.PanicError](err); !is {
					t.Errorf("it has no stack: %#v", err)
				}
			})
		})
	}
}

func panicsAt(at framework.Event) framework.Observer {
	return framework.ObserverFunc(func(e framework.Event) {
		if reflect.TypeOf(e) == reflect.TypeOf(at) {
			panic("boom")
		}
	})
}

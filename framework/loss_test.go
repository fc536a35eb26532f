package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

func TestAbortCancelsAndWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		release := make(chan struct{})
		cause := make(chan error, 1)
		b := newBench(t, benchConfig{source: s.over}, func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			<-release // ignores it
			return nil
		})
		defer b.stop()
		b.push(task("a", 0), task("a", 1))
		g := b.grantAndWork(0)
		var drained atomic.Bool
		b.Abort(g, errLease, func() { drained.Store(true) })
		if err := <-cause; !errors.Is(err, ErrLost) || !errors.Is(err, errLease) {
			t.Errorf("the handler was told %v, want ErrLost and why", err)
		}
		time.Sleep(time.Hour)
		if drained.Load() {
			t.Fatal("drained although a handler runs: the partition could be claimed beside it")
		}
		if stuck := of[HandlerStuck](b.seen); len(stuck) != 1 || stuck[0].Task.ID != "a-0" || !errors.Is(stuck[0].Cause, ErrLost) {
			t.Errorf("told %+v, want one stuck handler of a-0", stuck)
		} else if stuck[0].For != b.cfg.Timing.CancelGrace {
			t.Errorf("told after %v, want the cancel grace %v", stuck[0].For, b.cfg.Timing.CancelGrace)
		}
		close(release)
		synctest.Wait()
		if !drained.Load() {
			t.Error("not drained although the handler has returned")
		}
		if open, _ := b.store.Pending(0); open != 2 {
			t.Errorf("%d tasks left in the log, want both: nothing may be settled after a loss", open)
		}
		if h := of[Handled](b.seen); len(h) != 1 || h[0].Outcome != 0 {
			t.Errorf("told %+v, want one run for nothing", h)
		}
		for _, call := range s.log() {
			if strings.HasPrefix(call, "settle") || call == "close 0@1" {
				t.Errorf("%q was sent under a lost token", call)
			}
		}
		if !slices.Contains(s.log(), "close 0@1, silently") {
			t.Error("the stream was not freed")
		}
	})
}

func TestAbortReplacesADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			return ctx.Err()
		})
		defer b.stop()
		b.push(task("a", 0))
		g := b.grantAndWork(0)
		var drained, aborted atomic.Int32
		b.Drain(g, func() { drained.Add(1) })
		synctest.Wait()
		b.Abort(g, errLease, func() { aborted.Add(1) })
		synctest.Wait()
		if d, a := drained.Load(), aborted.Load(); d != 0 || a != 1 {
			t.Errorf("drained was called %d and %d times, want only the abort's", d, a)
		}
		b.Abort(g, errLease, func() { aborted.Add(1) }) // the coordinator had not heard of it
		if a := aborted.Load(); a != 2 {
			t.Error("an abort of what is over was not answered")
		}
	})
}

func TestAbortWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{onOpen: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		g := b.grantAndWork(0)
		done := make(chan struct{})
		b.Abort(g, errLease, func() { close(done) })
		<-done
		b.drain(b.grantAndWork(0))
	})
}

func TestFencedAtOpenTellsTheEpochThatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		other, err := b.store.Open(t.Context(), partition.Grant{ID: 0, Epoch: 7}, partition.Token{Epoch: 7, Session: "other"})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(context.Background())
		g := b.grantAndWork(0)
		b.gate.mu.Lock()
		stored := b.gate.fenced[g]
		b.gate.mu.Unlock()
		if stored != 7 {
			t.Errorf("the coordinator was told of epoch %v, want 7", stored)
		}
		if e := of[Lost](b.seen); len(e) != 1 || !errors.Is(e[0].Cause, sources.ErrFenced) {
			t.Errorf("told %+v, want why it is lost", e)
		}
		done := make(chan struct{})
		b.Abort(g, sources.ErrFenced, func() { close(done) })
		<-done
	})
}

func TestFencedWhileWorkingEndsTheLaneAtOnce(t *testing.T) {
	for _, c := range []struct {
		op  string
		err error
	}{
		{"fetch", sources.ErrFenced},
		{"settle", sources.ErrFenced},
		{"fetch", sources.ErrForgot},
		{"settle", sources.ErrForgot},
		{"fetch", sources.ErrClosed}, // by the source itself: it answers nothing any more
		{"settle", sources.ErrClosed},
	} {
		op := c.op
		t.Run(fmt.Sprint(op, ": ", c.err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &spy{}
				cause := make(chan error, 2)
				b := newBench(t, benchConfig{source: s.over}, func(ctx context.Context, task *Task) error {
					if task.Key == "slow" {
						<-ctx.Done()
						cause <- context.Cause(ctx)
					}
					return nil
				})
				defer b.stop()
				fenced := func(context.Context) error { return &sources.Error{Op: op, Err: c.err} }
				b.push(task("slow", 0))
				g := b.grantAndWork(0)
				if op == "fetch" {
					s.onFetch = fenced
				} else {
					s.onSettle = func(ctx context.Context, _ []sources.Settlement) error { return fenced(ctx) }
				}
				b.push(task("quick", 0))
				select {
				case err := <-cause:
					if !errors.Is(err, ErrLost) || !errors.Is(err, c.err) {
						t.Errorf("the handler was told %v", err)
					}
				case <-time.After(time.Minute):
					t.Error("the lane goes on")
				}
				synctest.Wait()
				b.gate.mu.Lock()
				told := b.gate.lost[g]
				b.gate.mu.Unlock()
				if !errors.Is(told, c.err) {
					t.Errorf("the coordinator was told %v", told)
				}
				done := make(chan struct{})
				b.Abort(g, told, func() { close(done) })
				<-done
			})
		})
	}
}

func TestConfigurationOfAnotherEndsTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{onFetch: func(context.Context) error { return fmt.Errorf("fetch: %w", partition.ErrConfig) }}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.grant(0)
		if err := <-b.failed; !errors.Is(err, partition.ErrConfig) {
			t.Errorf("the consumer failed with %v", err)
		}
	})
}

// A handler that goes on after its lease is told so when it asks, before its context ends.
func TestOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		var b *bench
		b = newBench(t, benchConfig{Config: Config{HandlerTimeout: time.Second}}, func(ctx context.Context, _ *Task) error {
			type key struct{}
			ctx = context.WithValue(ctx, key{}, 1)
			told = append(told, Owned(ctx))
			b.gate.invalid.Store(true)
			told = append(told, Owned(ctx), ctx.Err() == nil)
			b.gate.invalid.Store(false)
			<-ctx.Done()
			told = append(told, Owned(ctx))
			return nil
		})
		defer b.stop()
		b.push(task("a", 0))
		b.drain(b.grantAndWork(0))
		if want := []bool{true, false, true, false}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		before := Owned(ctx)
		if cancel(); !before || Owned(ctx) {
			t.Errorf("of a context of nobody's: %v, %v", before, Owned(ctx))
		}
	})
}

func TestNothingStartsWithoutALease(t *testing.T) {
	for _, c := range []struct {
		name string
		gate func(*fakeGate) *atomic.Bool
	}{
		{"the lease ran out", func(g *fakeGate) *atomic.Bool { return &g.invalid }},
		{"the partition is not ours", func(g *fakeGate) *atomic.Bool { return &g.shut }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var started atomic.Int32
				hold := make(chan struct{})
				b := newBench(t, benchConfig{Config: Config{Concurrency: 1}}, func(context.Context, *Task) error {
					started.Add(1)
					<-hold
					return nil
				})
				defer b.stop()
				b.push(task("a", 0), task("a", 1), task("b", 0), task("", 0))
				g := b.grantAndWork(0)
				shut := c.gate(b.gate)
				shut.Store(true)
				close(hold)
				time.Sleep(time.Minute)
				if n := started.Load(); n != 1 {
					t.Fatalf("%d handlers were started, want only the one from before", n)
				}
				shut.Store(false)
				time.Sleep(time.Minute)
				if n := started.Load(); n != 4 {
					t.Errorf("%d handlers were started after the lease was renewed, want all 4", n)
				}
				b.drain(g)
				if open, _ := b.store.Pending(0); open != 0 {
					t.Errorf("%d tasks left", open)
				}
			})
		})
	}
}

func TestNothingStartsAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, func(context.Context, *Task) error {
			t.Error("a handler was started after the loss")
			return nil
		})
		defer b.stop()
		b.push(task("a", 0))
		g := partition.Grant{ID: 0, Epoch: 1}
		done := make(chan struct{})
		b.gate.asked = sync.OnceFunc(func() { b.Abort(g, errLease, func() { close(done) }) })
		b.grant(0)
		<-done
	})
}

func TestALossEndsTheWaitForASettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{onSettle: func(ctx context.Context, _ []sources.Settlement) error {
			<-ctx.Done() // the store is away
			return ctx.Err()
		}}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.push(task("a", 0))
		g := b.grantAndWork(0)
		done := make(chan struct{})
		b.Abort(g, errLease, func() { close(done) })
		<-done
		if e := of[SettleFailed](b.seen); len(e) > 0 {
			t.Errorf("told %+v of what was only cut short", e)
		}
	})
}

func TestALossEndsTheWaitForAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{onClose: func(ctx context.Context) error {
			<-ctx.Done() // the store is away
			return ctx.Err()
		}}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		g := b.grantAndWork(0)
		b.Drain(g, func() { t.Error("drained without an answer") })
		synctest.Wait()
		done := make(chan struct{})
		b.Abort(g, errLease, func() { close(done) })
		<-done
		if log := s.log(); log[len(log)-1] != "close 0@1, silently" {
			t.Errorf("what the stream holds was not given back: %q", log)
		}
	})
}

// An error of a source is asked for its text where the pool's lock is free: what it takes is code of the source's, and
// all workers would wait for it.
func TestACauseIsAskedWithoutTheLock(t *testing.T) {
	for name, lose := range map[string]func(*bench, partition.Grant, error, func()){
		"aborted":  func(b *bench, g partition.Grant, cause error, drained func()) { b.Abort(g, cause, drained) },
		"forfeits": func(b *bench, g partition.Grant, cause error, drained func()) { b.forfeit(b.lane(g), cause); drained() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, benchConfig{}, func(context.Context, *Task) error { return nil })
				defer b.stop()
				g := b.grantAndWork(0)
				done := make(chan struct{})
				cause := &askedError{pool: b.pool}
				synctest.Wait() // nobody else has the lock
				lose(b, g, cause, func() { close(done) })
				<-done
				if cause.locked || !cause.asked {
					t.Errorf("asked %v, with the lock %v", cause.asked, cause.locked)
				}
			})
		})
	}
}

// An askedError takes note of how it is asked.
type askedError struct {
	pool          *pool
	asked, locked bool
}

func (e *askedError) Error() string {
	e.asked = true
	if !e.pool.mu.TryLock() {
		e.locked = true
		return "with the lock"
	}
	e.pool.mu.Unlock()
	return "without it"
}

package framework

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
)

func TestPoolIsIdleWhileNoHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		attended := make(chan bool, 1)
		b = newBench(t, benchConfig{}, func(context.Context, *Task) error {
			if b.Idle() {
				t.Error("idle while a handler runs")
			}
			attended <- b.gate.attended.Load() > 0
			return nil
		})
		defer b.stop()
		b.grant(0)
		time.Sleep(time.Second)
		if !b.Idle() || b.gate.attended.Load() > 0 {
			t.Error("not idle with an empty partition")
		}
		b.push(task("a", 0))
		if !<-attended {
			t.Error("a handler ran that the coordinator was not told of: nobody would end it after a suspend")
		}
		time.Sleep(time.Second)
		if !b.Idle() {
			t.Error("not idle after the last handler")
		}
	})
}

func TestPoolWithAUnitIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, nil)
		defer b.stop()
		g := b.grant(partition.FirstUnit)
		time.Sleep(time.Second)
		if b.Idle() {
			t.Error("idle with a unit, whose stream works by itself")
		}
		b.drain(g)
		if !b.Idle() {
			t.Error("not idle without a unit")
		}
	})
}

// What is not served, or no longer, is answered at once, and what is served under another
// epoch is left alone.
func TestWhatIsNotServedIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int32
		b := newBench(t, benchConfig{}, func(context.Context, *Task) error { handled.Add(1); return nil })
		defer b.stop()
		ask := func(g partition.Grant) {
			t.Helper()
			answers := 0
			b.Drain(g, func() { answers++ })
			b.Abort(g, errLease, func() { answers++ })
			if answers != 2 {
				t.Errorf("%d of 2 answers to a drain and an abort of %v, which is not served", answers, g)
			}
		}
		ask(partition.Grant{ID: 0, Epoch: 1})
		g := b.grantAndWork(0)
		ask(partition.Grant{ID: 0, Epoch: g.Epoch - 1})
		ask(partition.Grant{ID: 0, Epoch: g.Epoch + 1})
		b.push(task("a", 0))
		synctest.Wait()
		if handled.Load() != 1 {
			t.Error("the lane of another epoch was ended")
		}
		b.drain(g)
		ask(g)
	})
}

// The coordinator may serve a partition again as soon as it hears that it is drained: what
// it serves then is what there is.
func TestServedAgainFromWithinDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		var again partition.Grant
		b.Drain(b.grantAndWork(0), func() { again = b.grant(0) })
		synctest.Wait()
		b.push(task("a", 0))
		b.Drain(again, func() {})
		if e := of[Draining](b.seen); len(e) != 2 {
			t.Errorf("told %+v, want that both were drained", e)
		}
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.lanes)+len(b.alarm.lanes) > 0 {
			t.Errorf("%d lanes are left, %d of them with an alarm", len(b.lanes), len(b.alarm.lanes))
		}
	})
}

func TestAPoolThatIsClosedServesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		b := newBench(t, benchConfig{source: s.over}, nil)
		b.stop()
		b.grant(0)
		synctest.Wait()
		if log := s.log(); len(log) > 0 {
			t.Errorf("%q: nobody waits for it", log)
			b.abortAll(ErrStopped)
		}
	})
}

// A stop that turns hard takes the lanes away itself; who asked for a drain before is answered
// nevertheless.
func TestAHardStopAnswersTheDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, func(ctx context.Context, _ *Task) error { <-ctx.Done(); return nil })
		defer b.stop()
		b.push(task("a", 0))
		drained := false
		b.Drain(b.grantAndWork(0), func() { drained = true })
		b.abortAll(ErrStopped)
		synctest.Wait()
		if !drained {
			t.Error("the drain is never answered")
		}
	})
}

// A shutdown that begins while a partition is being drained cuts the time that it has left.
func TestAShutdownCutsADrainThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, func(ctx context.Context, _ *Task) error { <-ctx.Done(); return ctx.Err() })
		defer b.stop()
		b.push(task("a", 0))
		began := time.Now()
		done := make(chan struct{})
		b.Drain(b.grantAndWork(0), func() { close(done) })
		b.stopWithin(b.cfg.Timing.Drain / 10)
		<-done
		if took := time.Since(began); took != b.cfg.Timing.Drain/10 {
			t.Errorf("drained after %v, want %v", took, b.cfg.Timing.Drain/10)
		}
	})
}

// A shutdown that goes on for longer than a drain may take gives it no more time, and one that is over
// gives it none.
func TestADrainInAShutdown(t *testing.T) {
	for _, c := range []struct {
		left, want func(drain time.Duration) time.Duration
	}{
		{func(d time.Duration) time.Duration { return 2 * d }, func(d time.Duration) time.Duration { return d }},
		{func(d time.Duration) time.Duration { return d / 2 }, func(d time.Duration) time.Duration { return d / 2 }},
		{func(time.Duration) time.Duration { return -time.Second }, func(time.Duration) time.Duration { return 0 }},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, benchConfig{}, func(ctx context.Context, _ *Task) error { <-ctx.Done(); return ctx.Err() })
			defer b.stop()
			b.push(task("a", 0))
			g := b.grantAndWork(0)
			b.stopWithin(c.left(b.cfg.Timing.Drain))
			b.drain(g)
			want := c.want(b.cfg.Timing.Drain)
			if told := of[Draining](b.seen); len(told) != 1 || told[0].Within != want {
				t.Errorf("told %+v, want that it has %v", told, want)
			}
			if told := of[Drained](b.seen); len(told) != 1 || told[0].Took.Round(10*time.Millisecond) != want {
				t.Errorf("told %+v, want that it took %v", told, want)
			}
		})
	}
}

// What is lost while it is drained has no drain time any more, and a shutdown gives it none.
func TestAShutdownOfWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, benchConfig{}, func(context.Context, *Task) error { <-release; return nil })
		defer b.stop()
		b.push(task("a", 0))
		g := b.grantAndWork(0)
		b.Drain(g, func() {})
		b.Abort(g, errLease, func() {})
		b.stopWithin(time.Second)
		time.Sleep(time.Minute)
		if told := of[DrainOverdue](b.seen); len(told) > 0 {
			t.Errorf("told %+v of what is lost", told)
		}
		close(release)
	})
}

// A handler that does not hear that its drain time is over is told of once, when its grace
// is over too, though its partition is taken away after that, as at the end of a shutdown.
func TestAHandlerThatOutlivesItsDrainIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, benchConfig{}, func(context.Context, *Task) error { <-release; return nil })
		defer b.stop()
		b.push(task("a", 0))
		g := b.grantAndWork(0)
		done := make(chan struct{})
		b.Drain(g, func() {})
		time.Sleep(b.cfg.Timing.Drain + b.cfg.Timing.CancelGrace + time.Second)
		b.Abort(g, errLease, func() { close(done) })
		time.Sleep(b.cfg.Timing.CancelGrace + time.Second)
		if e := of[DrainOverdue](b.seen); len(e) != 1 || e[0].After != b.cfg.Timing.Drain {
			t.Errorf("told %d times that the drain is overdue: %+v", len(e), e[:min(len(e), 2)])
		}
		stuck := of[HandlerStuck](b.seen)
		if want := b.cfg.Timing.Drain + b.cfg.Timing.CancelGrace; len(stuck) != 1 || stuck[0].For != want || !errors.Is(stuck[0].Cause, ErrDrainOver) {
			t.Errorf("told %+v, want once, after %v", stuck, want)
		}
		close(release)
		<-done
	})
}

// A lane that found out for itself that it is lost stays so: a drain that comes late only
// asks for the answer.
func TestADrainOfWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		release := make(chan struct{})
		b := newBench(t, benchConfig{source: s.over}, func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			<-release
			return nil
		})
		defer b.stop()
		b.push(task("a", 0))
		g := b.grantAndWork(0)
		b.mu.Lock()
		l := b.lanes[0]
		b.mu.Unlock()
		b.forfeit(l, errLease)
		done := make(chan struct{})
		b.Drain(g, func() { close(done) })
		time.Sleep(time.Hour)
		close(release)
		<-done
		if e := of[Draining](b.seen); len(e) > 0 {
			t.Errorf("told %+v of what is lost", e)
		}
		if e := of[DrainOverdue](b.seen); len(e) > 0 {
			t.Errorf("told %+v of what is lost", e)
		}
		if slices.Contains(s.log(), "close 0@1") {
			t.Error("closed under a lost token")
		}
	})
}

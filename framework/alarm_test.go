package framework

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/sources"
)

func TestEarlierOfTwoInstants(t *testing.T) {
	t.Parallel()
	first := time.Unix(1, 0)
	second := first.Add(1)
	for _, c := range []struct{ a, b, want time.Time }{
		{first, second, first},
		{second, first, first},
		{first, time.Time{}, first},
		{time.Time{}, first, first},
		{},
	} {
		if got := earlier(c.a, c.b); got != c.want {
			t.Errorf("earlier(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// What is to be done soon does not wait for what was to be done late, and was known before.
func TestAnEarlierAlarmIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const soon = time.Second
		again := make(chan string, 1)
		b := newBench(t, benchConfig{}, func(_ context.Context, task *Task) error {
			switch {
			case task.Run() > 1:
				again <- task.Key
				return nil
			case task.Key == "late":
				return RetryAfter(time.Hour, nil)
			}
			return RetryAfter(soon, nil)
		})
		defer b.stop()
		b.push(task("late", 0))
		b.grant(0)
		synctest.Wait()
		b.push(task("soon", 0))
		began := time.Now()
		if key := <-again; key != "soon" || time.Since(began) != soon {
			t.Errorf("the task of key %q ran again after %v, want that of soon after %v", key, time.Since(began), soon)
		}
	})
}

// Each of several handlers that hang is told of when its own time and grace are over.
func TestWhenAHandlerIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, apart = 5 * time.Second, 3 * time.Second
		release := make(chan struct{})
		b := newBench(t, benchConfig{Config: Config{HandlerTimeout: limit, Concurrency: 2}}, func(context.Context, *Task) error {
			<-release
			return nil
		})
		defer b.stop()
		b.push(task("a", 0))
		b.grant(0)
		time.Sleep(apart)
		b.push(task("b", 0))
		time.Sleep(time.Minute)
		want := limit + b.cfg.Timing.CancelGrace
		stuck := of[HandlerStuck](b.seen)
		if len(stuck) != 2 || slices.ContainsFunc(stuck, func(e HandlerStuck) bool { return e.For != want }) {
			t.Errorf("told %+v, want two after %v", stuck, want)
		}
		close(release)
	})
}

// A drain whose time is over has cut nothing if no handler runs, and what it waits for is another's
// to tell: the source does not answer for what ended.
func TestADrainIsOverdueOnlyForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{onSettle: func(ctx context.Context, _ []sources.Settlement) error {
			<-ctx.Done()
			return errors.New("no answer")
		}}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.push(task("a", 0))
		g := b.grantAndWork(0)
		b.Drain(g, func() {})
		time.Sleep(b.cfg.Timing.Drain + b.cfg.Timing.CancelGrace + time.Second)
		if e := of[DrainOverdue](b.seen); len(e) > 0 {
			t.Errorf("told %+v with no handler running", e)
		}
	})
}

// A lane that is refused a start is left alone for one time, however often it and others are refused meanwhile.
func TestGatesOpenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{alarm: newAlarm()}
		one, two, now := &lane{pool: p}, &lane{pool: p}, time.Now()
		p.hold(one, now)
		p.hold(two, now.Add(gatedFor/2))
		p.hold(one, now.Add(gatedFor/2))
		if want := now.Add(gatedFor); p.alarm.gates != want || len(p.gated) != 2 {
			t.Errorf("%d lanes are asked again after %v, want 2 after %v", len(p.gated), p.alarm.gates.Sub(now), gatedFor)
		}
	})
}

package framework_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
)

// takesOver has peer do what is left, in one try each.
func (f *fleet) takesOver(peer string, want map[string][]string) {
	f.t.Helper()
	c := f.consumer(peer, f.handler(peer, 0), framework.WithConfig(framework.Config{Retry: framework.RetryPolicy{Tries: 1}}))
	if err := c.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	until(f.t, time.Minute, func() bool { return f.open() == 0 })
	if err := c.Stop(context.Background()); err != nil {
		f.t.Error(err)
	}
	f.checkOnceInOrder(want)
}

// A job of an hour, in steps of a second. It is told of a hand-over at once, and what it leaves is no try of the task: the next owner
// runs it again, before the later tasks of its key.
func TestALongJobLeavesAtAHandOver(t *testing.T) {
	for what, leaves := range map[string]error{
		"ErrHandedOver":    framework.ErrHandedOver,
		"wrapped":          fmt.Errorf("after 7 steps: %w", framework.ErrHandedOver),
		"for good":         framework.Dead(framework.ErrHandedOver),
		"in half a minute": framework.RetryAfter(30*time.Second, framework.ErrHandedOver),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				var attempts []int
				ann := f.consumer("ann", framework.Chain(framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
					attempts = append(attempts, task.Attempt)
					select {
					case <-framework.HandOver(ctx):
						if ctx.Err() != nil || !framework.Owned(ctx) {
							t.Errorf("its context has ended: %v", context.Cause(ctx))
						}
						return leaves
					case <-time.After(time.Hour):
						return nil
					}
				}), framework.Timeout(2*time.Hour)), framework.WithConfig(framework.Config{Retry: framework.RetryPolicy{Tries: 1}}))
				want := f.push(3, 1)
				if err := ann.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				began := time.Now()
				if err := ann.Stop(context.Background()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("the stop took %v", took)
				}
				handled := eventsOf[framework.Handled](f, "ann")
				if len(handled) != 1 || handled[0].Outcome != 0 || !errors.Is(handled[0].Err, framework.ErrHandedOver) {
					t.Errorf("%+v", handled)
				}
				f.takesOver("ben", want)
				for _, h := range eventsOf[framework.Handled](f, "ben") {
					attempts = append(attempts, h.Task.Attempt)
				}
				if !slices.Equal(attempts, []int{1, 1, 1, 1}) {
					t.Errorf("attempts %v", attempts)
				}
			})
		})
	}
}

// Who leaves a task that nobody takes over has failed.
func TestWhoLeavesWithoutAHandOverHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		c := f.consumer("ann", framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
			select {
			case <-framework.HandOver(ctx):
				t.Error("there is none")
			default:
			}
			if task.Attempt == 1 {
				return framework.ErrHandedOver
			}
			return nil
		}))
		f.push(1, 1)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, 10*time.Minute, func() bool { return f.open() == 0 })
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if n := len(eventsOf[framework.Handled](f, "ann")); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
}

func TestNoHandOverElsewhere(t *testing.T) {
	if c := framework.HandOver(t.Context()); c != nil {
		t.Errorf("%v", c)
	}
}

// Who waits for a place of AtMost has done nothing yet: a hand-over does not wait for it.
func TestAHandOverWaitsForNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		ann := f.consumer("ann", framework.Chain(f.handler("ann", 10*time.Second), framework.AtMost(1)))
		want := f.push(8, 8)
		if err := ann.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return len(eventsOf[framework.Handled](f, "ann")) > 0 })
		began := time.Now()
		if err := ann.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("the stop took %v", took)
		}
		f.takesOver("ben", want)
	})
}

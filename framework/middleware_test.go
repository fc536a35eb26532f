package framework_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
)

// Two handlers under one limit share its places; whoever panics gives its place back.
func TestAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most, runs := 0, 0, 0
		work := framework.HandlerFunc(func(_ context.Context, task *framework.Task) error {
			mu.Lock()
			running++
			runs++
			most = max(most, running)
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				running--
			}()
			<-time.After(time.Second)
			if task.ID == "bad" {
				panic("bad")
			}
			return nil
		})
		limit := framework.AtMost(3)
		handlers := []framework.Handler{framework.Chain(work, framework.Recover(), limit), framework.Chain(work, framework.Recover(), limit)}
		began := time.Now()
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				task := &framework.Task{ID: []string{"bad", "good"}[i/3%2]}
				_ = handlers[i%2].Handle(t.Context(), task)
			})
		}
		all.Wait()
		if most != 3 || runs != 12 || time.Since(began) != 4*time.Second {
			t.Errorf("%d at once at most, %d runs in %v, want 3, 12 in 4s", most, runs, time.Since(began))
		}
	})
}

// Who waits for a place no longer than its context waits does not start, and takes no place.
func TestAtMostWaitsNoLongerThanTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		release := make(chan struct{})
		h := framework.Chain(framework.HandlerFunc(func(context.Context, *framework.Task) error {
			starts++
			<-release
			return nil
		}), framework.AtMost(1))
		var all sync.WaitGroup
		all.Go(func() { _ = h.Handle(t.Context(), &framework.Task{}) })
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, framework.ErrTimeout)
		defer cancel()
		if err := h.Handle(ctx, &framework.Task{}); !errors.Is(err, framework.ErrTimeout) || starts != 1 {
			t.Errorf("%v after %d starts, want %v after 1", err, starts, framework.ErrTimeout)
		}
		close(release)
		all.Wait()
		for range 100 { // of a place and an end, select takes either
			if err := h.Handle(ctx, &framework.Task{}); !errors.Is(err, framework.ErrTimeout) || starts != 1 {
				t.Fatalf("%v after %d starts, want %v after 1", err, starts, framework.ErrTimeout)
			}
		}
		if err := h.Handle(t.Context(), &framework.Task{}); err != nil || starts != 2 {
			t.Errorf("%v after %d starts, want none after 2", err, starts)
		}
	})
}

func TestAtMostOfNone(t *testing.T) {
	nested := framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil })
	limit := framework.AtMost(0)
	if err := framework.Chain(nested, limit, limit).Handle(t.Context(), &framework.Task{}); err != nil {
		t.Error(err)
	}
}

package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// modestly makes a source take and end tasks in asynq's words, as if its own scripts did not fit.
func modestly(t *testing.T, src *Source) {
	t.Helper()
	if err := src.trial(t.Context(), true); err != nil { // it learns the words
		t.Fatal(err)
	}
	src.modest.Store(true)
}

// A source that found that its own scripts do not fit does with asynq's what it would do
// with its own: in order, over a hand-over and a crash, with retries.
func TestAModestSourceWorks(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := s.client(t, 1)
	const n = 60
	var mu sync.Mutex
	next := 0
	peer := func() *testPeer {
		p := s.run(t, Config{Partitions: 1}, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			mu.Lock()
			defer mu.Unlock()
			if string(task.Payload()) == fmt.Sprint(next-1) {
				return nil // its owner was lost before it could say so
			}
			if string(task.Payload()) != fmt.Sprint(next) {
				t.Errorf("task %s came when %d was due", task.Payload(), next)
			}
			if retried, _ := asynq.GetRetryCount(ctx); next%20 == 7 && retried == 0 {
				return errors.New("the first time it fails")
			}
			next++
			return nil
		}), asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }})
		p.src.tested = false
		p.client.AddHook(change(func(source string) string {
			return strings.Replace(source, "redis.call('RPOP', KEYS[2]", "redis.call('LPOP', KEYS[2]", 1)
		}))
		return p
	}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := c.Enqueue("key", asynq.NewTask("t", fmt.Append(nil, i)), asynq.MaxRetry(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	came := func(want int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return next >= want }
	}
	add(0, n/2)
	first := peer()
	o := first.serve(0, 1)
	if modest, why := first.src.Modest(); !modest || why == nil {
		t.Fatalf("it is modest: %v, because of %v", modest, why)
	}
	until(t, "some are done", came(n/4))
	o.stop()
	second := peer()
	o = second.serve(0, 2)
	add(n/2, n)
	until(t, "most are done", came(3*n/4))
	o.lost()
	third := peer()
	o = third.serve(0, 3)
	until(t, "all are done", came(n))
	o.stop()
	if info, err := s.inspector().GetQueueInfo(QueueOf(s.name, 0)); err != nil || info.Size != 0 {
		t.Errorf("left over: %+v, %v", info, err)
	}
}

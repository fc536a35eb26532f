package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/partition"
)

// What becomes of a task is what a plain server makes of it, whatever it was enqueued with and however its handler
// ends: state, retries, error, result and lock.
func TestWhatBecomesOfATaskIsWhatAsynqMakesOfIt(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	bad := errors.New("bad")
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if w := task.ResultWriter(); w != nil {
			_, _ = w.Write([]byte("result"))
		}
		switch task.Type() {
		case "fails":
			return bad
		case "skips":
			return fmt.Errorf("%w: %w", bad, asynq.SkipRetry)
		case "revokes":
			return asynq.RevokeTask
		case "panics":
			panic("bad")
		case "no failure":
			if n, _ := asynq.GetRetryCount(ctx); n == 0 {
				return errors.New("busy")
			}
		case "late":
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	cfg := asynq.Config{
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
		IsFailure:      func(err error) bool { return err.Error() != "busy" },
	}
	types := []string{"ends", "fails", "skips", "revokes", "panics", "no failure", "late"}
	options := map[string][]asynq.Option{
		"nothing":                 nil,
		"no retry":                {asynq.MaxRetry(0)},
		"kept":                    {asynq.Retention(time.Hour)},
		"unique":                  {asynq.Unique(time.Hour)},
		"unique and kept":         {asynq.Unique(time.Hour), asynq.Retention(time.Hour)},
		"unique and no retry":     {asynq.Unique(time.Hour), asynq.MaxRetry(0)},
		"a deadline":              {asynq.Deadline(time.Now().Add(time.Hour))},
		"a deadline that is over": {asynq.Deadline(time.Now().Add(-time.Hour)), asynq.Unique(time.Hour)},
		"later":                   {asynq.ProcessIn(time.Second), asynq.Unique(time.Hour), asynq.Retention(time.Hour)},
	}
	locks := make(map[string]string)
	for id := range partition.ID(2) {
		for _, typ := range types {
			timeout := time.Hour
			if typ == "late" {
				timeout = time.Second
			}
			for name, opts := range options {
				info := s.enqueue(t, id, asynq.NewTask(typ, []byte(name)), append(slices.Clip(opts), asynq.TaskID(typ+" "+name), asynq.Timeout(timeout))...)
				locks[info.Queue+info.ID] = s.HGet(t.Context(), keysOf(info.Queue).task+info.ID, "unique_key").Val()
			}
		}
	}
	plain := cfg
	plain.Queues, plain.Concurrency = map[string]int{QueueOf(s.name, 1): 1}, 100
	plain.DelayedTaskCheckInterval = time.Second
	server := asynq.NewServerFromRedisClient(sameServer(t, s), silent(plain))
	if err := server.Start(handler); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	o := s.run(t, Config{Plain: Alarm}, handler, cfg).serve(0, 1)
	defer o.stop()

	ended := func(queue string) func() bool {
		return func() bool {
			info, err := s.inspector().GetQueueInfo(queue)
			return err == nil && info.Pending+info.Active+info.Scheduled == 0
		}
	}
	said := func(id partition.ID, typ, name string) string {
		queue := QueueOf(s.name, id)
		text := "gone"
		if info, err := s.inspector().GetTaskInfo(queue, typ+" "+name); err == nil {
			text = fmt.Sprintf("%v, retried %d of %d, timeout %v, kept for %v, failed %v, completed %v, again %v, result %q",
				info.State, info.Retried, info.MaxRetry, info.Timeout, info.Retention, !info.LastFailedAt.IsZero(), !info.CompletedAt.IsZero(), !info.NextProcessAt.IsZero(), info.Result)
			if typ != "panics" { // it says where
				text += fmt.Sprintf(", error %q", info.LastErr)
			}
		}
		return fmt.Sprintf("%s, lock %v", text, s.Exists(t.Context(), locks[queue+typ+" "+name]).Val())
	}
	until(t, "the plain server has ended all", ended(QueueOf(s.name, 1)))
	until(t, "the peer has ended all", ended(QueueOf(s.name, 0)))
	for _, typ := range types {
		for name := range options {
			if got, want := said(0, typ, name), said(1, typ, name); got != want {
				t.Errorf("%s, with %s:\ngot  %s\nwant %s", typ, name, got, want)
			}
		}
	}
	got, _ := s.inspector().GetQueueInfo(QueueOf(s.name, 0))
	want, _ := s.inspector().GetQueueInfo(QueueOf(s.name, 1))
	if got.Processed != want.Processed || got.Failed != want.Failed || got.ProcessedTotal != want.ProcessedTotal || got.FailedTotal != want.FailedTotal {
		t.Errorf("counted are %+v, want %+v", got, want)
	}
}

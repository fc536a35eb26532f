package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
)

// A stage is a store, a peer and its one queue, for one feature of asynq.
type stage struct {
	*testing.T
	*store
	queue  string
	mux    *asynq.ServeMux
	cfg    asynq.Config
	source Config
}

// serve starts the peer, for the rest of the test.
func (s *stage) serve() {
	s.Helper()
	if s.cfg.RetryDelayFunc == nil {
		s.cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
	}
	o := s.run(s.T, s.source, s.mux, s.cfg).serve(0, 1)
	s.Cleanup(o.stop)
}

func (s *stage) add(task *asynq.Task, opts ...asynq.Option) string {
	s.Helper()
	return s.enqueue(s.T, 0, task, opts...).ID
}

// info is what the inspector says of a task, nil if it is gone.
func (s *stage) info(id string) *asynq.TaskInfo {
	s.Helper()
	info, err := s.inspector().GetTaskInfo(s.queue, id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return nil
	}
	if err != nil {
		s.Fatal(err)
	}
	return info
}

// becomes waits until a task has a state.
func (s *stage) becomes(id string, state asynq.TaskState) *asynq.TaskInfo {
	s.Helper()
	var info *asynq.TaskInfo
	until(s.T, fmt.Sprintf("task %s is %v", id, state), func() bool {
		info = s.info(id)
		return info != nil && info.State == state
	})
	return info
}

// vanishes waits until a task is gone.
func (s *stage) vanishes(id string) {
	s.Helper()
	until(s.T, fmt.Sprintf("task %s is gone", id), func() bool { return s.info(id) == nil })
}

func (s *stage) handle(typ string, h func(context.Context, *asynq.Task) error) {
	s.mux.HandleFunc(typ, h)
}

// the features of asynq that must work as ever.
var features = []struct {
	name string
	run  func(s *stage)
}{
	{"middleware and the context", func(s *stage) {
		var wrapped atomic.Int32
		s.mux.Use(func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				wrapped.Add(1)
				return next.ProcessTask(ctx, task)
			})
		})
		said := make(chan string, 1)
		s.handle("t:", func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			retried, _ := asynq.GetRetryCount(ctx)
			most, _ := asynq.GetMaxRetry(ctx)
			queue, _ := asynq.GetQueueName(ctx)
			said <- fmt.Sprint(id, retried, most, queue, task.Type(), string(task.Payload()))
			return nil
		})
		s.serve()
		s.vanishes(s.add(asynq.NewTask("t:one", []byte("p")), asynq.TaskID("me"), asynq.MaxRetry(4)))
		if got, want := <-said, fmt.Sprint("me", 0, 4, s.queue, "t:one", "p"); got != want {
			s.Errorf("the handler was told %q, want %q", got, want)
		}
		if wrapped.Load() != 1 {
			s.Errorf("the middleware ran %d times", wrapped.Load())
		}
	}},
	{"results and retention", func(s *stage) {
		s.handle("t", func(_ context.Context, task *asynq.Task) error {
			_, err := task.ResultWriter().Write([]byte("the result"))
			return err
		})
		s.cfg.JanitorInterval = 50 * time.Millisecond
		s.serve()
		id := s.add(asynq.NewTask("t", nil), asynq.Retention(time.Hour))
		short := s.add(asynq.NewTask("t", nil), asynq.Retention(time.Second))
		if got := s.becomes(id, asynq.TaskStateCompleted); string(got.Result) != "the result" || got.CompletedAt.IsZero() {
			s.Errorf("the result is %q, completed at %v", got.Result, got.CompletedAt)
		}
		s.vanishes(short) // by asynq's janitor
	}},
	{"what is no failure is not counted, by key as well", func(s *stage) {
		var runs atomic.Int32
		s.handle("t", func(context.Context, *asynq.Task) error {
			if runs.Add(1)%3 != 0 {
				return errors.New("later")
			}
			return nil
		})
		s.cfg.IsFailure = func(err error) bool { return err == nil }
		s.source.Key = func(_ string, payload []byte, _ map[string]string) string { return string(payload) }
		s.serve()
		s.vanishes(s.add(asynq.NewTask("t", []byte("ann")), asynq.MaxRetry(1)))
		s.vanishes(s.add(asynq.NewTask("t", nil), asynq.MaxRetry(1)))
		if info, err := s.inspector().GetQueueInfo(s.queue); err != nil || info.Processed != 2 || info.Failed != 0 || runs.Load() != 6 {
			s.Errorf("after %d runs it says that %d were processed and %d failed (%v)", runs.Load(), info.Processed, info.Failed, err)
		}
	}},
	{"a timeout is a failure", func(s *stage) {
		s.handle("t", func(ctx context.Context, _ *asynq.Task) error {
			<-ctx.Done()
			return ctx.Err()
		})
		s.cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
		s.serve()
		id := s.add(asynq.NewTask("t", nil), asynq.Timeout(time.Second), asynq.MaxRetry(3))
		if got := s.becomes(id, asynq.TaskStateRetry); got.Retried != 1 || !strings.Contains(got.LastErr, "deadline") {
			s.Errorf("it is retried %d times because of %q", got.Retried, got.LastErr)
		}
	}},
	{"a deadline that is over", func(s *stage) {
		var ran atomic.Bool
		s.handle("t", func(context.Context, *asynq.Task) error { ran.Store(true); return nil })
		s.serve()
		id := s.add(asynq.NewTask("t", nil), asynq.Deadline(time.Now().Add(-time.Hour)), asynq.MaxRetry(0))
		s.becomes(id, asynq.TaskStateArchived)
		if ran.Load() {
			s.Errorf("it ran")
		}
	}},
	{"skip retry", func(s *stage) {
		s.handle("t", func(context.Context, *asynq.Task) error { return fmt.Errorf("bad: %w", asynq.SkipRetry) })
		s.serve()
		if got := s.becomes(s.add(asynq.NewTask("t", nil)), asynq.TaskStateArchived); !strings.HasPrefix(got.LastErr, "bad") {
			s.Errorf("it was archived because of %q", got.LastErr)
		}
	}},
	{"revoke", func(s *stage) {
		s.handle("t", func(context.Context, *asynq.Task) error { return asynq.RevokeTask })
		s.serve()
		s.vanishes(s.add(asynq.NewTask("t", nil), asynq.Retention(time.Hour)))
	}},
	{"retries until they are used up", func(s *stage) {
		var runs atomic.Int32
		failed := make(chan error, 10)
		s.cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { failed <- err })
		s.handle("t", func(context.Context, *asynq.Task) error { return fmt.Errorf("run %d", runs.Add(1)) })
		s.serve()
		got := s.becomes(s.add(asynq.NewTask("t", nil), asynq.MaxRetry(7)), asynq.TaskStateArchived)
		if runs.Load() != 8 || got.LastErr != "run 8" || len(failed) != 8 {
			s.Errorf("it ran %d times, the last error is %q, the error handler heard of %d", runs.Load(), got.LastErr, len(failed))
		}
		if err := s.inspector().RunTask(s.queue, got.ID); err != nil {
			s.Error(err)
		}
		until(s.T, "it runs again by hand", func() bool { return runs.Load() == 9 })
	}},
	{"an error that is no text", func(s *stage) {
		var runs, heard atomic.Int32
		bad := errors.New("bad: \xff\xfe")
		s.cfg.IsFailure = func(err error) bool {
			heard.Add(1)
			return errors.Is(err, bad)
		}
		s.handle("t", func(context.Context, *asynq.Task) error { runs.Add(1); return bad })
		s.serve()
		got := s.becomes(s.add(asynq.NewTask("t", nil), asynq.MaxRetry(1)), asynq.TaskStateArchived)
		if runs.Load() != 2 || got.Retried != 1 || got.LastErr != "bad: ?" || heard.Load() != 1 {
			s.Errorf("it ran %d times, %d of them again, %d failures were asked for; the last error is %q", runs.Load(), got.Retried, heard.Load(), got.LastErr)
		}
	}},
	{"a panic that is no text", func(s *stage) {
		var runs, asked atomic.Int32
		s.cfg.RetryDelayFunc = func(n int, _ error, task *asynq.Task) time.Duration {
			if n == 0 && string(task.Payload()) == "p" {
				asked.Add(1)
			}
			return 0
		}
		s.handle("t", func(context.Context, *asynq.Task) error { runs.Add(1); panic("bad: \xff\xfe") })
		s.serve()
		got := s.becomes(s.add(asynq.NewTask("t", []byte("p")), asynq.MaxRetry(1)), asynq.TaskStateArchived)
		if runs.Load() != 2 || got.Retried != 1 || got.LastErr != errPanic.Error() || asked.Load() == 0 {
			s.Errorf("it ran %d times, %d of them again; the last error is %q; the delay was asked for %d times", runs.Load(), got.Retried, got.LastErr, asked.Load())
		}
	}},
	{"a queue that was renamed", func(s *stage) {
		s.handle("t", func(ctx context.Context, _ *asynq.Task) error {
			if queue, _ := asynq.GetQueueName(ctx); queue != s.queue {
				s.Errorf("the handler is told of the queue %s", queue)
			}
			if n, _ := asynq.GetRetryCount(ctx); n == 0 {
				return errors.New("no")
			}
			return nil
		})
		task := s.enqueue(s.T, 1, asynq.NewTask("t", nil), asynq.Retention(time.Hour))
		from, to := keysOf(task.Queue), keysOf(s.queue)
		fields := s.HGetAll(s.Context(), from.task+task.ID).Val()
		_, err := s.Pipelined(s.Context(), func(p redis.Pipeliner) error {
			p.HSet(s.Context(), to.task+task.ID, fields)
			p.LPush(s.Context(), to.pending, task.ID)
			p.SAdd(s.Context(), "asynq:queues", s.queue)
			return nil
		})
		if err != nil {
			s.Fatal(err)
		}
		s.serve()
		if got := s.becomes(task.ID, asynq.TaskStateCompleted); got.Queue != s.queue {
			s.Errorf("it is completed in %s", got.Queue)
		}
	}},
	{"ids that look like keys", func(s *stage) {
		s.handle("t", func(context.Context, *asynq.Task) error { return errors.New("no") })
		s.serve()
		for _, id := range []string{"}:lease", "x}:archived", "asynq:{q}:pending", "{a}", "a b", "0 0 0 ", "t:"} {
			if got := s.becomes(s.add(asynq.NewTask("t", nil), asynq.TaskID(id), asynq.MaxRetry(1)), asynq.TaskStateArchived); got.Retried != 1 {
				s.Errorf("%q is archived after %d retries", id, got.Retried)
			}
		}
	}},
	{"leases that were deleted", func(s *stage) {
		k := keysOf(s.queue)
		s.handle("fails", func(context.Context, *asynq.Task) error {
			if err := s.Del(context.Background(), k.lease).Err(); err != nil {
				s.Error(err)
			}
			return errors.New("no")
		})
		s.handle("ends", func(context.Context, *asynq.Task) error { return s.Del(context.Background(), k.lease).Err() })
		s.serve()
		if got := s.becomes(s.add(asynq.NewTask("fails", nil), asynq.MaxRetry(1)), asynq.TaskStateArchived); got.Retried != 1 {
			s.Errorf("it is archived after %d retries", got.Retried)
		}
		s.becomes(s.add(asynq.NewTask("ends", nil), asynq.Retention(time.Hour)), asynq.TaskStateCompleted)
		s.becomes(s.add(asynq.NewTask("ends", nil), asynq.Retention(time.Hour), asynq.Unique(time.Hour)), asynq.TaskStateCompleted)
		s.vanishes(s.add(asynq.NewTask("ends", []byte("2")), asynq.Unique(time.Hour)))
	}},
	{"failures that are none", func(s *stage) {
		var runs atomic.Int32
		s.cfg.IsFailure = func(err error) bool { return err.Error() != "busy" }
		s.handle("t", func(ctx context.Context, _ *asynq.Task) error {
			if n, _ := asynq.GetRetryCount(ctx); n != 0 {
				s.Errorf("it counts as retried %d times", n)
			}
			if runs.Add(1) < 4 {
				return errors.New("busy")
			}
			return nil
		})
		s.serve()
		s.vanishes(s.add(asynq.NewTask("t", nil), asynq.MaxRetry(1)))
	}},
	{"a panic", func(s *stage) {
		s.handle("t", func(context.Context, *asynq.Task) error { panic("oh no") })
		s.serve()
		if got := s.becomes(s.add(asynq.NewTask("t", nil), asynq.MaxRetry(0)), asynq.TaskStateArchived); !strings.Contains(got.LastErr, "oh no") {
			s.Errorf("the last error is %q", got.LastErr)
		}
	}},
	{"unique", func(s *stage) {
		leave := make(chan struct{})
		s.handle("t", func(context.Context, *asynq.Task) error { <-leave; return nil })
		s.serve()
		client := asynq.NewClientFromRedisClient(s.store.UniversalClient)
		id := s.add(asynq.NewTask("t", []byte("x")), asynq.Unique(time.Hour))
		if _, err := client.Enqueue(asynq.NewTask("t", []byte("x")), asynq.Queue(s.queue), asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
			s.Errorf("the second says %v", err)
		}
		close(leave)
		s.vanishes(id)
		s.vanishes(s.add(asynq.NewTask("t", []byte("x")), asynq.Unique(time.Hour)))
	}},
	{"groups", func(s *stage) {
		got := make(chan string, 1)
		s.cfg.GroupGracePeriod = time.Second
		s.cfg.GroupAggregator = asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			return asynq.NewTask("all", fmt.Appendf(nil, "%s %d", group, len(tasks)))
		})
		s.handle("all", func(_ context.Context, task *asynq.Task) error { got <- string(task.Payload()); return nil })
		s.serve()
		for range 3 {
			s.add(asynq.NewTask("one", nil), asynq.Group("g"))
		}
		select {
		case g := <-got:
			if g != "g 3" {
				s.Errorf("the group is %q", g)
			}
		case <-time.After(wait):
			s.Error("nothing came of the group")
		}
	}},
	{"scheduled", func(s *stage) {
		ran := make(chan time.Time, 1)
		s.handle("t", func(context.Context, *asynq.Task) error { ran <- time.Now(); return nil })
		s.serve()
		began := time.Now()
		s.add(asynq.NewTask("t", nil), asynq.ProcessIn(2*time.Second))
		select {
		case at := <-ran:
			if at.Sub(began) < time.Second { // asynq counts in whole seconds
				s.Errorf("it ran after %v", at.Sub(began))
			}
		case <-time.After(wait):
			s.Error("it never ran")
		}
	}},
	{"cancel", func(s *stage) {
		inside := make(chan struct{})
		s.cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
		s.handle("t", func(ctx context.Context, _ *asynq.Task) error {
			close(inside)
			<-ctx.Done()
			return ctx.Err()
		})
		s.serve()
		id := s.add(asynq.NewTask("t", nil))
		<-inside
		until(s.T, "the cancel is heard", func() bool {
			if err := s.inspector().CancelProcessing(id); err != nil {
				s.Fatal(err)
			}
			info := s.info(id)
			return info != nil && info.State == asynq.TaskStateRetry
		})
	}},
	{"pause and what the inspector shows", func(s *stage) {
		inside, leave := make(chan struct{}, 2), make(chan struct{})
		s.handle("t", func(context.Context, *asynq.Task) error { inside <- struct{}{}; <-leave; return nil })
		s.serve()
		id := s.add(asynq.NewTask("t", nil))
		<-inside
		if got := s.becomes(id, asynq.TaskStateActive); got.IsOrphaned {
			s.Errorf("a running task is called orphaned")
		}
		until(s.T, "the server is listed", func() bool {
			servers, err := s.inspector().Servers()
			if err != nil {
				s.Fatal(err)
			}
			for _, server := range servers {
				if server.Queues[s.queue] > 0 {
					return true
				}
			}
			return false
		})
		if err := s.inspector().PauseQueue(s.queue); err != nil {
			s.Fatal(err)
		}
		close(leave)
		s.vanishes(id)
		second := s.add(asynq.NewTask("t", nil))
		s.becomes(second, asynq.TaskStatePending)
		if err := s.inspector().UnpauseQueue(s.queue); err != nil {
			s.Fatal(err)
		}
		s.vanishes(second)
	}},
	{"tasks of old", func(s *stage) { // what was there before anybody knew of countoff
		var runs sync.Map
		s.handle("t", func(_ context.Context, task *asynq.Task) error {
			runs.Store(string(task.Payload()), true)
			return nil
		})
		server := asynq.NewServerFromRedisClient(sameServer(s.T, s.store), silent(asynq.Config{Queues: map[string]int{s.queue: 1}}))
		if err := server.Start(s.mux); err != nil {
			s.Fatal(err)
		}
		s.vanishes(s.add(asynq.NewTask("t", []byte("before"))))
		server.Shutdown()
		id := s.add(asynq.NewTask("t", []byte("between")))
		s.serve()
		s.vanishes(id)
		for _, want := range []string{"before", "between"} {
			if _, ok := runs.Load(want); !ok {
				s.Errorf("%s did not run", want)
			}
		}
	}},
}

func testFeatures(t *testing.T, client func(t *testing.T) redis.UniversalClient) {
	shared := client(t)
	for _, f := range features {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := &store{UniversalClient: sameServer(t, shared), name: redistest.Name(t), ids: make(map[string][]string)}
			f.run(&stage{T: t, store: s, queue: QueueOf(s.name, 0), mux: asynq.NewServeMux()})
		})
	}
}

func TestFeaturesOfAsynq(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		testFeatures(t, func(t *testing.T) redis.UniversalClient {
			_, client := redistest.Mini(t)
			return client
		})
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		testFeatures(t, func(t *testing.T) redis.UniversalClient { return redistest.Server(t).Client() })
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		testFeatures(t, func(t *testing.T) redis.UniversalClient { return redistest.Cluster(t) })
	})
}

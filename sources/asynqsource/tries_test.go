package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources"
)

// told is a hook that counts the bytes of all that scripts answer.
type told struct{ bytes *int }

func (told) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h told) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd, ok := cmd.(*redis.Cmd); ok {
			*h.bytes += len(fmt.Sprint(cmd.Val()))
		}
		return err
	}
}

func (told) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// An owner hears of the runs of those tasks that it takes: of what waits for its retry there may be any
// number, and one answer that tells of them all may be too large to arrive in the time.
func TestAnOwnerHearsOfTheTriesOfWhatItTakes(t *testing.T) {
	for _, modest := range []bool{false, true} {
		t.Run(fmt.Sprint("modest ", modest), func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			k := keysOf(QueueOf(s.name, 0))
			const n, length = 1000, 1000
			pipe := s.Pipeline()
			for i := range n {
				id := fmt.Sprint("waits-", i)
				pipe.HSet(t.Context(), k.tries, id, "1 0 0 "+strings.Repeat("e", length))
				pipe.HSet(t.Context(), k.task+id, "msg", "m")
				pipe.ZAdd(t.Context(), k.retry, redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id})
			}
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			due := time.Now().Add(time.Hour)
			s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("mine"))
			s.HSet(t.Context(), k.task+"mine", "tried", 1)
			s.HSet(t.Context(), k.tries, "mine", fmt.Sprintf("2 1 %d first", due.UnixMilli()))
			src, bytes := s.source(t), 0
			if _, err := src.Layout(t.Context()); err != nil {
				t.Fatal(err)
			}
			if modest {
				modestly(t, src)
			}
			src.client.AddHook(told{&bytes})
			st := s.open(t, src, 0, 1)
			if bytes > n*length/10 { // it is told of the plain servers there are, too
				t.Errorf("an owner that opens is told %d bytes, where %d wait that it does not take", bytes, n*length)
			}
			tasks, err := st.Fetch(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			d := tasks[0].Delivery
			if d.Attempt != 3 || d.Crashes != 1 || d.FirstError != "first" || d.NotBefore.Sub(due).Abs() > 10*time.Second {
				t.Errorf("it is told %+v of a task of two tries and a crash, due at %v", d, due)
			}
		})
	}
}

// A task that waited for its retry, was archived by hand while nobody had the queue and is run by hand later runs
// then, and not when its retry was due. Where one of an ingress goes stands although it was archived.
func TestWhatIsRunByHandDoesNotWait(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	queue := QueueOf(s.name, 0)
	k, due := keysOf(queue), time.Now().Add(time.Hour)
	waits, plan := fmt.Sprintf("1 0 %d first", due.UnixMilli()), "0 0 0 to 1-1 2"
	for id, tries := range map[string]string{"by hand": waits, "left alone": waits, "planned": plan} {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(id))
		s.HSet(t.Context(), k.task+id, "tried", 1)
		s.HSet(t.Context(), k.tries, id, tries)
	}
	for _, id := range []string{"by hand", "planned"} {
		if err := s.inspector().ArchiveTask(queue, id); err != nil {
			t.Fatal(err)
		}
	}
	st := s.open(t, s.source(t), 0, 1)
	if got := s.HGet(t.Context(), k.tries, "planned").Val(); got != plan {
		t.Errorf("the plan of one that was archived is %q, want %q", got, plan)
	}
	if err := s.inspector().RunTask(queue, "by hand"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		tasks, err := st.Fetch(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if at := tasks[0].Delivery.NotBefore; at.IsZero() != (tasks[0].ID == "by hand") {
			t.Errorf("%q waits until %v", tasks[0].ID, at)
		}
	}
}

// A task is another one if it has the id of one that was deleted: its runs are its own.
func TestAnIDThatIsUsedAgain(t *testing.T) {
	for _, modest := range []bool{false, true} {
		t.Run(fmt.Sprint("modest ", modest), func(t *testing.T) {
			t.Parallel()
			useAnIDAgain(t, modest)
		})
	}
}

func useAnIDAgain(t *testing.T, modest bool) {
	s := newStore(t)
	queue := QueueOf(s.name, 0)
	k, src := keysOf(queue), s.source(t)
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if modest {
		modestly(t, src)
	}
	st := s.open(t, src, 0, 1)
	fetch := func() *sources.Task {
		t.Helper()
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("x"))
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		tasks, err := st.Fetch(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		return &tasks[0]
	}
	if err := st.Settle(t.Context(), sources.Settlement{Task: fetch(), Outcome: sources.Requeue, Attempt: 1, Delay: time.Hour, Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	if err := s.inspector().DeleteTask(queue, "x"); err != nil {
		t.Fatal(err)
	}
	if d := fetch().Delivery; d.Attempt != 1 || d.FirstError != "" {
		t.Errorf("its first run is the %d., after %q", d.Attempt, d.FirstError)
	}
	if left := s.HGetAll(t.Context(), k.tries).Val(); len(left) > 0 {
		t.Errorf("what was known of the former is kept: %v", left)
	}
}

// A run that fails between two that end their peer takes nothing back: of what is known of a task
// asynq's own script, by which it says that it comes again, forgets nothing.
func TestAFailureForgetsNoCrash(t *testing.T) {
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("poison"))
	k := keysOf(QueueOf(s.name, 0))
	s.HSet(t.Context(), k.tries, "poison", "0 2 0 ")
	s.HSet(t.Context(), k.task+"poison", "tried", "1")
	p := s.run(t, Config{Partitions: 1}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("no luck") }),
		asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }})
	o := p.serve(0, 2)
	until(t, "it has run and waits", func() bool { return s.ZCard(t.Context(), k.retry).Val() == 1 })
	o.stop()
	if got := s.HGet(t.Context(), k.tries, "poison").Val(); !strings.Contains(got, " 2 ") {
		t.Errorf("the store knows %q of it, want that two peers died of it", got)
	}
}

// A task that is retried at once runs again before anybody has recorded that it failed: each run counts all the same, it
// is tried as often as it may be and no more, and what is recorded late takes nothing back.
func TestRetriesThatAreNotRecordedYetCount(t *testing.T) {
	for name, record := range map[string]func(attempt int) bool{
		"the last only":  func(attempt int) bool { return attempt == 3 },
		"each, but late": func(int) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			if _, err := s.client(t, 1).Enqueue("ann", asynq.NewTask("t", nil), asynq.MaxRetry(3), asynq.TaskID("0")); err != nil {
				t.Fatal(err)
			}
			src, _, _ := s.peer(t, Config{Partitions: 1})
			var counts []int
			e, err := src.Handler(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				n, _ := asynq.GetRetryCount(ctx)
				counts = append(counts, n)
				return fmt.Errorf("no %d", n+1)
			}), silent(asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }}))
			if err != nil {
				t.Fatal(err)
			}
			st := s.open(t, src, 0, 1)
			task := st.all(t, 1)[0]
			var late []sources.Settlement
			for attempt := 1; ; attempt++ {
				run := *task.Copy()
				run.Attempt = attempt
				err := e.Handle(t.Context(), &run)
				if o, _ := sources.Asked(err); o == sources.Dead {
					break
				}
				if attempt > 3 {
					t.Fatalf("it is tried for the %dth time, and asynq counts %v", attempt, counts)
				}
				late = append(late, sources.Settlement{Task: &run, Outcome: sources.Retry, Attempt: attempt, Reason: "ours"})
			}
			if !slices.Equal(counts, []int{0, 1, 2, 3}) {
				t.Errorf("asynq counts %v", counts)
			}
			for _, one := range late {
				if !record(one.Attempt) {
					continue
				}
				if err := st.Settle(t.Context(), one); err != nil {
					t.Fatal(err)
				}
				if got, err := s.inspector().GetTaskInfo(st.queue, "0"); err != nil || got.Retried != one.Attempt || got.LastErr != fmt.Sprint("no ", one.Attempt) {
					t.Errorf("the record of run %d says that it was retried %d times because of %q, %v", one.Attempt, got.Retried, got.LastErr, err)
				}
			}
		})
	}
}

// So does a run of which asynq says nothing, as one that has ended its goroutine.
func TestRunsOfWhichNothingIsSaidCount(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.MaxRetry(2), asynq.TaskID("0"))
	src, _, _ := s.peer(t, Config{})
	if _, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), silent(asynq.Config{})); err != nil {
		t.Fatal(err)
	}
	st := s.open(t, src, 0, 1)
	task := st.all(t, 1)[0]
	for attempt, want := range []sources.Outcome{sources.Retry, sources.Retry, sources.Dead} {
		one := *task.Copy()
		one.Attempt = attempt + 1
		raw, _ := st.raw(int64(task.Receipt))
		r := &run{ctx: t.Context(), task: &one, stream: st, raw: raw, err: errPanic}
		if got, _ := sources.Asked(r.outcome()); got != want {
			t.Errorf("the verdict on run %d is %v, want %v", attempt+1, got, want)
		}
	}
}

// While the store does not answer a task may fail any number of times: what is kept of that is bounded, and the last word stays.
func TestWordsThatNobodyRecordsAreFew(t *testing.T) {
	it, last := &item{raw: "raw"}, ""
	for attempt := range 20 * mostWords {
		last = fmt.Sprint(attempt)
		it.say(&native{kind: kindRetry, attempt: 2 * attempt, args: []any{"id", []byte(last)}})
		it.say(&native{kind: kindRequeue, attempt: 2*attempt + 1})
	}
	kept := 0
	for n := it.native; n != nil; n = n.former {
		kept++
	}
	if got := it.message(math.MaxInt); kept > 2*mostWords || got != last {
		t.Errorf("%d words are kept, and the message is %q, want %q", kept, got, last)
	}
}

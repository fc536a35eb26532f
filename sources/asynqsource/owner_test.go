package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A peer that was paused past its lease wakes up: whatever comes of its handlers, the
// new owner's run is untouched, and the paused one starts nothing of what it had fetched.
func TestAPausedOwnerChangesNothing(t *testing.T) {
	for _, outcome := range []error{nil, errors.New("it failed"), asynq.SkipRetry, asynq.RevokeTask} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			queue := QueueOf(s.name, 0)
			const n = 6
			for i := range n {
				s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(fmt.Sprint(i)), asynq.Retention(time.Hour))
			}
			src, _, _ := s.peer(t, Config{})
			release := make(chan struct{})
			e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				<-release
				return outcome
			}), silent(asynq.Config{}))
			if err != nil {
				t.Fatal(err)
			}
			old := s.open(t, src, 0, 1)
			tasks, err := old.Fetch(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			verdicts := make(chan error, len(tasks))
			for i := range tasks[:len(tasks)-1] { // the last is in its buffer
				go func() { verdicts <- e.Handle(t.Context(), &tasks[i]) }()
			}
			stands := s.open(t, s.source(t), 0, 2)
			taken := stands.all(t, n)
			s.expect(t, taken, n)
			former := s.dump(t, queue)
			close(release)
			for range len(tasks) - 1 {
				verdict := <-verdicts
				d := sources.Settlement{Task: &tasks[0], Attempt: 1}
				d.Outcome, d.Delay = sources.Asked(verdict)
				if err := old.Settle(t.Context(), d); !errors.Is(err, sources.ErrFenced) {
					t.Errorf("a settlement of the old owner says %v", err)
				}
			}
			if err := e.Handle(t.Context(), &tasks[len(tasks)-1]); err == nil {
				t.Errorf("the old owner ran what it had in its buffer")
			}
			if now := s.dump(t, queue); now != former {
				t.Errorf("the old owner changed\n%s\nto\n%s", former, now)
			}
		})
	}
}

// all settles what comes, one at a time if it must, until n have come.
func (s *stream) all(t testing.TB, n int) []sources.Task {
	t.Helper()
	var all []sources.Task
	for len(all) < n {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		tasks, err := s.Fetch(ctx, n)
		cancel()
		if err != nil {
			t.Fatalf("after %d tasks: %v", len(all), err)
		}
		all = append(all, tasks...)
		if len(all) == n {
			break // the last stays in hand
		}
		for _, task := range tasks {
			if err := s.Settle(t.Context(), sources.Settlement{Task: &task, Outcome: sources.Done, Attempt: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

func (s *store) expect(t testing.TB, tasks []sources.Task, n int) {
	t.Helper()
	for i, task := range tasks {
		if task.ID != fmt.Sprint(i) || task.Attempt != 1 {
			t.Errorf("place %d has task %s, attempt %d", i, task.ID, task.Attempt)
		}
	}
	if len(tasks) != n {
		t.Errorf("%d tasks, want %d", len(tasks), n)
	}
}

// What a dead peer had comes back first in line, at once, and costs no retry, not even
// where there are none.
func TestInterruptedTasksComeFirst(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 8 {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(fmt.Sprint(i)), asynq.MaxRetry(0))
	}
	dead := s.open(t, s.source(t), 0, 1)
	if tasks, err := dead.Fetch(t.Context(), 5); err != nil || len(tasks) != 5 {
		t.Fatal(tasks, err)
	}
	var mu sync.Mutex
	var order []string
	one := func(string, []byte, map[string]string) string { return "key" } // one that is held up by a slow machine before its start is not passed
	p := s.run(t, Config{Key: one}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		if n, _ := asynq.GetRetryCount(ctx); n != 0 {
			t.Errorf("task %s counts %d retries", id, n)
		}
		mu.Lock()
		defer mu.Unlock()
		order = append(order, id)
		return nil
	}), asynq.Config{})
	o := p.serve(0, 2)
	until(t, "all have run", func() bool { mu.Lock(); defer mu.Unlock(); return len(order) == 8 })
	o.stop()
	if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(order[:5], want) {
		t.Errorf("they ran in the order %v, want first %v", order, want)
	}
}

// A task that kills its peer each time it runs alone is archived after the limit, with
// the reason; the others run.
func TestPoisonIsArchived(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, id := range []string{"good", "poison", "better"} {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(id))
	}
	epoch := partition.Epoch(1)
	first := s.open(t, s.source(t), 0, epoch)
	if tasks, err := first.Fetch(t.Context(), 3); err != nil || len(tasks) != 3 {
		t.Fatal(tasks, err)
	}
	done := make(map[string]bool)
	for deaths := 0; len(done) < 2 || deaths < 3; {
		if epoch++; epoch > 20 {
			t.Fatalf("after 20 owners: %d deaths, done %v", deaths, done)
		}
		st := s.open(t, s.source(t), 0, epoch)
		for len(done) < 2 || deaths < 3 {
			// There is something to come. A peer that does not wait for it has died as well: it is charged with that.
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			tasks, err := st.Fetch(ctx, 1)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if tasks[0].ID == "poison" {
				deaths++
				break // dies
			}
			done[tasks[0].ID] = true
			if err := st.Settle(t.Context(), sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.open(t, s.source(t), 0, epoch+1)
	info, err := s.inspector().GetTaskInfo(QueueOf(s.name, 0), "poison")
	if err != nil || info.State != asynq.TaskStateArchived || info.LastErr != "its peer crashed 3 times while it ran alone" {
		t.Errorf("the poison is %+v, %v", info, err)
	}
}

// Of tasks that are charged with a crash one runs at a time in a peer, whatever their queues: if it
// dies, there is one to blame, and the others are not archived with it after a few deaths.
func TestOneOfThoseThatAreChargedRunsAtATime(t *testing.T) {
	s := newStore(t)
	src := s.source(t)
	var streams []*stream
	for id := range partition.ID(2) {
		s.enqueue(t, id, asynq.NewTask("t", nil), asynq.TaskID("0"))
		k := keysOf(QueueOf(s.name, id))
		s.HSet(t.Context(), k.tries, "0", "0 1 0 ")
		s.HSet(t.Context(), k.task+"0", "tried", "1")
		s.SAdd(t.Context(), k.suspects, "0")
		streams = append(streams, s.open(t, src, id, 1))
	}
	first := streams[0].all(t, 1)[0]
	got := make(chan []sources.Task, 1)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	go func() {
		tasks, err := streams[1].Fetch(ctx, 1)
		if err != nil {
			t.Error(err)
		}
		got <- tasks
	}()
	until(t, "the other waits for its turn, or has come", func() bool {
		streams[1].Mu.Lock()
		defer streams[1].Mu.Unlock()
		return len(got) > 0 || streams[1].Log.WantsPermit()
	})
	if len(got) > 0 {
		t.Error("it runs beside another that is charged")
	}
	if err := streams[0].Settle(ctx, sources.Settlement{Task: &first, Outcome: sources.Done, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if tasks := <-got; len(tasks) != 1 || tasks[0].Crashes != 1 {
		t.Errorf("after it came %+v", tasks)
	}
}

// A handler that ignores its context runs on after asynq has called it a failure.
// Neither the task nor its key runs beside it.
func TestAHandlerThatIgnoresItsContextRunsAlone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := s.client(t, 1)
	var running, runs, most atomic.Int32
	p := s.run(t, Config{Partitions: 1}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		if runs.Add(1) == 1 {
			<-ctx.Done()
			// It goes on: long enough for a server to run what it has called a failure.
			select {
			case <-t.Context().Done():
			case <-time.After(1500 * time.Millisecond):
			}
		}
		return nil
	}), asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }})
	for range 3 {
		if _, err := c.Enqueue("key", asynq.NewTask("t", nil), asynq.Timeout(time.Second), asynq.MaxRetry(5)); err != nil {
			t.Fatal(err)
		}
	}
	o := p.serve(0, 1)
	until(t, "all are done", func() bool {
		info, err := s.inspector().GetQueueInfo(QueueOf(s.name, 0))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size == 0
	})
	o.stop()
	if most.Load() != 1 || runs.Load() != 4 {
		t.Errorf("%d handlers ran at once, and %d in all; want 1 and 4", most.Load(), runs.Load())
	}
}

// A process that stood still between the consumer's question and the start asks again:
// the handler is not called, and it costs no retry.
func TestAPauseBeforeTheStartIsNoticed(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := s.client(t, 1)
	info, err := c.Enqueue("key", asynq.NewTask("t", nil), asynq.MaxRetry(0))
	if err != nil {
		t.Fatal(err)
	}
	src, _, _ := s.peer(t, Config{Partitions: 1})
	var ran atomic.Bool
	e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { ran.Store(true); return nil }), silent(asynq.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	st := s.open(t, src, 0, 1)
	tasks, err := st.Fetch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := st.raw(0)
	r := &run{
		ctx: t.Context(), task: &tasks[0], stream: st, key: runKey{st.queue, info.ID}, raw: raw,
		begun: time.Now().Add(-time.Minute), verdict: make(chan struct{}),
	}
	if _, err := e.enter(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	e.offers <- r
	<-r.verdict
	e.leave(r)
	o, after := sources.Asked(r.outcome())
	if o != sources.Retry || after != 0 || ran.Load() {
		t.Errorf("the verdict is %v after %v, the handler ran: %v", o, after, ran.Load())
	}
	if err := st.Settle(t.Context(), sources.Settlement{Task: &tasks[0], Outcome: o, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.inspector().GetTaskInfo(info.Queue, info.ID); err != nil || got.Retried != 0 || got.LastErr != "" || got.State != asynq.TaskStateActive {
		t.Errorf("the task is %+v, %v", got, err)
	}
	if err := e.Handle(t.Context(), &tasks[0]); err != nil || !ran.Load() {
		t.Errorf("the next run says %v", err)
	}
}

// asynq says nothing of a task when it believes that its own lease is over. The task, and
// its key, go on all the same.
func TestAVerdictThatNeverComesHangsNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("0"))
	src, _, _ := s.peer(t, Config{})
	e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), silent(asynq.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	st := s.open(t, src, 0, 1)
	tasks, err := st.Fetch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range []error{nil, errors.New("it failed")} {
		r := &run{
			ctx: t.Context(), task: &tasks[0], stream: st, key: runKey{st.queue, "0"}, begun: time.Now(), verdict: make(chan struct{}),
		}
		if _, err := e.enter(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		r.started = true
		e.mu.Unlock()
		e.over(r, result)
		select {
		case <-r.verdict:
		case <-time.After(wait):
			t.Fatal("there is no verdict")
		}
		e.leave(r)
		o, _ := sources.Asked(r.outcome())
		if want := map[bool]sources.Outcome{true: sources.Done, false: sources.Retry}[result == nil]; o != want {
			t.Errorf("after %v the verdict is %v, want %v", result, o, want)
		}
	}
}

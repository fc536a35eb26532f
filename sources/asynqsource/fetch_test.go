package asynqsource

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources"
)

// One round trip takes about a megabyte, however many tasks were asked for: a larger
// answer would keep Redis and the peer from everything else. The rest stays where it was.
func TestLargeTasksAreTakenAFewAtATime(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const n = 12
	for i := range n {
		s.enqueue(t, 0, asynq.NewTask("t", bytes.Repeat([]byte{'x'}, fetchBytes/3)), asynq.TaskID(fmt.Sprint(i)))
	}
	k := keysOf(QueueOf(s.name, 0))
	st := s.open(t, s.source(t), 0, 1)
	for from := 0; from < n; {
		tasks, err := st.Fetch(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) > 3 {
			t.Errorf("%d tasks at once, want 3", len(tasks))
		}
		if active, pending := s.LLen(t.Context(), k.active).Val(), s.LLen(t.Context(), k.pending).Val(); active+pending != int64(n-from) || active != int64(len(tasks)) {
			t.Errorf("%d are active and %d pending, where %d were handed out of %d", active, pending, len(tasks), n-from)
		}
		for i := range tasks {
			if want := fmt.Sprint(from); tasks[i].ID != want {
				t.Errorf("task %s comes where %s was enqueued", tasks[i].ID, want)
			}
			from++
			if err := st.Settle(t.Context(), sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What the source's own function does not know what to do with ends neither the peer nor
// the order of the others.
func TestAKeyFunctionThatPanics(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first := func(_ string, payload []byte, _ map[string]string) string { return string(payload[:2]) }
	bad := s.enqueue(t, 0, asynq.NewTask("t", nil)).ID
	s.enqueue(t, 0, asynq.NewTask("t", []byte("\xff\x01")), asynq.TaskID("0"))
	src, _, _ := s.peer(t, Config{Key: first})
	st := s.open(t, src, 0, 1)
	tasks := st.all(t, 1)
	s.expect(t, tasks, 1)
	if got := tasks[0].Key; got != "ff01" {
		t.Errorf("a key that is not UTF-8 is %q, want its digits", got)
	}
	until(t, "the task is archived", func() bool {
		info, err := s.inspector().GetTaskInfo(QueueOf(s.name, 0), bad)
		return err == nil && info.State == asynq.TaskStateArchived
	})
	info, err := s.inspector().GetTaskInfo(QueueOf(s.name, 0), bad)
	if want := "asynqsource: Config.Key panicked: runtime error: slice bounds out of range [:2] with capacity 0"; err != nil || info.LastErr != want {
		t.Errorf("it is archived because of %q (%v), want %q", info.LastErr, err, want)
	}
}

// Many tasks that are due at once enter the queue in a few round trips, and what was kept
// for long enough is dropped, whether or not there is an engine: asynq's own server, which
// does both, is only there with one.
func TestWhatIsDueDoesNotWaitForABacklog(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	queue := QueueOf(s.name, 0)
	k := keysOf(queue)
	const n = 250 // of each kind: more than two round trips move
	for i := range n {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(fmt.Sprint("due-", i)), asynq.ProcessIn(time.Hour))
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(fmt.Sprint("kept-", i)), asynq.Retention(time.Hour))
	}
	finish := func(st *stream, most int) int {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		tasks, err := st.Fetch(ctx, most)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			if err := st.Settle(ctx, sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1}); err != nil {
				t.Fatal(err)
			}
		}
		return len(tasks)
	}
	st := s.open(t, s.source(t), 0, 1)
	for done := 0; done < n; {
		done += finish(st, n)
	}
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(fmt.Sprint("now-", i)))
		s.ZAddXX(t.Context(), k.scheduled, redis.Z{Score: 1, Member: fmt.Sprint("due-", i)})
		s.ZAddXX(t.Context(), k.completed, redis.Z{Score: 1, Member: fmt.Sprint("kept-", i)})
	}
	st = s.open(t, s.source(t), 0, 2)
	const trips = 10
	for range trips {
		finish(st, 1)
	}
	info, err := s.inspector().GetQueueInfo(queue)
	if err != nil {
		t.Fatal(err)
	}
	if info.Scheduled != 0 || info.Completed != 0 || info.Pending+info.Active != 2*n-trips {
		t.Errorf("after %d round trips %d are scheduled, %d kept, %d pending", trips, info.Scheduled, info.Completed, info.Pending)
	}
}

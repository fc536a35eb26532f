package asynqsource

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/sources"
)

// Without an engine nobody speaks asynq's words: what ends is what asynq would have made of
// it, many of all kinds in one round trip. The lock of a unique task ends with it, kept or
// not, unless it is another's by then.
func TestWhatEndsWithoutAnEngine(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	queue := QueueOf(s.name, 0)
	k := keysOf(queue)
	unique, kept := asynq.Unique(time.Hour), asynq.Retention(time.Hour)
	tasks := []struct {
		opts []asynq.Option
		kept bool
	}{
		{nil, false},
		{[]asynq.Option{kept}, true},
		{[]asynq.Option{unique}, false},
		{[]asynq.Option{unique, kept}, true},
		{[]asynq.Option{unique}, false},
		{[]asynq.Option{kept}, true},
		{[]asynq.Option{unique, kept}, true},
	}
	st := s.open(t, s.source(t), 0, 1)
	for i, task := range tasks {
		s.enqueue(t, 0, asynq.NewTask("t", fmt.Append(nil, i)), append(task.opts, asynq.TaskID(fmt.Sprint(i)))...)
	}
	locks := s.locks(t, k)
	if len(locks) != 4 {
		t.Fatalf("the locks are %v", locks)
	}
	taken := st.all(t, len(tasks))
	// The lock of one has ended meanwhile, and another task has it.
	var others string
	for _, lock := range locks {
		if s.Get(t.Context(), lock).Val() == "6" {
			others = lock
		}
	}
	if err := s.Set(t.Context(), others, "of another", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	done := make([]sources.Settlement, len(taken))
	for i := range taken {
		done[i] = sources.Settlement{Task: &taken[i], Outcome: sources.Done, Attempt: 1}
	}
	now := time.Now()
	if err := st.Settle(t.Context(), done...); err != nil {
		t.Fatal(err)
	}
	for i, task := range tasks {
		info, err := s.inspector().GetTaskInfo(queue, fmt.Sprint(i))
		switch {
		case !task.kept && err == nil:
			t.Errorf("task %d is done, and is there: %+v", i, info)
		case task.kept && (err != nil || info.State != asynq.TaskStateCompleted || info.CompletedAt.Unix() < now.Unix()):
			t.Errorf("task %d is done and was to be kept: %+v, %v", i, info, err)
		}
	}
	if left := s.locks(t, k); len(left) != 1 || left[0] != others {
		t.Errorf("the locks that stand are %v, want only %s, which is another's", left, others)
	}
	if live := s.TTL(t.Context(), k.processed+day(now)).Val(); live < countersLive-time.Minute || live > countersLive+time.Minute {
		t.Errorf("the day's counter is kept for %v, want %v", live, countersLive)
	}
}

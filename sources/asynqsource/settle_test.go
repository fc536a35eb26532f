package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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

// heaviest is a hook that notes what the heaviest request weighed.
type heaviest struct{ bytes *atomic.Int64 }

func (heaviest) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (heaviest) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h heaviest) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n := 0
		for _, cmd := range cmds {
			for _, arg := range cmd.Args() {
				switch arg := arg.(type) {
				case string:
					n += len(arg)
				case []byte:
					n += len(arg)
				}
			}
		}
		h.bytes.Store(max(h.bytes.Load(), int64(n)))
		return next(ctx, cmds)
	}
}

// Messages of large tasks go back with what became of them: a few at a time, however many end while
// the store is away. All at once they would not arrive in the time, however often they were sent.
func TestLargeVerdictsTravelAFewAtATime(t *testing.T) {
	const n = tripBytes>>20 + 4
	retry := func(d sources.Settlement) sources.Settlement { d.Outcome = sources.Retry; return d }
	done := func(d sources.Settlement) sources.Settlement { d.Outcome = sources.Done; return d }
	for what, c := range map[string]struct {
		opts []asynq.Option
		kind kind // what asynq says
		end  func(sources.Settlement) sources.Settlement
	}{
		"retried":               {nil, kindOther, retry},
		"kept":                  {[]asynq.Option{asynq.Retention(time.Hour)}, kindOther, done},
		"archived by our words": {nil, kindOther, func(d sources.Settlement) sources.Settlement { d.Outcome = sources.Dead; return d }},
		"retried by asynq's":    {nil, kindRetry, func(d sources.Settlement) sources.Settlement { d.Outcome = sources.Requeue; return d }},
		"kept by asynq's":       {[]asynq.Option{asynq.Retention(time.Hour)}, kindComplete, done},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			for i := range n {
				s.enqueue(t, 0, asynq.NewTask("t", make([]byte, 1<<20)), append([]asynq.Option{asynq.TaskID(fmt.Sprint(i))}, c.opts...)...)
			}
			src := s.source(t)
			var most atomic.Int64
			src.client.AddHook(heaviest{&most})
			st := s.open(t, src, 0, 1)
			var tasks []sources.Task
			for len(tasks) < n {
				some, err := st.Fetch(t.Context(), n)
				if err != nil {
					t.Fatal(err)
				}
				tasks = append(tasks, some...)
			}
			var all []sources.Settlement
			for _, task := range tasks {
				if c.kind != kindOther {
					raw, _ := st.raw(int64(task.Receipt))
					end := newScript("redis.call('LREM', KEYS[1], 0, ARGV[1]) return 'OK'")
					st.said(int64(task.Receipt), 1, &native{kind: c.kind, script: end, keys: []string{st.keys.active}, args: []any{task.ID, []byte(raw), int64(0)}})
				}
				all = append(all, c.end(sources.Settlement{Task: &task, Attempt: 1, Delay: time.Hour, Reason: "why"}))
			}
			if err := st.Settle(t.Context(), all...); err != nil {
				t.Fatal(err)
			}
			if got := most.Load(); got > tripBytes+1<<20 {
				t.Errorf("a request of %d bytes, want about %d at most", got, tripBytes)
			}
			st.Mu.Lock()
			defer st.Mu.Unlock()
			if left := len(st.content); left != 0 {
				t.Errorf("%d verdicts are kept that were answered", left)
			}
		})
	}
}

// A queue of which thousands were archived on one day: 90 days later asynq's own script would fail on the next one,
// with the task in its hands, and leave it neither here nor there. Before that nothing goes.
func TestAnArchiveThatIsOverAtOnce(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		ago, many int // days, tasks
		left      int64
	}{
		"over":                   {100, 10_050, 0},
		"some thousands, recent": {80, 3_000, 3_000},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			e, st, task := s.bench(t, func(context.Context, *asynq.Task) error { return errors.New("no") })
			k, day := keysOf(st.queue), float64(time.Now().AddDate(0, 0, -c.ago).Unix())
			days := make([]redis.Z, c.many)
			for i := range days {
				days[i] = redis.Z{Score: day, Member: fmt.Sprintf("%06d", i)}
			}
			s.ZAdd(t.Context(), k.archived, days...)
			s.HSet(t.Context(), k.task+"000000", "msg", "x", "state", "archived")
			if o, _ := sources.Asked(e.Handle(t.Context(), task)); o != sources.Dead {
				t.Fatalf("the verdict is %v", o)
			}
			if err := st.Settle(t.Context(), sources.Settlement{Task: task, Outcome: sources.Dead, Attempt: 1, Reason: "no"}); err != nil {
				t.Fatal(err)
			}
			info, err := s.inspector().GetTaskInfo(st.queue, task.ID)
			if err != nil || info.State != asynq.TaskStateArchived || info.LastErr != "no" {
				t.Errorf("the dead letter is %+v, %v", info, err)
			}
			if n := s.ZCard(t.Context(), k.archived).Val(); n != c.left+1 {
				t.Errorf("%d tasks are archived, want the new one and %d", n, c.left)
			}
			if there := s.Exists(t.Context(), k.task+"000000").Val() == 1; there != (c.left > 0) {
				t.Errorf("that the first is kept is %v", there)
			}
		})
	}
}

// asynq keeps at most 10,000 archived tasks of a queue, and none for more than 90 days, and looks
// with each that it archives. What we archive ourselves would grow for ever.
func TestTheArchiveIsTrimmed(t *testing.T) {
	s := newStore(t)
	for _, id := range []string{"dies", "dies too"} {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(id))
	}
	k := keysOf(QueueOf(s.name, 0))
	now := time.Now()
	pipe := s.Pipeline()
	for i := range 10_020 {
		at := now.Add(-time.Hour)
		if i < 10 {
			at = now.AddDate(0, 0, -100)
		}
		id := fmt.Sprintf("%06d", i)
		pipe.ZAdd(t.Context(), k.archived, redis.Z{Score: float64(at.Unix()), Member: id})
		pipe.HSet(t.Context(), k.task+id, "msg", "x", "state", "archived")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	st := s.open(t, s.source(t), 0, 1)
	dies := func() {
		t.Helper()
		tasks, err := st.Fetch(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Settle(t.Context(), sources.Settlement{Task: &tasks[0], Outcome: sources.Dead, Attempt: 1, Reason: "no"}); err != nil {
			t.Fatal(err)
		}
		if n := s.ZCard(t.Context(), k.archived).Val(); n != 10_000 {
			t.Fatalf("%d tasks are archived, asynq keeps 10,000", n)
		}
	}
	dies()
	if n := s.Exists(t.Context(), k.task+"000000", k.task+"000019").Val(); n != 0 {
		t.Error("the messages of what is archived no more are still there")
	}
	if err := s.ZScore(t.Context(), k.archived, "dies").Err(); err != nil || s.Exists(t.Context(), k.task+"dies", k.task+"010019").Val() != 2 {
		t.Errorf("what just died, or died before, is not archived: %v", err)
	}
	s.ZRem(t.Context(), k.archived, "010019")
	dies() // the archive is full, and no more than full
}

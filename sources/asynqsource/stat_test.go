package asynqsource

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// Tools that link nothing of asynq see of a queue what its inspector sees, and whose it is.
func TestToolsSeeWhatTheInspectorSees(t *testing.T) {
	s := newStore(t)
	read := func() (queuestat.Queues, bool) {
		t.Helper()
		q, ok, err := queuestat.Read(t.Context(), s, s.name)
		if err != nil {
			t.Fatal(err)
		}
		return q, ok
	}
	if _, ok := read(); ok {
		t.Error("a name that nobody has used is asynq's")
	}
	other := s.name + "-urgent"
	src, _, _ := s.peer(t, Config{Queues: []string{QueueOf(s.name, 0), other}})
	for range 3 {
		s.enqueue(t, 0, asynq.NewTask("t", nil))
	}
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.ProcessIn(time.Hour))
	for range 2 {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.Group("one"))
	}
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.Group("two"))
	st := s.open(t, src, 0, 7)
	if tasks, err := st.Fetch(t.Context(), 1); err != nil || len(tasks) != 1 {
		t.Fatal(tasks, err)
	}
	q, ok := read()
	if !ok || !q.Named() || q.Of(1) != other || q.Of(2) != "" {
		t.Errorf("the queues are %+v, %v", q, ok)
	}
	got, err := q.Stats(t.Context(), s, []partition.ID{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.inspector().GetQueueInfo(QueueOf(s.name, 0))
	if err != nil {
		t.Fatal(err)
	}
	want := queuestat.Stat{
		ID: 0, Fence: st.token, Pending: info.Pending, Active: info.Active,
		Delayed: info.Scheduled + info.Retry + info.Aggregating, Archived: info.Archived,
	}
	if got[0] != want || want.Delayed != 4 || want.Pending+want.Active != 3 {
		t.Errorf("seen %+v, want %+v", got[0], want)
	}
	if got[1] != (queuestat.Stat{ID: 1}) {
		t.Errorf("of a queue that nobody has used is seen %+v", got[1])
	}
	// A set that the last owner has taken out of its group is in it no more, until it is put back.
	k := keysOf(other)
	set := k.group + "three:set"
	s.ZAdd(t.Context(), k.sets, redis.Z{Score: 1, Member: set})
	s.ZAdd(t.Context(), set, redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"})
	if got, err := q.Stats(t.Context(), s, []partition.ID{1}); err != nil || got[0] != (queuestat.Stat{ID: 1, Delayed: 2}) {
		t.Errorf("of a set of two tasks is seen %+v, %v", got, err)
	}
}

// However many groups a queue has, no script looks at more than some thousand of them: nothing else runs meanwhile.
func TestManyGroupsAreCountedInParts(t *testing.T) {
	s := newStore(t)
	src, _, client := s.peer(t, Config{Queues: []string{s.name + "-few", s.name + "-many"}})
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	const groups = 2500
	pipe := s.Pipeline()
	for queue, n := range map[string]int{s.name + "-few": 3, s.name + "-many": groups} {
		k := keysOf(queue)
		for i := range n {
			group := fmt.Sprintf("user-%d", i)
			pipe.SAdd(t.Context(), k.groups, group)
			pipe.ZAdd(t.Context(), k.group+group, redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"})
		}
		pipe.ZAdd(t.Context(), k.sets, redis.Z{Score: 1, Member: k.group + "out:set"})
		pipe.ZAdd(t.Context(), k.group+"out:set", redis.Z{Score: 1, Member: "c"})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	q, _, err := queuestat.Read(t.Context(), s, s.name)
	if err != nil {
		t.Fatal(err)
	}
	var scripts atomic.Int32
	client.AddHook(onScripts(func(cmd redis.Cmder) error {
		if cmd.Name() == "eval_ro" {
			scripts.Add(1)
		}
		return nil
	}))
	got, err := q.Stats(t.Context(), client, []partition.ID{0, 1})
	if err != nil || got[0].Delayed != 2*3+1 || got[1].Delayed != 2*groups+1 {
		t.Errorf("seen %+v, %v", got, err)
	}
	if n := scripts.Load(); n < 4 {
		t.Errorf("%d scripts have counted 3 and %d groups", n, groups)
	}
}

// Who only enqueues by key has said as well that the partitions are queues of asynq.
func TestAClientSaysWhereTheTasksAre(t *testing.T) {
	s := newStore(t)
	s.client(t, 4)
	q, ok, err := queuestat.Read(t.Context(), s, s.name)
	if err != nil || !ok || q.Named() || q.Of(3) != QueueOf(s.name, 3) {
		t.Errorf("the queues are %+v, %v, %v", q, ok, err)
	}
}

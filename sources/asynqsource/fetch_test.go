package asynqsource

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// However many are asked for, or have ended, Redis is not at one script for long.
func TestManyTasksAreTakenSomeAtATime(t *testing.T) {
	s := newStore(t)
	for i := range tripTasks + 1 {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(fmt.Sprint(i)))
	}
	st := s.open(t, s.source(t), 0, 1)
	var all []sources.Settlement
	for _, want := range []int{tripTasks, 1} {
		tasks, err := st.Fetch(t.Context(), 2*tripTasks)
		if err != nil || len(tasks) != want {
			t.Fatalf("%d tasks, want %d; %v", len(tasks), want, err)
		}
		for i := range tasks {
			all = append(all, sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1})
		}
	}
	st.Mu.Lock()
	for i := range all {
		if _, err := st.Record(&all[i], time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if upto := st.upto(); upto != st.Log.Answered()+tripTasks {
		t.Errorf("a trip says what became of %d, want %d", upto-st.Log.Answered(), tripTasks)
	}
	st.Mu.Unlock()
	if err := st.Settle(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	if n := s.LLen(t.Context(), keysOf(QueueOf(s.name, 0)).active).Val(); n != 0 {
		t.Errorf("%d are active still", n)
	}
}

// One round trip takes about a megabyte, however many tasks were asked for: a larger
// answer would keep Redis and the peer from everything else. The rest stays where it was.
func TestLargeTasksAreTakenAFewAtATime(t *testing.T) {
	for _, modest := range []bool{false, true} {
		t.Run(fmt.Sprint("modest ", modest), func(t *testing.T) {
			t.Parallel()
			takeLargeTasks(t, modest)
		})
	}
}

func takeLargeTasks(t *testing.T, modest bool) {
	s := newStore(t)
	src := s.source(t)
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if modest {
		modestly(t, src)
	}
	const n = 12
	for i := range n {
		s.enqueue(t, 0, asynq.NewTask("t", bytes.Repeat([]byte{'x'}, fetchBytes/3)), asynq.TaskID(fmt.Sprint(i)))
	}
	k := keysOf(QueueOf(s.name, 0))
	st := s.open(t, src, 0, 1)
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

// onEachServer runs test on a miniredis, and on a server that does the whole of what Redis does.
func onEachServer(t *testing.T, test func(t *testing.T, s *shelf, whole bool)) {
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, newShelf(t), false)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, &shelf{t, redistest.Server(t).Client(), keysOf(redistest.Name(t))}, true)
	})
}

// The largest window is taken at once: a script has room for so many arguments only, and one
// that fails on the way leaves what it had done.
func TestAFullWindowIsTakenAtOnce(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *shelf, _ bool) {
		const n = mostWindow
		s.put("hset fence t 5:x e 5 n 7")
		pipe := s.client.Pipeline()
		for i := range n {
			pipe.HSet(t.Context(), s.k.task+strconv.Itoa(i), "msg", "m")
			pipe.LPush(t.Context(), s.k.pending, i)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		fetch := func(most, known, bytes int) []any {
			t.Helper()
			reply, err := fetchScript.Run(t.Context(), s.client, s.keys(fetchNames), "5:x", 7, most, known, s.k.task, "0", s.k.group, bytes).Slice()
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		order := func(what, list string, want, from, upto int) {
			t.Helper()
			ids := s.client.LRange(t.Context(), list, 0, -1).Val()
			slices.Reverse(ids)
			if len(ids) != want || len(ids) > 0 && (ids[0] != strconv.Itoa(from) || ids[len(ids)-1] != strconv.Itoa(upto)) ||
				!slices.IsSortedFunc(ids, func(a, b string) int { return atoi(t, a) - atoi(t, b) }) {
				t.Errorf("%s: there are %d, from %v to %v, want %d from %d to %d in order", what, len(ids), ids[:min(1, len(ids))], ids[max(0, len(ids)-1):], want, from, upto)
			}
		}
		if got := len(fetch(n, 0, 1)); got != 6 {
			t.Errorf("a fetch of one byte answers %d, want one task", got)
		}
		order("pending, after one", s.k.pending, n-1, 1, n-1)
		if got := len(fetch(n, 1, n)); got != 3*n {
			t.Errorf("a fetch of the rest answers %d, want %d", got, 3*n)
		}
		order("active", s.k.active, n, 0, n-1)
		if leases := s.client.ZCard(t.Context(), s.k.lease).Val(); leases != n {
			t.Errorf("%d have a lease, want %d", leases, n)
		}
		if got := s.run(closeScript, "fence pending active lease", "5:x", 5, s.k.task); got != "[1]" {
			t.Errorf("close: %s", got)
		}
		order("pending, given back", s.k.pending, n, 0, n-1)
	})
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// asynq's own tools delete tasks, and know nothing of what is kept beside them: that goes
// bit by bit, whoever owns the queue and for how long. Of a task that is there it stays.
func TestTriesEndWithTheirTask(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *shelf, whole bool) {
		const n = 2000
		s.put("hset fence t 5:x e 5 n 7")
		pipe := s.client.Pipeline()
		for i := range n {
			pipe.HSet(t.Context(), s.k.tries, i, "1 0 0 why")
			if i%2 == 0 {
				pipe.HSet(t.Context(), s.k.task+strconv.Itoa(i), "msg", "m")
			}
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, before := s.fetch(1, 0, "0", 1), s.client.HLen(t.Context(), s.k.tries).Val(); got != "[1 -1 0]" || before != n {
			t.Errorf("a fetch that does not look answers %s, and there are tries of %d, want %d", got, before, n)
		}
		trips := 0
		for ; s.client.HLen(t.Context(), s.k.tries).Val() > n/2 && trips < n; trips++ {
			if got := s.fetch(1, 0, "1", 1); got != "[1 -1 0]" {
				t.Fatal(got)
			}
		}
		if whole && trips < n/200 { // miniredis looks at all of them each time
			t.Errorf("%d were looked at in %d round trips", n, trips)
		}
		for _, id := range s.client.HKeys(t.Context(), s.k.tries).Val() {
			if atoi(t, id)%2 != 0 {
				t.Fatalf("the tries of %s are there, which is gone", id)
			}
		}
		if left := s.client.HLen(t.Context(), s.k.tries).Val(); left != n/2 {
			t.Errorf("there are tries of %d, want those of %d tasks", left, n/2)
		}
	})
}

package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/sourcetest"
	"github.com/countoff/countoff/sources/sourcetest/redisline"
)

// byPayload is the key that old producers do not send.
func byPayload(_ string, payload []byte, _ map[string]string) string {
	return fmt.Sprintf("key-%d", payload[0]%5)
}

// ingress opens the one unit of a source, and routes until stop.
func (s *store) ingress(t *testing.T, epoch partition.Epoch, key KeyFunc) (l *redisline.Line, stop func() error) {
	t.Helper()
	src, l, _ := s.peer(t, Config{Ingress: []string{s.name + "-in"}, Key: key})
	st, err := src.Open(t.Context(), partition.Grant{ID: partition.FirstUnit, Epoch: epoch},
		partition.Token{Epoch: epoch, Session: partition.Session(fmt.Sprintf("%032x", epoch))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { _ = st.Close(ctx) }) // which has ended: it only frees what it holds
	ended := make(chan error, 1)
	go func() {
		for {
			_, err := st.Fetch(ctx, 1)
			if ctx.Err() != nil || errors.Is(err, sources.ErrFenced) || errors.Is(err, redis.ErrClosed) {
				ended <- err
				return
			}
		}
	}()
	return l, func() error {
		cancel()
		return <-ended
	}
}

// moved lists the payloads in the queues of the partitions, oldest first, by key.
func (s *store) moved(t *testing.T) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	for id := range partition.ID(4) {
		k := keysOf(QueueOf(s.name, id))
		ids := s.LRange(t.Context(), k.pending, 0, -1).Val()
		for i := len(ids) - 1; i >= 0; i-- {
			m, err := parseMessage(s.HGet(t.Context(), k.task+ids[i], "msg").Val())
			if err != nil {
				t.Fatal(err)
			}
			if m.queue != QueueOf(s.name, id) || partition.Of(m.key, 4) != id {
				t.Fatalf("a task of queue %q, key %q lies in partition %v", m.queue, m.key, id)
			}
			all[m.key] = append(all[m.key], m.payload...)
		}
	}
	return all
}

// Tasks of an ordinary queue go to the partitions of their keys, in order, each once,
// whatever becomes of the routers: they close, die or are replaced between the steps.
func TestAnIngressIsMovedInOrderAndOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	client := asynq.NewClientFromRedisClient(s.UniversalClient)
	in := s.name + "-in"
	next := 0
	add := func(n int) {
		for range n {
			if _, err := client.Enqueue(asynq.NewTask("t", []byte{byte(next)}, asynq.MaxRetry(2)), asynq.Queue(in)); err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	add(40)
	_, stop := s.ingress(t, 1, byPayload)
	k := keysOf(in)
	empty := func() bool { return s.LLen(t.Context(), k.pending).Val()+s.LLen(t.Context(), k.active).Val() == 0 }
	until(t, "the first are moved", empty)
	add(40)
	until(t, "those that come later are moved", empty)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// The next ones lose the reply of what they push, or die before they have said done.
	for epoch, fault := range []sourcetest.Op{sourcetest.Settle, sourcetest.Fetch, sourcetest.Settle} {
		add(30)
		l, stop := s.ingress(t, partition.Epoch(epoch+2), byPayload)
		l.Inject(fault, []sourcetest.Kind{sourcetest.Lost, sourcetest.Failed, sourcetest.Late}[epoch])
		if epoch == 2 {
			l.Kill()
		} else {
			until(t, "they are moved in spite of a fault", empty)
		}
		stop()
	}
	// The last one thinks otherwise of keys: what was planned goes where it was planned.
	_, stop = s.ingress(t, 9, byPayload)
	until(t, "the rest is moved", empty)
	stop()
	got := s.moved(t)
	sum := 0
	for key, payloads := range got {
		for i, p := range payloads {
			if want := payloads[0] + byte(5*i); p != want {
				t.Errorf("%s: place %d has task %d, want %d", key, i, p, want)
			}
		}
		sum += len(payloads)
	}
	if sum != next {
		t.Errorf("%d tasks were moved, want %d", sum, next)
	}
	if n := s.HLen(t.Context(), k.tries).Val(); n != 0 {
		t.Errorf("%d plans are left", n)
	}
}

// openBatch opens the one unit of a source, and takes what there is.
func openBatch(t *testing.T, src *Source, epoch partition.Epoch) *router {
	t.Helper()
	r := openUnit(t, src, epoch)
	r.take(t)
	return r
}

// openUnit opens the one unit of a source.
func openUnit(t *testing.T, src *Source, epoch partition.Epoch) *router {
	t.Helper()
	st, err := src.Open(t.Context(), partition.Grant{ID: partition.FirstUnit, Epoch: epoch}, partition.Token{Epoch: epoch, Session: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = st.Close(over) // only frees what it holds
	})
	return st.(*router)
}

// take takes what there is as the next batch.
func (r *router) take(t *testing.T) {
	t.Helper()
	var err error
	if r.batch, err = r.stream.Fetch(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
}

// Who owns an ingress runs no handler: where he dies the next one takes all that he had at once, and charges no task with it.
func TestTasksOfAnIngressAreNoSuspects(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	in := s.name + "-in"
	client := asynq.NewClientFromRedisClient(s.UniversalClient)
	for i := range 3 {
		if _, err := client.Enqueue(asynq.NewTask("t", []byte{byte(i)}), asynq.Queue(in)); err != nil {
			t.Fatal(err)
		}
	}
	for epoch := range partition.Epoch(4) {
		src, _, _ := s.peer(t, Config{Ingress: []string{in}})
		for _, task := range openBatch(t, src, epoch+1).batch {
			if task.Crashes > 0 {
				t.Errorf("of owner %d: task %s is charged with %d crashes", epoch+1, task.ID, task.Crashes)
			}
		}
	}
	src, _, _ := s.peer(t, Config{Ingress: []string{in}})
	if got := len(openBatch(t, src, 5).batch); got != 3 {
		t.Errorf("the last owner has %d tasks, want 3", got)
	}
}

// A unique task whose id is that of a result that is kept where it goes has another one there, and its
// lock ends with it all the same.
func TestAUniqueTaskWithAnIDThatIsTaken(t *testing.T) {
	one := redis.NewClient(&redis.Options{Addr: redistest.Server(t).Addr()}) // a lock stays where it is: there is one server
	t.Cleanup(func() { one.Close() })
	s := &store{UniversalClient: one, name: redistest.Name(t)}
	client := asynq.NewClientFromRedisClient(one)
	in := s.name + "-in"
	src, err := New(one, s.name, Config{Partitions: 1, Ingress: []string{in}})
	if err != nil {
		t.Fatal(err)
	}
	src.tested = true
	st := s.open(t, src, 0, 1)
	for epoch := range partition.Epoch(3) {
		_, err := client.Enqueue(asynq.NewTask("t", nil), asynq.Queue(in), asynq.TaskID("x"), asynq.Unique(time.Hour), asynq.Retention(time.Hour))
		if err != nil {
			t.Fatalf("after %d of them: %v", epoch, err)
		}
		r := openBatch(t, src, epoch+1)
		plan, err := r.plan(t.Context())
		if err == nil {
			err = r.push(t.Context(), plan)
		}
		if err != nil {
			t.Fatal(err)
		}
		task := r.batch[0]
		if err := r.Settle(t.Context(), sources.Settlement{Task: &task, Outcome: sources.Done, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		moved := st.all(t, 1)
		if _, err := client.Enqueue(asynq.NewTask("t", nil), asynq.Queue(in), asynq.TaskID("y"), asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Fatalf("another one beside it: %v", err)
		}
		if err := st.Settle(t.Context(), sources.Settlement{Task: &moved[0], Outcome: sources.Done, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

// A unique task that was moved and is deleted by hand leaves no lock behind, as where it was.
func TestAUniqueTaskThatIsDeletedAfterItWasMoved(t *testing.T) {
	t.Parallel()
	_, one := redistest.Mini(t) // a lock stays where it is: there is one server
	s := &store{UniversalClient: one, name: redistest.Name(t)}
	in := s.name + "-in"
	src, err := New(one, s.name, Config{Partitions: 1, Ingress: []string{in}})
	if err != nil {
		t.Fatal(err)
	}
	src.tested = true
	for epoch := range partition.Epoch(2) {
		info, err := asynq.NewClientFromRedisClient(one).Enqueue(asynq.NewTask("t", nil), asynq.Queue(in), asynq.Unique(time.Hour))
		if err != nil {
			t.Fatalf("after %d of them: %v", epoch, err)
		}
		r := openBatch(t, src, epoch+1)
		plan, err := r.plan(t.Context())
		if err == nil {
			err = r.push(t.Context(), plan)
		}
		if err == nil {
			err = r.Settle(t.Context(), sources.Settlement{Task: &r.batch[0], Outcome: sources.Done, Attempt: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.inspector().DeleteTask(QueueOf(s.name, 0), info.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// A task that was planned and moved by an owner that died is deleted, and another one comes with its
// id: it has no plan, and is moved.
func TestAPlanIsOfOneTask(t *testing.T) {
	s := newStore(t)
	ctx := t.Context()
	client := asynq.NewClientFromRedisClient(s.UniversalClient)
	in := s.name + "-in"
	enqueue := func(payload byte) {
		t.Helper()
		if _, err := client.Enqueue(asynq.NewTask("t", []byte{payload}), asynq.Queue(in), asynq.TaskID("x")); err != nil {
			t.Fatal(err)
		}
	}
	src, _, _ := s.peer(t, Config{Ingress: []string{in}, Key: byPayload})
	enqueue(1)
	old := openBatch(t, src, 1)
	plan, err := old.plan(ctx)
	if err == nil {
		err = old.push(ctx, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	heir := openBatch(t, src, 2) // it gives it back
	if _, err := closeScript.Run(ctx, s, []string{heir.keys.fence, heir.keys.pending, heir.keys.active, heir.keys.lease},
		heir.fence, heir.Grant.Epoch.String(), heir.keys.task).Slice(); err != nil {
		t.Fatal(err)
	}
	if err := s.inspector().DeleteTask(in, "x"); err != nil {
		t.Fatal(err)
	}
	enqueue(6)
	next := openBatch(t, src, 3)
	if plan, err = next.plan(ctx); err == nil {
		err = next.push(ctx, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := s.moved(t)["key-1"]; !slices.Equal(got, []byte{1, 6}) {
		t.Errorf("moved were %v, want both tasks", got)
	}
}

// A fail-over that has lost a plan, and nothing else that its owner was told, ends the
// ownership: the numbers would begin again below the marks of the queues, which have the tasks
// of the lost plan, and what is planned under them would be taken for pushed.
func TestALostPlanIsNoticed(t *testing.T) {
	s := newStore(t)
	ctx := t.Context()
	client := asynq.NewClientFromRedisClient(s.UniversalClient)
	in := s.name + "-in"
	enqueue := func(id string) {
		t.Helper()
		if _, err := client.Enqueue(asynq.NewTask("t", []byte{1}), asynq.Queue(in), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	src, _, _ := s.peer(t, Config{Ingress: []string{in}, Key: byPayload})
	route := func(r *router) error {
		plan, err := r.plan(ctx)
		if err == nil {
			err = r.push(ctx, plan)
		}
		return err
	}
	enqueue("first")
	r := openBatch(t, src, 1)
	if err := route(r); err != nil {
		t.Fatal(err)
	}
	k := keysOf(in)
	if err := errors.Join(s.HDel(ctx, k.fence, "r").Err(), s.Del(ctx, k.tries).Err()); err != nil {
		t.Fatal(err)
	}
	if err := r.stream.Settle(ctx, sources.Settlement{Task: &r.batch[0], Outcome: sources.Done, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	enqueue("second")
	r.take(t)
	if err := route(r); !errors.Is(err, sources.ErrForgot) {
		t.Errorf("it goes on: %v", err)
	}
	if err := route(openBatch(t, src, 2)); err != nil {
		t.Fatal(err)
	}
	if got := s.moved(t)["key-1"]; len(got) != 2 {
		t.Errorf("%d tasks were moved, want both", len(got))
	}
}

// A plan stands, whoever comes next; what is pushed again is pushed once, also where the
// first has run meanwhile; and a task with the id of another loses nothing.
func TestAPlanStandsAndAMarkSkips(t *testing.T) {
	s := newStore(t)
	ctx := t.Context()
	client := asynq.NewClientFromRedisClient(s.UniversalClient)
	in := s.name + "-in"
	if _, err := client.Enqueue(asynq.NewTask("t", []byte{1}), asynq.Queue(in), asynq.TaskID("x"), asynq.Retention(time.Hour)); err != nil {
		t.Fatal(err)
	}
	src, _, _ := s.peer(t, Config{Ingress: []string{in}, Key: byPayload})
	old := openBatch(t, src, 1)
	plan, err := old.plan(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.push(ctx, plan); err != nil {
		t.Fatal(err)
	}
	target := partition.Of("key-1", 4)
	if err := s.inspector().DeleteTask(QueueOf(s.name, target), "x"); err != nil { // as if it had run
		t.Fatal(err)
	}
	heir := openBatch(t, src, 2)
	if _, err := old.plan(ctx); !errors.Is(err, sources.ErrFenced) {
		t.Errorf("the old owner plans: %v", err)
	}
	heir.batch[0].Key = "key-3" // it thinks otherwise
	again, err := heir.plan(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(again[target]) != 1 || again[target][0].number != plan[target][0].number {
		t.Errorf("the plan was %v, and is %v", plan, again)
	}
	for range 2 {
		if err := heir.push(ctx, again); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.moved(t); len(got) != 0 {
		t.Errorf("it was pushed again: %v", got)
	}
	// Another task of the same id.
	k := keysOf(QueueOf(s.name, target))
	if err := s.HSet(ctx, k.task+"x", "msg", "of somebody else").Err(); err != nil {
		t.Fatal(err)
	}
	again[target][0].number = "2-1"
	if err := heir.push(ctx, again); err != nil {
		t.Fatal(err)
	}
	if ids := s.LRange(ctx, k.pending, 0, -1).Val(); len(ids) != 1 || ids[0] != "x-2-1" {
		t.Errorf("the queue holds %v, want x-2-1", ids)
	}
	if m, err := parseMessage(s.HGet(ctx, k.task+"x-2-1", "msg").Val()); err != nil || m.id != "x-2-1" || m.retention != 3600 {
		t.Errorf("the message is %+v, %v", m, err)
	}
}

// What cannot be pushed is not done: it is pushed by the next attempt. A task that is moved
// is not done either: its lock stands until it is, except on a cluster, and nothing is kept of
// it where it was.
func TestAnIngressThatCannotPush(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx := t.Context()
	in := s.name + "-in"
	k := keysOf(in)
	l, stop := s.ingress(t, 1, byPayload)
	for i := range 3 {
		l.Inject(sourcetest.Settle, sourcetest.Failed)
		client := asynq.NewClientFromRedisClient(s.UniversalClient)
		if _, err := client.Enqueue(asynq.NewTask("t", []byte{byte(i)}), asynq.Queue(in), asynq.Unique(time.Hour), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
		until(t, "the ingress is empty", func() bool { return s.LLen(ctx, k.pending).Val()+s.LLen(ctx, k.active).Val() == 0 })
	}
	stop()
	moved := s.moved(t)
	locks, stand := s.locks(t, k), 3
	if _, cluster := s.UniversalClient.(*redis.ClusterClient); cluster {
		stand = 0
	}
	if len(moved) != 3 || len(locks) != stand || s.ZCard(ctx, k.completed).Val() != 0 {
		t.Fatalf("%v are moved, the locks %v stand, %d are kept", moved, locks, s.ZCard(ctx, k.completed).Val())
	}
	queue := QueueOf(s.name, partition.Of("key-1", 4))
	if queues := s.SMembers(ctx, queuestat.All).Val(); !slices.Contains(queues, queue) {
		t.Errorf("asynq lists the queues %v, without %s", queues, queue)
	}
	id := s.LRange(ctx, keysOf(queue).pending, 0, -1).Val()[0]
	if m, err := parseMessage(s.HGet(ctx, keysOf(queue).task+id, "msg").Val()); err != nil || m.retention != 3600 || slices.Contains(locks, m.uniqueKey) != (stand > 0) {
		t.Errorf("a task that was moved is %+v, %v", m, err)
	}
}

// What is moved on a cluster has no lock any more: its key is in another slot than the queue, and nothing could be said of the task.
func TestALockDoesNotLeaveItsSlot(t *testing.T) {
	raw := string(appendText(appendText(nil, fieldID, "1"), fieldUniqueKey, "asynq:{in}:unique:t:"))
	for unique, want := range map[bool]string{true: "asynq:{in}:unique:t:", false: ""} {
		r := &router{unique: unique}
		if m, err := parseMessage(string(r.message(raw, "mails:0", "k"))); err != nil || m.uniqueKey != want || m.queue != "mails:0" || m.key != "k" {
			t.Errorf("with one server %v: it is %+v, %v", unique, m, err)
		}
	}
}

// Where a greater epoch has pushed since the owner of an ingress looked, what he pushes is not taken: he hears of that epoch,
// and does not say that it is done.
func TestAnIngressThatIsOverHearsIt(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	in := s.name + "-in"
	if _, err := asynq.NewClientFromRedisClient(s.UniversalClient).Enqueue(asynq.NewTask("t", []byte{1}), asynq.Queue(in)); err != nil {
		t.Fatal(err)
	}
	src, _, _ := s.peer(t, Config{Ingress: []string{in}, Key: byPayload})
	r := openBatch(t, src, 3)
	plan, err := r.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.HSet(t.Context(), marksOf(QueueOf(s.name, partition.Of("key-1", 4))), in, "5000-1")
	var fenced *sources.FencedError
	if err := r.push(t.Context(), plan); !errors.As(err, &fenced) || fenced.Stored != 5000 {
		t.Errorf("its owner hears %v, want that 5000 stands", err)
	}
}

// The shard of an ingress comes back with nothing, or its name was destroyed, and epochs begin anew,
// while the marks of the partitions have not forgotten, or a plan stands that an owner made before.
// What comes then would be taken for what was moved long ago: its owner is refused with the epoch
// that he has to be above, and nothing is lost.
func TestAnIngressWhoseEpochsBeginAnew(t *testing.T) {
	for what, before := range map[string]func(s *store, in string){
		"the marks stand": func(s *store, in string) {
			k := keysOf(in)
			_, stop := s.ingress(t, 5000, byPayload)
			until(t, "the first is moved", func() bool { return s.Exists(t.Context(), k.task+"first").Val() == 0 })
			_ = stop()
			s.Del(t.Context(), k.fence, k.tries, k.suspects)
		},
		"a plan stands": func(s *store, in string) {
			k := keysOf(in)
			s.HSet(t.Context(), k.tries, "first", fmt.Sprintf("0 0 0 to 5000-7 %d", partition.Of("key-1", 4)))
			s.HSet(t.Context(), k.task+"first", "tried", "1")
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStore(t)
			in := s.name + "-in"
			client := asynq.NewClientFromRedisClient(s.UniversalClient)
			add := func(id string) {
				if _, err := client.Enqueue(asynq.NewTask("t", []byte{1}), asynq.Queue(in), asynq.TaskID(id)); err != nil {
					t.Fatal(err)
				}
			}
			add("first")
			before(s, in)
			add("then")
			src, _, _ := s.peer(t, Config{Ingress: []string{in}, Key: byPayload})
			st, err := src.Open(t.Context(), partition.Grant{ID: partition.FirstUnit, Epoch: 3}, partition.Token{Epoch: 3, Session: "s"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err = st.Fetch(ctx, 1)
			cancel()
			var fenced *sources.FencedError
			if !errors.As(err, &fenced) || fenced.Stored != 5000 {
				t.Errorf("its owner hears %v, want that 5000 stands", err)
			}
			_ = st.Close(ctx) // which has ended: it only frees what it holds
			_, stop := s.ingress(t, 5001, byPayload)
			home := keysOf(QueueOf(s.name, partition.Of("key-1", 4)))
			until(t, "both are moved", func() bool {
				return s.Exists(t.Context(), home.task+"first", home.task+"then").Val() == 2 && s.LLen(t.Context(), keysOf(in).pending).Val() == 0
			})
			_ = stop()
		})
	}
}

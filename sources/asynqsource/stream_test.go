package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/sourcetest"
)

// A trip says how many tasks stay active, of whatever kind its verdicts are: what was taken
// by a reply that got lost is known by their number.
func TestATripKnowsHowManyStayActive(t *testing.T) {
	s := newStore(t)
	const n = 5
	for i := range n {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(fmt.Sprint(i)))
	}
	st := s.open(t, s.source(t), 0, 1)
	tasks, err := st.Fetch(t.Context(), n)
	if err != nil || len(tasks) != n {
		t.Fatal(tasks, err)
	}
	st.Mu.Lock()
	defer st.Mu.Unlock()
	for i, o := range []sources.Outcome{sources.Done, sources.Retry, sources.Requeue, sources.Dead} {
		if _, err := st.Record(&sources.Settlement{Task: &tasks[i], Outcome: o, Attempt: 1}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if !st.Compose(time.Now()) || st.trip.known != 2 {
		t.Errorf("of %d tasks %d stay active, want the one that is retried and the one that runs", n, st.trip.known)
	}
}

// What nobody can read is archived with its reason, and told of once the store has answered. So is what says that it is
// another task: asynq would look for a run of that one.
func TestAStreamTellsWhatNobodyCanRead(t *testing.T) {
	s := newStore(t)
	for _, id := range []string{"bad", "another", "good"} {
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(id))
	}
	queue := QueueOf(s.name, 0)
	s.HSet(t.Context(), keysOf(queue).task+"bad", "msg", "no message")
	s.HSet(t.Context(), keysOf(queue).task+"another", "msg", appendText(nil, fieldID, "good"))
	buried := new(sourcetest.Burials)
	src, _, _ := s.peer(t, Config{Buried: buried.Tell})
	st := s.open(t, src, 0, 1)
	tasks, err := st.Fetch(t.Context(), 3)
	if err != nil || len(tasks) != 1 || tasks[0].ID != "good" {
		t.Fatalf("%+v, %v", tasks, err)
	}
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.ZCard(t.Context(), keysOf(queue).archived).Val(); n != 2 {
		t.Errorf("%d are archived, want the two", n)
	}
	want := []sources.Buried{{Grant: st.Grant, Tasks: 2, ID: "bad", Reason: errMessage.Error()}}
	if told := buried.All(); !slices.Equal(told, want) {
		t.Errorf("it told of %+v, want %+v", told, want)
	}
}

// A stream gets up by itself for what is due: asynq's leases of what it has, and a look at
// a queue in which nothing seems to happen. One that is over waits for nothing.
func TestAStreamTendsToWhatIsDue(t *testing.T) {
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("0"))
	st := s.open(t, s.source(t), 0, 1)
	if _, err := st.Fetch(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	st.Mu.Lock()
	if left := time.Until(st.lease); left <= 0 || left > leaseEvery {
		t.Errorf("asynq's lease is extended in %v, want within %v", left, leaseEvery)
	}
	st.look, st.lease = time.Now().Add(time.Hour), time.Now().Add(time.Minute)
	st.Mu.Unlock()
	if wait := st.Tend(t.Context()); wait > time.Minute {
		t.Errorf("it waits %v, and the lease is due before", wait)
	}
	empty := s.open(t, s.source(t), 1, 1)
	if wait := empty.Tend(t.Context()); wait < time.Minute {
		t.Errorf("it waits %v, and has nothing", wait)
	}
	k := keysOf(st.queue)
	const old = 1000
	if err := s.ZAdd(t.Context(), k.lease, redis.Z{Score: old, Member: "0"}).Err(); err != nil {
		t.Fatal(err)
	}
	st.Mu.Lock()
	st.lease = time.Now()
	st.Mu.Unlock()
	st.Nudge()
	until(t, "the lease is extended", func() bool { return s.ZScore(t.Context(), k.lease, "0").Val() > old })
	until(t, "the next time is known", func() bool {
		st.Mu.Lock()
		defer st.Mu.Unlock()
		return st.lease.After(time.Now())
	})

	st.waiter.idle(true)
	st.Mu.Lock()
	st.Lose(sources.ErrFenced)
	st.Mu.Unlock()
	until(t, "nobody waits for a queue that is another's", func() bool { return !st.waiter.wants() })
}

// A queue that is paused is looked at now and then, however much lies in it: nobody waits
// for it to grow, since what is there would wake him at once, again and again.
func TestAPausedQueueIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("0"))
	queue := QueueOf(s.name, 0)
	if err := s.inspector().PauseQueue(queue); err != nil {
		t.Fatal(err)
	}
	st := s.open(t, s.source(t), 0, 1)
	got := make(chan error, 1)
	go func() {
		_, err := st.Fetch(t.Context(), 1)
		got <- err
	}()
	until(t, "the queue is known to be paused", func() bool {
		st.Mu.Lock()
		defer st.Mu.Unlock()
		return st.paused
	})
	st.Mu.Lock()
	if wait := time.Until(st.look); wait > pausedEvery {
		t.Errorf("the paused queue is looked at in %v, want %v at most", wait, pausedEvery)
	}
	st.look = time.Now().Add(time.Hour)
	if st.Compose(time.Now()) || st.waiter.wants() {
		t.Error("a queue that is paused is asked for tasks, or waited on")
	}
	st.look = time.Now()
	st.Mu.Unlock()
	st.Nudge()
	if err := s.inspector().UnpauseQueue(queue); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("the queue goes on, and the fetch says %v", err)
	}
}

// A server that was restarted knows no script: what was to be done is done all the same, by
// the next attempt, and that goes for asynq's own scripts as well.
func TestAServerThatHasForgottenTheScripts(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 3 {
		s.enqueue(t, 0, asynq.NewTask("t", fmt.Append(nil, i)), asynq.TaskID(fmt.Sprint(i)), asynq.Unique(time.Hour), asynq.Retention(time.Hour))
	}
	src, _, _ := s.peer(t, Config{})
	e, err := src.Handler(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		s.ScriptFlush(context.Background())
		_, err := task.ResultWriter().Write([]byte("result"))
		return err
	}), silent(asynq.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	st := s.open(t, src, 0, 1)
	for i := range 3 {
		s.ScriptFlush(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		tasks, err := st.Fetch(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Handle(ctx, &tasks[0]); err != nil {
			t.Errorf("task %d: %v", i, err)
		}
		s.ScriptFlush(t.Context())
		if err := st.Settle(ctx, sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		cancel()
		info, err := s.inspector().GetTaskInfo(st.queue, fmt.Sprint(i))
		if err != nil || info.State != asynq.TaskStateCompleted || string(info.Result) != "result" {
			t.Errorf("task %d is %+v, %v", i, info, err)
		}
	}
}

// A broken is a hook under which the scripts of asynq that end a task fail a few times:
// they are not carried out, although the head of their round trip is, or the reply is lost.
type broken struct {
	times atomic.Int32
	lost  bool
	k     keys
}

func (*broken) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*broken) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b *broken) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			args := cmd.Args()
			if len(args) < 4 || args[3] != b.k.active || b.times.Load() <= 0 {
				continue
			}
			if !b.lost {
				b.times.Add(-1)
				args[0], args[1] = "eval", "return redis.error_reply('TRYAGAIN not now')"
				continue
			}
			err := next(ctx, cmds)
			if cmd.Err() == nil {
				b.times.Add(-1)
				for _, cmd := range cmds {
					cmd.SetErr(io.ErrUnexpectedEOF)
				}
				return io.ErrUnexpectedEOF
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// What asynq says of a task is said until it is answered: that the head of the round trip
// was admitted is not enough. Said again it finds nothing to do, and that is an answer.
func TestWhatAsynqSaysIsSaidAgain(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("the reply is lost: ", lost), func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("0"), asynq.Retention(time.Hour))
			src, _, client := s.peer(t, Config{})
			e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), silent(asynq.Config{}))
			if err != nil {
				t.Fatal(err)
			}
			st := s.open(t, src, 0, 1)
			task := st.all(t, 1)[0]
			if err := e.Handle(t.Context(), &task); err != nil {
				t.Fatal(err)
			}
			b := &broken{k: st.keys, lost: lost}
			b.times.Store(2)
			if lost {
				b.times.Store(1)
			}
			client.AddHook(b)
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			for err = errors.New("not yet"); err != nil && ctx.Err() == nil; {
				err = st.Settle(ctx, sources.Settlement{Task: &task, Outcome: sources.Done, Attempt: 1})
			}
			if err != nil || b.times.Load() != 0 {
				t.Errorf("the settlement says %v, the script has still to fail %d times", err, b.times.Load())
			}
			if info, err := s.inspector().GetTaskInfo(st.queue, "0"); err != nil || info.State != asynq.TaskStateCompleted {
				t.Errorf("the settlement was answered, and the task is %+v, %v", info, err)
			}
		})
	}
}

// A moving is a hook under which no script gets at a key until it was tried a few times, as while its slot moves.
type moving struct {
	key   string
	times atomic.Int32
}

func (*moving) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *moving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && args[3] == m.key && m.times.Add(-1) >= 0 {
			args[0], args[1] = "eval", "return redis.error_reply('TRYAGAIN not now')"
		}
		return next(ctx, cmd)
	}
}

func (*moving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The plain command with which asynq writes a result gets through while a slot of a cluster moves; the script that is
// in its place here does not, and is tried again for as long as the handler runs and its time is not over.
func TestAResultWaitsForASlotThatMoves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what     string
		moves    int32 // so often it is tried in vain
		timeout  time.Duration
		end      bool // the run is ended
		returned bool // the handler has returned
	}{
		{what: "it has moved", moves: 3},
		{what: "the run ends first", moves: math.MaxInt32, end: true},
		{what: "its time is over first", moves: math.MaxInt32, timeout: time.Second},
		{what: "the handler returns first", moves: math.MaxInt32, returned: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("0"), asynq.Retention(time.Hour), asynq.Timeout(c.timeout))
			src, _, client := s.peer(t, Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m := &moving{}
			written := make(chan error, 1)
			e, err := src.Handler(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
				write := func() {
					_, err := task.ResultWriter().Write([]byte("result"))
					written <- err
				}
				if c.end {
					cancel()
				}
				if !c.returned {
					write()
					return nil
				}
				go write()
				until(t, "it is tried", func() bool { return m.times.Load() < c.moves })
				return nil
			}), silent(asynq.Config{}))
			if err != nil {
				t.Fatal(err)
			}
			st := s.open(t, src, 0, 1)
			m.key = st.keys.task + "0"
			m.times.Store(c.moves)
			client.AddHook(m)
			task := st.all(t, 1)[0]
			handled := make(chan error, 1)
			go func() {
				err := e.Handle(ctx, &task)
				for errors.Is(err, errPaused) { // the machine has too much to do, and the handler was not called
					err = e.Handle(ctx, &task)
				}
				handled <- err
			}()
			var wrote error
			select {
			case wrote = <-written:
			case <-time.After(wait):
				t.Error("it is tried for ever")
				cancel()
				wrote = <-written
			}
			if gave := redis.HasErrorPrefix(wrote, "TRYAGAIN"); gave != (c.moves == math.MaxInt32) || wrote != nil && !gave {
				t.Errorf("the result: %v", wrote)
			}
			<-handled
		})
	}
}

// A grant of a partition that there is not, as of another configuration, opens nothing.
func TestAPartitionThatThereIsNot(t *testing.T) {
	t.Parallel()
	src, _, _ := newStore(t).peer(t, Config{Queues: []string{"a", "b"}})
	for _, id := range []partition.ID{-1, 2, partition.FirstUnit} {
		if _, err := src.Open(t.Context(), partition.Grant{ID: id, Epoch: 1}, partition.Token{Epoch: 1, Session: "s"}); err == nil {
			t.Errorf("%v is opened", id)
		}
	}
}

package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// bench is an engine with a stream that has handed out one task.
func (s *store) bench(t testing.TB, h func(context.Context, *asynq.Task) error) (e *Engine, st *stream, task *sources.Task) {
	t.Helper()
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("0"), asynq.MaxRetry(0))
	src, _, _ := s.peer(t, Config{})
	e, err := src.Handler(asynq.HandlerFunc(h), silent(asynq.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	st = s.open(t, src, 0, 1)
	tasks := st.all(t, 1)
	return e, st, &tasks[0]
}

// restart gives e another configuration.
func restart(t testing.TB, e *Engine, cfg asynq.Config) {
	t.Helper()
	e.stop()
	e.cfg = cfg
	if err := e.start(e.source.queues(4)); err != nil {
		t.Fatal(err)
	}
}

// warned is a logger of asynq that is called when asynq warns.
type warned func()

func (warned) Debug(...any)  {}
func (warned) Info(...any)   {}
func (w warned) Warn(...any) { w() }
func (warned) Error(...any)  {}
func (warned) Fatal(...any)  {}

// begin is a run of a task as Handle makes it, before asynq has heard of it.
func begin(ctx context.Context, t testing.TB, e *Engine, st *stream, task *sources.Task) *run {
	t.Helper()
	raw, _ := st.raw(int64(task.Receipt))
	r := &run{
		ctx: ctx, task: task, stream: st, key: runKey{st.queue, task.ID}, raw: raw, begun: time.Now(),
		verdict: make(chan struct{}),
	}
	if _, err := e.enter(ctx, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A peer that gets a partition again under a new grant runs nothing of what it had under
// the old one, writes nothing for it, and loses nothing of the new one when it closes the
// old.
func TestAnotherGrantOfTheSamePeer(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx := t.Context()
	var ran atomic.Int32
	e, old, task := s.bench(t, func(context.Context, *asynq.Task) error { ran.Add(1); return nil })
	src, k := e.source, old.keys
	r := begin(ctx, t, e, old, task)
	now := s.open(t, src, 0, 2)
	again := now.all(t, 1)
	v := &view{UniversalClient: src.client, source: src, engine: e}
	score := s.ZScore(ctx, k.lease, "0").Val()
	if err := v.ZAddXX(ctx, k.lease, redis.Z{Score: score + 1000, Member: "0"}).Err(); !errors.Is(err, errForeign) {
		t.Errorf("the lease of a run under the old grant is extended: %v", err)
	}
	if got := s.ZScore(ctx, k.lease, "0").Val(); got != score {
		t.Errorf("the lease was %v, and is %v", score, got)
	}
	e.leave(r)
	if err := v.HSet(ctx, k.task+"0", "result", "x").Err(); !errors.Is(err, errFinished) {
		t.Errorf("the result of a run that is not under way: %v", err)
	}
	err := e.Handle(ctx, task)
	if o, _ := sources.Asked(err); o != sources.Retry || !errors.Is(err, errForeign) || ran.Load() != 0 {
		t.Errorf("a task of the old grant: %v, it ran %d times", err, ran.Load())
	}
	for range 2 {
		if err := old.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if src.of(now.queue) != now || src.live != 1 {
		t.Errorf("the old grant is closed, and the new one has gone with it: %d streams", src.live)
	}
	if err := e.Handle(ctx, &again[0]); err != nil || ran.Load() != 1 {
		t.Errorf("a task of the new grant: %v, it ran %d times", err, ran.Load())
	}
}

// asynq hears that a handler has returned by a channel that it does not look at while it extends leases: of a
// run that is over there is nothing to extend, and nothing to log as an error.
func TestALeaseOfARunThatIsOver(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx := t.Context()
	e, st, task := s.bench(t, func(context.Context, *asynq.Task) error { return nil })
	e.leave(begin(ctx, t, e, st, task))
	v := &view{UniversalClient: e.source.client, source: e.source, engine: e}
	former := s.dump(t, st.queue)
	extend := func() error {
		return v.ZAddXX(ctx, st.keys.lease, redis.Z{Score: 1, Member: "0"}).Err()
	}
	if err := extend(); err != nil || s.dump(t, st.queue) != former {
		t.Errorf("the lease of a run that is over: %v, or it was extended", err)
	}
	if err := st.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := extend(); err != nil {
		t.Errorf("the lease of a run that is over, of a queue that is not open here: %v", err)
	}
}

// A result that comes when the task is gone brings nothing back.
func TestAResultOfATaskThatIsGone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	e, st, task := s.bench(t, func(context.Context, *asynq.Task) error { return nil })
	r := begin(t.Context(), t, e, st, task)
	defer e.leave(r)
	if err := s.Del(t.Context(), st.keys.task+"0").Err(); err != nil {
		t.Fatal(err)
	}
	v := &view{UniversalClient: e.source.client, source: e.source, engine: e}
	if err := v.HSet(t.Context(), st.keys.task+"0", "result", "x").Err(); err == nil {
		t.Error("the result of a task that is gone is written")
	}
	if s.Exists(t.Context(), st.keys.task+"0").Val() != 0 {
		t.Error("the task is back")
	}
}

// Two runs of a task are one after the other: the second begins when there is a verdict on
// the first, whoever of the two goes first after that.
func TestTwoRunsOfATask(t *testing.T) {
	e := &Engine{runs: make(map[runKey]*run)}
	key := runKey{"q", "0"}
	first, second := &run{key: key, verdict: make(chan struct{})}, &run{key: key, verdict: make(chan struct{})}
	if _, err := e.enter(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.enter(over, second); !errors.Is(err, context.Canceled) || e.find("q", "0") != first {
		t.Errorf("a run begins beside another: %v", err)
	}
	e.mu.Lock()
	first.conclude(nil)
	e.mu.Unlock()
	if _, err := e.enter(t.Context(), second); err != nil || e.find("q", "0") != second {
		t.Errorf("there is a verdict on the first run, and the second does not begin: %v", err)
	}
	e.leave(first)
	if e.find("q", "0") != second {
		t.Error("the first run has taken the second out")
	}
}

// A handler whose context was ended from outside has not failed: the task is as it was,
// and costs none of its retries. What the handler wants to become of it counts all the same.
func TestWhatIsEndedFromOutsideHasNotFailed(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler func(context.Context) error
		want    sources.Outcome
	}{
		{"it gives up", context.Cause, 0},
		{"it says what is to be done", func(context.Context) error { return asynq.SkipRetry }, sources.Dead},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			inside := make(chan struct{})
			var cause error
			e, st, task := s.bench(t, func(ctx context.Context, _ *asynq.Task) error {
				close(inside)
				select {
				case <-ctx.Done():
				case <-time.After(wait / 10):
				}
				cause = context.Cause(ctx)
				return c.handler(ctx)
			})
			var told []error
			restart(t, e, silent(asynq.Config{ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { told = append(told, err) })}))
			ctx, lose := context.WithCancelCause(t.Context())
			verdict := make(chan error, 1)
			go func() { verdict <- e.Handle(ctx, task) }()
			<-inside
			lose(errLost)
			err := <-verdict
			if !errors.Is(cause, errLost) {
				t.Errorf("the handler was told %v", cause)
			}
			o, _ := sources.Asked(err)
			st.Mu.Lock()
			said := st.items[int64(task.Receipt)].native
			st.Mu.Unlock()
			if c.want == 0 && (!errors.Is(err, errLost) || said != nil) {
				t.Errorf("the verdict is %v, asynq's word on it is kept: %v", err, said != nil)
			} else if c.want != 0 && (o != c.want || said == nil) {
				t.Errorf("the verdict is %v, want %v", err, c.want)
			}
			if (len(told) > 0) != (c.want != 0) { // one that hears of it on the last try takes the task for archived
				t.Errorf("the ErrorHandler was told %v", told)
			}
		})
	}
}

// A consumer that has taken a task away while asynq was about to start it is asked once
// more: the handler is not called.
func TestWhatIsTakenAwayBeforeTheStart(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var ran atomic.Bool
	e, st, task := s.bench(t, func(context.Context, *asynq.Task) error { ran.Store(true); return nil })
	ctx, lose := context.WithCancelCause(t.Context())
	r := begin(ctx, t, e, st, task)
	lose(errLost)
	e.offers <- r
	<-r.verdict
	e.leave(r)
	if err := r.outcome(); !errors.Is(err, errLost) || ran.Load() {
		t.Errorf("the verdict is %v, the handler ran: %v", err, ran.Load())
	}
}

// What became of a run is what asynq says, if it says something, and else follows from how the run ended.
func TestWhatBecomesOfARun(t *testing.T) {
	s := newStore(t)
	e, st, task := s.bench(t, func(context.Context, *asynq.Task) error { return nil })
	later := []any{"0", []byte(nil), time.Now().Add(time.Hour).Unix()}
	for _, c := range []struct {
		name  string
		ended bool // from outside
		err   error
		said  *native
		want  sources.Outcome
		after time.Duration // about
		kept  kind          // of what asynq said
	}{
		{"done", false, nil, &native{kind: kindDone}, sources.Done, 0, kindDone},
		{"done all the same", true, nil, &native{kind: kindDone}, sources.Done, 0, kindDone},
		{"revoked all the same", true, asynq.RevokeTask, &native{kind: kindDone}, sources.Done, 0, kindDone},
		{"panicked", false, errPanic, &native{kind: kindRetry, args: later}, sources.Retry, time.Hour, kindRetry},
		{"panicked because it was ended, and nothing is said", true, errPanic, nil, sources.Retry, 0, kindRequeue},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			r := begin(ctx, t, e, st, task)
			defer e.leave(r)
			if c.ended {
				end(errLost)
			}
			r.err, r.native = c.err, c.said
			err := r.outcome()
			o, after := sources.Asked(err)
			if err == nil {
				o = sources.Done
			}
			if o != c.want || after > c.after || after < c.after-time.Minute || !st.items[int64(task.Receipt)].native.is(c.kept) {
				t.Errorf("the outcome is %v after %v: %v", o, after, err)
			}
		})
	}
}

// A run for which the server stops is no failure, and nothing of it is left.
func TestARunForWhichTheServerStops(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	e, st, task := s.bench(t, func(context.Context, *asynq.Task) error { return nil })
	e.stop()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	err := e.Handle(ctx, task)
	if o, after := sources.Asked(err); o != sources.Retry || after != 0 || !errors.Is(err, errClosing) || e.find(st.queue, task.ID) != nil {
		t.Errorf("the verdict is %v, and it is under way: %v", err, e.find(st.queue, task.ID) != nil)
	}
	if err := e.start(e.source.queues(4)); err != nil { // for the stream, which stops it
		t.Fatal(err)
	}
}

// A handler that ends its goroutine leaves asynq waiting for it, until its lease is over: that keeps nothing from closing.
func TestAHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.MaxRetry(0))
	src, _, _ := s.peer(t, Config{})
	e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { runtime.Goexit(); return nil }),
		silent(asynq.Config{ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { t.Errorf("asynq went on waiting: %v", err) })}))
	if err != nil {
		t.Fatal(err)
	}
	st := s.open(t, src, 0, 1)
	err = e.Handle(t.Context(), &st.all(t, 1)[0])
	if o, _ := sources.Asked(err); o != sources.Dead {
		t.Errorf("the verdict is %v", err)
	}
	if err := st.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// asynq does not start what it cannot read, and says so to nobody: the task stays as it is,
// and its key goes on.
func TestWhatAsynqDoesNotStart(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	e, st, task := s.bench(t, func(context.Context, *asynq.Task) error { return nil })
	r := begin(t.Context(), t, e, st, task)
	e.mu.Lock()
	r.handed = time.Now().Add(-startTime)
	e.mu.Unlock()
	select {
	case <-r.verdict:
	case <-time.After(wait):
		t.Fatal("there is no verdict")
	}
	e.leave(r)
	err := r.outcome()
	if o, after := sources.Asked(err); o != sources.Retry || after != 0 || !errors.Is(err, errNotStarted) {
		t.Errorf("the verdict is %v", err)
	}
	if err := st.Settle(t.Context(), sources.Settlement{Task: task, Outcome: sources.Requeue, Attempt: 1, Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.inspector().GetTaskInfo(st.queue, "0"); err != nil || got.Retried != 0 || got.LastErr != "" {
		t.Errorf("it was not started, and is %+v, %v", got, err)
	}
}

// asynq has a task twice where it did not start it in time, and it came again: one of the two runs it, and
// what is said of the other, which does not, is no verdict on the run.
func TestWhatAsynqHasTwice(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	refused, inside, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	e, st, task := s.bench(t, func(context.Context, *asynq.Task) error {
		close(inside)
		<-release
		return nil
	})
	restart(t, e, asynq.Config{
		Logger:       warned(func() { close(refused) }), // asynq takes it for archived
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { t.Errorf("the ErrorHandler was told %v", err) }),
	})
	r := begin(t.Context(), t, e, st, task)
	e.offers <- r
	<-inside
	e.offers <- r
	<-refused
	close(release)
	<-r.verdict
	e.leave(r)
	if err := r.outcome(); err != nil {
		t.Errorf("it has run, and the verdict is %v", err)
	}
}

// What asynq says of a task has the headers that the task had, also where asynq knows none.
func TestWhatIsSaidHasTheHeaders(t *testing.T) {
	s := newStore(t)
	if _, err := s.client(t, 1).Enqueue("ann", asynq.NewTask("t", nil)); err != nil {
		t.Fatal(err)
	}
	src, _, _ := s.peer(t, Config{Partitions: 1})
	st := s.open(t, src, 0, 1)
	task := st.all(t, 1)[0]
	n := &native{kind: kindRetry, args: []any{task.ID, appendText(nil, fieldID, task.ID), int64(0), "no", false}}
	st.said(int64(task.Receipt), 1, n)
	if m, err := parseMessage(n.message()); err != nil || m.key != "ann" {
		t.Errorf("the key is %q, %v", m.key, err)
	}
}

// A unique task that an ingress has moved has its lock in the queue that it came from: what asynq says of it is heard.
func TestATaskWhoseLockIsOfAnotherQueue(t *testing.T) {
	t.Parallel()
	for _, keep := range []time.Duration{0, time.Hour} {
		s := newStore(t)
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("0"), asynq.Retention(keep))
		task := keysOf(QueueOf(s.name, 0)).task + "0"
		raw := appendText([]byte(s.HGet(t.Context(), task, "msg").Val()), fieldUniqueKey, keysOf(s.name+"-in").prefix+"unique:t")
		if err := s.HSet(t.Context(), task, "msg", raw).Err(); err != nil {
			t.Fatal(err)
		}
		src, _, _ := s.peer(t, Config{})
		e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), silent(asynq.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		st := s.open(t, src, 0, 1)
		run := st.all(t, 1)[0]
		if err := e.Handle(t.Context(), &run); err != nil {
			t.Fatal(err)
		}
		st.Mu.Lock()
		if st.items[int64(run.Receipt)].native == nil {
			t.Errorf("kept for %v: asynq has said what became of it, and nobody has heard it", keep)
		}
		st.Mu.Unlock()
	}
}

// Empty queues are waited on as far as there are connections; each is given back.
func TestConnectionsAreFewAndComeBack(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	src, _, _ := s.peer(t, Config{Connections: 1})
	got := make(chan error, 2)
	var streams []*stream
	for id := range partition.ID(2) {
		st := s.open(t, src, id, 1)
		streams = append(streams, st)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := st.Fetch(ctx, 1)
			got <- err
		}()
		until(t, "the queue is waited on", func() bool {
			if id > 0 {
				return st.waiter.wants()
			}
			src.mu.Lock()
			defer src.mu.Unlock()
			return src.waiting == 1
		})
	}
	s.enqueue(t, 1, asynq.NewTask("t", nil)) // by who looks now and then
	s.enqueue(t, 0, asynq.NewTask("t", nil))
	for range streams {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	src.mu.Lock()
	if src.waiting != 1 {
		t.Errorf("%d connections are in use, want 1", src.waiting)
	}
	src.mu.Unlock()
	for _, st := range streams {
		if err := st.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.waiting != 0 {
		t.Errorf("all is closed, and %d connections are in use", src.waiting)
	}
}

// failedOver is a client whose server is at another address than before.
type failedOver struct {
	redis.UniversalClient
	addr chan string // the address from now on
}

func (f *failedOver) Options() *redis.Options {
	addr := <-f.addr
	f.addr <- addr
	return &redis.Options{Addr: addr}
}

// Where the connection to wait on is refused, as by a master that is a replica now, the queue
// is looked at, and waited on where it is.
func TestAQueueThatIsElsewhereIsWaitedOnThere(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	master := redistest.Server(t)
	s.UniversalClient = master.Client()
	old := redistest.Server(t, "--replicaof", "127.0.0.1", "1")
	src := s.source(t)
	moved := &failedOver{src.client, make(chan string, 1)}
	moved.addr <- old.Addr()
	src.client = moved
	st := s.open(t, src, 0, 1)
	fetch := func(id string, waits func() bool) {
		t.Helper()
		got := make(chan error, 1)
		go func() {
			tasks, err := st.Fetch(t.Context(), 1)
			if err == nil && tasks[0].ID != id {
				err = fmt.Errorf("fetched %s, want %s", tasks[0].ID, id)
			}
			got <- err
		}()
		until(t, "the queue is waited on", waits)
		st.Mu.Lock()
		st.look = time.Now().Add(time.Hour)
		st.Mu.Unlock()
		s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID(id))
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(wait):
			t.Fatal("what was pushed was not seen")
		}
	}
	fetch("a", st.waiter.wants)
	<-moved.addr
	moved.addr <- master.Addr()
	fetch("b", func() bool {
		return s.InfoMap(t.Context(), "clients").Val()["Clients"]["blocked_clients"] == "1"
	})
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.waiting != 1 {
		t.Errorf("%d connections are in use, want 1", src.waiting)
	}
}

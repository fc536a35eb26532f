package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

func TestAMuxRunsWhatAClientEnqueues(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var mu sync.Mutex
	seen := make(map[string]int)
	mux := asynq.NewServeMux()
	mux.HandleFunc("mail:send", func(ctx context.Context, task *asynq.Task) error {
		if g, ok := Grant(ctx); !ok || g.ID != 0 {
			t.Errorf("the handler got the grant %v", g)
		}
		if tok, ok := Token(ctx); !ok || tok.Epoch != 1 {
			t.Errorf("the handler got the token %v", tok)
		}
		mu.Lock()
		defer mu.Unlock()
		seen[string(task.Payload())]++
		return nil
	})
	const n = 200
	for i := range n / 2 {
		s.enqueue(t, 0, asynq.NewTask("mail:send", fmt.Append(nil, i)))
	}
	p := s.run(t, Config{}, mux, asynq.Config{})
	o := p.serve(0, 1)
	for i := n / 2; i < n; i++ {
		s.enqueue(t, 0, asynq.NewTask("mail:send", fmt.Append(nil, i)))
	}
	until(t, "all are done", func() bool {
		info, err := s.inspector().GetQueueInfo(QueueOf(s.name, 0))
		if err != nil {
			t.Fatal(err)
		}
		return info.ProcessedTotal == n && info.Size == 0
	})
	o.stop()
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("task %d ran %d times", i, seen[fmt.Sprint(i)])
		}
	}
	if keys := redistest.Keys(t, s.UniversalClient, "*"+QueueOf(s.name, 0)+"*:t:*"); len(keys) > 0 {
		t.Errorf("left over: %v", keys)
	}
}

// A task that failed keeps its key and its place with the next owner, whichever version of
// asynq has written down that it failed.
func TestAFailedTaskKeepsItsKey(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]sources.Outcome{"parked": sources.Retry, "given up": sources.Requeue} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			if _, err := s.client(t, 1).Enqueue("ann", asynq.NewTask("t", nil)); err != nil {
				t.Fatal(err)
			}
			src, _, _ := s.peer(t, Config{Partitions: 1})
			e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("no") }), silent(asynq.Config{}))
			if err != nil {
				t.Fatal(err)
			}
			st := s.open(t, src, 0, 1)
			task := st.all(t, 1)[0]
			if err := e.Handle(t.Context(), &task); err == nil {
				t.Fatal("it did not fail")
			}
			if err := st.Settle(t.Context(), sources.Settlement{Task: &task, Outcome: outcome, Attempt: 1, Reason: "no"}); err != nil {
				t.Fatal(err)
			}
			if outcome == sources.Requeue {
				if err := s.inspector().RunTask(st.queue, task.ID); err != nil {
					t.Fatal(err)
				}
			}
			next, _, _ := s.peer(t, Config{Partitions: 1})
			if again := s.open(t, next, 0, 2).all(t, 1)[0]; again.Key != "ann" || again.Attempt != 2 {
				t.Errorf("it comes back with key %q, attempt %d", again.Key, again.Attempt)
			}
		})
	}
}

// What a handler panicked with, and where, is in the error of its run: the consumer's events and
// the reasons of dead letters say it.
func TestAPanicIsSaid(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("retried"))
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("archived"), asynq.MaxRetry(0))
	src, _, _ := s.peer(t, Config{})
	e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("oh no") }), silent(asynq.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]sources.Outcome{"retried": sources.Retry, "archived": sources.Dead}
	for _, task := range s.open(t, src, 0, 1).all(t, 2) {
		err := e.Handle(t.Context(), &task)
		if o, _ := sources.Asked(err); o != want[task.ID] {
			t.Errorf("%s: the outcome is %v", task.ID, o)
		}
		if says := fmt.Sprint(err); !strings.Contains(says, "the handler panicked: panic [") || !strings.Contains(says, "engine_test.go:") ||
			!strings.HasSuffix(says, "]: oh no") {
			t.Errorf("%s: it says %s", task.ID, says)
		}
	}
	// asynq had said that its time was over, and the handler panicked then.
	late := &native{args: []any{"1", appendText(nil, fieldError, "context deadline exceeded")}}
	if err := late.panicked(); err != errPanic {
		t.Errorf("of a panic that asynq does not tell of it says %v", err)
	}
}

// A narrow is an error whose Is takes any other for one of its own type.
type narrow struct{}

func (*narrow) Error() string        { return "narrow" }
func (*narrow) Is(target error) bool { return target.(*narrow) != nil }

// asynq asks an error what it is where nothing recovers: one that panics then is a panic of the handler.
func TestAnErrorThatPanicsIsAPanicOfTheHandler(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil))
	src, _, _ := s.peer(t, Config{})
	e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return &narrow{} }), silent(asynq.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	task := s.open(t, src, 0, 1).all(t, 1)[0]
	err = e.Handle(t.Context(), &task)
	if o, _ := sources.Asked(err); o != sources.Retry || !strings.Contains(fmt.Sprint(err), "the handler panicked: ") {
		t.Errorf("the outcome is %v: %v", o, err)
	}
}

// asynq before v0.26 drops the headers of what it changes.
func TestHeadersAreRestored(t *testing.T) {
	raw := string(appendHeader(appendText(nil, fieldID, "1"), HeaderKey, "ann"))
	for _, c := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"dropped", appendText(nil, fieldID, "1"), "ann"},
		{"kept", appendHeader(nil, HeaderKey, "bob"), "bob"},
	} {
		n := &native{args: []any{"1", c.message, int64(3)}}
		n.restore(raw)
		m, err := parseMessage(string(appendText([]byte(n.message()), fieldID, "1")))
		if err != nil || m.key != c.want {
			t.Errorf("%s: the key is %q, %v", c.name, m.key, err)
		}
	}
}

// What a plain server was told and an engine cannot do is refused, not forgotten.
func TestWhatAnEngineCannotDoIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		src  Config
		cfg  asynq.Config
		says string
	}{
		{"queues of the source", Config{Queues: []string{"critical", "low"}}, asynq.Config{Queues: map[string]int{"critical": 6}}, ""},
		{"a queue that is forgotten", Config{Queues: []string{"critical"}}, asynq.Config{Queues: map[string]int{"critical": 6, "low": 1}}, `"low"`},
		{"queues by key", Config{}, asynq.Config{Queues: map[string]int{"mails:0": 1, "mails:11": 1}}, ""},
		{"another name's", Config{}, asynq.Config{Queues: map[string]int{"default": 1}}, `"default"`},
		{"an ingress", Config{Ingress: []string{"default"}}, asynq.Config{Queues: map[string]int{"default": 1}}, ""},
		{"strict priority", Config{}, asynq.Config{StrictPriority: true}, "StrictPriority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, err := New(unasked(t), "mails", c.src)
			if err != nil {
				t.Fatal(err)
			}
			_, err = src.Handler(asynq.NewServeMux(), c.cfg)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
		})
	}
}

// unasked is a client for what asks nobody. Nothing of it goes on: in a bubble, what waits for ever is found to do so.
func unasked(t *testing.T) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestWithoutClient(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil)} {
		if _, err := New(client, "mails", Config{}); err == nil || !strings.HasPrefix(err.Error(), "asynqsource: ") {
			t.Errorf("%T: %v", client, err)
		}
	}
}

// All that is wrong is said at once, with what to do about it.
func TestWhatIsWrongIsSaidAtOnce(t *testing.T) {
	says := func(err error, want ...string) {
		t.Helper()
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q is not said in:\n%v", w, err)
			}
		}
	}
	_, err := New(unasked(t), "mails", Config{
		Partitions: -1, Hash: "md5", Window: -1, CrashLimit: -1, Plain: "no",
		Ingress: []string{"a{b", " ", "in", "in", "mails:3", "countoff-mails"},
	})
	says(err, "-1 partitions", `hash "md5"`, "Window", "CrashLimit", `Plain "no"`, `"a{b"`, "without a name", `"in" is named twice`,
		`ingress "mails:3" is a queue that tasks of mails are moved to`, `"countoff-mails"`)
	_, err = New(unasked(t), "mails", Config{Queues: []string{"mails:3"}, Partitions: 3, Ingress: []string{"in"}})
	says(err, "Partitions and Hash", "Ingress")
	src, err := New(unasked(t), "mails", Config{Queues: []string{"mails:3"}, Ingress: nil})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []asynq.Handler{nil, asynq.HandlerFunc(nil), (*asynq.ServeMux)(nil)} {
		_, err = src.Handler(h, asynq.Config{GroupGracePeriod: 1, StrictPriority: true, Queues: map[string]int{"a": 1, "b": 1}})
		says(err, "no handler", "GroupGracePeriod", "StrictPriority", `"a"`, `"b"`)
	}
	if _, err := src.Handler(asynq.NewServeMux(), asynq.Config{}); err != nil {
		t.Fatal(err)
	}
	_, err = src.Handler(asynq.NewServeMux(), asynq.Config{})
	says(err, "has a handler already")
}

// What asynq says of a run whose handler does not end waits for it, each word of it: none is
// left waiting, as the server that says it could not be shut down.
func TestEachWordOfARunWaitsForItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{runs: make(map[runKey]*run)}
		r := &run{key: runKey{"q", "1"}, started: true, verdict: make(chan struct{})}
		e.runs[r.key] = r
		const n = 2
		var over atomic.Int32
		for range n {
			go func() {
				e.settle("q", &native{kind: kindDone, args: []any{"1"}})
				over.Add(1)
			}()
			synctest.Wait()
		}
		if got := over.Load(); got != 0 {
			t.Errorf("%d did not wait", got)
		}
		e.over(r, nil)
		synctest.Wait()
		if got := over.Load(); got != n || !r.settled {
			t.Errorf("%d of %d words have returned, the run is settled: %v", got, n, r.settled)
		}
	})
}

// What asynq says of one that it has twice is no word on the run that the other is, whoever is first; nor
// is what it says of a run that nobody waits for, or a second time.
func TestOneThatDidNotRunSaysNothing(t *testing.T) {
	for _, k := range []kind{kindRetry, kindArchive} {
		e := &Engine{runs: make(map[runKey]*run)}
		says := func(id, reason string) *native {
			n := &native{kind: k, args: []any{id, appendText(nil, fieldError, reason), int64(0), 0, false}}
			e.settle("q", n)
			return n
		}
		r := &run{key: runKey{"q", "1"}, verdict: make(chan struct{})}
		e.runs[r.key] = r
		says("1", errTwice.Error())
		says("2", "no")
		if r.settled {
			t.Errorf("it is kind %d", k)
		}
		n := says("1", "no")
		says("1", "once more")
		if !r.settled || r.native != n {
			t.Errorf("another error, and it is not the first kind %d", k)
		}
	}
}

// Of a run whose handler has ended its goroutine asynq speaks when its time is over. That is no word on the one after it.
func TestAWordThatComesLateIsOfAnotherRun(t *testing.T) {
	message := func(retried int) []byte { return []byte(failed("", retried, "deadline exceeded", time.Now())) }
	for _, c := range []struct {
		name    string
		k       kind
		failure bool
		retried int // of the message
		want    bool
	}{
		{"its own", kindRetry, true, 2, true},
		{"its own, and no failure", kindRetry, false, 1, true},
		{"its last", kindArchive, true, 1, true},
		{"of the run before", kindRetry, true, 1, false},
		{"of the run before, and no failure", kindRetry, false, 0, false},
		{"the last of the run before", kindArchive, true, 0, false},
		{"given back", kindRequeue, true, 1, true},
	} {
		r := &run{key: runKey{"q", "1"}, raw: string(message(1)), started: true, ended: time.Now(), verdict: make(chan struct{})}
		e := &Engine{runs: map[runKey]*run{r.key: r}}
		e.settle("q", &native{kind: c.k, args: []any{"1", message(c.retried), int64(0), 0, c.failure}})
		if r.settled != c.want {
			t.Errorf("%s: it is taken for a word on this run: %v", c.name, r.settled)
		}
	}
}

// asynq starts nothing that nobody waits for, as what was taken back.
func TestWhatNobodyWaitsForIsNotStarted(t *testing.T) {
	t.Parallel()
	e := &Engine{runs: make(map[runKey]*run)}
	for name, r := range map[string]*run{"unknown": nil, "settled": {settled: true}, "started": {started: true}} {
		if r != nil {
			e.runs[runKey{}] = r
		}
		if err := e.process(t.Context(), nil); !errors.Is(err, errTwice) {
			t.Errorf("one that is %s: %v", name, err)
		}
		delete(e.runs, runKey{})
	}
}

// Who gives up waiting for asynq to take a task leaves no run behind: the next one of the task would wait for its end for ever.
func TestWhatAsynqHasNotTakenIsNoRun(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.enqueue(t, 0, asynq.NewTask("t", nil))
	src, _, _ := s.peer(t, Config{})
	task := s.open(t, src, 0, 1).all(t, 1)[0]
	e := &Engine{source: src, offers: make(chan *run), runs: make(map[runKey]*run), quit: make(chan struct{})} // no server asks
	lost, lose := context.WithCancelCause(t.Context())
	lose(errLost)
	if err := e.Handle(lost, &task); !errors.Is(err, errLost) || len(e.runs) > 0 {
		t.Errorf("one that is taken away: %v, %d runs are left", err, len(e.runs))
	}
	close(e.quit)
	if err := e.Handle(t.Context(), &task); !errors.Is(err, errClosing) || len(e.runs) > 0 {
		t.Errorf("one whose server stops: %v, %d runs are left", err, len(e.runs))
	}
}

// A context that is not of a run says so: a fence that is none would let everybody write.
func TestAContextOfNoRunHasNoFence(t *testing.T) {
	if g, ok := Grant(t.Context()); ok {
		t.Errorf("the grant is %v", g)
	}
	if tok, ok := Token(t.Context()); ok {
		t.Errorf("the token is %v", tok)
	}
}

// A run that goes on for long, waits for asynq, has a verdict or will have one is left alone; one that asynq
// took and does not start is taken back.
func TestWhatIsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{runs: make(map[runKey]*run), offers: make(chan *run), quit: make(chan struct{})}
		add := func(id string) *run {
			r := &run{key: runKey{"q", id}, verdict: make(chan struct{})}
			e.runs[r.key] = r
			return r
		}
		taken, over := add("taken"), add("over")
		end := time.Now().Add(time.Hour)
		alone := map[string]*run{"waits": add("waits"), "runs": add("runs"), "is told of": add("told"), "is over": add("fresh"), "was taken": add("late")}
		alone["runs"].started, alone["runs"].handed = true, time.Now()
		alone["is told of"].started, alone["is told of"].ended, alone["is told of"].telling = true, time.Now(), 1
		alone["is over"].started, alone["is over"].ended = true, end.Add(-dropTime/2)
		alone["was taken"].handed = end.Add(-startTime / 2)
		over.started, over.ended = true, time.Now()
		over.conclude(&native{kind: kindDone})
		go func() { e.offers <- taken }()
		if _, err := e.next(); err != nil {
			t.Fatal(err)
		}
		go e.sweep(e.quit)
		time.Sleep(time.Hour)
		synctest.Wait()
		close(e.quit)
		if !taken.settled || !taken.native.is(kindRequeue) {
			t.Errorf("asynq took it and did not start it, and it is taken back: %v", taken.settled)
		}
		for name, r := range alone {
			if r.settled {
				t.Errorf("one that %s has a verdict", name)
			}
		}
		if !over.native.is(kindDone) {
			t.Errorf("another verdict was %d", over.native.kind)
		}
	})
}

// asynq counts the lease of a task, 30 s, from when it asked for one: a question that has waited for an hour would bring
// one whose lease is over, and asynq would end its handler at its next heartbeat and say nothing of how it ended.
func TestAQuestionForATaskDoesNotGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(unasked(t), "mails", Config{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.Handler(asynq.NewServeMux(), asynq.Config{})
		if err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		for range 10 {
			before := time.Now()
			if raw, err := e.next(); err != redis.Nil || time.Since(before) > 10*time.Second {
				t.Fatalf("after %v it was told %q, %v", time.Since(before), raw, err)
			}
		}
		if idle := time.Since(asked); idle < 30*time.Second {
			t.Errorf("with nothing to do it asks ten times in %v", idle)
		}
	})
}

// While the process stands still asynq can say nothing: what it has to say of a run that ended just before is
// waited for, or one that failed would run again at once, without its delay and uncounted.
func TestAsynqIsNotSilentWhileNobodyRuns(t *testing.T) {
	t.Parallel()
	e := &Engine{runs: make(map[runKey]*run)}
	end := time.Now()
	r := &run{started: true, ended: end, verdict: make(chan struct{})}
	e.runs[r.key] = r
	last := end
	for _, c := range []struct {
		after   time.Duration
		settled bool
	}{{time.Minute, false}, {dropTime / 4, false}, {dropTime / 2, false}, {dropTime / 2, true}} {
		now := last.Add(c.after)
		if e.look(last, now); r.settled != c.settled {
			t.Fatalf("%v after it ended, and %v after the look before, it has a verdict: %v", now.Sub(end), c.after, r.settled)
		}
		last = now
	}
}

// Whatever the server was to run at once, what the consumer starts is started.
func TestTheConsumerSaysHowManyRun(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	inside := make(chan struct{})
	p := s.run(t, Config{}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		select {
		case inside <- struct{}{}:
		case <-inside:
		case <-time.After(wait):
			t.Error("one waits for the other")
		}
		return nil
	}), asynq.Config{Concurrency: 1})
	for range 2 {
		s.enqueue(t, 0, asynq.NewTask("t", nil))
	}
	o := p.serve(0, 1)
	defer o.stop()
	until(t, "both are done", func() bool {
		info, err := s.inspector().GetQueueInfo(QueueOf(s.name, 0))
		return err == nil && info.Size == 0
	})
}

// asynq takes it for a message, and ends the process, that the client under it is closed: what it hears of cancelled
// tasks comes by another.
func TestAClosedClientIsNoWordForAsynq(t *testing.T) {
	t.Parallel()
	for what, other := range map[string]redis.UniversalClient{
		"a server": redistest.Server(t).Client(), "a cluster": redistest.Cluster(t),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			client := redistest.Another(t, other)
			src, err := New(client, redistest.Name(t), Config{})
			if err != nil {
				t.Fatal(err)
			}
			v, leave := src.newView(nil)
			defer leave()
			const channel = "asynq:cancel"
			heard := v.Subscribe(t.Context(), channel)
			defer heard.Close()
			if _, err := heard.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			if err := other.Publish(t.Context(), channel, "id").Err(); err != nil {
				t.Fatal(err)
			}
			select {
			case m := <-heard.Channel():
				if m == nil || m.Payload != "id" {
					t.Errorf("its client is closed, and it hears %v", m)
				}
			case <-time.After(wait):
				t.Error("it hears nothing")
			}
		})
	}
}

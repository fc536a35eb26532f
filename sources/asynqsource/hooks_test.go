package asynqsource

import (
	"context"
	"errors"
	"io"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/sources"
)

// failing is an engine whose handler fails, and the task that its stream has handed out.
func (s *store) failing(t *testing.T, cfg asynq.Config) (*Engine, *stream, *sources.Task) {
	t.Helper()
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("0"))
	src, _, _ := s.peer(t, Config{})
	e, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("no") }), cfg)
	if err != nil {
		t.Fatal(err)
	}
	st := s.open(t, src, 0, 1)
	return e, st, &st.all(t, 1)[0]
}

// An ErrorHandler may take its time, as one that sends what it hears somewhere: until it is back, and for a
// moment more, asynq is not taken for one that says nothing.
func TestAnErrorHandlerMayTakeItsTime(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	told, back := make(chan struct{}), make(chan struct{})
	e, st, task := s.failing(t, silent(asynq.Config{ErrorHandler: asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) {
		close(told)
		<-back
	})}))
	verdict := make(chan error, 1)
	go func() { verdict <- e.Handle(t.Context(), task) }()
	<-told
	r := e.find(st.queue, task.ID)
	e.mu.Lock()
	telling, then := r.telling, time.Now()
	e.mu.Unlock()
	close(back)
	err := <-verdict
	if o, _ := sources.Asked(err); o != sources.Retry || !r.native.is(kindRetry) {
		t.Errorf("the verdict is %v", err)
	}
	if telling != 1 || r.telling != 0 || r.ended.Before(then) {
		t.Errorf("while it was told %d, after that %d, for %v", telling, r.telling, r.ended.Sub(then))
	}
}

// So may a RetryDelayFunc and an IsFailure, as ones that ask a database.
func TestWhoIsAskedMayTakeHisTime(t *testing.T) {
	no := errors.New("no")
	for name, ask := range map[string]func(*Engine){
		"RetryDelayFunc": func(e *Engine) { e.retryDelay(0, no, asynq.NewTask("t", nil)) },
		"IsFailure":      func(e *Engine) { e.isFailure(no) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				takes := time.Hour
				e := &Engine{runs: make(map[runKey]*run), quit: make(chan struct{}), cfg: asynq.Config{
					RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { time.Sleep(takes); return 0 },
					IsFailure:      func(error) bool { time.Sleep(takes); return true },
				}}
				r := &run{started: true, ended: time.Now(), err: no, verdict: make(chan struct{})}
				e.runs[r.key] = r
				settled := func() bool {
					synctest.Wait()
					e.mu.Lock()
					defer e.mu.Unlock()
					return r.settled
				}
				go e.sweep(e.quit)
				defer close(e.quit)
				ask(e)
				time.Sleep(dropTime / 2)
				if settled() {
					t.Fatal("it has not answered, or has just done so, and asynq is taken for one that says nothing")
				}
				takes = time.Millisecond // many that are quick do not hold up the verdict
				for range 2 * dropTime / time.Millisecond {
					ask(e)
				}
				if !settled() {
					t.Error("asynq says nothing, and there is no verdict")
				}
			})
		})
	}
}

// An ErrorHandler hears nothing of a handler that was not called, because the process stood still before the start.
func TestAnErrorHandlerHearsOfNoPause(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	e, st, task := s.failing(t, silent(asynq.Config{}))
	restart(t, e, silent(asynq.Config{
		BaseContext: func() context.Context { // asynq asks for it between the question and the start
			e.mu.Lock()
			defer e.mu.Unlock()
			r := e.runs[runKey{st.queue, task.ID}]
			r.begun = r.begun.Add(-hopTime)
			return context.Background()
		},
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { t.Errorf("it was told %v", err) }),
	}))
	if err := e.Handle(t.Context(), task); !errors.Is(err, errPaused) {
		t.Errorf("the verdict is %v", err)
	}
}

// What a caller's function panics with ends no peer: asynq does what it does without the function.
func TestFunctionsThatPanic(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	said := &heard{quiet{log.New(io.Discard, "", 0)}, make(chan string, 100)}
	e, _, task := s.failing(t, asynq.Config{
		Logger:         said,
		ErrorHandler:   asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { panic("oh") }),
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { panic("oh") },
		IsFailure:      func(error) bool { panic("oh") },
	})
	err := e.Handle(t.Context(), task)
	for errors.Is(err, errPaused) || errors.Is(err, errDropped) { // the machine has too much to do: the consumer asks again
		err = e.Handle(t.Context(), task)
	}
	if o, after := sources.Asked(err); o != sources.Retry || after < 10*time.Second || !strings.Contains(err.Error(), "no") {
		t.Errorf("the verdict is %v after %v: %v", o, after, err)
	}
	if r := e.isFailure(errors.New("no")); !r {
		t.Error("an error does not count")
	}
	says := ""
	for range len(said.said) {
		says += <-said.said + "\n"
	}
	for _, want := range []string{
		"the ErrorHandler panicked on a task of type t: oh", "the RetryDelayFunc panicked on a task of type t: oh",
		"the IsFailure panicked on an error of type *errors.errorString: oh", "hooks_test.go:",
	} {
		if !strings.Contains(says, want) {
			t.Errorf("%q is not said in\n%s", want, says)
		}
	}
}

// What does not panic is not said to have.
func TestFunctionsThatDoNotPanic(t *testing.T) {
	said := &heard{quiet{log.New(io.Discard, "", 0)}, make(chan string, 100)}
	e := &Engine{cfg: asynq.Config{Logger: said, IsFailure: func(error) bool { return true }}}
	no := errors.New("no")
	e.isFailure(no)
	e.retryDelay(0, no, asynq.NewTask("t", nil)) // there is none to ask
	if len(said.said) > 0 {
		t.Error(<-said.said)
	}
}

package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"log"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"
)

// What the caller's configuration has asynq call about a run that failed is called where nothing recovers:
// a panic would end the peer, and the next one that has the task. It is said in asynq's log instead, and
// asynq goes on as if there were no such function.

// hook puts the engine around the caller's functions.
func (e *Engine) hook(cfg *asynq.Config) {
	if cfg.ErrorHandler != nil {
		cfg.ErrorHandler = asynq.ErrorHandlerFunc(e.handleError)
	}
	if cfg.RetryDelayFunc != nil {
		cfg.RetryDelayFunc = e.retryDelay
	}
	if cfg.IsFailure != nil {
		cfg.IsFailure = e.isFailure
	}
	if cfg.GroupAggregator != nil {
		cfg.GroupAggregator = asynq.GroupAggregatorFunc(e.aggregate)
	}
}

// shield calls f, which is the caller's, on what.
func (e *Engine) shield(name, what string, f func()) {
	defer func() {
		if why := recover(); why != nil {
			tell := func(args ...any) { log.Print(args...) }
			if e.cfg.Logger != nil {
				tell = e.cfg.Logger.Error
			}
			tell(fmt.Sprintf("asynqsource: the %s panicked on %s: %v\n%s", name, what, why, debug.Stack()))
		}
	}()
	f()
}

// handleError tells the caller of an error. It may take its time: asynq says after it what became of the
// run, so that is waited for.
func (e *Engine) handleError(ctx context.Context, t *asynq.Task, err error) {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	r := e.find(queue, id)
	if r != nil {
		e.tells(r, 1)
		defer e.tells(r, -1)
	}
	e.shield("ErrorHandler", "a task of type "+t.Type(), func() {
		if e.counts(r, err) {
			e.cfg.ErrorHandler.HandleError(ctx, t, err)
		}
	})
}

// counts reports whether what asynq has of r, which may be nil, is a failure of the task. Where its handler was not
// called, or was ended from outside, the task runs again as it was: an ErrorHandler that heard of it on the last
// try would say that there is none left.
func (e *Engine) counts(r *run, err error) bool {
	if errors.Is(err, errTwice) || errors.Is(err, errPaused) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return r == nil || !r.cut()
}

// tells notes that the caller is told of r, or was.
func (e *Engine) tells(r *run, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.telling += n
	if !r.ended.IsZero() {
		r.ended = time.Now()
	}
}

// ask asks the caller what asynq wants to know before it says what became of a run that failed. He may take his
// time, and of which run he is asked is not known: meanwhile, and for a moment more, of no run asynq is taken to
// say nothing. What is answered quickly does not count: there may be many.
func (e *Engine) ask(name, what string, f func()) {
	slow := time.AfterFunc(dropTime/4, func() { e.asks(1) })
	e.shield(name, what, f)
	if !slow.Stop() {
		e.asks(-1)
	}
}

// asks notes that the caller takes his time over a question, or did.
func (e *Engine) asks(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asking += n
	e.asked = time.Now()
}

// retryDelay is how long a task waits for its next run.
func (e *Engine) retryDelay(n int, err error, t *asynq.Task) (d time.Duration) {
	d = asynq.DefaultRetryDelayFunc(n, err, t)
	if e.cfg.RetryDelayFunc != nil {
		e.ask("RetryDelayFunc", "a task of type "+t.Type(), func() { d = e.cfg.RetryDelayFunc(n, err, t) })
	}
	return d
}

// isFailure says whether an error counts.
func (e *Engine) isFailure(err error) bool {
	failed := true
	e.ask("IsFailure", fmt.Sprintf("an error of type %T", err), func() { failed = e.cfg.IsFailure(err) })
	return failed
}

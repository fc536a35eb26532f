package framework

import (
	"context"
	"slices"
	"time"
)

// A Middleware wraps a handler.
type Middleware func(Handler) Handler

// Chain wraps h in m, of which the first is the outermost. It returns nil, which [New] and [NewMux]
// refuse, if h or a middleware is nil, or if a middleware returns nil.
func Chain(h Handler, m ...Middleware) Handler {
	for _, wrap := range slices.Backward(m) {
		if missing(h) || wrap == nil {
			return nil
		}
		h = wrap(h)
	}
	if missing(h) {
		return nil
	}
	return h
}

// Recover makes a panic of the handlers inside it an error. A consumer does this
// anyway, at the very outside; Recover is for middleware that wants to see the
// error.
func Recover() Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, t *Task) (err error) {
			defer catch("the handler", &err)
			return next.Handle(ctx, t)
		})
	}
}

// Timeout ends the handler's context after d, with [ErrTimeout] as its cause. It
// suits a single type of task; Config.HandlerTimeout is for all of a consumer's
// and is checked against the other budgets. A d of zero or less means no timeout.
func Timeout(d time.Duration) Middleware {
	return func(next Handler) Handler {
		if d <= 0 {
			return next
		}
		return HandlerFunc(func(ctx context.Context, t *Task) error {
			ctx, cancel := context.WithTimeoutCause(ctx, d, ErrTimeout)
			defer cancel()
			return next.Handle(ctx, t)
		})
	}
}

// AtMost lets n runs at most of the handlers it wraps go on at once in this process, for
// what has few places: licenses, memory, connections. One such middleware around several
// handlers, by one variable, is one limit for all of them; each call of AtMost is a limit of
// its own. An n of zero or less means no limit.
//
// A task that waits for its place holds a worker (Config.Concurrency), and its wait is part of
// Config.HandlerTimeout; a [Timeout] inside of AtMost begins with the place. If its context
// ends first, the handler is not called and the cause is the error. If its partition is to change
// hands first ([HandOver]), the task is left to the next owner.
func AtMost(n int) Middleware {
	if n <= 0 {
		return func(next Handler) Handler { return next }
	}
	places := make(chan struct{}, n)
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, t *Task) error {
			select {
			case places <- struct{}{}:
			case <-HandOver(ctx):
				return ErrHandedOver
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			defer func() { <-places }()
			if ctx.Err() != nil {
				return context.Cause(ctx) // select may take the place although there is no time for it
			}
			return next.Handle(ctx, t)
		})
	}
}

// Log calls report after each run of a handler, with how long it took and the
// error it returned. A panic passes through it; put [Recover] inside to see it.
// zapobserver.Log reports to a zap logger. A nil report is none.
func Log(report func(ctx context.Context, t *Task, took time.Duration, err error)) Middleware {
	return func(next Handler) Handler {
		if report == nil {
			return next
		}
		return HandlerFunc(func(ctx context.Context, t *Task) error {
			began := time.Now()
			err := next.Handle(ctx, t)
			report(ctx, t, time.Since(began), err)
			return err
		})
	}
}

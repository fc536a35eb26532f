// Package redisline lets sourcetest's faults happen to a source that speaks to Redis:
// calls that are lost, late or refused, and a peer that is killed in the middle of one.
package redisline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources/sourcetest"
)

// A Line is the way of one peer to its store: a hook for the peer's client. What is told
// to its embedded [sourcetest.Line] happens to the requests.
type Line struct {
	sourcetest.Line
	op   func(redis.Cmder) sourcetest.Op
	late redis.UniversalClient
}

var _ redis.Hook = (*Line)(nil)

// New puts a Line into client. Op says what a command is for, "" if for nothing
// that faults are for. It is called for one command after the other of a pipeline, from any goroutine
// that uses client. Late is another client of the store: it carries requests that arrive
// when their sender is gone.
func New(client, late redis.UniversalClient, op func(redis.Cmder) sourcetest.Op) *Line {
	l := &Line{op: op, late: late}
	client.AddHook(l)
	return l
}

// Settles returns what reports of each call of redisprogress's settle script whether it settles anything:
// its base is above that of the call before, or it has verdicts of others. It may be called from any
// goroutine.
func Settles() func(redis.Cmder) bool {
	var mu sync.Mutex
	var last string // the base as last said
	return func(c redis.Cmder) bool {
		argv := c.Args()[10:]
		mu.Lock()
		defer mu.Unlock()
		before, base := last, fmt.Sprint(argv[4])
		last = base
		return before != base && before != "" || argv[8] != ""
	}
}

// DialHook implements [redis.Hook].
func (*Line) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (l *Line) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return l.carry(ctx, func() error { return next(ctx, cmd) }, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (l *Line) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return l.carry(ctx, func() error { return next(ctx, cmds) }, cmds...)
	}
}

func (l *Line) carry(ctx context.Context, execute func() error, cmds ...redis.Cmder) error {
	var ops []sourcetest.Op
	var args [][]any
	for _, c := range cmds {
		if op := l.op(c); op != "" {
			ops = append(ops, op)
		}
		args = append(args, slices.Clone(c.Args()))
	}
	if len(ops) == 0 {
		return execute()
	}
	var gone atomic.Bool // the sender is
	var err error
	injected := l.DoContext(ctx, func() {
		if !gone.Load() {
			err = execute()
			return
		}
		pipe := l.late.Pipeline()
		for _, a := range args {
			pipe.Do(context.Background(), a...)
		}
		_, _ = pipe.Exec(context.Background()) // nobody waits for what it answers
	}, ops...)
	gone.Store(true)
	if errors.Is(injected, sourcetest.ErrKilled) {
		injected = redis.ErrClosed // what a client says that is over
	}
	if injected != nil {
		for _, c := range cmds {
			c.SetErr(injected)
		}
		return injected
	}
	return err
}

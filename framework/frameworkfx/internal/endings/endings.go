// Package endings closes what a constructor has opened for an application that never starts, since fx
// stops only what it has started. It also refuses to start again what was stopped, since fx would
// make nothing anew.
package endings

import (
	"context"
	"errors"
	"sync/atomic"

	"go.uber.org/fx"
)

var errOver = errors.New("frameworkfx: this application was stopped, and with it what it had opened was closed: make a new one")

// A List is the lifecycle of an application, and knows what was appended to it here.
type List struct {
	fx.Lifecycle
	hooks []fx.Hook
}

// Of returns a list of nothing.
func Of(l fx.Lifecycle) *List { return &List{Lifecycle: l} }

// Append hooks h, which has no OnStart, into the application's life.
func (l *List) Append(h fx.Hook) {
	l.hooks = append(l.hooks, h)
	var over atomic.Bool
	l.Lifecycle.Append(fx.StartStopHook(
		func() error {
			if over.Load() {
				return errOver
			}
			return nil
		},
		func(ctx context.Context) error { over.Store(true); return h.OnStop(ctx) },
	))
}

// End stops all that was appended, the last first. It is for an application that has not started.
func (l *List) End() {
	for len(l.hooks) > 0 {
		last := l.hooks[len(l.hooks)-1]
		l.hooks = l.hooks[:len(l.hooks)-1]
		_ = last.OnStop(context.Background()) // of a client that nobody has used: why there is none is said already
	}
}

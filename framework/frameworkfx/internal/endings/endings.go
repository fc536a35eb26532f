// Package endings ends what a constructor has opened for an application that never starts: fx
// stops only what it has started.
package endings

import (
	"context"

	"go.uber.org/fx"
)

// A List is the lifecycle of an application, and knows what was appended to it here.
type List struct {
	fx.Lifecycle
	hooks []fx.Hook
}

// Of returns a list of nothing.
func Of(l fx.Lifecycle) *List { return &List{Lifecycle: l} }

// Append hooks h into the application's life.
func (l *List) Append(h fx.Hook) {
	l.hooks = append(l.hooks, h)
	l.Lifecycle.Append(h)
}

// End stops all that was appended, the last first. It is for an application that has not started.
func (l *List) End() {
	for len(l.hooks) > 0 {
		last := l.hooks[len(l.hooks)-1]
		l.hooks = l.hooks[:len(l.hooks)-1]
		if last.OnStop != nil {
			_ = last.OnStop(context.Background()) // of a client that nobody has used: why there is none is said already
		}
	}
}

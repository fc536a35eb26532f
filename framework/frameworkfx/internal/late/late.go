// Package late tells an observer that comes after those who have something to tell: a source is made before its consumer.
package late

import (
	"sync/atomic"

	"github.com/countoff/countoff/framework"
)

// An Observer passes on what it is told, once it knows to whom. The zero value does not know yet: nobody hears it.
type Observer struct {
	to atomic.Pointer[framework.Observer]
}

// Listen says to whom; it is what frameworkfx.Source.Listen wants.
func (o *Observer) Listen(to framework.Observer) { o.to.Store(&to) }

// Observe implements framework.Observer.
func (o *Observer) Observe(e framework.Event) {
	if to := o.to.Load(); to != nil {
		(*to).Observe(e)
	}
}

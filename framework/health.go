package framework

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/transition"
)

// A checkup asks once a beat how a peer is.
type checkup struct {
	name    string
	check   func(context.Context) error
	beat    time.Duration
	observe func(Event)
	ill     atomic.Pointer[error] // what check last returned; nil: well, or none yet
}

// run asks until ctx ends.
func (c *checkup) run(ctx context.Context, co *transition.Coordinator) {
	first := true
	for {
		inner, cancel := context.WithTimeout(ctx, c.beat)
		err := runCheck(inner, c.check)
		cancel()
		if ctx.Err() != nil {
			return // that it was interrupted says nothing
		}
		co.Report(err == nil)
		was := c.ill.Load()
		if err == nil {
			c.ill.Store(nil)
		} else {
			c.ill.Store(&err)
		}
		if first || (was == nil) != (err == nil) {
			c.observe(Checked{Consumer: c.name, Err: err})
		}
		first = false
		if !sleep(ctx, c.beat) {
			return
		}
	}
}

func runCheck(ctx context.Context, check func(context.Context) error) (err error) {
	defer catch("the health check", &err)
	return check(ctx)
}

// healthy says why the peer is not well, as far as is known.
func (c *checkup) healthy() error {
	if err := c.ill.Load(); err != nil {
		return fmt.Errorf("unwell: %w", *err)
	}
	return nil
}

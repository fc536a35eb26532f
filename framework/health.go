package framework

import (
	"cmp"
	"context"
	"errors"
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

// errLate is what a check that has not returned in its time counts as, whatever it returns.
var errLate = errors.New("the health check has not returned in time")

// run asks until ctx ends. A check that does not hear the end of its time is waited for: there
// is one at a time.
func (c *checkup) run(ctx context.Context, co *transition.Coordinator) {
	first := true
	tell := func(err error) {
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
	}
	for {
		inner, cancel := context.WithTimeout(ctx, c.beat)
		ended := apart(func() error { return runCheck(inner, c.check) })
		var err error
		select {
		case err = <-ended:
		case <-time.After(c.beat + c.beat/10): // one that hears it says more itself
			if ctx.Err() == nil {
				tell(errLate)
			}
			err = cmp.Or(<-ended, errLate)
		}
		cancel()
		if ctx.Err() != nil {
			return // that it was interrupted says nothing
		}
		tell(err)
		if !sleep(ctx, c.beat) {
			return
		}
	}
}

func runCheck(ctx context.Context, check func(context.Context) error) (err error) {
	defer catch("the health check", &err)
	return tried(check(ctx))
}

// healthy says why the peer is not well, as far as is known.
func (c *checkup) healthy() error {
	if err := c.ill.Load(); err != nil {
		return fmt.Errorf("unwell: %w", *err)
	}
	return nil
}

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
	grace   time.Duration // what a check gets to return in, once nobody asks any more
	observe func(Event)
	ill     atomic.Pointer[error] // what check last returned; nil: well, or none yet
	asked   atomic.Bool           // it has returned, or was late, once
}

func newCheckup(name string, check func(context.Context) error, t transition.Timing, observe func(Event)) checkup {
	return checkup{name: name, check: check, beat: t.Beat(), grace: t.CancelGrace, observe: observe}
}

// errLate is what a check that has not returned in its time counts as, whatever it returns.
var errLate = errors.New("the health check has not returned in time")

// run asks until ctx ends. A check that does not hear the end of its time is waited for: there
// is one at a time. One that does not hear the end of ctx is left behind after the grace: it
// holds nothing, and a stop has more to do than to wait for it.
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
		c.asked.Store(true)
		if first || (was == nil) != (err == nil) {
			c.observe(Checked{Consumer: c.name, Err: err})
		}
		first = false
	}
	for {
		inner, cancel := context.WithTimeout(ctx, c.beat)
		ended := apart("the health check", func() error { return c.check(inner) })
		late, err := c.await(ctx, ended)
		if late {
			if ctx.Err() == nil {
				tell(errLate)
			}
			err = cmp.Or(c.outlast(ctx, ended), errLate)
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

// await waits for what a check returns until it is late: one that hears the end of its time says
// more itself.
func (c *checkup) await(ctx context.Context, ended <-chan error) (late bool, err error) {
	select {
	case err = <-ended:
		return false, err
	case <-time.After(c.beat + c.beat/10):
		return true, nil
	case <-ctx.Done():
		return false, c.outlast(ctx, ended)
	}
}

// outlast waits for what a check returns, until the grace after the end of ctx is over.
func (c *checkup) outlast(ctx context.Context, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(c.grace):
		return ctx.Err()
	}
}

// healthy says why the peer is not well, as far as is known.
func (c *checkup) healthy() error {
	if err := c.ill.Load(); err != nil {
		return fmt.Errorf("unwell: %w", *err)
	}
	if c.check != nil && !c.asked.Load() {
		return errors.New("unwell: the health check has not passed yet") // which is what the others are told
	}
	return nil
}

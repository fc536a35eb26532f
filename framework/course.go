package framework

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countoff/countoff/transition"
)

// A course is what a session of either kind has: how it goes, and how it ends.
type course struct {
	name     string        // of the consumer or the units
	observer Observer      // nil: nobody listens; one that fails ends the session
	done     chan struct{} // closed at the end; err and left may be read then

	mu       sync.Mutex
	troubled error // why it has not started to take part yet
	err      error // why it could not go on
	left     error // what a stop left behind; errHard as soon as one turns hard
	final    bool  // no stop changes anything any more, though done may still be open
}

var errHard = fmt.Errorf("%w hard", ErrStopped)

func newCourse(name string) course { return course{name: name, done: make(chan struct{})} }

func (c *course) ended() <-chan struct{} { return c.done }

func (c *course) failure() error { return c.err }

func (c *course) observe(e Event) { observe(c.observer, e) }

// notYet takes note that the source or the ledger has not answered.
func (c *course) notYet(err error, again time.Duration) {
	c.mu.Lock()
	c.troubled = err
	c.mu.Unlock()
	c.observe(StartFailed{Consumer: c.name, Err: err, Again: again})
}

// absent says why the session does not take part, if it does not: it has ended, is stopping, or has not begun.
func (c *course) absent(stopping, begun bool) error {
	c.mu.Lock()
	troubled := c.troubled
	c.mu.Unlock()
	switch {
	case closed(c.done) && c.err != nil:
		return fmt.Errorf("ended: %w", c.err)
	case closed(c.done):
		return errors.New("stopped")
	case stopping:
		return errors.New("stopping")
	case begun:
		return nil
	case troubled != nil:
		return fmt.Errorf("starting: %w", troubled)
	}
	return errors.New("starting")
}

// fails takes note of why the session cannot go on; the first reason counts.
func (c *course) fails(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !closed(c.done) {
		c.err = err
	}
}

// outlast waits for the end, and calls cut if ctx ends first. It returns what the stop left behind.
func (c *course) outlast(ctx context.Context, cut func()) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		cut()
		<-c.done
	}
	return c.left
}

// conclude takes in what the session's work came to, and returns what is to be told of it. A stop that turns hard
// after that has cut nothing. The caller holds mu.
func (c *course) conclude(err error) error {
	switch {
	case err == nil:
	case c.left != nil:
		c.left = fmt.Errorf("%w: %w", c.left, err)
	case isLeft(err):
		c.left = err
	case c.err == nil:
		c.err = err
	}
	c.final = true
	return errors.Join(c.err, c.left)
}

// isLeft reports whether err is what an orderly stop left behind: its last word, which the
// ledger did not answer, or handlers that had not returned.
func isLeft(err error) bool {
	_, unheard := errors.AsType[*transition.UnheardError](err)
	_, stuck := errors.AsType[*transition.StuckError](err)
	return unheard || stuck
}

// end tells the end, first the observers and then by tell, and makes it one.
func (c *course) end(e Stopped, tell func(failure error)) {
	c.observe(e)
	c.mu.Lock()
	why := c.err // an observer may have failed at that
	c.mu.Unlock()
	tell(why)
	c.mu.Lock()
	close(c.done)
	c.mu.Unlock()
}

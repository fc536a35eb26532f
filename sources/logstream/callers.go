package logstream

import (
	"context"
	"time"

	"github.com/countoff/countoff/sources/progress"
)

// callers are those who wait for a stream. Its lock guards them.
type callers struct {
	fetch   *fetch // the Fetch that waits; nil: none
	settles []settle
}

// A fetch is a call of Fetch.
type fetch struct {
	limit int
	need  progress.Need
	// asked says that the store has admitted a request that left since the call
	// began. What was read before is handed out only then: the fence may be
	// another's by now.
	asked bool
	done  chan error // nil: look again
}

// settle is a Settle that waits until the verdict seq is answered.
type settle struct {
	seq  uint64
	done chan error
}

// newFetch returns a call that asks for at most limit tasks.
func newFetch(limit int) *fetch { return &fetch{limit: limit, done: make(chan error, 1)} }

// told returns the error that f was told at the moment when its time was up. After it, and
// with f not among the callers, the next word to f never blocks.
func (f *fetch) told() error {
	select {
	case err := <-f.done:
		return err
	default:
		return nil
	}
}

// wait blocks until f may look again: it was told to (nil), it was told an error, the
// instant again (zero: none) has come, or the permit. If ctx ends first it has forget
// called, in which f is to be taken from the callers under the stream's lock, and returns
// the error of ctx.
func (f *fetch) wait(ctx context.Context, again time.Time, seat *seat, forget func()) error {
	var due <-chan time.Time
	if !again.IsZero() {
		t := time.NewTimer(time.Until(again))
		defer t.Stop()
		due = t.C
	}
	select {
	case err := <-f.done:
		return err
	case <-due:
		return nil
	case <-seat.granted():
		return nil
	case <-ctx.Done():
		forget()
		return ctx.Err()
	}
}

// forget takes f from the callers.
func (c *callers) forget(f *fetch) {
	if c.fetch == f {
		c.fetch = nil
	}
}

// settle adds a call that waits until the verdict seq is answered. What comes is its
// result.
func (c *callers) settle(seq uint64) <-chan error {
	done := make(chan error, 1)
	c.settles = append(c.settles, settle{seq, done})
	return done
}

// answered wakes who waited for what is now known: the Fetch, and each Settle whose
// verdict is not after seq.
func (c *callers) answered(seq uint64) {
	c.tellFetch(nil)
	waiting := c.settles[:0]
	for _, s := range c.settles {
		if s.seq <= seq {
			s.done <- nil
		} else {
			waiting = append(waiting, s)
		}
	}
	clear(c.settles[len(waiting):])
	c.settles = waiting
}

// tellFetch gives err to the Fetch that waits (nil: look again), and reports whether one
// does.
func (c *callers) tellFetch(err error) bool {
	if c.fetch == nil {
		return false
	}
	c.fetch.done <- err
	c.fetch = nil
	return true
}

// tellSettles gives err to those who wait for what they said to be answered; it stays
// queued.
func (c *callers) tellSettles(err error) {
	for _, s := range c.settles {
		s.done <- err
	}
	clear(c.settles)
	c.settles = c.settles[:0]
}

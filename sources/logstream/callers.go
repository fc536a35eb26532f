package logstream

import (
	"context"
	"time"

	"github.com/countoff/countoff/sources/progress"
)

// Callers are those who wait for a stream. Its lock guards them.
type Callers struct {
	// Fetch is the Fetch that waits; nil: none.
	Fetch   *Fetch
	settles []settle
}

// A Fetch is a call of Fetch.
type Fetch struct {
	Limit int
	Need  progress.Need
	// Asked says that the store has admitted a request that left since the call
	// began. What was read before is handed out only then: the fence may be
	// another's by now.
	Asked bool
	done  chan error // nil: look again
}

// settle is a Settle that waits until the verdict seq is answered.
type settle struct {
	seq  uint64
	done chan error
}

// NewFetch returns a call that asks for at most limit tasks.
func NewFetch(limit int) *Fetch { return &Fetch{Limit: limit, done: make(chan error, 1)} }

// Told returns what was said to f at the moment when its time was up. After it, and with
// f not among the callers, the next word to f never blocks.
func (f *Fetch) Told() (told bool, err error) {
	select {
	case err := <-f.done:
		return true, err
	default:
		return false, nil
	}
}

// Wait blocks until f may look again: it was told to (nil), it was told an error, the
// instant again (zero: none) has come, or the permit. If ctx ends first it has forget
// called, in which f is to be taken from the callers under the stream's lock, and returns
// the error of ctx.
func (f *Fetch) Wait(ctx context.Context, again time.Time, seat *Seat, forget func()) error {
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
	case <-seat.Granted():
		return nil
	case <-ctx.Done():
		forget()
		return ctx.Err()
	}
}

// Forget takes f from the callers.
func (c *Callers) Forget(f *Fetch) {
	if c.Fetch == f {
		c.Fetch = nil
	}
}

// Settle adds a call that waits until the verdict seq is answered. What comes is its
// result.
func (c *Callers) Settle(seq uint64) <-chan error {
	done := make(chan error, 1)
	c.settles = append(c.settles, settle{seq, done})
	return done
}

// Answered wakes who waited for what is now known: the Fetch, and each Settle whose
// verdict is not after seq.
func (c *Callers) Answered(seq uint64) {
	c.TellFetch(nil)
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

// TellFetch gives err to the Fetch that waits; nil: look again.
func (c *Callers) TellFetch(err error) {
	if c.Fetch != nil {
		c.Fetch.done <- err
		c.Fetch = nil
	}
}

// Tell gives to all who wait what fail makes of their operation; what they said stays
// queued.
func (c *Callers) Tell(fail func(op string) error) {
	if c.Fetch != nil {
		c.TellFetch(fail("fetch"))
	}
	c.TellSettles(fail)
}

// TellSettles does so for those who wait for what they said to be answered.
func (c *Callers) TellSettles(fail func(op string) error) {
	for _, s := range c.settles {
		s.done <- fail("settle")
	}
	clear(c.settles)
	c.settles = c.settles[:0]
}

package transition

import (
	"sync/atomic"
	"time"
)

// A Clock tells the time since some beginning: a peer's own, on which it measures
// its lease. It is given what time.Now has just returned, which who starts handlers
// has at hand anyway. It never goes back, needs no other clock to agree with, and must
// go on while the machine is suspended: a lease runs out in the ledger meanwhile. It is
// called concurrently and before every start of a handler, so it must be cheap.
type Clock func(now time.Time) time.Duration

// awayAtLeast is how far wall clock and monotonic clock must have moved apart to
// make a suspendClock ask the kernel. Less is covered by Timing.Margin.
const awayAtLeast = 50 * time.Millisecond

// A suspendClock is the monotonic clock of the time package, which stands still
// while the machine is suspended, plus the time that it stood still. The kernel has
// a clock for the sum, but reading it costs a system call: ten times as much as
// time.Now. A suspend moves the wall clock and the monotonic clock apart, so only
// then the kernel is asked.
type suspendClock struct {
	start time.Time
	asked func() time.Duration // the kernel's clock
	apart atomic.Int64         // wall minus monotonic when the kernel was asked last
	away  atomic.Int64         // asked minus monotonic at that moment
}

// NewClock returns a clock that counts suspend. Where the system has none
// (everywhere but on Linux) it is the larger of monotonic and wall time elapsed,
// which ends a lease early if the wall clock is set forward, never late.
func NewClock() Clock {
	start := time.Now()
	kernel := kernelClock()
	if kernel == nil {
		return func(now time.Time) time.Duration {
			return max(now.Sub(start), now.Round(0).Sub(start.Round(0)))
		}
	}
	c := &suspendClock{start: start, asked: kernel}
	c.ask()
	return c.elapsed
}

func (c *suspendClock) elapsed(now time.Time) time.Duration {
	mono := now.Sub(c.start)
	apart := now.UnixNano() - int64(mono) - c.apart.Load()
	if apart > int64(awayAtLeast) || apart < -int64(awayAtLeast) {
		return c.ask()
	}
	return mono + time.Duration(c.away.Load())
}

// ask asks the kernel. Away is stored before apart: who sees the new apart sees the
// new away too, and who sees the old one asks as well.
func (c *suspendClock) ask() time.Duration {
	elapsed := c.asked()
	now := time.Now()
	mono := now.Sub(c.start)
	c.away.Store(int64(elapsed - mono))
	c.apart.Store(now.UnixNano() - int64(mono))
	return elapsed
}

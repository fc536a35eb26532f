package transition

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock tells the time since some beginning: a peer's own, on which it measures
// its lease. It is given what time.Now has just returned, which who starts handlers
// has at hand anyway. It never goes back, needs no other clock to agree with, and must
// go on while the machine is suspended: a lease runs out in the ledger meanwhile. It is
// called concurrently and before every start of a handler, so it must be cheap.
type Clock func(now time.Time) time.Duration

// awayAtLeast is how far wall clock and monotonic clock must have moved apart to make a
// suspendClock look closer. Less is covered by Timing.Margin.
const awayAtLeast = 50 * time.Millisecond

// A suspendClock is the monotonic clock of the time package, which stands still
// while the machine is suspended, plus the time that it stood still. The kernel has
// a clock for the sum, but reading it costs a system call: ten times as much as
// time.Now. A suspend moves the wall clock and the monotonic clock apart, so only
// then the kernel is asked. Where it has no such clock, what the wall clock is ahead
// counts as suspend, and stays counted when that is set back.
type suspendClock struct {
	look  func() (mono, wall time.Duration)
	asked func() time.Duration // the kernel's clock; nil: it has none
	mu    sync.Mutex           // of who looks closer
	last  atomic.Pointer[apart]
}

// An apart is how far the clocks were apart when they were looked at last: together, so
// that nobody adds what was before one look to what was after it.
type apart struct {
	wall time.Duration // the wall clock is ahead of the monotonic one
	away time.Duration // suspended
}

// NewClock returns a clock that counts suspend. Where the system has no clock for that
// (everywhere but on Linux) it is the monotonic one, plus every leap of the wall clock
// forward. So a lease ends early if the wall clock is set forward, and nothing is taken
// back when it is set back; it ends late only if the wall clock is set back in the very
// moment in which the machine is suspended.
func NewClock() Clock {
	start := time.Now()
	c := newSuspendClock(func() (mono, wall time.Duration) { return since(start, time.Now()) }, kernelClock())
	return func(now time.Time) time.Duration { return c.at(since(start, now)) }
}

// since returns what the monotonic clock says since start, and what the wall clock says.
func since(start, now time.Time) (mono, wall time.Duration) {
	return now.Sub(start), time.Duration(now.UnixNano())
}

func newSuspendClock(look func() (mono, wall time.Duration), asked func() time.Duration) *suspendClock {
	c := &suspendClock{look: look, asked: asked}
	mono, wall := look()
	c.last.Store(&apart{wall: wall - mono})
	c.closer()
	return c
}

func (c *suspendClock) at(mono, wall time.Duration) time.Duration {
	last := c.last.Load()
	if moved := wall - mono - last.wall; moved > awayAtLeast || moved < -awayAtLeast {
		return c.closer()
	}
	return mono + last.away
}

// closer looks at the clocks again, and at the kernel's last: a suspend in between counts as
// one, and moves the others apart for who looks next. What was away once stays away, so that
// the clock never goes back.
func (c *suspendClock) closer() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono, wall := c.look()
	last := c.last.Load()
	next := &apart{wall: wall - mono}
	if c.asked != nil {
		next.away = max(last.away, c.asked()-mono)
	} else {
		next.away = last.away + max(0, next.wall-last.wall)
	}
	c.last.Store(next)
	return mono + next.away
}

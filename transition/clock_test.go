package transition

import (
	"testing"
	"time"
)

// TestSuspendClock lets the machine sleep: the monotonic clock stands still, the
// kernel's clock and the wall clock go on.
func TestSuspendClock(t *testing.T) {
	start := time.Now()
	var away time.Duration
	asked := 0
	c := &suspendClock{start: start, asked: func() time.Duration {
		asked++
		return time.Since(start) + away
	}}
	c.ask()
	if c.elapsed(time.Now()); asked != 1 {
		t.Error("the kernel is asked although nothing happened")
	}
	away = time.Hour
	c.apart.Add(-int64(away)) // as if the wall clock had gone an hour ahead of the monotonic one
	if got := c.elapsed(time.Now()); got < away || asked != 2 {
		t.Errorf("after an hour of suspend %v have elapsed, the kernel was asked %d times", got, asked)
	}
	if got := c.elapsed(time.Now()); got < away || asked != 2 {
		t.Errorf("a moment later %v have elapsed, the kernel was asked %d times", got, asked)
	}
	c.apart.Add(int64(time.Hour)) // the wall clock is set back: no suspend
	if got := c.elapsed(time.Now()); got < away || got > away+time.Minute {
		t.Errorf("after the wall clock was set back %v have elapsed", got)
	}
}

func TestClockGoesOn(t *testing.T) {
	clock := NewClock()
	before := clock(time.Now())
	deadline := time.Now().Add(10 * time.Second)
	for clock(time.Now()) == before {
		if time.Now().After(deadline) {
			t.Fatal("it stands still")
		}
	}
	if clock(time.Now()) < before {
		t.Error("it went back")
	}
}

func BenchmarkClock(b *testing.B) {
	clock := NewClock()
	b.ReportAllocs()
	for b.Loop() {
		clock(time.Now())
	}
}

// The lease stands up to its last instant, and not at it: the machine has lapsed then.
func TestValidEndsWithTheLease(t *testing.T) {
	const now = 7
	c := &Coordinator{cfg: Config{Clock: func(time.Time) time.Duration { return now }}}
	for until, want := range map[int64]bool{0: false, now - 1: false, now: false, now + 1: true} {
		c.validUntil.Store(until)
		if got := c.Valid(time.Now()); got != want {
			t.Errorf("at %d, with a lease until %d: %v", now, until, got)
		}
	}
}

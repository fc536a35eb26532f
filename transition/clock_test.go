package transition

import (
	"testing"
	"time"
)

// clocks are those of a machine that can be suspended, and whose wall clock can be set.
type clocks struct {
	mono, wall, boot time.Duration
	asked            int
	asleep           time.Duration // for so long it is suspended once a clock was read
}

func (c *clocks) look() (mono, wall time.Duration) {
	mono, wall = c.mono, c.wall
	c.sleep()
	return mono, wall
}

func (c *clocks) kernel() time.Duration {
	c.asked++
	boot := c.boot
	c.sleep()
	return boot
}

func (c *clocks) sleep() { c.suspend(c.asleep); c.asleep = 0 }

func (c *clocks) pass(d time.Duration) { c.mono += d; c.suspend(d) }

func (c *clocks) suspend(d time.Duration) { c.wall += d; c.boot += d }

// The monotonic clock stands still while the machine is suspended, the kernel's clock and the
// wall clock go on.
func TestSuspendClock(t *testing.T) {
	m := &clocks{wall: 1000 * time.Hour}
	c := newSuspendClock(m.look, m.kernel)
	want := func(elapsed time.Duration, asked int) {
		t.Helper()
		if got := c.at(m.mono, m.wall); got != elapsed || m.asked != asked {
			t.Errorf("%v have elapsed and the kernel was asked %d times, want %v and %d", got, m.asked, elapsed, asked)
		}
	}
	m.pass(time.Second)
	want(time.Second, 1)
	m.suspend(time.Hour)
	want(time.Hour+time.Second, 2)
	want(time.Hour+time.Second, 2)
	m.wall -= time.Hour // set back: no suspend
	want(time.Hour+time.Second, 3)
	m.wall += time.Hour
	m.asleep = time.Minute // between two clocks
	want(time.Hour+time.Minute+time.Second, 4)
	want(time.Hour+time.Minute+time.Second, 5)
	m.boot -= time.Second // as if it had been asked at another moment than the others
	m.wall += time.Second
	want(time.Hour+time.Minute+time.Second, 6)
}

// Where the kernel has no clock that counts suspend, a leap of the wall clock counts as one. When
// it is set right again nothing stands still: the lease would count as valid for so long.
func TestClockWithoutKernel(t *testing.T) {
	m := &clocks{wall: 1000 * time.Hour}
	c := newSuspendClock(m.look, nil)
	want := func(elapsed time.Duration) {
		t.Helper()
		if got := c.at(m.mono, m.wall); got != elapsed {
			t.Errorf("%v have elapsed, want %v", got, elapsed)
		}
	}
	want(0)
	m.pass(time.Second)
	want(time.Second)
	m.wall += time.Hour // set forward
	m.pass(time.Second)
	want(time.Hour + 2*time.Second)
	m.wall -= time.Hour // and back
	want(time.Hour + 2*time.Second)
	m.pass(time.Second)
	want(time.Hour + 3*time.Second)
	m.suspend(time.Minute)
	want(time.Hour + time.Minute + 3*time.Second)
	for range 1000 { // a wall clock that goes by in steps: what it makes good is no suspend
		m.mono += 15 * time.Millisecond / 2
		want(time.Hour + time.Minute + m.mono)
		m.mono += 15 * time.Millisecond / 2
		m.wall += 15 * time.Millisecond
		want(time.Hour + time.Minute + m.mono)
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

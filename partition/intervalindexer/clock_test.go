package intervalindexer

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func at(ms int64) time.Time { return time.UnixMilli(ms) }

func TestClock(t *testing.T) {
	c := clock{interval: time.Second, skew: 300 * time.Millisecond}
	for _, k := range []struct {
		name      string
		now       int64 // ms since 1970
		last      uint64
		want      uint64
		wantDelay time.Duration
	}{
		{"before its turn", 10_100, 0, 11, 200 * time.Millisecond},
		{"at its turn", 10_300, 10, 11, 0},
		{"after its turn", 10_301, 11, 12, 999 * time.Millisecond},
		{"started after its turn", 10_900, 0, 12, 400 * time.Millisecond},
		{"the end belongs to the interval", 11_000, 0, 12, 300 * time.Millisecond},
		{"fired early: the same again, later", 10_299, 10, 11, time.Millisecond},
		{"set back within an interval: is counted there already", 10_100, 11, 12, 1200 * time.Millisecond},
		{"set back by two intervals: waits", 8_100, 11, 12, 3200 * time.Millisecond},
		{"set back by more than counters live: begins anew", 7_100, 11, 8, 200 * time.Millisecond},
		{"set back by an hour: begins anew", 10_100, 3611, 11, 200 * time.Millisecond},
		{"set forward", 99_100, 11, 100, 200 * time.Millisecond},
	} {
		got := c.next(at(k.now), k.last)
		if delay := c.turn(got).Sub(at(k.now)); got != k.want || delay != k.wantDelay {
			t.Errorf("%s: interval %d in %v, want %d in %v", k.name, got, delay, k.want, k.wantDelay)
		}
	}
	for _, k := range []struct {
		now  int64
		want uint64
	}{{10_300, 0}, {10_900, 0}, {10_901, 1}, {11_000, 1}, {11_001, 1}, {12_001, 2}, {60_500, 50}} {
		if got := c.late(at(k.now), 11); got != k.want {
			t.Errorf("at %d ms the turn of the interval 11 is %d late, want %d", k.now, got, k.want)
		}
	}
}

// number = ceil(now / interval), the turn of an interval is in it, before its last
// tenth, and turns are one interval apart.
func TestClockIsAligned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := time.Duration(rapid.Int64Range(int64(leastInterval), int64(24*time.Hour)).Draw(t, "interval"))
		c := clock{interval: i, skew: time.Duration(rapid.Int64Range(1, int64(i*8/10)).Draw(t, "skew"))}
		now := time.Unix(0, rapid.Int64Range(0, 1<<61).Draw(t, "now"))
		n := c.number(now)
		if back := int64(i) * int64(n); back < now.UnixNano() || back-int64(i) >= now.UnixNano() {
			t.Fatalf("interval %d of %v is not the one %v is in", n, i, now)
		}
		if turn := c.turn(n); c.number(turn) != n || c.late(turn, n) != 0 || c.turn(n+1).Sub(turn) != i {
			t.Fatalf("the turn of %d is at %v", n, turn)
		}
		if next := c.next(now, 0); c.turn(next).Before(now) || c.turn(next).Sub(now) > i {
			t.Fatalf("the turn after %v is at %v", now, c.turn(next))
		}
	})
}

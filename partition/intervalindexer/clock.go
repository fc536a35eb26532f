package intervalindexer

import "time"

// lifetime is how many intervals a counter is kept: its own, the next one, in which it
// is read, and one to spare.
const lifetime = 3

// A clock cuts wall time into intervals. The interval k is the time after (k-1)
// intervals since 1970 up to and with k of them: k = ceil(now / interval).
type clock struct {
	interval time.Duration
	skew     time.Duration // of the peer's turn in each; above 0
}

// number returns the interval that now is in.
func (c clock) number(now time.Time) uint64 {
	n, i := now.UnixNano(), int64(c.interval)
	return uint64((n + i - 1) / i)
}

// turn returns when the peer's turn of the interval number is.
func (c clock) turn(number uint64) time.Time { return c.begin(number).Add(c.skew) }

// end returns when the interval number is over.
func (c clock) end(number uint64) time.Time { return c.begin(number + 1) }

func (c clock) begin(number uint64) time.Time {
	return time.Unix(0, int64(number-1)*int64(c.interval))
}

// next returns the interval of the next turn, when that of last was had: the one now
// is in, if its turn is still to come, else the one after. It is reckoned from the
// wall clock each time, so that it cannot drift away from the other peers'.
//
// If the clock was set back a little, the peer waits: it was counted already in the
// intervals that come again. If it was set back beyond the counters' lives, it
// begins anew, since that is where the others are.
func (c clock) next(now time.Time, last uint64) uint64 {
	number := c.number(now)
	if number <= last && last < number+lifetime {
		return last + 1
	}
	if now.After(c.turn(number)) {
		return number + 1
	}
	return number
}

// late reports how many turns were missed from number on, 0 if that can still be had.
// It cannot shortly before its interval's end: what it sends might be carried out
// after it, too late to count, or, worse, for those alone who have not read the count
// yet.
func (c clock) late(now time.Time, number uint64) uint64 {
	if n := c.number(now); n > number {
		return n - number
	}
	if now.After(c.end(number).Add(-c.interval / 10)) {
		return 1
	}
	return 0
}

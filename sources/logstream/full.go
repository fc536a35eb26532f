package logstream

import "time"

const (
	// liftAfter is how long a log is full before what is open in it is carried past its
	// base, to read more.
	liftAfter = time.Millisecond
	// mostSkip bounds how often a log that fills up is not waited for, after that was in vain.
	mostSkip = 63
)

// full is how long a log has been full while somebody waits for more: all between its base
// and what was read is open, or behind what is open.
//
// What is carried past the base is moved inside the store, and settled by name from then
// on: that is for a task that is stuck. Tasks that take microseconds end first, if they are
// given a moment. Slower ones do not, and the wait would be all that they get: so each that
// is in vain is followed by twice as many fillings without, and one that is not by none.
type full struct {
	since time.Time     // it is waited for; zero: it is not
	again time.Duration // until it is read on all the same; 0: nobody waits for that
	vain  int           // what skip was last
	skip  int           // so many fillings are not waited for
}

// wait reports whether to wait before more is read of a log that is full now, or is not.
func (f *full) wait(is bool, now time.Time) bool {
	switch {
	case !is:
		if !f.since.IsZero() {
			f.vain = 0
		}
		f.since, f.again = time.Time{}, 0
		return false
	case f.since.IsZero() && f.skip > 0:
		f.skip--
		return false
	case f.since.IsZero():
		f.since = now
	}
	if f.again = liftAfter - now.Sub(f.since); f.again > 0 {
		return true
	}
	f.vain = min(2*f.vain+1, mostSkip)
	f.since, f.again, f.skip = time.Time{}, 0, f.vain
	return false
}

// look is when to look again at the latest, if nothing happens in wait; 0: for ever.
func (f *full) look(wait time.Duration) time.Duration {
	if f.again > 0 && (wait == 0 || f.again < wait) {
		return f.again
	}
	return wait
}

package transition

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/countoff/countoff/transition/machine"
)

// Timing holds the times of a peer. The zero value is ready; every peer of a name
// should use the same, and none may be longer than a year. The methods that return one
// duration derive it from the fields as they are, mostly from Lease: fill in the defaults before.
type Timing struct {
	// Lease is how long the ledger keeps a session that it hears nothing of: the
	// one knob most users touch. Shorter means faster fail-over and less patience
	// with a slow store. Default 10 s, least about 2.1 s.
	Lease time.Duration
	// CancelGrace is what a handler needs to return after its context ended. It
	// is part of the promise: a handler that takes longer may run beside the next
	// owner's. Default Lease/10, at most 1 s.
	CancelGrace time.Duration
	// Settle is how long after the first change of membership a new roll is
	// sealed, so that peers that start together cost one move. Default 1 s, at
	// most Lease/2.
	Settle time.Duration
	// Drain is how long the running handlers of a partition may take once it is
	// to move. Leases are renewed meanwhile. Default 30 s.
	Drain time.Duration
	// Shutdown is how long a stopping peer may drain in all. Default 25 s.
	Shutdown time.Duration
}

// WithDefaults returns t with zero fields filled in.
func (t Timing) WithDefaults() Timing {
	if t.Lease == 0 {
		t.Lease = 10 * time.Second
	}
	if t.CancelGrace == 0 {
		t.CancelGrace = max(0, min(t.Lease/10, time.Second)) // of a lease that is negative only that is wrong
	}
	if t.Settle == 0 {
		t.Settle = max(0, min(time.Second, t.Lease/2))
	}
	if t.Drain == 0 {
		t.Drain = 30 * time.Second
	}
	if t.Shutdown == 0 {
		t.Shutdown = 25 * time.Second
	}
	return t
}

// Beat is the period of a Sync.
func (t Timing) Beat() time.Duration { return t.Lease / 5 }

// CallTimeout is the timeout of one call of the ledger. A call that timed out is
// unknown, never failed.
func (t Timing) CallTimeout() time.Duration { return t.Beat() / 2 }

// ClockStep is the most that the ledger's own clock advances between two calls, so
// that a jump, a stopped store or an outage cannot expire everybody at once.
func (t Timing) ClockStep() time.Duration { return t.Lease / 4 }

// Margin covers clock drift (500 ppm on each side) and scheduling.
func (t Timing) Margin() time.Duration { return 100*time.Millisecond + t.Lease/1000 }

// Validity is what a peer may believe of its lease, counted from before the Sync
// was sent. It is shorter than the lease by a clock step, the cancel grace and the
// margin, so that the last handler has returned before the ledger gives the
// partition away.
func (t Timing) Validity() time.Duration {
	return t.Lease - t.ClockStep() - t.CancelGrace - t.Margin()
}

// Grace is how long nobody gains a partition after the store restarted, failed
// over or lost its memory: that of the peer with the longest lease counts.
func (t Timing) Grace() time.Duration { return t.Lease }

// Times returns t as the machine wants it.
func (t Timing) Times() machine.Times {
	t = t.WithDefaults()
	return machine.Times{
		Beat:        t.Beat(),
		CallTimeout: t.CallTimeout(),
		Validity:    t.Validity(),
		Settle:      t.Settle,
		Drain:       t.Drain,
		Shutdown:    t.Shutdown,
		CancelGrace: t.CancelGrace,
	}
}

// Terms returns t as a peer tells it to the others.
func (t Timing) Terms(deployment string) machine.Terms {
	t = t.WithDefaults()
	return machine.Terms{
		Lease: t.Lease, CancelGrace: t.CancelGrace, Settle: t.Settle, Drain: t.Drain, Shutdown: t.Shutdown,
		Deployment: deployment,
	}
}

// TimingOf returns the times that a peer has told.
func TimingOf(t machine.Terms) Timing {
	return Timing{Lease: t.Lease, CancelGrace: t.CancelGrace, Settle: t.Settle, Drain: t.Drain, Shutdown: t.Shutdown}
}

// Takeover bounds the time from the death of a peer until every partition of its
// is granted to another.
func (t Timing) Takeover() time.Duration {
	return t.Lease + t.Beat() + t.Settle + 500*time.Millisecond
}

// longest is what no time may be longer than: times are added up.
const longest = 365 * 24 * time.Hour

// Validate says all that is wrong with t, after defaults.
func (t Timing) Validate() error {
	t = t.WithDefaults()
	var errs []error
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"lease", t.Lease},
		{"cancel grace", t.CancelGrace},
		{"settle", t.Settle},
		{"drain", t.Drain},
		{"shutdown", t.Shutdown},
	} {
		if f.d < 0 {
			errs = append(errs, fmt.Errorf("transition: %s %v: must not be negative", f.name, f.d))
		}
		if f.d > longest {
			errs = append(errs, fmt.Errorf("transition: %s %v: at most a year", f.name, f.d))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if !t.lasts() {
		advice := fmt.Sprintf("the least lease is %v", t.leastLease())
		if t.leastLease() > longest {
			advice = "no lease of a year is long enough"
		}
		errs = append(errs, fmt.Errorf("transition: lease %v is too short for a cancel grace of %v: %s", t.Lease, t.CancelGrace, advice))
	}
	if t.Settle > t.Lease/2 {
		errs = append(errs, fmt.Errorf("transition: settle %v: at most half the lease, %v", t.Settle, t.Lease/2))
	}
	return errors.Join(errs...)
}

// lasts reports whether what a peer may believe of its lease outlasts two beats and a call,
// with half a beat to spare.
func (t Timing) lasts() bool { return t.Validity() >= t.Beat()*5/2+t.CallTimeout() }

// leastLease is the least lease that lasts, rounded up to 100 ms; beyond a year where none of
// a year does. A cancel grace that follows the lease (the default) is kept in proportion. The
// longer a lease, the more of it is left beside the rest, so that it can be halved for.
func (t Timing) leastLease() time.Duration {
	const step = 100 * time.Millisecond
	follows := t.CancelGrace == min(t.Lease/10, time.Second)
	return step * time.Duration(1+sort.Search(int(longest/step), func(n int) bool {
		u := t
		u.Lease = step * time.Duration(1+n)
		if follows {
			u.CancelGrace = min(u.Lease/10, time.Second)
		}
		return u.lasts()
	}))
}

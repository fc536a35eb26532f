package ticks

import (
	"slices"
	"time"
)

// A Schedule is a set of instants.
type Schedule interface {
	// Next returns the first instant after t, in any location, the zero time if there is none. It must not
	// depend on t otherwise: from wherever one begins, the instants are the same.
	Next(t time.Time) time.Time
}

// A Policy says what becomes of instants that are found late.
type Policy struct {
	// Grace is how late an instant is still on time. All that are on time are fired.
	Grace time.Duration
	// Missed is how many are fired at least if so many are due, however late: the newest.
	Missed int
}

// Most is how many instants one Plan fires at most; the rest is for the next one.
const Most = 100

// A Plan is what is to be done now.
type Plan struct {
	Fire []time.Time // oldest first
	// Passed says that instants were due that are older than what is fired, or that some
	// were due and none is fired.
	Passed bool
	// Upto is the newest instant that is dealt with once all of Fire is fired: what the next
	// decision begins after. It never falls.
	Upto time.Time
	// Next is the first instant after that; zero: there is none.
	Next time.Time
}

// Due decides at now what is to be done about the instants of s after the instant after.
func Due(s Schedule, p Policy, after, now time.Time) Plan {
	if !now.After(after) { // the clock was set back
		return Plan{Upto: after, Next: s.Next(after)}
	}
	newest := last(s, after, now, 1)
	if len(newest) == 0 {
		return Plan{Upto: after, Next: s.Next(after)}
	}
	plan := Plan{Upto: newest[0]}
	// One from a nanosecond before the grace on is on time still.
	begin := now.Add(-p.Grace - 1)
	if begin.Before(after) {
		begin = after
	}
	for t := s.Next(begin); !t.IsZero() && !t.After(now); t = s.Next(t) {
		plan.Fire = append(plan.Fire, t)
	}
	if len(plan.Fire) < p.Missed {
		plan.Fire = last(s, after, now, p.Missed)
	}
	first := s.Next(after)
	plan.Passed = len(plan.Fire) == 0 || first.Before(plan.Fire[0])
	if len(plan.Fire) > Most {
		plan.Fire = plan.Fire[:Most]
		plan.Upto = plan.Fire[Most-1]
	}
	plan.Next = s.Next(plan.Upto)
	return plan
}

// last returns the newest n instants after lo up to hi, oldest first. Nobody can walk a
// schedule backwards, and from lo it may be long: where there are too many to look at,
// the newer half of the time is looked at first.
func last(s Schedule, lo, hi time.Time, n int) []time.Time {
	if n < 1 {
		return nil
	}
	var all []time.Time
	t := s.Next(lo)
	for ; !t.IsZero() && !t.After(hi); t = s.Next(t) {
		if all = append(all, t); len(all) > 4*n+16 {
			break
		}
	}
	if len(all) <= 4*n+16 {
		return all[max(0, len(all)-n):]
	}
	middle := lo.Add(hi.Sub(lo) / 2)
	newer := last(s, middle, hi, n)
	if len(newer) == n {
		return newer
	}
	return slices.Concat(last(s, lo, middle, n-len(newer)), newer)
}

package ticks_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countoff/countoff/sources/jobs/ticks"
)

// at is a number of seconds as an instant.
func at(s int) time.Time { return time.Unix(int64(s), 0).UTC() }

// A row is a schedule of given instants, which counts how often it is asked.
type row struct {
	instants []time.Time
	asked    int
}

func (r *row) Next(t time.Time) time.Time {
	r.asked++
	i, found := slices.BinarySearchFunc(r.instants, t, time.Time.Compare)
	if found {
		i++
	}
	if i == len(r.instants) {
		return time.Time{}
	}
	return r.instants[i]
}

func each(every, until int) *row {
	r := &row{}
	for s := every; s <= until; s += every {
		r.instants = append(r.instants, at(s))
	}
	return r
}

func TestDue(t *testing.T) {
	minute := 60 * time.Second
	for _, c := range []struct {
		name       string
		every      int
		policy     ticks.Policy
		after, now int
		fire       []int
		passed     bool
		upto, next int
	}{
		{"nothing yet", 100, ticks.Policy{Grace: minute}, 100, 199, nil, false, 100, 200},
		{"the very instant", 100, ticks.Policy{Grace: minute}, 100, 200, []int{200}, false, 200, 300},
		{"a little late", 100, ticks.Policy{Grace: minute}, 100, 250, []int{200}, false, 200, 300},
		{"late as the grace", 100, ticks.Policy{Grace: minute}, 100, 260, []int{200}, false, 200, 300},
		{"skip", 100, ticks.Policy{Grace: minute}, 100, 261, nil, true, 200, 300},
		{"skip the old one only", 100, ticks.Policy{Grace: minute}, 100, 350, []int{300}, true, 300, 400},
		{"once", 100, ticks.Policy{Grace: minute, Missed: 1}, 100, 290, []int{200}, false, 200, 300},
		{"once for several", 100, ticks.Policy{Grace: minute, Missed: 1}, 100, 990, []int{900}, true, 900, 1000},
		{"one on time stands for the missed", 100, ticks.Policy{Grace: minute, Missed: 1}, 100, 910, []int{900}, true, 900, 1000},
		{"all on time are fired", 10, ticks.Policy{Grace: minute, Missed: 1}, 100, 165, []int{110, 120, 130, 140, 150, 160}, false, 160, 170},
		{"several", 100, ticks.Policy{Grace: minute, Missed: 3}, 100, 990, []int{700, 800, 900}, true, 900, 1000},
		{"fewer than several", 100, ticks.Policy{Grace: minute, Missed: 30}, 100, 390, []int{200, 300}, false, 300, 400},
		{"set back", 100, ticks.Policy{Grace: minute, Missed: 30}, 500, 390, nil, false, 500, 600},
		{"the last one", 100, ticks.Policy{Grace: minute}, 1900, 2000, []int{2000}, false, 2000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ticks.Due(each(c.every, 2000), c.policy, at(c.after), at(c.now))
			var fire []time.Time
			for _, s := range c.fire {
				fire = append(fire, at(s))
			}
			var next time.Time
			if c.next > 0 {
				next = at(c.next)
			}
			if !slices.Equal(got.Fire, fire) || got.Passed != c.passed || !got.Upto.Equal(at(c.upto)) || !got.Next.Equal(next) {
				t.Errorf("got %+v, want %v, passed %t, up to %v, then %v", got, fire, c.passed, at(c.upto), next)
			}
		})
	}
}

// Whatever the policy, the clock and the pauses between two looks: no instant is fired twice
// or before its time, they come in order, and each is fired that somebody looked at in time.
func TestEachInstantOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &row{}
		for at := 0; at < 20_000; {
			at += rapid.SampledFrom([]int{1, 1, 1, 7, 60, 3600}).Draw(t, "gap")
			s.instants = append(s.instants, time.Unix(int64(at), 0))
			if len(s.instants) > 1500 {
				break
			}
		}
		p := ticks.Policy{
			Grace:  time.Duration(rapid.IntRange(0, 900).Draw(t, "grace")) * time.Second,
			Missed: rapid.SampledFrom([]int{0, 1, 5, 1000}).Draw(t, "missed"),
		}
		state, now := at(0), at(0)
		fired := map[time.Time]bool{}
		var before, latest time.Time
		for now.Before(at(25_000)) {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{-5000, 1, 500, 30_000, 4_000_000}).Draw(t, "wait")) * time.Millisecond)
			for {
				plan := ticks.Due(s, p, state, now)
				for _, tick := range plan.Fire {
					if fired[tick] || tick.After(now) || !tick.After(before) || tick.After(plan.Upto) || !tick.After(state) {
						t.Fatalf("fired %v at %v after %v: %+v", tick, now, state, plan)
					}
					fired[tick], before = true, tick
				}
				if len(plan.Fire) > ticks.Most || plan.Upto.Before(state) || !plan.Next.IsZero() && !plan.Next.After(plan.Upto) {
					t.Fatalf("%+v", plan)
				}
				state = plan.Upto
				if plan.Next.IsZero() || plan.Next.After(now) {
					break
				}
			}
			if now.Before(latest) {
				continue // what was late then, and passed over, may be on time again now
			}
			latest = now
			for tick := s.Next(now.Add(-p.Grace - 1)); !tick.IsZero() && !tick.After(now); tick = s.Next(tick) {
				if !fired[tick] {
					t.Fatalf("%v was on time at %v and is not fired", tick, now)
				}
			}
		}
		if p.Missed == 1000 && len(s.instants) <= 1000 && len(fired) != len(s.instants) {
			t.Fatalf("%d of %d fired", len(fired), len(s.instants))
		}
	})
}

// A long absence costs no long walk.
func TestALongAbsenceIsNoLongWalk(t *testing.T) {
	s := each(1, 1_000_000)
	plan := ticks.Due(s, ticks.Policy{Grace: time.Minute, Missed: 1}, at(0), at(1_000_000))
	if len(plan.Fire) != 61 || !plan.Fire[60].Equal(at(1_000_000)) || s.asked > 1000 {
		t.Errorf("%d fired, asked %d times", len(plan.Fire), s.asked)
	}
	s.asked = 0
	plan = ticks.Due(s, ticks.Policy{Missed: 1000}, at(0), at(1_000_000))
	if len(plan.Fire) != ticks.Most || !plan.Fire[0].Equal(at(999_001)) || s.asked > 100_000 {
		t.Errorf("%d fired, from %v, asked %d times", len(plan.Fire), plan.Fire[0], s.asked)
	}
}

// What one plan leaves the next one fires: in the end each instant was fired once, in order.
func TestWhatIsTooMuchForOnePlan(t *testing.T) {
	const due = 2*ticks.Most + 50
	s, p := each(1, 10*ticks.Most), ticks.Policy{Grace: time.Minute, Missed: 10 * ticks.Most}
	var fired []time.Time
	after := at(0)
	for plans := 1; len(fired) < due; plans++ {
		plan := ticks.Due(s, p, after, at(due))
		if want := min(ticks.Most, due-len(fired)); len(plan.Fire) != want {
			t.Fatalf("plan %d fires %d, want %d", plans, len(plan.Fire), want)
		}
		fired, after = append(fired, plan.Fire...), plan.Upto
	}
	if !slices.Equal(fired, s.instants[:due]) {
		t.Errorf("fired %v", fired)
	}
	if plan := ticks.Due(s, p, after, at(due)); len(plan.Fire) > 0 || !plan.Next.Equal(at(due+1)) {
		t.Errorf("after all that it says %+v", plan)
	}
}

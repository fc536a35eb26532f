package transition_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/transition"
)

// TestTimes pins the inequality that safety rests on: the last handler has returned
// before the ledger can give its partition away, in spite of one jump of the store's
// clock and of drift.
func TestTimes(t *testing.T) {
	for _, lease := range []time.Duration{3 * time.Second, 5 * time.Second, 10 * time.Second, time.Minute} {
		timing := transition.Timing{Lease: lease}.WithDefaults()
		if err := timing.Validate(); err != nil {
			t.Errorf("lease %v: %v", lease, err)
		}
		const drift = 500e-6 // of each clock
		lastHandler := float64(timing.Validity())*(1+drift) + float64(timing.CancelGrace) + float64(100*time.Millisecond)
		earliest := (float64(lease) - float64(timing.ClockStep())) / (1 + drift)
		if lastHandler > earliest {
			t.Errorf("lease %v: handlers may run until %v, the ledger may give away after %v",
				lease, time.Duration(lastHandler), time.Duration(earliest))
		}
		if timing.ClockStep() < timing.Beat()+timing.CallTimeout()/2 {
			t.Errorf("lease %v: the clock of a lone peer's store falls behind", lease)
		}
		if timing.Validity() < timing.Beat()*5/2+timing.CallTimeout() {
			t.Errorf("lease %v: two lost calls end the lease", lease)
		}
		times := timing.Times()
		if times.Validity != timing.Validity() || times.Beat != timing.Beat() || times.CallTimeout != timing.CallTimeout() ||
			times.CancelGrace != timing.CancelGrace || times.Drain != timing.Drain || times.Shutdown != timing.Shutdown ||
			times.Settle != timing.Settle {
			t.Errorf("lease %v: the machine's times are %+v", lease, times)
		}
	}
}

func TestTimingDefaults(t *testing.T) {
	timing := transition.Timing{}.WithDefaults()
	for _, c := range []struct {
		what      string
		got, want time.Duration
	}{
		{"lease", timing.Lease, 10 * time.Second},
		{"beat", timing.Beat(), 2 * time.Second},
		{"call timeout", timing.CallTimeout(), time.Second},
		{"clock step", timing.ClockStep(), 2500 * time.Millisecond},
		{"cancel grace", timing.CancelGrace, time.Second},
		{"validity", timing.Validity(), 6390 * time.Millisecond},
		{"grace", timing.Grace(), 10 * time.Second},
		{"settle", timing.Settle, time.Second},
		{"drain", timing.Drain, 30 * time.Second},
		{"shutdown", timing.Shutdown, 25 * time.Second},
		{"takeover", timing.Takeover(), 13500 * time.Millisecond},
	} {
		if c.got != c.want {
			t.Errorf("%s %v, want %v", c.what, c.got, c.want)
		}
	}
}

// TestTimingRefusals: what is refused says what would be legal, and that is.
func TestTimingRefusals(t *testing.T) {
	for _, c := range []struct {
		timing transition.Timing
		want   string
	}{
		{transition.Timing{Lease: time.Second}, "the least lease is "},
		{transition.Timing{Lease: 5 * time.Second, CancelGrace: 2 * time.Second}, "the least lease is "},
		{transition.Timing{CancelGrace: 20 * 24 * time.Hour}, "the least lease is "},
		{transition.Timing{CancelGrace: 360 * 24 * time.Hour}, "no lease of a year is long enough"},
		{transition.Timing{Settle: 6 * time.Second}, "settle"},
		{transition.Timing{Drain: -1}, "drain"},
		{transition.Timing{CancelGrace: 1<<63 - 1}, "cancel grace 2562047h47m16.854775807s: at most a year"},
	} {
		err := c.timing.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want something about %q", c.timing, err, c.want)
			continue
		}
		_, least, ok := strings.Cut(err.Error(), "the least lease is ")
		if !ok {
			continue
		}
		lease, err := time.ParseDuration(strings.TrimSpace(least))
		if err != nil {
			t.Fatal(err)
		}
		legal := c.timing
		legal.Lease = lease
		if err := legal.Validate(); err != nil {
			t.Errorf("%+v is refused, %v is named as legal and refused too: %v", c.timing, lease, err)
		}
		legal.Lease = lease - 100*time.Millisecond
		if legal.Validate() == nil {
			t.Errorf("%+v: %v is named as the least lease, 100 ms less is legal as well", c.timing, lease)
		}
	}
}

// Of a lease that is wrong it is not said that what nobody set and follows from it is wrong as well.
func TestWhatNobodySetIsNotRefused(t *testing.T) {
	for what, timing := range map[string]transition.Timing{
		"as it was set":  {Lease: -time.Second},
		"after defaults": transition.Timing{Lease: -time.Second}.WithDefaults(),
	} {
		if err := timing.Validate(); err == nil || err.Error() != "transition: lease -1s: must not be negative" {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

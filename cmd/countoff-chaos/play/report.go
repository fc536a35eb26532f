package play

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/checker"
)

// A Row is what one kind of fault came to.
type Row struct {
	Kind     string        `json:"kind"`
	Count    int           `json:"count"`
	Moved    int           `json:"takeovers"` // partitions that another peer had to take over
	Takeover time.Duration `json:"-"`
	Gap      time.Duration `json:"-"`
	Pause    time.Duration `json:"-"`

	TakeoverMS int64 `json:"worst_takeover_ms"`
	GapMS      int64 `json:"worst_gap_ms"`   // without an owner that could work, whoever had it then
	PauseMS    int64 `json:"worst_pause_ms"` // of a hand-over
}

// A Summary is the last line of a run.
type Summary struct {
	OK              bool           `json:"ok"`
	Seed            uint64         `json:"seed"`
	Faults          int            `json:"faults"`
	DurationMS      int64          `json:"duration_ms"`
	LeaseMS         int64          `json:"lease_ms"`
	TakeoverBoundMS int64          `json:"takeover_bound_ms"`
	TakeoverMaxMS   int64          `json:"takeover_max_ms"` // after a kill
	Enqueued        int            `json:"enqueued"`
	Acknowledged    int            `json:"acknowledged"`
	Runs            int            `json:"runs"`
	Completed       int            `json:"completed"`
	DeadLetters     int            `json:"dead_letters"`
	Buried          int            `json:"dead_letters_by_crashes"`
	Lost            int            `json:"lost"`
	Forgotten       int            `json:"forgotten"` // by a store that was emptied or failed over
	StaleSettles    int            `json:"stale_settles_accepted"`
	StaleRefused    int            `json:"stale_settles_refused"`
	Overlaps        int            `json:"two_handlers_at_once"`
	OverlapsExcused int            `json:"two_handlers_while_stopped"` // one of them in a process that was stopped past its lease
	OutOfOrder      int            `json:"out_of_order"`
	Doubled         int            `json:"doubled"`
	InFlight        int            `json:"in_flight_in_crashed_or_expired"`
	LostGrants      int            `json:"grants_lost"`
	LostForNothing  int            `json:"grants_lost_for_nothing"` // by peers to which nothing was done
	Violations      map[string]int `json:"violations"`
	StalledMS       int64          `json:"store_stalled_ms"` // it did not answer although nobody had touched it
	Unplanned       int            `json:"unplanned_failovers"`
	Rows            []Row          `json:"kinds"`
	Skipped         []string       `json:"skipped,omitempty"`
}

// Summarise joins the results of a run's stages.
func Summarise(cfg Config, took time.Duration, results []Result) Summary {
	sum := Summary{OK: true, Seed: cfg.Seed, DurationMS: took.Milliseconds(), LeaseMS: cfg.Lease.Milliseconds(), Violations: map[string]int{}}
	rows := map[string]*Row{}
	row := func(kind string) *Row {
		if rows[kind] == nil {
			rows[kind] = &Row{Kind: kind}
		}
		return rows[kind]
	}
	for _, r := range results {
		c := r.Report
		sum.TakeoverBoundMS = r.Bound.Milliseconds()
		sum.Faults += len(r.History.Faults)
		sum.Enqueued, sum.Acknowledged = sum.Enqueued+c.Enqueued, sum.Acknowledged+c.Acked
		sum.Runs, sum.Completed = sum.Runs+c.Runs, sum.Completed+c.Completed
		sum.DeadLetters, sum.Buried = sum.DeadLetters+c.DeadLetters, sum.Buried+c.Buried
		sum.Forgotten += c.Forgotten
		sum.StaleSettles, sum.StaleRefused = sum.StaleSettles+c.StaleSettles, sum.StaleRefused+c.StaleSettlesTried
		sum.OverlapsExcused += c.ExcusedOverlaps
		sum.Doubled += c.Doubled
		sum.InFlight += c.Crashed + c.Expired
		sum.LostGrants += c.LostGrants
		sum.LostForNothing += c.LostForNothing
		sum.StalledMS += r.Stalled.Milliseconds()
		sum.Unplanned += r.Unplanned
		for rule, n := range c.ViolationsByRule {
			sum.Violations[rule] += n
			sum.OK = false
		}
		for _, f := range r.History.Faults {
			row(f.Kind).Count++
		}
		for _, g := range r.History.Gaps {
			w, d := row(g.Fault), time.Duration(g.Until-g.From)
			w.Gap = max(w.Gap, d)
			if g.Moved {
				w.Moved++
				w.Takeover = max(w.Takeover, d)
			}
		}
		for kind, d := range c.Pauses {
			row(kind).Pause = max(row(kind).Pause, d)
		}
		for _, kind := range slices.Sorted(maps.Keys(r.Skipped)) {
			sum.Skipped = append(sum.Skipped, kind+": "+r.Skipped[kind])
		}
	}
	sum.Lost, sum.Overlaps, sum.OutOfOrder = sum.Violations["lost"], sum.Violations["overlap"], sum.Violations["order"]
	if r := rows[Kill]; r != nil {
		sum.TakeoverMaxMS = r.Takeover.Milliseconds()
	}
	for _, kind := range append(Kinds(), "none") {
		if r := rows[kind]; r != nil {
			r.TakeoverMS, r.GapMS, r.PauseMS = r.Takeover.Milliseconds(), r.Gap.Milliseconds(), r.Pause.Milliseconds()
			sum.Rows = append(sum.Rows, *r)
		}
	}
	return sum
}

// Table prints the summary for people.
func (s Summary) Table(w io.Writer) {
	fmt.Fprintf(w, "| fault | count | partitions taken over | worst takeover | worst gap | worst hand-over pause |\n|---|---|---|---|---|---|\n")
	seconds := func(ms int64) string {
		if ms == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f s", float64(ms)/1000)
	}
	for _, r := range s.Rows {
		fmt.Fprintf(w, "| %s | %d | %d | %s | %s | %s |\n", r.Kind, r.Count, r.Moved, seconds(r.TakeoverMS), seconds(r.GapMS), seconds(r.PauseMS))
	}
	fmt.Fprintf(w, "\n| checked | |\n|---|---|\n")
	for _, line := range []struct {
		what  string
		value any
	}{
		{"faults", s.Faults},
		{"seed", s.Seed},
		{"duration", (time.Duration(s.DurationMS) * time.Millisecond).Round(time.Second)},
		{"lease", time.Duration(s.LeaseMS) * time.Millisecond},
		{"published bound of a takeover", time.Duration(s.TakeoverBoundMS) * time.Millisecond},
		{"worst takeover after a kill", time.Duration(s.TakeoverMaxMS) * time.Millisecond},
		{"tasks enqueued, acknowledged", fmt.Sprintf("%d, %d", s.Enqueued, s.Acknowledged)},
		{"runs of handlers", s.Runs},
		{"tasks completed", s.Completed},
		{"dead letters, of them because of crashes", fmt.Sprintf("%d, %d", s.DeadLetters, s.Buried)},
		{"forgotten by an emptied or failed over store (by definition)", s.Forgotten},
		{"**lost**", s.Lost},
		{"**stale settles accepted** (refused by the fence)", fmt.Sprintf("%d (%d)", s.StaleSettles, s.StaleRefused)},
		{"**two handlers at once on a key**", s.Overlaps},
		{"the same with a process stopped past its lease", s.OverlapsExcused},
		{"**out of order**", s.OutOfOrder},
		{"doubled, and in flight in crashed or expired peers", fmt.Sprintf("%d ≤ %d", s.Doubled, s.InFlight)},
		{"grants lost, of them by peers to which nothing was done", fmt.Sprintf("%d, %d", s.LostGrants, s.LostForNothing)},
		{"time in which the store did not answer although nobody had touched it", time.Duration(s.StalledMS) * time.Millisecond},
		{"fail-overs that the Sentinels made by themselves", s.Unplanned},
		{"violations of all rules", total(s.Violations)},
	} {
		fmt.Fprintf(w, "| %s | %v |\n", line.what, line.value)
	}
	for _, k := range s.Skipped {
		fmt.Fprintf(w, "\nSkipped: %s.\n", k)
	}
}

func total(by map[string]int) (n int) {
	for _, x := range by {
		n += x
	}
	return n
}

// JSON returns the summary as one line.
func (s Summary) JSON() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // nothing in it can fail
	}
	return string(b)
}

// Evidence prints what was broken, and by what that is known.
func Evidence(w io.Writer, r *checker.Report) {
	for _, v := range r.Violations {
		fmt.Fprintf(w, "\nVIOLATION of %s: %s\n", v.Rule, v.What)
		for i, e := range v.Evidence {
			if i == 40 {
				fmt.Fprintf(w, "    ... %d more\n", len(v.Evidence)-i)
				break
			}
			fmt.Fprintf(w, "    %s\n", e)
		}
	}
}

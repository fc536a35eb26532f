package report

import (
	"maps"
	"slices"
)

// Measures are figures of one run by their name.
type Measures map[string]float64

// The names of measures.
const (
	TasksPerSecond  = "tasks/s"
	ClientPerTask   = "client us/task" // user and system time
	StorePerTask    = "store us/task"
	CommandsPerTask = "commands/task" // that the store ran, those in scripts included
	AllocsPerTask   = "allocs/task"
	BytesPerTask    = "B/task"
	P50             = "p50 ms"
	P99             = "p99 ms"
	RequestsPerSec  = "requests/s" // that the client sent, a pipeline of n as n
	CommandsPerSec  = "commands/s" // that the store ran, those in scripts included
	ClientShare     = "client CPU %"
	StoreShare      = "store CPU %"
)

// A Sample is one run of one contestant.
type Sample struct {
	Round    int      `json:"round"`
	Tag      string   `json:"tag"`
	Measures Measures `json:"measures"`
	// Commands are what the store ran in the span, by command, a task or, of an idle
	// contestant, a second.
	Commands map[string]float64 `json:"commands,omitempty"`
	// Micros are how long the store was at them, in microseconds; a script counts what it
	// calls, which stands here by itself too.
	Micros map[string]float64 `json:"micros,omitempty"`
}

// Samples are all runs.
type Samples []Sample

// Of returns the figures of one measure of one contestant, by round.
func (all Samples) Of(tag, measure string) map[int]float64 {
	found := make(map[int]float64)
	for _, s := range all {
		if v, ok := s.Measures[measure]; ok && s.Tag == tag {
			found[s.Round] = v
		}
	}
	return found
}

// A Spread is what several figures come to.
type Spread struct {
	N                int
	Median, Min, Max float64
}

// spreadOf sums figures up; of none it is zero.
func spreadOf(figures map[int]float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(maps.Values(figures))
	n := len(sorted)
	return Spread{N: n, Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// Ratios divides what was measured in the same round; rounds without either, or with a
// zero below the line, are left out.
func Ratios(of, per map[int]float64) map[int]float64 {
	ratios := make(map[int]float64)
	for round, a := range of {
		if b := per[round]; b != 0 {
			ratios[round] = a / b
		}
	}
	return ratios
}

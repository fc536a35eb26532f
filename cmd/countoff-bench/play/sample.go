package play

import (
	"maps"

	"github.com/countoff/countoff/cmd/countoff-bench/contest"
	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
)

// sample makes the figures of a run: those that the contestant has measured itself, and
// those of its span.
func sample(c contest.Contestant, span *meter.Span, own report.Measures) report.Sample {
	s := report.Sample{Tag: c.Tag, Measures: make(report.Measures)}
	maps.Copy(s.Measures, own)
	if span == nil {
		return s
	}
	seconds, cpu := span.Took.Seconds(), span.Store.CPU.Seconds()
	per := float64(span.Tasks)
	if c.Kind == contest.Idle {
		per = seconds
	}
	commands := 0.0
	s.Commands, s.Micros = make(map[string]float64), make(map[string]float64)
	for name, n := range span.Store.Calls {
		s.Commands[name] = n / per
		s.Micros[name] = span.Store.Micros[name] / per
		commands += n / per
	}
	switch c.Kind {
	case contest.Idle:
		s.Measures[report.CommandsPerSec] = commands
		s.Measures[report.ClientShare] = 100 * span.CPU.Seconds() / seconds
		s.Measures[report.StoreShare] = 100 * cpu / seconds
	case contest.Drain, contest.Enqueue:
		s.Measures[report.TasksPerSecond] = per / seconds
		s.Measures[report.ClientPerTask] = span.CPU.Seconds() * 1e6 / per
		s.Measures[report.StorePerTask] = cpu * 1e6 / per
		s.Measures[report.CommandsPerTask] = commands
		s.Measures[report.AllocsPerTask] = float64(span.Allocs) / per
		s.Measures[report.BytesPerTask] = float64(span.Bytes) / per
	}
	return s
}

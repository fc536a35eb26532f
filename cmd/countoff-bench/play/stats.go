package play

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/contest"
	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
)

// stats are what the store had done at a moment.
type stats struct {
	cpu   time.Duration
	calls map[string]float64 // by command, those in scripts included
	usec  map[string]float64
}

func statsOf(ctx context.Context, client *redis.Client) (stats, error) {
	info, err := client.InfoMap(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return stats{}, err
	}
	s := stats{calls: make(map[string]float64), usec: make(map[string]float64)}
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			return stats{}, err
		}
		s.cpu += time.Duration(seconds * float64(time.Second))
	}
	for name, line := range info["Commandstats"] {
		command := strings.TrimPrefix(name, "cmdstat_")
		if command == "info" { // ours
			continue
		}
		var calls, usec int64
		if _, err := fmt.Sscanf(line, "calls=%d,usec=%d,", &calls, &usec); err != nil {
			return stats{}, fmt.Errorf("%s: %q: %w", name, line, err)
		}
		s.calls[command], s.usec[command] = float64(calls), float64(usec)
	}
	return s, nil
}

// sample makes the figures of a run: what the contestant's process has measured, and
// what the store did in the same span.
func sample(c contest.Contestant, span *meter.Span, own report.Measures, before, after stats) report.Sample {
	s := report.Sample{Tag: c.Tag, Measures: make(report.Measures)}
	maps.Copy(s.Measures, own)
	if span == nil {
		return s
	}
	seconds, cpu := span.Took.Seconds(), (after.cpu - before.cpu).Seconds()
	per := float64(span.Tasks)
	if c.Kind == contest.Idle {
		per = seconds
	}
	commands := 0.0
	s.Commands, s.Micros = make(map[string]float64), make(map[string]float64)
	for name, n := range after.calls {
		if n -= before.calls[name]; n > 0 {
			s.Commands[name] = n / per
			s.Micros[name] = (after.usec[name] - before.usec[name]) / per
			commands += n / per
		}
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

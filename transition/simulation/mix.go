package simulation

import (
	"time"

	"github.com/countoff/countoff/partition"
)

// A Mix says what happens in a world, and how often in relation to the rest.
type Mix struct {
	Name       string
	Peers      [2]int // at first, from to
	Partitions [2]int
	Handler    time.Duration // longest drain
	Disturbed  float64       // share of calls that are lost, late or carried out twice
	NoHints    bool
	Views      bool // wishes come from an indexer that says something random

	// Weights of the faults.
	Joins, BornDead, Leaves, Crashes, Pauses, Cuts, Jumps int
	Weighs, Moods                                         int // another weight; unwell, or well again
	Restarts, Setbacks, Forgets, Disasters, Outages       int
	// Every is the longest time between two faults. Default 4 s.
	Every time.Duration
}

func (m Mix) strategy() partition.Strategy { return partition.Sticky{} }

// Mixes returns all mixes.
func Mixes() []Mix {
	const lossy = 5.0 / 12
	base := func(name string, change func(*Mix)) Mix {
		m := Mix{
			Name:       name,
			Peers:      [2]int{1, 5},
			Partitions: [2]int{3, 8},
			Handler:    time.Second,
			Joins:      3,
			Leaves:     2,
		}
		change(&m)
		return m
	}
	return []Mix{
		base("scale", func(*Mix) {}),
		base("scale-nohints", func(m *Mix) { m.NoHints = true }),
		base("born-dead", func(m *Mix) { m.Leaves, m.BornDead = 0, 5 }),
		base("lossy", func(m *Mix) { m.Disturbed, m.Handler = lossy, 8*time.Second }),
		base("crash", func(m *Mix) { m.Disturbed, m.Handler, m.Crashes = lossy, 8*time.Second, 3 }),
		base("pause", func(m *Mix) { m.Disturbed, m.Handler, m.Pauses, m.Jumps = lossy, 8*time.Second, 4, 2 }),
		base("cut", func(m *Mix) { m.Handler, m.Cuts, m.Crashes, m.Jumps = 4*time.Second, 6, 1, 2 }),
		base("restart", func(m *Mix) { m.Restarts = 2 }),
		base("setback", func(m *Mix) { m.Setbacks = 2 }),
		base("memloss", func(m *Mix) { m.Forgets, m.Disasters = 2, 1 }),
		base("pause-memloss", func(m *Mix) {
			m.Disturbed, m.Crashes, m.Pauses, m.Forgets, m.Leaves = lossy, 2, 4, 1, 0
		}),
		base("all", func(m *Mix) {
			m.Disturbed, m.Handler = lossy, 8*time.Second
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps = 1, 2, 3, 2, 1
			m.Restarts, m.Setbacks, m.Forgets, m.Outages = 1, 1, 1, 1
		}),
		base("moods", func(m *Mix) {
			m.Disturbed, m.Handler = 0.2, 3*time.Second
			m.Weighs, m.Moods, m.Every = 3, 6, 3*time.Second
			m.Crashes, m.Pauses, m.Cuts, m.Restarts, m.Forgets = 1, 1, 1, 1, 1
		}),
		base("chaos-wish", func(m *Mix) {
			m.Views = true
			m.Disturbed, m.Handler = 0.2, 3*time.Second
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps = 1, 2, 3, 2, 1
			m.Restarts, m.Setbacks, m.Forgets, m.Outages = 1, 1, 1, 1
		}),
	}
}

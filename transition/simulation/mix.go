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
	// Leases are those that peers come with, by chance; none is the default of all.
	Leases []time.Duration
	// Barrier lets the peers go from roll to roll by the barrier, and Halt is the longest
	// time in which nobody may work on anything, not counted while somebody who died
	// may be waited for; 0: any.
	Barrier bool
	Halt    time.Duration
	// Tagged peers come with tags by chance, and what partitions ask for changes.
	Tagged bool
	// Mingled peers share out by strategies of their own, and idlers are among them, who claim
	// nothing.
	Mingled bool
	// Impatient peers give a drain and a shutdown less time than handlers may take.
	Impatient bool

	// Weights of the faults.
	Joins, BornDead, Leaves, Crashes, Pauses, Cuts, Jumps int
	Weighs, Moods                                         int // another weight; unwell, or well again
	Requires, Reshares                                    int // partitions ask for other tags; one seals for the same members
	Rests                                                 int // the name is paused, or resumed
	Drains                                                int // one peer is drained, or recalled
	Renames, Losses, Hurries                              int // another id; the data forgets who works; stops at once
	Restarts, Setbacks, Forgets, Disasters, Outages       int
	// Backups lets the store fall back by up to a minute, not by seconds.
	Backups bool
	// Every is the longest time between two faults. Default 4 s.
	Every time.Duration
}

func (m Mix) snapshots() int {
	if m.Backups {
		return backups
	}
	return snapshots
}

// strategy is how p shares out.
func (m Mix) strategy(p *peer) partition.Strategy {
	switch {
	case m.Mingled:
		all := []partition.Strategy{partition.Sticky{}, partition.Modulo{}, partition.Jump{}, partition.Rendezvous{}, partition.Ring{}}
		return all[p.place%len(all)]
	case m.Barrier:
		return partition.Modulo{}
	}
	return partition.Sticky{}
}

// steady reports whether nothing that happens can cost a peer its lease.
func (m Mix) steady() bool {
	return m.Disturbed == 0 && m.Pauses+m.Cuts+m.Restarts+m.Setbacks+m.Forgets+m.Disasters+m.Outages == 0
}

const (
	// barrierTakes is what a barrier takes beside the longest handler, if every hint is
	// lost: a beat until the roll is known, a quarter of one until it is known that all
	// have arrived, each with a timer that is late and a few calls.
	barrierTakes = 3 * time.Second
	mourning     = 12500 * time.Millisecond // until nobody waits for who died: lease, beat and a late timer
)

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
		base("leases", func(m *Mix) { // what a store forgot may be a lease that nobody tells it of again
			m.Leases = []time.Duration{3 * time.Second, 10 * time.Second, 20 * time.Second}
			m.Disturbed, m.Handler = lossy, 4*time.Second
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps = 1, 2, 3, 3, 2
			m.Restarts, m.Setbacks, m.Outages, m.Moods = 2, 2, 1, 1
		}),
		base("moods", func(m *Mix) {
			m.Disturbed, m.Handler = 0.2, 3*time.Second
			m.Weighs, m.Moods, m.Every = 3, 6, 3*time.Second
			m.Crashes, m.Pauses, m.Cuts, m.Restarts, m.Forgets = 1, 1, 1, 1, 1
		}),
		base("tags", func(m *Mix) {
			m.Tagged, m.Requires, m.Weighs, m.Moods = true, 4, 2, 2
			m.Crashes, m.Every = 1, 2*time.Second
		}),
		base("mingled", func(m *Mix) {
			m.Mingled, m.Reshares, m.Renames, m.Losses, m.Hurries, m.Weighs = true, 3, 1, 2, 1, 2
			m.Every = 2 * time.Second
		}),
		base("impatient", func(m *Mix) {
			m.Impatient, m.Disturbed, m.Handler, m.Leaves = true, 0.2, 12*time.Second, 3
			m.Crashes, m.Pauses, m.Cuts, m.Restarts, m.Forgets, m.Losses, m.Hurries = 1, 1, 1, 1, 1, 1, 1
			m.Every = 3 * time.Second
		}),
		base("barrier-impatient", func(m *Mix) {
			m.Barrier, m.Impatient, m.Disturbed, m.Handler, m.Leaves = true, true, 0.2, 12*time.Second, 3
			m.Crashes, m.Pauses, m.Cuts, m.Restarts, m.Setbacks, m.Losses, m.Hurries = 1, 1, 1, 1, 1, 1, 1
			m.Every = 3 * time.Second
		}),
		base("motley", func(m *Mix) {
			m.Tagged, m.Mingled, m.Disturbed, m.Handler = true, true, lossy, 4*time.Second
			m.Requires, m.Reshares, m.Renames, m.Losses, m.Hurries, m.Weighs, m.Moods = 3, 2, 1, 2, 1, 2, 2
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps = 1, 2, 3, 2, 2
			m.Restarts, m.Setbacks, m.Forgets, m.Outages = 1, 2, 1, 1
			m.Every = 2 * time.Second
		}),
		base("barrier-motley", func(m *Mix) {
			m.Barrier, m.Tagged, m.Mingled, m.Disturbed, m.Handler = true, true, true, 0.2, 3*time.Second
			m.Requires, m.Reshares, m.Renames, m.Losses, m.Hurries, m.Weighs, m.Moods = 3, 2, 1, 2, 1, 2, 2
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps = 1, 2, 3, 2, 2
			m.Restarts, m.Setbacks, m.Forgets, m.Outages = 1, 2, 1, 1
			m.Every = 2 * time.Second
		}),
		base("rests", func(m *Mix) {
			m.Rests, m.Handler = 3, 4*time.Second
		}),
		base("rests-lossy", func(m *Mix) {
			m.Rests, m.Tagged, m.Disturbed, m.Handler = 4, true, lossy, 4*time.Second
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps = 1, 1, 2, 2, 1
			m.Restarts, m.Setbacks, m.Forgets, m.Outages, m.Requires, m.Moods, m.Losses, m.Hurries = 1, 1, 1, 1, 1, 1, 1, 1
			m.Every = 6 * time.Second
		}),
		base("barrier-rests", func(m *Mix) {
			m.Barrier, m.Rests, m.Disturbed, m.Handler = true, 4, 0.2, 3*time.Second
			m.Crashes, m.Pauses, m.Restarts, m.Setbacks, m.Losses = 1, 1, 1, 1, 1
		}),
		base("drains", func(m *Mix) {
			m.Drains, m.Handler, m.Every = 6, 3*time.Second, 3*time.Second
		}),
		base("drains-lossy", func(m *Mix) {
			m.Drains, m.Tagged, m.Disturbed, m.Handler = 6, true, lossy, 4*time.Second
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps = 1, 2, 2, 1, 1
			m.Restarts, m.Setbacks, m.Forgets, m.Outages, m.Requires, m.Moods, m.Losses, m.Hurries, m.Renames = 1, 1, 1, 1, 1, 1, 1, 1, 1
			m.Every = 3 * time.Second
		}),
		base("barrier-drains", func(m *Mix) {
			m.Barrier, m.Drains, m.Disturbed, m.Handler = true, 5, 0.2, 3*time.Second
			m.Crashes, m.Pauses, m.Restarts, m.Setbacks, m.Losses, m.Rests = 1, 1, 1, 1, 1, 1
		}),
		base("barrier", func(m *Mix) {
			m.Barrier, m.Leaves = true, 3
			m.Halt = m.Handler + barrierTakes
		}),
		base("barrier-storm", func(m *Mix) {
			m.Barrier, m.Leaves, m.Weighs, m.NoHints = true, 4, 4, true
			m.Every, m.Handler = 500*time.Millisecond, 5*time.Second
			m.Halt = m.Handler + barrierTakes
		}),
		base("barrier-crash", func(m *Mix) {
			m.Barrier, m.Crashes, m.BornDead = true, 1, 1
			m.Every, m.Handler = 10*time.Second, 3*time.Second
			m.Halt = m.Handler + barrierTakes
		}),
		base("barrier-flap", func(m *Mix) { // peers come, die at once or soon, and come again
			m.Barrier, m.Joins, m.BornDead, m.Crashes = true, 4, 3, 3
			m.Every = 700 * time.Millisecond
			m.Halt = m.Handler + barrierTakes
		}),
		base("barrier-pause", func(m *Mix) {
			m.Barrier, m.Pauses, m.Cuts, m.Jumps, m.Handler = true, 4, 3, 2, 4*time.Second
			m.Disturbed = lossy
		}),
		base("barrier-backup", func(m *Mix) {
			m.Barrier, m.Disturbed, m.Handler = true, lossy, 8*time.Second
			m.Crashes, m.Pauses, m.Cuts, m.Setbacks, m.Backups = 1, 3, 3, 3, true
		}),
		base("barrier-all", func(m *Mix) {
			m.Barrier, m.Disturbed, m.Handler = true, lossy, 8*time.Second
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps, m.Moods = 1, 2, 3, 2, 1, 1
			m.Restarts, m.Setbacks, m.Forgets, m.Outages, m.Disasters = 2, 2, 2, 1, 1
		}),
		base("chaos-wish", func(m *Mix) {
			m.Views = true
			m.Disturbed, m.Handler = 0.2, 3*time.Second
			m.BornDead, m.Crashes, m.Pauses, m.Cuts, m.Jumps = 1, 2, 3, 2, 1
			m.Restarts, m.Setbacks, m.Forgets, m.Outages = 1, 1, 1, 1
			m.Losses, m.Renames, m.Hurries = 1, 1, 1
		}),
	}
}

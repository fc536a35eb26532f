package framework

import (
	"context"
	"slices"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// mostAside is the greatest index of a peer that asks whether it leads: of a large name not all
// are to read the ledger after each roll.
const mostAside = 8

// A lead finds out whether a peer is the one that does what one does for all: the first that
// works. That is the one with index 0, or the next if those before it are members for the index
// alone (countoff index), which look after nothing. It belongs to one goroutine.
type lead struct {
	ledger transition.Ledger
	rolls  bool // views are of the ledger's rolls; another indexer does not say who works

	roll  uint64 // that was looked at
	first bool   // in it
}

// leads reports whether the peer of view v leads. It reads the ledger once for each roll, and
// only if others are before it.
func (l *lead) leads(ctx context.Context, v partition.View) bool {
	if v.Index <= 0 || v.Index > mostAside || !l.rolls {
		return v.Index == 0
	}
	if v.Version == l.roll {
		return l.first
	}
	census, err := l.ledger.Census(ctx)
	if err != nil || census.Roll.Version != v.Version {
		return false // it is asked again
	}
	l.roll = v.Version
	l.first = !slices.ContainsFunc(census.Roll.Members, func(m machine.RollMember) bool { return m.Index < v.Index && m.Weight > 0 })
	return l.first
}

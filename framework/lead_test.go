package framework

import (
	"context"
	"errors"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// enrolled is a ledger that has a roll, and counts who reads it.
type enrolled struct {
	transition.Ledger
	roll  machine.Roll
	err   error
	reads int
}

func (l *enrolled) Census(context.Context) (machine.Census, error) {
	l.reads++
	return machine.Census{Roll: l.roll}, l.err
}

func TestWhoLeads(t *testing.T) {
	ledger := &enrolled{roll: machine.Roll{Version: 7}}
	for i, weight := range []int{0, 0, 3, 1, 0, 0, 0, 0, 0, 0} {
		ledger.roll.Members = append(ledger.roll.Members, machine.RollMember{Member: partition.Member{Index: i, Weight: weight}})
	}
	view := func(index int) partition.View { return partition.View{Version: 7, Index: index, Replicas: 10} }
	for _, c := range []struct {
		why          string
		index, reads int
		elsewhere    bool // another indexer
		leads        bool
	}{
		{why: "no place", index: -1},
		{why: "index 0 asks nobody", index: 0, leads: true},
		{why: "those before it work on nothing", index: 2, reads: 1, leads: true},
		{why: "somebody before it works", index: 3, reads: 1},
		{why: "too far behind to ask", index: 9},
		{why: "another indexer does not say", index: 2, elsewhere: true},
	} {
		ledger.reads = 0
		l := lead{ledger: ledger, rolls: !c.elsewhere}
		for range 3 {
			if got := l.leads(t.Context(), view(c.index)); got != c.leads {
				t.Errorf("%s: leads %t", c.why, got)
			}
		}
		if ledger.reads != c.reads {
			t.Errorf("%s: the ledger is read %d times for one roll, want %d", c.why, ledger.reads, c.reads)
		}
	}

	l := lead{ledger: ledger, rolls: true}
	ledger.err = errors.New("away")
	if l.leads(t.Context(), view(2)) {
		t.Error("it leads without knowing of the others")
	}
	ledger.err = nil
	if !l.leads(t.Context(), view(2)) {
		t.Error("it does not ask again once the ledger is back")
	}
	newer := view(2)
	newer.Version = 8
	if l.leads(t.Context(), newer) {
		t.Error("it leads by a roll that is not its own")
	}
}

package coverage_test

import (
	"slices"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
)

func TestMembersForTheIndexAloneCountForNothing(t *testing.T) {
	alone := machine.Seat{Session: "i", Peer: "index", State: machine.Live, Lease: 1 << 33, Tags: "gpu", Strategy: "other"}
	kinds := func(l coverage.Look) (all []coverage.Kind) {
		for _, c := range coverage.Conditions(l) {
			all = append(all, c.Kind)
		}
		return all
	}
	l := healthy()
	for i := range l.Census.Sessions {
		l.Census.Sessions[i].Unwell = true
	}
	l.Census.Sessions = append(l.Census.Sessions, alone)
	if !slices.Contains(kinds(l), coverage.Unwell) {
		t.Error("a well member for the index alone hides that nobody who works is well")
	}
	l = healthy()
	l.Census.Config.Requires = []partition.Requirement{{First: 1, Last: 1, Tags: "gpu"}}
	l.Census.Sessions = append(l.Census.Sessions, alone)
	if !slices.Contains(kinds(l), coverage.NoneEligible) {
		t.Error("a member for the index alone counts as eligible")
	}
	l = healthy()
	for i := range l.Census.Sessions {
		l.Census.Sessions[i].Strategy = "sticky"
	}
	l.Census.Sessions = append(l.Census.Sessions, alone)
	if slices.Contains(kinds(l), coverage.TwoWays) {
		t.Error("the strategy of a member for the index alone matters")
	}
}

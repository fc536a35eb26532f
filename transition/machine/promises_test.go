package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

func TestSeatsOfTheAbsentKeepTheRestInPlace(t *testing.T) {
	for _, tags := range []partition.Tags{"", "gpu"} {
		tr := newTroupe(t, "a", "b", "c", "d")
		for i := range tr.Sessions {
			tr.Sessions[i].Tags = tags
		}
		if tags != "" {
			tr.Config.Requires = []partition.Requirement{{Last: 63, Tags: tags}}
		}
		first := tr.roll(partition.Jump{})
		tr.leave("b")
		before := tr.roll(partition.Jump{})
		for id, was := range first {
			if was != "b" && before[id] != was {
				t.Fatalf("tags %q: b went, and %v moved from %s to %s", tags, id, was, before[id])
			}
		}
		tr.Clock += 2 * machine.Reservation
		tr.roll(partition.Jump{})
		for id, owner := range tr.roll(partition.Jump{}) {
			if owner != before[id] {
				t.Fatalf("tags %q: the reservation of b ended, and %v moved from %s to %s", tags, id, before[id], owner)
			}
		}
	}
}

func TestAWeightIsAtLeastOne(t *testing.T) {
	m := machine.New(machine.Config{Session: "s", Weight: 2, Times: times}, 1)
	now := machine.Instant(1)
	weights := []int{}
	for _, ev := range []machine.Event{machine.Ticked{}, machine.Weigh{Weight: 0}, machine.Ticked{}, machine.Weigh{Weight: -7}, machine.Ticked{}} {
		for range 30 {
			for _, e := range m.Step(now, ev) {
				if s, ok := e.(machine.Sync); ok {
					weights = append(weights, s.Request.Weight)
					m.Step(now, machine.Synced{Call: s.Call})
				}
			}
			ev, now = machine.Ticked{}, now.Add(time.Second)
		}
	}
	if slices.Contains(weights, 0) || !slices.Contains(weights, 1) {
		t.Errorf("weights said: %v", weights)
	}
}

func TestAWishIsClaimedInOrder(t *testing.T) {
	m := machine.New(machine.Config{Session: "s", Times: times, Viewed: true}, 1)
	m.Step(1, machine.Viewed{View: partition.View{Version: 1, Replicas: 1, Wish: []partition.ID{5, 1, 3, 1}}})
	var call machine.Sync
	for now := machine.Instant(1); call.Call == 0 || len(call.Request.Claim) == 0; now = now.Add(time.Second) {
		for _, e := range m.Step(now, machine.Ticked{}) {
			if s, ok := e.(machine.Sync); ok {
				call = s
			}
		}
	}
	if !slices.Equal(call.Request.Claim, []partition.ID{1, 3, 5}) {
		t.Errorf("claims %v", call.Request.Claim)
	}
}

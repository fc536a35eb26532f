package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// moody is a census in which a, b and c share six partitions, as the roll says.
func moody(change func(seats []machine.Seat)) machine.Census {
	c := machine.Census{Config: partition.Config{Total: 6}, Membership: 2, Roll: machine.Roll{Version: 1, Membership: 1}}
	for i, s := range []partition.Session{"a", "b", "c"} {
		c.Sessions = append(c.Sessions, machine.Seat{Session: s, Peer: string(s), Weight: 1, State: machine.Live})
		m := machine.RollMember{Member: partition.Member{Session: s, Peer: string(s), Index: i, Weight: 1}}
		for _, id := range []partition.ID{partition.ID(2 * i), partition.ID(2*i + 1)} {
			m.Partitions = append(m.Partitions, id)
			c.Grants = append(c.Grants, machine.Ownership{Grant: partition.Grant{ID: id, Epoch: 1}, Session: s})
		}
		c.Roll.Members = append(c.Roll.Members, m)
	}
	change(c.Sessions)
	return c
}

func shares(r machine.Roll) (all [][]partition.ID) {
	for _, m := range r.Members {
		all = append(all, m.Partitions)
	}
	return all
}

// Who is unwell keeps its index and gets nothing; where nobody is well nothing moves.
func TestNextRollOfTheUnwell(t *testing.T) {
	for what, c := range map[string]struct {
		change func([]machine.Seat)
		want   [][]partition.ID
	}{
		"one is unwell":          {func(s []machine.Seat) { s[1].Unwell = true }, [][]partition.ID{{0, 1, 2}, nil, {3, 4, 5}}},
		"one is well":            {func(s []machine.Seat) { s[0].Unwell, s[1].Unwell = true, true }, [][]partition.ID{nil, nil, {0, 1, 2, 3, 4, 5}}},
		"nobody is well":         {func(s []machine.Seat) { s[0].Unwell, s[1].Unwell, s[2].Unwell = true, true, true }, [][]partition.ID{{0, 1}, {2, 3}, {4, 5}}},
		"one is drained":         {func(s []machine.Seat) { s[1].Drained = true }, [][]partition.ID{{0, 1, 2}, nil, {3, 4, 5}}},
		"one is neither":         {func(s []machine.Seat) { s[0].Drained, s[1].Unwell = true, true }, [][]partition.ID{nil, nil, {0, 1, 2, 3, 4, 5}}},
		"all are drained":        {func(s []machine.Seat) { s[0].Drained, s[1].Drained, s[2].Drained = true, true, true }, [][]partition.ID{{0, 1}, {2, 3}, {4, 5}}},
		"one has weight 4":       {func(s []machine.Seat) { s[0].Weight = 4 }, [][]partition.ID{{0, 1, 3, 5}, {2}, {4}}},
		"for the index, and ill": {func(s []machine.Seat) { s[0].Weight, s[1].Unwell, s[2].Unwell = 0, true, true }, [][]partition.ID{nil, {2, 3}, {4, 5}}},
	} {
		next, _, due := machine.NextRoll(moody(c.change), partition.Sticky{})
		if !due || !slices.EqualFunc(shares(next), c.want, slices.Equal[[]partition.ID]) {
			t.Errorf("%s: %v, want %v", what, shares(next), c.want)
		}
		for i, m := range next.Members {
			if m.Index != i || m.Session != []partition.Session{"a", "b", "c"}[i] {
				t.Errorf("%s: the index %d is %s's", what, i, m.Session)
			}
		}
	}
	// The one that is eligible is unwell, and does not have it: nor may who has it keep it.
	asked := moody(func(s []machine.Seat) { s[1].Unwell, s[1].Tags = true, "gpu" })
	asked.Config.Requires = []partition.Requirement{{First: 0, Last: 0, Tags: "gpu"}, {First: 2, Last: 2, Tags: "gpu"}}
	if next, _, _ := machine.NextRoll(asked, partition.Sticky{}); !slices.EqualFunc(shares(next), [][]partition.ID{{1, 3}, {2}, {4, 5}}, slices.Equal[[]partition.ID]) {
		t.Errorf("of those who have the tags: %v", shares(next))
	}
	// Nobody is well, and one has died: what it had is nobody's.
	c := moody(func(s []machine.Seat) { s[0].Unwell, s[1].Unwell, s[2].Lease = true, true, -1 })
	if next, _, _ := machine.NextRoll(c, partition.Sticky{}); !slices.EqualFunc(shares(next), [][]partition.ID{{0, 1}, {2, 3}}, slices.Equal[[]partition.ID]) {
		t.Errorf("of the dead among the unwell: %v", shares(next))
	}
}

// A drain is told to the peer, once, and changes nothing of what it does: the rolls do.
func TestADrainIsTold(t *testing.T) {
	m := machine.New(machine.Config{Session: "s", Times: times}, 1)
	now := machine.Instant(1)
	var told []machine.Effect
	ev := machine.Event(machine.Ticked{})
	for _, drained := range []bool{false, true, true, false, false, true} {
		for answered := false; !answered; now = now.Add(time.Second) {
			for _, e := range m.Step(now, ev) {
				if s, ok := e.(machine.Sync); ok {
					answered = true
					told = append(told, m.Step(now, machine.Synced{Call: s.Call, Answer: machine.Answer{
						Drained: drained, Line: &machine.Line{Version: 1, Replicas: 1, Partitions: []partition.ID{3}},
					}})...)
				}
			}
		}
	}
	told = slices.DeleteFunc(told, func(e machine.Effect) bool {
		s, is := e.(machine.Sync)
		return is && slices.Equal(s.Request.Claim, []partition.ID{3}) || e == nil
	})
	adopt, rest := told[0], told[1:]
	if _, ok := adopt.(machine.Adopt); !ok || !slices.Equal(rest, []machine.Effect{machine.Dismissed{}, machine.Recalled{}, machine.Dismissed{}}) {
		t.Errorf("told %v, %v", adopt, rest)
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

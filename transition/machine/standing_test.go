package machine_test

import (
	"slices"
	"testing"

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
		"one has weight 4":       {func(s []machine.Seat) { s[0].Weight = 4 }, [][]partition.ID{{0, 1, 3, 5}, {2}, {4}}},
		"for the index, and ill": {func(s []machine.Seat) { s[0].Weight, s[1].Unwell, s[2].Unwell = 0, true, true }, [][]partition.ID{nil, {2, 3}, {4, 5}}},
	} {
		next, due := machine.NextRoll(moody(c.change), partition.Sticky{})
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
	if next, _ := machine.NextRoll(asked, partition.Sticky{}); !slices.EqualFunc(shares(next), [][]partition.ID{{1, 3}, {2}, {4, 5}}, slices.Equal[[]partition.ID]) {
		t.Errorf("of those who have the tags: %v", shares(next))
	}
	// Nobody is well, and one has died: what it had is nobody's.
	c := moody(func(s []machine.Seat) { s[0].Unwell, s[1].Unwell, s[2].Lease = true, true, -1 })
	if next, _ := machine.NextRoll(c, partition.Sticky{}); !slices.EqualFunc(shares(next), [][]partition.ID{{0, 1}, {2, 3}}, slices.Equal[[]partition.ID]) {
		t.Errorf("of the dead among the unwell: %v", shares(next))
	}
}

package machine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// An ownStrategy is an application's own.
type ownStrategy func(ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table

func (ownStrategy) Name() string { return "own" }

func (s ownStrategy) Assign(ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table {
	return s(ids, members, previous)
}

// A strategy that breaks its contract stops no work: what it leaves is shared out as by the default,
// the rest is as it says, and it is said what it did. Partition 3 asks for a tag, and 4 for one that
// nobody has.
func TestAStrategyThatBreaksItsContract(t *testing.T) {
	census := machine.Census{Membership: 9, Config: partition.Config{Total: 6, Requires: []partition.Requirement{
		{First: 3, Last: 3, Tags: "gpu"}, {First: 4, Last: 4, Tags: "tpu"},
	}}}
	for i, s := range []machine.Seat{{Session: "a", Tags: "gpu"}, {Session: "b"}, {Session: "u", Unwell: true}} {
		s.State, s.Weight, s.Peer = machine.Live, 1, string(s.Session)
		census.Sessions = append(census.Sessions, s)
		census.Roll.Members = append(census.Roll.Members, machine.RollMember{Member: partition.Member{Session: s.Session, Peer: s.Peer, Index: i}})
	}
	census.Roll.Version, census.Roll.Membership = 5, 7
	census.Roll.Members[0].Partitions = []partition.ID{2, 3, 5}
	census.Roll.Members[1].Partitions = []partition.ID{0, 1}
	const asSticky = "[[2 3 5] [0 1] []]" // which dealt out anew would be another table
	all := func(s partition.Session) ownStrategy {
		return func(ids []partition.ID, _ []partition.Member, _ partition.Table) partition.Table {
			table := partition.Table{}
			for _, id := range ids {
				table[id] = s
			}
			return table
		}
	}
	for _, c := range []struct {
		name        string
		strategy    ownStrategy
		want, fault string
	}{
		{"says nothing", func([]partition.ID, []partition.Member, partition.Table) partition.Table { return nil }, asSticky,
			"4 of 4 partitions no living member, as 0: it is not in the table"},
		{"names a stranger", all("z"), asSticky, `as 0: session "z" is none of the members`},
		{"names who is unwell", all("u"), asSticky, `as 0: session "u" is down`},
		{"names who lacks the tag", all("b"), "[[3] [0 1 2 5] []]", `1 of 1 partitions no living member, as 3: session "b" is none of the members`},
		{"panics", func([]partition.ID, []partition.Member, partition.Table) partition.Table { panic("own fault") }, asSticky, "Assign panicked: own fault"},
		{"ruins what it was given", func(ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table {
			clear(ids)
			clear(members)
			clear(previous)
			return nil
		}, asSticky, "4 of 4"},
		{"leaves one out", func(ids []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
			table := partition.First{}.Assign(ids, members, nil)
			delete(table, 1)
			return table
		}, "[[0 2 3 5] [1] []]", "1 of 4 partitions no living member, as 1"},
		{"says what it was not asked", func(ids []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
			table := partition.Sticky{}.Assign(ids, members, partition.Table{0: "b", 1: "b", 2: "a", 3: "a", 5: "a"})
			if !slices.Contains(ids, 3) {
				table[3] = "b"
			}
			return table
		}, asSticky, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, fault, due := machine.NextRoll(census, c.strategy)
			if !due {
				t.Fatal("no roll is due")
			}
			if got := fmt.Sprint(shares(next)); got != c.want {
				t.Errorf("shared out as %s, want %s", got, c.want)
			}
			if !strings.Contains(fault, c.fault) || c.fault == "" && fault != "" {
				t.Errorf("it says %q, want %q", fault, c.fault)
			}
		})
	}
	// A copy for each group would be a thousand of a table of thousands.
	tables := make(map[uintptr]bool)
	machine.NextRoll(census, ownStrategy(func(_ []partition.ID, _ []partition.Member, previous partition.Table) partition.Table {
		tables[reflect.ValueOf(previous).Pointer()] = true
		return nil
	}))
	if len(tables) != 1 {
		t.Errorf("the groups were given %d tables", len(tables))
	}
	next, fault, _ := machine.NextRoll(census, partition.Sticky{})
	if fault != "" {
		t.Errorf("the default is blamed: %s", fault)
	}
	census.Roll = next
	if next, fault, news := machine.Reshare(census, all("z")); fault == "" || news {
		t.Errorf("shared out anew by one that is broken: %q, %v, and nothing is to move", fault, shares(next))
	}
	census.Sessions = census.Sessions[2:]
	census.Membership++
	if _, fault, _ := machine.NextRoll(census, all("z")); fault != "" {
		t.Errorf("blamed for what nobody is well for: %s", fault)
	}
}

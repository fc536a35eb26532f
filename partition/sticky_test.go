package partition_test

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/countoff/countoff/partition"
)

// leastBrute is the least that any even table can move away from previous, found by
// trying everything: each way to say who gets one more.
func leastBrute(ids []partition.ID, members []partition.Member, previous partition.Table) int {
	floor, ceil := evenShares(ids, members)
	had := map[partition.Session]int{}
	for _, id := range ids {
		had[previous[id]]++
	}
	extra := len(ids)
	for _, f := range floor {
		extra -= f
	}
	best := len(ids)
	for choice := range 1 << len(members) {
		if bits.OnesCount(uint(choice)) != extra {
			continue
		}
		kept, legal := 0, true
		for i, m := range members {
			quota := floor[i]
			if choice>>i&1 == 1 {
				quota++
			}
			legal = legal && quota <= ceil[i]
			kept += min(had[m.Session], quota)
		}
		if legal {
			best = min(best, len(ids)-kept)
		}
	}
	return best
}

// evenShares returns what is even for each member: between floor and ceil.
func evenShares(ids []partition.ID, members []partition.Member) (floor, ceil []int) {
	sum := 0
	for _, m := range members {
		sum += max(m.Weight, 1)
	}
	for _, m := range members {
		part := len(ids) * max(m.Weight, 1)
		floor, ceil = append(floor, part/sum), append(ceil, (part+sum-1)/sum)
	}
	return floor, ceil
}

// moved counts the ids whose owner is another than before.
func moved(previous, next partition.Table) int {
	n := 0
	for id, s := range next {
		if previous[id] != s {
			n++
		}
	}
	return n
}

// From any table whatever, also an uneven one of other members, Sticky moves exactly
// the least that an even table can be had for.
func TestStickyMovesTheLeastPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := partition.Config{Total: rapid.IntRange(1, 40).Draw(t, "total")}.IDs()
		members := slices.DeleteFunc(drawMembers(t, 8), func(m partition.Member) bool { return m.Down })
		if len(members) == 0 {
			return
		}
		previous := drawTable(t, ids, members)
		next := partition.Sticky{}.Assign(ids, members, previous)
		if got, least := moved(previous, next), leastBrute(ids, members, previous); got != least {
			t.Fatalf("moves %d, the least is %d: %v, %v, %v", got, least, members, previous, next)
		}
	})
}

// Up from 3 to 100 members and down again, by joins, leaves and crashes, with and
// without weights: what must move is a joiner's even share, rounded down, or what the
// leaver had; Sticky moves that and no more, and stays even to one.
func TestStickyThroughLife(t *testing.T) {
	for _, weighted := range []bool{false, true} {
		t.Run(fmt.Sprintf("weighted=%v", weighted), func(t *testing.T) {
			ids := partition.Config{Total: 256}.IDs()
			members := team(3)
			table := partition.Sticky{}.Assign(ids, members, nil)
			next := len(members)
			step := func(what string, must int) {
				t.Helper()
				after := partition.Sticky{}.Assign(ids, members, table)
				if got := moved(table, after); got > must && !weighted {
					t.Fatalf("%s to %d: moves %d, must move %d", what, len(members), got, must)
				} else if least := leastGreedy(ids, members, table); got != least {
					t.Fatalf("%s to %d: moves %d, the least is %d", what, len(members), got, least)
				}
				floor, ceil := evenShares(ids, members)
				got, _ := counts(after)
				for i, m := range members {
					if got[m.Session] < floor[i] || got[m.Session] > ceil[i] {
						t.Fatalf("%s to %d: %v has %d, want %d to %d", what, len(members), m, got[m.Session], floor[i], ceil[i])
					}
				}
				table = after
			}
			for len(members) < 100 {
				m := partition.Member{Session: partition.Session(fmt.Sprintf("s%03d", next)), Index: len(members)}
				if weighted {
					m.Weight = 1 + next%4
				}
				next++
				members = append(members, m)
				step("join", len(ids)/len(members))
			}
			for len(members) > 3 {
				i := len(members) * 2 / 3
				had, _ := counts(table)
				must := had[members[i].Session]
				// The highest index fills the hole.
				last := members[len(members)-1]
				last.Index = members[i].Index
				members[i] = last
				members = members[:len(members)-1]
				step("leave", must)
			}
		})
	}
}

// leastGreedy is leastBrute for many members: one more goes to those that keep by it.
func leastGreedy(ids []partition.ID, members []partition.Member, previous partition.Table) int {
	floor, ceil := evenShares(ids, members)
	had := map[partition.Session]int{}
	for _, id := range ids {
		had[previous[id]]++
	}
	kept, keepers, extra := 0, 0, len(ids)
	for i, m := range members {
		kept += min(had[m.Session], floor[i])
		extra -= floor[i]
		if had[m.Session] > floor[i] && ceil[i] > floor[i] {
			keepers++
		}
	}
	return len(ids) - kept - min(extra, keepers)
}

// With nobody coming or going nothing moves.
func TestStickyKeepsAnEvenTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := partition.Config{Total: rapid.IntRange(1, 100).Draw(t, "total"), Units: []string{"a"}}.IDs()
		members := drawMembers(t, 10)
		table := partition.Sticky{}.Assign(ids, members, nil)
		if n := moved(table, partition.Sticky{}.Assign(ids, members, table)); n != 0 {
			t.Fatalf("nothing happened and %d moved", n)
		}
	})
}

// The rest of this division does not fit in an int where that has 32 bits, as on GOARCH=386.
func TestHeaviestShares(t *testing.T) {
	ids := partition.Config{Total: 257}.IDs()
	for _, s := range []partition.Strategy{partition.Sticky{}, partition.Ring{}} {
		got := map[partition.Session]int{}
		for _, session := range s.Assign(ids, []partition.Member{
			{Session: "a", Index: 0, Weight: math.MaxInt32}, {Session: "b", Index: 1, Weight: math.MaxInt32}, {Session: "c", Index: 2, Weight: math.MaxInt32},
		}, nil) {
			got[session]++
		}
		for _, session := range []partition.Session{"a", "b", "c"} {
			if n := got[session]; n != 85 && n != 86 {
				t.Errorf("%s: %s has %d of 257, want a third", s.Name(), session, n)
			}
		}
	}
}

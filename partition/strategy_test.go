package partition_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/strategytest"
)

var everyStrategy = []partition.Strategy{
	partition.Sticky{}, partition.Modulo{}, partition.Jump{}, partition.Rendezvous{}, partition.Ring{},
}

func TestStrategyByName(t *testing.T) {
	for _, want := range everyStrategy {
		if got, err := partition.StrategyByName(want.Name()); got != want || err != nil {
			t.Errorf("%s: %v, %v", want.Name(), got, err)
		}
	}
	if got, err := partition.StrategyByName(""); got != (partition.Sticky{}) || err != nil {
		t.Errorf("the default: %v, %v", got, err)
	}
	if _, err := partition.StrategyByName("random"); err == nil || !strings.Contains(err.Error(), "rendezvous") {
		t.Errorf("random: %v, want an error that lists the names", err)
	}
}

// drawMembers draws up to most members, some of them down, weighted, of one peer id
// or of one index.
func drawMembers(t *rapid.T, most int) []partition.Member {
	members := make([]partition.Member, rapid.IntRange(0, most).Draw(t, "members"))
	base := rapid.IntRange(0, 3).Draw(t, "base")
	for i := range members {
		members[i] = partition.Member{
			Session: partition.Session(fmt.Sprintf("session%d", base+i)),
			Peer:    fmt.Sprintf("peer%d", rapid.IntRange(0, 2*most).Draw(t, "peer")),
			Index:   rapid.IntRange(0, i).Draw(t, "index"),
			Weight:  rapid.IntRange(-1, 5).Draw(t, "weight"),
			Down:    rapid.IntRange(0, 4).Draw(t, "down") == 0,
			Seat:    rapid.IntRange(0, i).Draw(t, "seat"),
		}
	}
	return members
}

// drawTable draws a table that was in force: some of it by members, some by others,
// some by nobody.
func drawTable(t *rapid.T, ids []partition.ID, members []partition.Member) partition.Table {
	owners := []partition.Session{"", "dead"}
	for _, m := range members {
		owners = append(owners, m.Session)
	}
	table := partition.Table{}
	for _, id := range ids {
		if s := rapid.SampledFrom(owners).Draw(t, "owner"); s != "" {
			table[id] = s
		}
	}
	return table
}

// What every strategy promises. None moves anything while nobody comes or goes, but Even, which
// may where a partition has several pieces.
func TestStrategiesKeepTheirContract(t *testing.T) {
	for _, s := range append(slices.Clone(everyStrategy), partition.First{}) {
		t.Run(s.Name(), func(t *testing.T) { strategytest.Run(t, func() partition.Strategy { return s }, strategytest.Stays) })
	}
	t.Run("even", func(t *testing.T) {
		strategytest.Run(t, func() partition.Strategy {
			return partition.Even{Busy: []partition.ID{7, 3, 3, 3, 0, 55, partition.FirstUnit, 7, 99}}
		})
	})
}

// What each member got, partitions and units apart.
func counts(table partition.Table) (partitions, units map[partition.Session]int) {
	partitions, units = map[partition.Session]int{}, map[partition.Session]int{}
	for id, s := range table {
		if id.IsUnit() {
			units[s]++
		} else {
			partitions[s]++
		}
	}
	return partitions, units
}

// Every living member has its exact share by weight, rounded down or up: so weight 2
// has twice the share of weight 1, give or take one, and without weights no two
// differ by more than one.
func TestStickyAndRingAreEven(t *testing.T) {
	for _, s := range []partition.Strategy{partition.Sticky{}, partition.Ring{}} {
		t.Run(s.Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := partition.Config{
					Total: rapid.IntRange(1, 200).Draw(t, "total"),
					Units: slices.Repeat([]string{"u"}, rapid.IntRange(0, 9).Draw(t, "units")),
				}
				ids, members := c.IDs(), drawMembers(t, 12)
				table := s.Assign(ids, members, drawTable(t, ids, members))
				partitions, units := counts(table)
				sum := 0
				for _, m := range members {
					if !m.Down {
						sum += max(m.Weight, 1)
					}
				}
				for _, m := range members {
					if m.Down {
						continue
					}
					for _, kind := range []struct{ got, total int }{
						{partitions[m.Session], c.Total}, {units[m.Session], len(c.Units)},
					} {
						low := kind.total * max(m.Weight, 1) / sum
						high := (kind.total*max(m.Weight, 1) + sum - 1) / sum
						if kind.got < low || kind.got > high {
							t.Fatalf("%v has %d of %d, want %d to %d", m, kind.got, kind.total, low, high)
						}
					}
				}
			})
		})
	}
}

// The greatest weight there is leaves the arithmetic right and the memory alone.
func TestHugeWeights(t *testing.T) {
	ids := partition.Config{Total: partition.MaxTotal}.IDs()
	members := []partition.Member{{Session: "a", Weight: math.MaxInt}, {Session: "b", Index: 1, Weight: math.MaxInt}, {Session: "c", Index: 2}}
	for _, s := range []partition.Strategy{partition.Sticky{}, partition.Ring{}} {
		got, _ := counts(s.Assign(ids, members, nil))
		// One in 2^31 of 2^16 is nothing, or one.
		if half := len(ids) / 2; got["c"] > 1 || got["a"] < half-1 || got["b"] < half-1 {
			t.Errorf("%s: %v", s.Name(), got)
		}
	}
	got, _ := counts(partition.Rendezvous{}.Assign(ids, members, nil))
	if got["c"] > 1 || got["a"] < len(ids)*2/5 || got["b"] < len(ids)*2/5 {
		t.Errorf("rendezvous: %v", got)
	}
}

// Weight 2 has twice the share of weight 1, give or take one.
func TestWeightTwoGetsTwice(t *testing.T) {
	members := []partition.Member{{Session: "a", Weight: 2}, {Session: "b", Index: 1, Weight: 1}, {Session: "c", Index: 2}}
	for total := 1; total <= 300; total++ {
		ids := partition.Config{Total: total}.IDs()
		for _, s := range []partition.Strategy{partition.Sticky{}, partition.Ring{}} {
			got, _ := counts(s.Assign(ids, members, nil))
			one := float64(total) / 4
			for session, want := range map[partition.Session]float64{"a": 2 * one, "b": one, "c": one} {
				if math.Abs(float64(got[session])-want) >= 1 {
					t.Fatalf("%s, %d partitions: %v", s.Name(), total, got)
				}
			}
		}
	}
}

// An exact share is not rounded up, even for one who had more, and what is left over
// goes to the greatest rest.
func TestStickyRoundsFairly(t *testing.T) {
	members := []partition.Member{{Session: "a"}, {Session: "b", Index: 1}, {Session: "c", Index: 2, Weight: 2}}
	ids := partition.Config{Total: 6}.IDs() // exact: 1.5, 1.5, 3
	all := partition.Table{}
	for _, id := range ids {
		all[id] = "c"
	}
	if got, _ := counts(partition.Sticky{}.Assign(ids, members, all)); got["c"] != 3 {
		t.Errorf("an exact share of 3 became %d", got["c"])
	}
	members = []partition.Member{{Session: "a"}, {Session: "b", Index: 1, Weight: 3}}
	if got, _ := counts(partition.Sticky{}.Assign(ids[:5], members, nil)); got["b"] != 4 { // exact: 1.25, 3.75
		t.Errorf("a share of 3.75 became %d", got["b"])
	}
}

// Two sessions of one peer id, as when a peer restarts before its old lease ends, do
// not leave one of them without anything.
func TestTwoSessionsOfOnePeer(t *testing.T) {
	ids := partition.Config{Total: 256}.IDs()
	members := []partition.Member{{Session: "a", Peer: "p"}, {Session: "b", Peer: "p", Index: 1}, {Session: "c", Peer: "q", Index: 2}}
	got, _ := counts(partition.Rendezvous{}.Assign(ids, members, nil))
	for _, m := range members {
		if n := got[m.Session]; n < 40 || n > 140 {
			t.Errorf("%s has %d of 256", m.Session, n)
		}
	}
}

// Rendezvous follows weights in the mean.
func TestRendezvousFollowsWeights(t *testing.T) {
	ids := partition.Config{Total: 1 << 14}.IDs()
	members := []partition.Member{
		{Session: "a", Weight: 3}, {Session: "b", Index: 1, Weight: 1}, {Session: "c", Index: 2, Weight: 4},
	}
	got, _ := counts(partition.Rendezvous{}.Assign(ids, members, nil))
	for _, m := range members {
		want := len(ids) * m.Weight / 8
		if d := got[m.Session] - want; d < -want/10 || d > want/10 {
			t.Errorf("weight %d has %d, want about %d", m.Weight, got[m.Session], want)
		}
	}
}

// The seed's letter: index i of n has the ids with id % n == i, from index 0 on, so
// that no residue is nobody's.
func TestModuloIsTheSeedsFormula(t *testing.T) {
	ids := partition.Config{Total: 50, Units: []string{"u", "v", "w"}}.IDs()
	for n := 1; n <= 9; n++ {
		members := team(n)
		for id, s := range (partition.Modulo{}).Assign(ids, members, nil) {
			if want := members[int(id)%n].Session; s != want {
				t.Fatalf("n = %d: %v went to %s, want %s", n, id, s, want)
			}
		}
	}
}

// team returns n members with dense indexes.
func team(n int) []partition.Member {
	members := make([]partition.Member, n)
	for i := range members {
		members[i] = partition.Member{Session: partition.Session(fmt.Sprintf("s%03d", i)), Peer: fmt.Sprintf("p%03d", i), Index: i}
	}
	return members
}

// A member that goes down moves nothing but its own, its share spreads over the
// others, also when a second goes down, and comes back whole.
func TestJumpSpreadsTheShareOfTheDown(t *testing.T) {
	ids := partition.Config{Total: 4096}.IDs()
	s := partition.Jump{}
	members := team(10)
	whole := s.Assign(ids, members, nil)
	for _, down := range [][]int{{0}, {3}, {9}, {3, 4}, {0, 9, 5}} {
		before, was := whole, slices.Clone(members)
		for _, i := range down {
			was[i].Down = true
			after := s.Assign(ids, was, nil)
			heirs := map[partition.Session]int{}
			for id, owner := range before {
				if owner != was[i].Session && after[id] != owner {
					t.Fatalf("down %v: %v moved from %s, which is up", down, id, owner)
				}
				if owner == was[i].Session {
					heirs[after[id]]++
				}
			}
			for _, m := range was {
				// A fair part of a tenth of 4096, by chance: between a third and three times it.
				if fair := len(ids) / 10 / 9; !m.Down && (heirs[m.Session] < fair/3 || heirs[m.Session] > fair*3) {
					t.Errorf("down %v: %s takes %d of the dead one's share, fair is about %d", down, m.Session, heirs[m.Session], fair)
				}
			}
			before = after
		}
	}
}

// Seats go before indexes: who came back has the last index, and its old place.
func TestSeatsGoBeforeIndexes(t *testing.T) {
	ids := partition.Config{Total: 256}.IDs()
	for _, s := range []partition.Strategy{partition.Jump{}, partition.First{}} {
		before, after := team(4), team(4)
		for i := range before {
			before[i].Seat = i
			after[i].Seat, after[i].Index = i, (i+3)%4
		}
		was := s.Assign(ids, before, nil)
		if moved(was, s.Assign(ids, after, nil)) != 0 {
			t.Errorf("%s: seats are the same, and something moved", s.Name())
		}
		after[0].Down = true
		for id, owner := range s.Assign(ids, after, nil) {
			if was[id] != after[0].Session && owner != was[id] || s.Name() == "first" && owner != after[1].Session {
				t.Fatalf("%s: the first seat is down: %v went to %s", s.Name(), id, owner)
			}
		}
	}
}

// The function of the paper: from n to n+1 buckets keys move to the new one only.
func TestJumpMovesOnlyToTheNewest(t *testing.T) {
	ids := partition.Config{Total: 2048}.IDs()
	for n := 1; n < 40; n++ {
		before := partition.Jump{}.Assign(ids, team(n), nil)
		grown := team(n + 1)
		for id, s := range (partition.Jump{}).Assign(ids, grown, nil) {
			if s != before[id] && s != grown[n].Session {
				t.Fatalf("%d members and one more: %v moved from %s to %s", n, id, before[id], s)
			}
		}
	}
}

// Who comes or goes moves nothing between the others; a peer that restarts, with
// another session, gets back what it had.
func TestRendezvousMovesOnlyWhatItMust(t *testing.T) {
	ids := partition.Config{Total: 1024}.IDs()
	s := partition.Rendezvous{}
	members := team(12)
	before := s.Assign(ids, members, nil)
	gone := slices.Delete(slices.Clone(members), 4, 5)
	for id, owner := range s.Assign(ids, gone, nil) {
		if before[id] != members[4].Session && before[id] != owner {
			t.Fatalf("%v moved from %s to %s", id, before[id], owner)
		}
	}
	restarted := slices.Clone(members)
	restarted[4].Session = "another"
	for id, owner := range s.Assign(ids, restarted, nil) {
		if before[id] != owner && !(before[id] == members[4].Session && owner == "another") {
			t.Fatalf("after a restart %v moved from %s to %s", id, before[id], owner)
		}
	}
}

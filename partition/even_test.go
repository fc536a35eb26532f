package partition_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/countoff/countoff/partition"
)

// Pieces come and go, and so do members of several weights: shares of pieces are even to one,
// no more of them move than must, and with nothing changed nothing moves.
func TestEven(t *testing.T) {
	const total = 256
	ids := partition.Config{Total: total}.IDs()
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(seed, 7))
		var members []partition.Member
		next := 0
		join := func() {
			next++
			members = append(members, partition.Member{
				Session: partition.Session(fmt.Sprint("s", next)), Index: next, Weight: 1 + int(seed%2)*random.IntN(3),
			})
		}
		join()
		var busy []partition.ID // one piece each
		var table partition.Table
		for step := range 60 {
			was := table
			switch k := random.IntN(4); {
			case k == 0 && len(members) < 8:
				join()
			case k == 1 && len(members) > 1:
				members = slices.Delete(members, 0, 1)
			case k == 2 && len(busy) > 0:
				i := random.IntN(len(busy))
				busy = slices.Delete(slices.Clone(busy), i, i+1)
			default:
				if id := partition.ID(random.IntN(total)); !slices.Contains(busy, id) {
					busy = append(busy, id)
				}
			}
			strategy := partition.Even{Busy: busy}
			table = strategy.Assign(ids, members, was)
			if len(table) != total {
				t.Fatalf("seed %d, step %d: %d of %d are assigned", seed, step, len(table), total)
			}
			weights, sum := map[partition.Session]int{}, 0
			for _, m := range members {
				weights[m.Session] = m.Weight
				sum += m.Weight
			}
			has, kept, moved := map[partition.Session]int{}, map[partition.Session]int{}, 0
			for _, id := range busy {
				has[table[id]]++
				if weights[was[id]] > 0 {
					kept[was[id]]++
					if was[id] != table[id] {
						moved++
					}
				}
			}
			must := 0 // what those who stay had beyond the most that may be theirs
			for session, weight := range weights {
				exact := len(busy) * weight
				least, most := exact/sum, (exact+sum-1)/sum
				if has[session] < least || has[session] > most {
					t.Fatalf("seed %d, step %d: %s of weight %d in %d has %d of %d pieces", seed, step, session, weight, sum, has[session], len(busy))
				}
				must += max(0, kept[session]-has[session])
			}
			if moved != must {
				t.Fatalf("seed %d, step %d: %d pieces were moved between those who stay, want %d", seed, step, moved, must)
			}
			if again := strategy.Assign(ids, members, table); !maps.Equal(again, table) {
				t.Fatalf("seed %d, step %d: nothing has changed, and the table has", seed, step)
			}
		}
	}
}

// Where a partition has several pieces they stay together, shares are even to as many, and
// what has to move is what was named last.
func TestEvenOfSeveralPieces(t *testing.T) {
	ids := partition.Config{Total: 16}.IDs()
	members := []partition.Member{{Session: "a", Index: 0}, {Session: "b", Index: 1}}
	previous := partition.Table{3: "a", 5: "a", 7: "a", 9: "a"}
	table := partition.Even{Busy: []partition.ID{9, 3, 3, 5, 7}}.Assign(ids, members, previous)
	want := map[partition.ID]partition.Session{9: "a", 3: "a", 5: "b", 7: "b"}
	for id, session := range want {
		if table[id] != session {
			t.Errorf("%v is %s's, want %s's", id, table[id], session)
		}
	}
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(seed, 9))
		var busy []partition.ID
		most := map[partition.ID]int{}
		for range 1 + random.IntN(30) {
			id := partition.ID(random.IntN(16))
			busy = append(busy, id)
			most[id]++
		}
		table := partition.Even{Busy: busy}.Assign(ids, members, nil)
		for range 10 { // it settles
			table = partition.Even{Busy: busy}.Assign(ids, members, table)
		}
		if again := (partition.Even{Busy: busy}).Assign(ids, members, table); !maps.Equal(again, table) {
			t.Fatalf("seed %d: nothing has changed, and the table has", seed)
		}
		has := map[partition.Session]int{}
		for _, id := range busy {
			has[table[id]]++
		}
		if spread := max(has["a"], has["b"]) - min(has["a"], has["b"]); spread > slices.Max(slices.Collect(maps.Values(most))) {
			t.Fatalf("seed %d: shares of %v: %v", seed, busy, has)
		}
	}
}

// What fits in no share better than where it is stays there.
func TestEvenMovesNothingInATie(t *testing.T) {
	members := []partition.Member{{Session: "a"}, {Session: "b", Index: 1}}
	table := partition.Even{Busy: []partition.ID{0, 0}}.Assign([]partition.ID{0}, members, partition.Table{0: "b"})
	if table[0] != "b" {
		t.Errorf("two pieces that cannot be parted went from b to %s", table[0])
	}
	had := partition.Table{0: "a", 1: "b", 2: "b"} // one of the two has to have two
	if table := (partition.Even{Busy: []partition.ID{0, 1, 2}}).Assign([]partition.ID{0, 1, 2}, members, had); !maps.Equal(table, had) {
		t.Errorf("%v became %v", had, table)
	}
}

func TestEvenToWhatTheFullestHas(t *testing.T) {
	ids := partition.Config{Total: 16}.IDs()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 9))
		members := team(2 + r.IntN(4))
		var busy []partition.ID
		pieces, most := map[partition.ID]int{}, 0
		for range 1 + r.IntN(40) {
			id := partition.ID(r.IntN(16))
			busy = append(busy, id)
			pieces[id]++
			most = max(most, pieces[id])
		}
		has := map[partition.Session]int{}
		table := partition.Even{Busy: busy}.Assign(ids, members, nil)
		for id, n := range pieces {
			has[table[id]] += n
		}
		low, high := len(busy), 0
		for _, m := range members {
			low, high = min(low, has[m.Session]), max(high, has[m.Session])
		}
		if high-low > most {
			t.Fatalf("seed %d, %d members, fullest %d: %v", seed, len(members), most, has)
		}
	}
}

package partition_test

import (
	"math/rand/v2"
	"testing"

	"github.com/countoff/countoff/partition"
)

func TestUnitsHashTellsListsApart(t *testing.T) {
	if a, b := (partition.Config{Units: []string{"a", "bc"}}).UnitsHash(), (partition.Config{Units: []string{"ab", "c"}}).UnitsHash(); a == b {
		t.Error("two lists, one hash")
	}
}

func TestAskedTwiceIsAskedOnce(t *testing.T) {
	c := partition.Config{Total: 4, Requires: []partition.Requirement{{Last: 3, Tags: "gpu"}, {First: 1, Last: 1, Tags: "gpu"}}}
	if c.Asks(0) != c.Asks(1) {
		t.Errorf("%q and %q are two groups", c.Asks(0), c.Asks(1))
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

// What would be read back as something else is not written down.
func TestRequirementsThatCannotBeWritten(t *testing.T) {
	for _, r := range []partition.Requirement{
		{First: 7, Tags: "gpu"}, {Unit: "3", Tags: "gpu"}, {Unit: "20240101", Tags: "gpu"}, {Last: 3, Tags: "gpu/a"}, {Last: 3},
	} {
		if err := partition.CheckRequirements([]partition.Requirement{r}); err == nil {
			t.Errorf("%+v is let through", r)
		}
	}
	if err := partition.CheckRequirements([]partition.Requirement{{First: 1, Last: 7, Tags: "eu gpu"}, {Unit: "in-1", Tags: "gpu"}}); err != nil {
		t.Error(err)
	}
}

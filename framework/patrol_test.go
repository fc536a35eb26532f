package framework

import (
	"slices"
	"testing"

	"github.com/countoff/countoff/partition"
)

// Every partition and every unit has its turn, in as few looks as there must be, and none is
// asked for twice in one look.
func TestEveryPartitionHasItsTurn(t *testing.T) {
	for _, total := range []int{1, surveyed - 2, surveyed - 1, surveyed, surveyed + 1, 5*surveyed/2 - 2} {
		layout := partition.Config{Total: total, Units: []string{"bills", "mails"}}
		p := patrol{layout: layout}
		looks := (total + 2 + surveyed - 1) / surveyed
		asked := map[partition.ID]bool{}
		for range looks {
			ids := p.turn()
			for _, id := range ids {
				asked[id] = true
			}
			slices.Sort(ids) // what a survey is given is its own
			if n := len(slices.Compact(ids)); n != min(surveyed, total+2) {
				t.Errorf("%d partitions and 2 units: one look asks for %d", total, n)
			}
		}
		for _, id := range layout.IDs() {
			if !asked[id] {
				t.Fatalf("%d partitions and 2 units: after %d looks nobody has asked for %v", total, looks, id)
			}
		}
	}
}

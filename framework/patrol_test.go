package framework

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
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

// laidOut is a ledger of a name of which nothing stands but its layout.
type laidOut struct {
	transition.Ledger
	layout partition.Config
}

func (l *laidOut) Census(context.Context) (transition.Census, error) {
	return transition.Census{Config: l.layout}, nil
}

// What the broker has added since this peer started is looked at like the rest.
func TestPartitionsThatWereAddedAreLookedAt(t *testing.T) {
	ledger := &laidOut{layout: partition.Config{Total: 4}}
	var asked []partition.ID
	p := patrol{
		ledger: ledger, layout: ledger.layout, timing: transition.Timing{}.WithDefaults(), observe: func(Event) {},
		wrong: map[coverage.Kind]time.Time{}, data: map[partition.ID]coverage.Datum{},
		survey: func(_ context.Context, ids []partition.ID) ([]coverage.Datum, error) {
			asked = ids
			return nil, nil
		},
	}
	p.look(t.Context())
	ledger.layout.Total = 6
	p.look(t.Context())
	p.look(t.Context())
	if len(asked) != 6 {
		t.Errorf("of 6 partitions %v are asked for", asked)
	}
}

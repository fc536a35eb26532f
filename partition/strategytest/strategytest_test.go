package strategytest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/countoff/countoff/partition"
)

// A broken strategy is Sticky but for what it does to the table, and to what it was asked.
type broken func(table partition.Table, ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table

func (broken) Name() string { return "broken" }

func (b broken) Assign(ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table {
	return b(partition.Sticky{}.Assign(ids, members, previous), ids, members, previous)
}

// Each clause sees the strategy that breaks it, and nobody is blamed who breaks none.
func TestSeesWhatIsBroken(t *testing.T) {
	calls := 0
	for want, b := range map[string]broken{
		"": func(table partition.Table, _ []partition.ID, _ []partition.Member, _ partition.Table) partition.Table {
			return table
		},
		"is not in the table": func(partition.Table, []partition.ID, []partition.Member, partition.Table) partition.Table { return nil },
		"who is no member or down": func(table partition.Table, ids []partition.ID, _ []partition.Member, _ partition.Table) partition.Table {
			if len(table) > 0 {
				table[ids[0]] = "nobody"
			}
			return table
		},
		"and nobody lives": func(table partition.Table, ids []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
			if len(table) == 0 && len(members) > 0 {
				table[ids[0]] = members[0].Session
			}
			return table
		},
		"was not asked for": func(table partition.Table, _ []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
			if len(table) > 0 {
				table[4711] = members[0].Session
			}
			return table
		},
		"it changed its arguments": func(table partition.Table, ids []partition.ID, _ []partition.Member, _ partition.Table) partition.Table {
			slices.Reverse(ids)
			return table
		},
		"asked again": func(table partition.Table, ids []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
			if calls++; calls%2 == 0 {
				return partition.First{}.Assign(ids, members, nil)
			}
			return table
		},
		"in another order": func(_ partition.Table, ids []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
			table := partition.Table{}
			if i := slices.IndexFunc(members, func(m partition.Member) bool { return !m.Down }); i >= 0 {
				for _, id := range ids {
					table[id] = members[i].Session
				}
			}
			return table
		},
		"nobody came or went": func(table partition.Table, ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table {
			if !maps.Equal(table, previous) {
				return table
			}
			return partition.Ring{}.Assign(ids, members, nil)
		},
		"it panicked": func(_ partition.Table, _ []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
			panic(len(members))
		},
	} {
		wrong := ""
		for seed := uint64(0); seed < worlds && wrong == ""; seed++ {
			wrong = newWorld(seed).breach(func() partition.Strategy { return b }, []Promise{Stays})
		}
		if !strings.Contains(wrong, want) || want == "" && wrong != "" {
			t.Errorf("of one that breaks %q it says %q", want, wrong)
		}
	}
}

// One that does not answer is told like all that is broken.
func TestSeesWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		hangs := broken(func(table partition.Table, _ []partition.ID, _ []partition.Member, _ partition.Table) partition.Table {
			<-release
			return table
		})
		wrong := newWorld(1).verdict(func() partition.Strategy { return hangs }, nil)
		if !strings.Contains(wrong, "has not answered") {
			t.Errorf("it says %q", wrong)
		}
	})
}

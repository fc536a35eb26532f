package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/countoff/countoff/partition"
)

// A watched strategy is one whose answers are looked at: an application may bring its own, and ids
// that it gives to nobody who lives would be worked on by nobody, without a word. Sticky shares
// them out instead, and fault says what the strategy did.
type watched struct {
	partition.Strategy
	lent  partition.Table // a copy of the previous table, which it may write to: one for all groups, of which there may be hundreds
	fault string
}

// Assign implements partition.Strategy. What is said for ids that were not asked for is left out.
func (w *watched) Assign(ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table {
	lives := make(map[partition.Session]bool, len(members))
	for _, m := range members {
		if !m.Down {
			lives[m.Session] = true
		}
	}
	if len(lives) == 0 {
		return nil
	}
	if w.lent == nil {
		w.lent = maps.Clone(previous)
	}
	said, panicked := try(w.Strategy, ids, members, w.lent)
	table := make(partition.Table, len(ids))
	var left []partition.ID
	for _, id := range ids {
		if lives[said[id]] {
			table[id] = said[id]
		} else {
			left = append(left, id)
		}
	}
	if len(left) == 0 {
		return table
	}
	switch {
	case w.fault != "": // of another group
	case panicked != "":
		w.fault = panicked
	default:
		w.fault = fmt.Sprintf("Assign gave %d of %d partitions no living member, as %v: %s", len(left), len(ids), left[0], owner(said[left[0]], members))
	}
	maps.Copy(table, partition.Sticky{}.Assign(left, members, previous))
	return table
}

// owner says what is wrong with s as an owner.
func owner(s partition.Session, members []partition.Member) string {
	switch {
	case s == "":
		return "it is not in the table"
	case slices.ContainsFunc(members, func(m partition.Member) bool { return m.Session == s }):
		return fmt.Sprintf("session %q is down", s)
	}
	return fmt.Sprintf("session %q is none of the members", s)
}

// try asks s. It gets copies, as lent is one, since it may write to them: Sticky is asked about the same.
func try(s partition.Strategy, ids []partition.ID, members []partition.Member, lent partition.Table) (table partition.Table, panicked string) {
	defer func() {
		if p := recover(); p != nil {
			table, panicked = nil, fmt.Sprintf("Assign panicked: %v", p)
		}
	}()
	return s.Assign(slices.Clone(ids), slices.Clone(members), lent), ""
}

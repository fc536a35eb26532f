package partition

import "slices"

// First gives everything to the living member with the least seat, and gives it back to a member
// that returns to a lesser one; the others stand by. It is for work that one peer at a time does
// and that has a home. [StrategyByName] does not know it: it shares nothing out.
type First struct{}

// Name returns "first".
func (First) Name() string { return "first" }

// Assign implements [Strategy].
func (First) Assign(ids []ID, members []Member, _ Table) Table {
	table := make(Table, len(ids))
	if members = living(members); len(members) > 0 {
		first := slices.MinFunc(members, bySeat)
		for _, id := range ids {
			table[id] = first.Session
		}
	}
	return table
}

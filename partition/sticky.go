package partition

import (
	"cmp"
	"slices"
)

// Sticky shares out evenly, to one partition, by weight, and moves the least possible from the
// table that was in force: everybody keeps what is within its share, and only the surplus and
// what the dead had is dealt out. Units are shared out apart from the partitions, so that no peer
// gets all of them. It is the default.
//
// It needs that table, which the sealed roll has; without one it is even all the same. Assigning
// P ids to n members takes O(P log P + n log n).
type Sticky struct{}

// Name returns "sticky".
func (Sticky) Name() string { return "sticky" }

// Assign implements [Strategy].
func (Sticky) Assign(ids []ID, members []Member, previous Table) Table {
	table := make(Table, len(ids))
	members = living(members)
	if len(members) == 0 {
		return table
	}
	for _, kind := range byKind(ids) {
		stick(kind, members, previous, table)
	}
	return table
}

// stick assigns ids, ascending and of one kind, into table.
func stick(ids []ID, members []Member, previous, table Table) {
	place := make(map[Session]int, len(members))
	for i, m := range members {
		place[m.Session] = i
	}
	had := make([]int, len(members))
	for _, id := range ids {
		if i, ok := place[previous[id]]; ok {
			had[i]++
		}
	}
	left := quotas(members, len(ids), had)
	var free []ID
	for _, id := range ids {
		if i, ok := place[previous[id]]; ok && left[i] > 0 {
			table[id] = members[i].Session
			left[i]--
		} else {
			free = append(free, id)
		}
	}
	// Runs of ids to one member: a line of the roll stays short.
	i := 0
	for _, id := range free {
		for left[i] == 0 {
			i++
		}
		table[id] = members[i].Session
		left[i]--
	}
}

// quotas returns how many of total each member is to have, given how many it had.
// Where a share has a rest, one more goes first to those that have it already: that
// is what makes the movement least. Then to the greatest rest.
func quotas(members []Member, total int, had []int) []int {
	each, extra := shares(members, total)
	quota := make([]int, len(members))
	order := make([]int, 0, len(members))
	for i, s := range each {
		quota[i] = s.floor
		if s.rest > 0 {
			order = append(order, i)
		}
	}
	keeps := func(i int) int {
		if had[i] > each[i].floor {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(keeps(a), keeps(b)), cmp.Compare(each[b].rest, each[a].rest))
	})
	for _, i := range order[:extra] {
		quota[i]++
	}
	return quota
}

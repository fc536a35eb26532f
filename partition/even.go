package partition

import (
	"cmp"
	"slices"
)

// Even shares out what is in the partitions instead of the partitions themselves. Those that have
// something in them are dealt out so that each member gets its share of the pieces, by weight;
// the others are shared out as [Sticky] does. It moves the least from the table that was in
// force. It is for a few long-lived pieces of work, which a hash alone spreads over the
// partitions by chance.
//
// It is even to one piece where no partition has two, otherwise to as many as the fullest
// partition has. Assigning P ids to n members takes O(P log P + B n), B being the number of those
// that have something in them.
type Even struct {
	// Busy are the ids that have something in them, each as often as it has pieces, in the
	// order in which they are to stay: what has to move is taken from the end.
	Busy []ID
}

// Name returns "even".
func (Even) Name() string { return "even" }

// Assign implements [Strategy].
func (e Even) Assign(ids []ID, members []Member, previous Table) Table {
	pieces := make(map[ID]int, len(e.Busy))
	for _, id := range e.Busy {
		pieces[id]++
	}
	busy, idle, total := e.cut(ids, pieces)
	table := Sticky{}.Assign(idle, members, previous)
	members = living(members)
	if len(members) == 0 || total == 0 {
		return table
	}
	place := make(map[Session]int, len(members))
	for i, m := range members {
		place[m.Session] = i
	}
	had := make([]int, len(members))
	for _, id := range busy {
		if i, ok := place[previous[id]]; ok {
			had[i] += pieces[id]
		}
	}
	// Who has it keeps it, within its share; the rest goes to whoever lacks most, the fullest first.
	left := quotas(members, total, had)
	var free []ID
	for _, id := range busy {
		if i, ok := place[previous[id]]; ok && left[i] >= pieces[id] {
			table[id] = members[i].Session
			left[i] -= pieces[id]
		} else {
			free = append(free, id)
		}
	}
	slices.SortStableFunc(free, func(a, b ID) int { return cmp.Compare(pieces[b], pieces[a]) })
	for _, id := range free {
		to := slices.Index(left, slices.Max(left))
		if i, ok := place[previous[id]]; ok && left[i] == left[to] {
			to = i
		}
		table[id] = members[to].Session
		left[to] -= pieces[id]
	}
	return table
}

// cut returns those of ids that have something in them, in the order in which they are to stay,
// and the others, and how many pieces there are in all.
func (e Even) cut(ids []ID, pieces map[ID]int) (busy, idle []ID, total int) {
	asked := make(map[ID]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
		if pieces[id] == 0 {
			idle = append(idle, id)
		}
		total += pieces[id]
	}
	for _, id := range e.Busy { // each once
		if asked[id] {
			busy = append(busy, id)
			delete(asked, id)
		}
	}
	return busy, idle, total
}

package partition

// Modulo gives partition p to the living member number p modulo their count, by index: anybody
// can compute it who knows an index and a number of replicas. It is even to one partition where
// it shares out all of them, but moves almost everything whenever the count changes. A group (see
// [Assign]) it shares out only as evenly as the numbers of its partitions happen to be. Weights
// do not matter to it.
type Modulo struct{}

// Name returns "modulo".
func (Modulo) Name() string { return "modulo" }

// Assign implements [Strategy].
func (Modulo) Assign(ids []ID, members []Member, _ Table) Table {
	table := make(Table, len(ids))
	members = living(members)
	if len(members) == 0 {
		return table
	}
	for _, id := range ids {
		table[id] = members[int(id)%len(members)].Session
	}
	return table
}

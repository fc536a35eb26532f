package partition

import (
	"cmp"
	"slices"
	"sort"
)

// Jump places partitions by jump consistent hash (Lamping and Veach, 2014) over the members'
// seats, or their indexes where there are no seats: anybody can compute it who knows the number
// of members, and a member that joins with the next seat moves the least possible. A member that
// is Down keeps its seat; what falls to it is hashed again over the others, so that its share
// spreads over the living and comes back whole. It is even only by chance, and weights do not
// matter to it.
type Jump struct{}

// Name returns "jump".
func (Jump) Name() string { return "jump" }

// Assign implements [Strategy].
func (Jump) Assign(ids []ID, members []Member, _ Table) Table {
	table := make(Table, len(ids))
	if len(living(members)) == 0 {
		return table
	}
	members = slices.SortedFunc(slices.Values(members), bySeat)
	for _, id := range ids {
		table[id] = jumpTo(mix(uint64(id)), members).Session
	}
	return table
}

func bySeat(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Seat, b.Seat), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Session, b.Session))
}

// jumpTo returns the living member of key. Of several that are down only those the
// key falls on are taken out: when one more goes down, only its own share moves.
func jumpTo(key uint64, members []Member) Member {
	var out []int // the places of those taken out, ascending
	for {
		i := jump(key, len(members)-len(out)) // among those that are left
		before := sort.Search(len(out), func(j int) bool { return out[j]-j > i })
		i += before
		if !members[i].Down {
			return members[i]
		}
		out = slices.Insert(out, before, i)
		key = mix(key ^ uint64(len(members)-len(out)))
	}
}

// jump is the function of the paper.
func jump(key uint64, buckets int) int {
	var b, j int64 = -1, 0
	for j < int64(buckets) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(1<<31) / float64(key>>33+1)))
	}
	return int(b)
}

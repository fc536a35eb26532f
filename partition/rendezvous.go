package partition

import "math"

// Rendezvous gives each partition to the living member with the highest score for
// it, a hash of both (Thaler and Ravishankar, 1996; weighted by Mosko's logarithm):
// whoever comes or goes, nothing moves between the others, and anybody can compute
// it who knows the peer ids. It is even only by chance. It takes O(P n).
type Rendezvous struct{}

// Name returns "rendezvous".
func (Rendezvous) Name() string { return "rendezvous" }

// Assign implements [Strategy].
func (Rendezvous) Assign(ids []ID, members []Member, _ Table) Table {
	table := make(Table, len(ids))
	members = living(members)
	if len(members) == 0 {
		return table
	}
	who := identities(members)
	for _, id := range ids {
		best, top := 0, math.Inf(-1)
		for i, m := range members {
			if s := score(who[i], id, weight(m)); s > top {
				best, top = i, s
			}
		}
		table[id] = members[best].Session
	}
	return table
}

// score draws a number from (0,1) for the pair and bends it by the weight, so that
// the chance to be highest is proportional to it: log(u)/w.
func score(who uint64, id ID, weight int) float64 {
	u := (float64(mix(who^mix(uint64(id)))>>11) + 0.5) / (1 << 53)
	return math.Log(u) / float64(weight)
}

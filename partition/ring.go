package partition

import (
	"cmp"
	"slices"
	"sort"
)

// Ring lays members and ids on a circle. Each id in turn is taken once, by the next member
// clockwise that is not full; full is its even share, by weight. This is consistent hashing
// (Karger et al., 1997) with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016), the bound
// being the even share itself. So it is even to one partition without looking back, and anybody
// can compute it who knows the peer ids. When somebody comes or goes it moves about twice the
// least possible, because what finds a member full goes on to another.
type Ring struct{}

// Name returns "ring".
func (Ring) Name() string { return "ring" }

// Assign implements [Strategy].
func (Ring) Assign(ids []ID, members []Member, _ Table) Table {
	table := make(Table, len(ids))
	members = living(members)
	if len(members) == 0 {
		return table
	}
	circle := lay(members)
	for _, kind := range byKind(ids) {
		each, extra := shares(members, len(kind))
		taken := make([]int, len(members))
		for _, id := range kind {
			at := mix(uint64(id))
			i := sort.Search(len(circle), func(i int) bool { return circle[i].at >= at })
			for ; ; i++ {
				m := circle[i%len(circle)].member
				if taken[m] < each[m].floor {
					break
				}
				// One more than floor is for as many as there is a rest: then all
				// others end at floor, and nobody is short.
				if taken[m] == each[m].floor && each[m].rest > 0 && extra > 0 {
					extra--
					break
				}
			}
			m := circle[i%len(circle)].member
			taken[m]++
			table[id] = members[m].Session
		}
	}
	return table
}

// A point is one of the places of a member on the circle.
type point struct {
	at     uint64
	member int
}

// lay puts members on the circle, each at a number of places that grows with its
// weight, up to a limit: beyond it the shares see to the weight alone.
func lay(members []Member) []point {
	const places, heavy = 32, 32
	var circle []point
	for i, who := range identities(members) {
		for k := range places * min(weight(members[i]), heavy) {
			circle = append(circle, point{mix(who ^ mix(uint64(k))), i})
		}
	}
	slices.SortFunc(circle, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.member, b.member))
	})
	return circle
}

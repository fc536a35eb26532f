package partition

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// strategies lists them all, the default first.
var strategies = []Strategy{Sticky{}, Modulo{}, Jump{}, Rendezvous{}, Ring{}}

// StrategyByName returns the strategy that flags and configuration call name. The
// empty name is the default, [Sticky].
func StrategyByName(name string) (Strategy, error) {
	if name == "" {
		return strategies[0], nil
	}
	names := make([]string, len(strategies))
	for i, s := range strategies {
		if s.Name() == name {
			return s, nil
		}
		names[i] = s.Name()
	}
	return nil, fmt.Errorf("partition: strategy %q: want one of %s", name, strings.Join(names, ", "))
}

// living returns the members that may get something, by index: what every strategy begins with, so
// that the order in which they come does not matter.
func living(members []Member) []Member {
	all := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Down })
	slices.SortFunc(all, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Session, b.Session))
	})
	return all
}

// maxWeight keeps the arithmetic of shares far from overflow.
const maxWeight = 1 << 30

func weight(m Member) int { return min(max(m.Weight, 1), maxWeight) }

// identities returns a number for each of members, which stand by index, that
// strategies without a memory hash: it comes from the peer's id, so that a peer
// that restarts gets the same again. Sessions that share a peer id are numbered.
func identities(members []Member) []uint64 {
	seen := make(map[string]int, len(members))
	ids := make([]uint64, len(members))
	for i, m := range members {
		name := cmp.Or(m.Peer, string(m.Session))
		ids[i] = xxhash.Sum64String(name + "#" + strconv.Itoa(seen[name]))
		seen[name]++
	}
	return ids
}

// mix spreads the bits of x over all 64 (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A share is what is even for a member: its exact share of the whole is floor, or
// between floor and floor + 1.
type share struct {
	floor int
	rest  int64 // of the division; 0: floor is exact, and one more would be too much
}

// shares divides total among members by weight, and says how many of those with a
// rest get one more.
func shares(members []Member, total int) (each []share, extra int) {
	sum := int64(0)
	for _, m := range members {
		sum += int64(weight(m))
	}
	each = make([]share, len(members))
	extra = total
	for i, m := range members {
		part := int64(total) * int64(weight(m)) // an int has 32 bits on some machines
		each[i] = share{floor: int(part / sum), rest: part % sum}
		extra -= each[i].floor
	}
	return each, extra
}

// byKind cuts ids into the partitions and the units: each kind is shared out evenly
// by itself, so that no peer has all the units.
func byKind(ids []ID) [2][]ID {
	var kinds [2][]ID
	for _, id := range slices.Sorted(slices.Values(ids)) {
		if id.IsUnit() {
			kinds[1] = append(kinds[1], id)
		} else {
			kinds[0] = append(kinds[0], id)
		}
	}
	return kinds
}

package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// plainJump is what jumpTo is: it takes the down ones out one by one.
func plainJump(key uint64, members []Member) Member {
	rest := slices.Clone(members)
	for {
		i := jump(key, len(rest))
		if !rest[i].Down {
			return rest[i]
		}
		rest = slices.Delete(rest, i, i+1)
		key = mix(key ^ uint64(len(rest)))
	}
}

// seats returns n members of which all but left, chosen by random, are down.
func seats(n, left int, random *rand.Rand) []Member {
	members := make([]Member, n)
	for i, place := range random.Perm(n) {
		members[i] = Member{Session: Session(fmt.Sprint(i)), Seat: i, Down: place >= left}
	}
	return members
}

func TestJumpTakesOutTheDown(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 1 + random.IntN(60)
		members := seats(n, 1+random.IntN(n), random)
		key := random.Uint64()
		if got, want := jumpTo(key, members), plainJump(key, members); got.Session != want.Session {
			t.Fatalf("seed %d: %d members: %s, want %s", seed, n, got.Session, want.Session)
		}
	}
}

// A fleet shrinks from 1,000 to 10, whose seats are kept: a key falls on some 90 that are
// down. All members were copied for each of them: a roll of 16,384 partitions took 100 s.
func TestJumpCopiesNoMembers(t *testing.T) {
	members := seats(1000, 10, rand.New(rand.NewPCG(1, 1)))
	ids := Config{Total: 256}.IDs()
	allocs := testing.AllocsPerRun(1, func() { Jump{}.Assign(ids, members, nil) })
	if most := float64(20 * len(ids)); allocs > most {
		t.Errorf("%v allocations, want %v at most", allocs, most)
	}
}

package machine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/transition/machine"
)

// turn returns how long a peer with that index waits before it seals a roll that is due.
func turn(t *testing.T, seed uint64, index, replicas int) time.Duration {
	t.Helper()
	return waits(t, seed, machine.Answer{Count: 2, Line: &machine.Line{Version: 2, Index: index, Replicas: replicas}})
}

// waits returns how long a peer that is answered so waits before it seals a roll that is due.
func waits(t *testing.T, seed uint64, a machine.Answer) time.Duration {
	t.Helper()
	began := machine.Instant(time.Hour)
	now := began
	m := machine.New(machine.Config{Session: "s", Peer: "p", Times: times, Seed: seed}, began)
	m.Step(began, machine.Ticked{})
	a.Sealing, a.Expiry = true, time.Hour
	out := m.Step(began, machine.Synced{Call: 1, Answer: a})
	for range 100 {
		for _, e := range out {
			if _, ok := e.(machine.Seal); ok {
				return now.Sub(began)
			}
		}
		now, _ = m.Wake()
		out = m.Step(now, machine.Ticked{})
	}
	t.Fatalf("it never seals: %+v", a)
	return 0
}

// An index counts the dead: whoever is left seals within the published bound, and the
// lowest indexes still go one after the other.
func TestTurnsAreBounded(t *testing.T) {
	for _, replicas := range []int{0, 1, 3, 10, 100, 1000, 10000} {
		for seed := range uint64(50) {
			for index := -1; index < replicas; index += max(1, replicas/20) {
				took := turn(t, seed, index, replicas)
				if want := time.Duration(index) * 50 * time.Millisecond; index >= 0 && want < times.Beat/4 {
					if took != want {
						t.Fatalf("index %d of %d waits %v, want %v", index, replicas, took, want)
					}
				} else if most := times.Beat/2 + 100*time.Millisecond; took > most {
					t.Fatalf("index %d of %d waits %v, want %v at most", index, replicas, took, most)
				}
			}
		}
	}
}

// Of a fleet of newcomers few have gone before all have heard of the first one's roll.
func TestFewSealAtOnce(t *testing.T) {
	for _, c := range []struct{ replicas, left int }{{100, 100}, {1000, 1000}, {1000, 30}, {10000, 10000}} {
		t.Run(fmt.Sprintf("%d of %d", c.left, c.replicas), func(t *testing.T) {
			together, rounds := 0, max(1, 10000/c.left)
			for round := range rounds {
				turns := make([]time.Duration, c.left)
				for i := range turns {
					turns[i] = turn(t, uint64(round*c.left+i), -1, c.replicas)
				}
				slices.Sort(turns)
				n, _ := slices.BinarySearch(turns, turns[0]+100*time.Millisecond)
				together += n
			}
			if mean := together / rounds; mean > 30 {
				t.Errorf("%d seal within 100 ms of the first", mean)
			}
		})
	}
}

// Where there is no roll yet nobody knows how many they are, only how many joined before.
func TestFewSealTheFirstRoll(t *testing.T) {
	turns := make([]time.Duration, 1000)
	for i := range turns {
		turns[i] = waits(t, uint64(i), machine.Answer{Count: uint64(i + 1)})
	}
	slices.Sort(turns)
	if n, _ := slices.BinarySearch(turns, turns[0]+100*time.Millisecond); n > 60 {
		t.Errorf("%d seal within 100 ms of the first", n)
	}
	if one := waits(t, 1, machine.Answer{Count: 1}); one > 110*time.Millisecond {
		t.Errorf("alone it waits %v", one)
	}
}

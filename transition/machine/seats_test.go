package machine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// A troupe is a census that goes from roll to roll as peers come and go.
type troupe struct {
	machine.Census
	t       *testing.T
	session int
}

func newTroupe(t *testing.T, peers ...string) *troupe {
	tr := &troupe{t: t, Census: machine.Census{Config: partition.Config{Total: 64}, Clock: time.Hour}}
	for _, p := range peers {
		tr.join(p)
	}
	return tr
}

func (tr *troupe) join(peer string) {
	tr.session++
	tr.Sessions = append(tr.Sessions, machine.Seat{
		Session: partition.Session(fmt.Sprintf("s%03d", tr.session)), Peer: peer, Weight: 1, State: machine.Live,
	})
}

func (tr *troupe) leave(peer string) {
	tr.Sessions = slices.DeleteFunc(tr.Sessions, func(s machine.Seat) bool { return s.Peer == peer })
}

// roll seals the next roll and returns who has what, by peer.
func (tr *troupe) roll(s partition.Strategy) map[partition.ID]string {
	tr.t.Helper()
	tr.Membership++
	next, _, due := machine.NextRoll(tr.Census, s)
	if !due {
		tr.t.Fatal("no roll is due")
	}
	next.Version++
	tr.Roll = next
	owner := map[partition.ID]string{}
	for i, m := range next.Members {
		if m.Index != i || m.Down {
			tr.t.Fatalf("member %d is %+v", i, m)
		}
		for _, id := range m.Partitions {
			owner[id] = m.Peer
		}
	}
	if len(next.Members) > 0 && len(owner) != tr.Config.Total {
		tr.t.Fatalf("%d partitions have an owner", len(owner))
	}
	return owner
}

// Under Jump a peer that goes leaves its share to the living, and gets it back when its id
// comes back within the reservation; nothing else ever moves.
func TestSeatsAreKept(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		peers := []string{"a", "b", "c", "d", "e"}
		tr := newTroupe(t, peers...)
		first := tr.roll(partition.Jump{})
		away := map[string]bool{}
		before := first
		for range 20 {
			p := peers[r.IntN(len(peers))]
			switch {
			case away[p]:
				tr.join(p)
				delete(away, p)
			case len(away) < len(peers)-1:
				tr.leave(p)
				away[p] = true
			}
			tr.Clock += time.Duration(r.IntN(int(machine.Reservation) / 20))
			now := tr.roll(partition.Jump{})
			for id, was := range before {
				// From a goner to the others, or from the others to who is back.
				if now[id] != was && (was != p && now[id] != p || !away[p] && was == p) {
					t.Fatalf("seed %d: %s came or went, and %v moved from %s to %s; it is at home at %s", seed, p, id, was, now[id], first[id])
				}
				if home := first[id]; !away[home] && now[id] != home {
					t.Fatalf("seed %d: %s is there, and its %v is %s's", seed, home, id, now[id])
				}
			}
			before = now
		}
		for p := range away {
			tr.join(p)
		}
		if len(away) > 0 && !maps.Equal(tr.roll(partition.Jump{}), first) {
			t.Fatalf("seed %d: all are back, and the table is another", seed)
		}
	}
}

// A seat is kept for as long as the reservation, and then for who comes next; First goes by
// seats, so that a job goes home.
func TestReservationEnds(t *testing.T) {
	tr := newTroupe(t, "a", "b", "c")
	tr.roll(partition.First{})
	tr.leave("a")
	if owner := tr.roll(partition.First{})[0]; owner != "b" {
		t.Errorf("a is away, and %s has it", owner)
	}
	tr.join("d") // does not sit down on a's seat
	if owner := tr.roll(partition.First{})[0]; owner != "b" {
		t.Errorf("d came, and %s has it", owner)
	}
	tr.Clock += machine.Reservation - time.Second
	tr.join("a")
	if owner := tr.roll(partition.First{})[0]; owner != "a" {
		t.Errorf("a is back, and %s has it", owner)
	}
	tr.leave("a")
	tr.roll(partition.First{})
	tr.Clock += machine.Reservation
	tr.join("e")
	if owner := tr.roll(partition.First{})[0]; owner != "e" {
		t.Errorf("a's seat is free, and %s has it", owner)
	}
	tr.join("a")
	if owner := tr.roll(partition.First{})[0]; owner != "e" {
		t.Errorf("a came too late, and %s has it", owner)
	}
	if n := len(tr.Roll.Chairs); n != 5 {
		t.Errorf("%d seats: %+v", n, tr.Roll.Chairs)
	}
}

// Of two sessions of one peer id each has its own seat, and a roll of a build that knows no
// seats has them by index.
func TestSeatsOfOneID(t *testing.T) {
	tr := newTroupe(t, "a", "a", "b")
	tr.roll(partition.Jump{})
	tr.Roll.Chairs = nil
	first := tr.roll(partition.Jump{})
	seats := map[int]bool{}
	for _, c := range tr.Roll.Chairs {
		seats[c.Seat] = true
	}
	if len(seats) != 3 || !seats[2] {
		t.Errorf("the seats are %+v", tr.Roll.Chairs)
	}
	tr.Sessions = tr.Sessions[1:]
	tr.roll(partition.Jump{})
	tr.join("a")
	if !maps.Equal(tr.roll(partition.Jump{}), first) {
		t.Error("one of two came back, and the table is another")
	}
}

func TestSeatsOfTheAbsentKeepTheRestInPlace(t *testing.T) {
	for _, tags := range []partition.Tags{"", "gpu"} {
		tr := newTroupe(t, "a", "b", "c", "d")
		for i := range tr.Sessions {
			tr.Sessions[i].Tags = tags
		}
		if tags != "" {
			tr.Config.Requires = []partition.Requirement{{Last: 63, Tags: tags}}
		}
		first := tr.roll(partition.Jump{})
		tr.leave("b")
		before := tr.roll(partition.Jump{})
		for id, was := range first {
			if was != "b" && before[id] != was {
				t.Fatalf("tags %q: b went, and %v moved from %s to %s", tags, id, was, before[id])
			}
		}
		tr.Clock += 2 * machine.Reservation
		tr.roll(partition.Jump{})
		for id, owner := range tr.roll(partition.Jump{}) {
			if owner != before[id] {
				t.Fatalf("tags %q: the reservation of b ended, and %v moved from %s to %s", tags, id, before[id], owner)
			}
		}
	}
}

// A session stays on its seat, also where another of the same peer id has left one.
func TestNamesakesKeepTheirSeats(t *testing.T) {
	tr := newTroupe(t, "web", "web", "db")
	of := func() map[partition.Session][]partition.ID {
		tr.roll(partition.Jump{})
		shares := map[partition.Session][]partition.ID{}
		for _, m := range tr.Roll.Members {
			shares[m.Session] = m.Partitions
		}
		return shares
	}
	before := of()
	tr.Sessions = tr.Sessions[1:]
	after := of()
	for session, had := range before {
		for _, id := range had {
			if _, lives := after[session]; lives && !slices.Contains(after[session], id) {
				t.Errorf("%s lost %v though another left", session, id)
			}
		}
	}
}

// When a reservation is over nothing moves in a group that the goner had no part in.
func TestAFreeSeatMovesNothingOfOthers(t *testing.T) {
	tr := newTroupe(t, "a", "b", "c")
	tr.Sessions[0].Tags, tr.Sessions[2].Tags = "gpu", "gpu"
	tr.Config.Requires = []partition.Requirement{{Last: 63, Tags: "gpu"}}
	first := tr.roll(partition.Jump{})
	tr.leave("b")
	if kept := tr.roll(partition.Jump{}); !maps.Equal(kept, first) {
		t.Errorf("b went, which had nothing, and others' partitions moved: %v, then %v", first, kept)
	}
	tr.Clock += machine.Reservation
	if over := tr.roll(partition.Jump{}); !maps.Equal(over, first) {
		t.Errorf("the reservation of b, which had nothing, is over, and others' partitions moved: %v, then %v", first, over)
	}
}

// The seat that is kept for a peer id comes before one that it had long ago and anybody may take.
func TestAKeptSeatComesBeforeAFreeOne(t *testing.T) {
	tr := newTroupe(t, "a", "b")
	tr.roll(partition.Jump{})
	tr.join("a") // a crashed, and is back before its lease has run out
	tr.roll(partition.Jump{})
	tr.Sessions = tr.Sessions[1:]
	first := tr.roll(partition.Jump{})
	tr.Clock += machine.Reservation
	tr.leave("a")
	tr.roll(partition.Jump{})
	tr.join("a")
	if now := tr.roll(partition.Jump{}); !maps.Equal(now, first) {
		t.Errorf("a came back at once, and the table is another: %v, then %v", first, now)
	}
}

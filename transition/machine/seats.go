package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
)

// Reservation is how long the seat of a peer that is gone is kept for its peer id, by the
// ledger's clock and the rolls that are sealed: none is sealed because it is over. Then anybody may
// sit there; until somebody does it says by its tags in which groups (see partition.Assign) it keeps
// the others in their places.
const Reservation = 10 * time.Minute

// A Chair is a seat and whose it is: of a member of the roll, or of a peer that is gone.
// Indexes close up when somebody goes; seats do not, so that strategies which go by them
// move nothing that was not the goner's.
type Chair struct {
	Seat    int
	Session partition.Session
	Peer    string
	Tags    partition.Tags
	// Since is the ledger's clock at the roll that found it gone; 0: it is there.
	Since time.Duration
}

// free reports whether anybody may sit there at clock.
func (c Chair) free(clock time.Duration) bool { return c.Since != 0 && clock-c.Since >= Reservation }

// chairs gives every member a seat: the one it had, else the one kept for its peer id, else
// the least that is free. It sets the members' and returns all, ascending, up to the last that is not free.
func chairs(c Census, members []partition.Member) []Chair {
	had := c.Roll.Chairs
	if len(had) == 0 { // a roll of a build that knows no seats, or the first
		for _, m := range c.Roll.Members {
			had = append(had, Chair{Seat: m.Index, Session: m.Session, Peer: m.Peer, Tags: m.Tags})
		}
	}
	r := room{members: members, taken: make(map[int]bool), seated: make(map[partition.Session]bool)}
	r.stay(had)
	empty := r.comeBack(had, c.Clock)
	r.findFree(empty, c.Clock)
	all := slices.DeleteFunc(empty, func(e Chair) bool { return r.taken[e.Seat] })
	for _, m := range members {
		all = append(all, Chair{Seat: m.Seat, Session: m.Session, Peer: m.Peer, Tags: m.Tags})
	}
	slices.SortFunc(all, func(a, b Chair) int { return cmp.Compare(a.Seat, b.Seat) })
	for len(all) > 0 && all[len(all)-1].free(c.Clock) {
		all = all[:len(all)-1]
	}
	return all
}

// A room is members on their way to a seat.
type room struct {
	members []partition.Member
	taken   map[int]bool // seats
	seated  map[partition.Session]bool
}

// sit gives m that seat, if it is free and m has none.
func (r *room) sit(seat int, m *partition.Member) {
	if !r.taken[seat] && !r.seated[m.Session] {
		r.taken[seat], r.seated[m.Session], m.Seat = true, true, seat
	}
}

// stay leaves each member the seat that it had.
func (r *room) stay(had []Chair) {
	bySession := make(map[partition.Session]*partition.Member, len(r.members))
	for i := range r.members {
		bySession[r.members[i].Session] = &r.members[i]
	}
	for _, h := range had {
		if m := bySession[h.Session]; m != nil {
			r.sit(h.Seat, m)
		}
	}
}

// comeBack gives those who have no seat the one that is kept for their peer id, or else one that it
// had before and that is free, and returns the chairs of those who are gone at clock.
func (r *room) comeBack(had []Chair, clock time.Duration) (empty []Chair) {
	standing := make(map[string][]*partition.Member) // by peer id
	for i := range r.members {
		if m := &r.members[i]; m.Peer != "" && !r.seated[m.Session] {
			standing[m.Peer] = append(standing[m.Peer], m)
		}
	}
	keptFirst := func(a, b Chair) int {
		switch free := b.free(clock); {
		case a.free(clock) == free:
			return 0
		case free:
			return -1
		}
		return 1
	}
	for _, h := range slices.SortedStableFunc(slices.Values(had), keptFirst) {
		if r.taken[h.Seat] {
			continue
		}
		if namesakes := standing[h.Peer]; len(namesakes) > 0 {
			r.sit(h.Seat, namesakes[0])
			standing[h.Peer] = namesakes[1:]
			continue
		}
		if h.Since == 0 {
			h.Since = max(clock, 1)
		}
		empty = append(empty, h)
	}
	return empty
}

// findFree gives the others the least seats that nobody has and none is kept on.
func (r *room) findFree(empty []Chair, clock time.Duration) {
	keeps := make(map[int]bool, len(empty))
	for _, e := range empty {
		keeps[e.Seat] = !e.free(clock)
	}
	free := 0
	for i := range r.members {
		m := &r.members[i]
		for !r.seated[m.Session] {
			if !keeps[free] {
				r.sit(free, m)
			}
			free++
		}
	}
}

// withAbsent adds to members who is not there: those who had the seats that are empty, and nobody
// where that is not known, as after a roll of an earlier build. They are down.
func withAbsent(members []partition.Member, chairs []Chair) []partition.Member {
	all := slices.Clip(members)
	next := 0
	for _, c := range chairs {
		for ; next < c.Seat; next++ {
			all = append(all, partition.Member{Index: -1, Seat: next, Down: true})
		}
		if c.Since != 0 {
			all = append(all, partition.Member{Session: c.Session, Peer: c.Peer, Tags: c.Tags, Index: -1, Seat: c.Seat, Down: true})
		}
		next = c.Seat + 1
	}
	return all
}

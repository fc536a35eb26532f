package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
)

// Reservation is how long the seat of a peer that is gone is kept for its peer id, by the
// ledger's clock and the rolls that are sealed: none is sealed because it is over.
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

// chairs gives every member a seat: the one it had, else the one kept for its peer id, else
// the least that is free. It sets the members' and returns all, ascending.
func chairs(c Census, members []partition.Member) []Chair {
	had := c.Roll.Chairs
	if len(had) == 0 { // a roll of a build that knows no seats, or the first
		for _, m := range c.Roll.Members {
			had = append(had, Chair{Seat: m.Index, Session: m.Session, Peer: m.Peer, Tags: m.Tags})
		}
	}
	taken := make(map[int]*partition.Member)
	seated := make(map[partition.Session]bool)
	sit := func(seat int, m *partition.Member) {
		if taken[seat] == nil && !seated[m.Session] {
			taken[seat], seated[m.Session], m.Seat = m, true, seat
		}
	}
	for _, h := range had {
		if i := slices.IndexFunc(members, func(m partition.Member) bool { return m.Session == h.Session }); i >= 0 {
			sit(h.Seat, &members[i])
		}
	}
	var kept []Chair
	for _, h := range had {
		if taken[h.Seat] != nil {
			continue
		}
		i := slices.IndexFunc(members, func(m partition.Member) bool { return h.Peer != "" && m.Peer == h.Peer && !seated[m.Session] })
		switch {
		case i >= 0:
			sit(h.Seat, &members[i])
		case h.Since == 0:
			h.Since = max(c.Clock, 1)
			kept = append(kept, h)
		case c.Clock-h.Since < Reservation:
			kept = append(kept, h)
		}
	}
	free := 0
	for i := range members {
		m := &members[i]
		for !seated[m.Session] {
			if !slices.ContainsFunc(kept, func(k Chair) bool { return k.Seat == free }) {
				sit(free, m)
			}
			free++
		}
	}
	for _, m := range members {
		kept = append(kept, Chair{Seat: m.Seat, Session: m.Session, Peer: m.Peer, Tags: m.Tags})
	}
	slices.SortFunc(kept, func(a, b Chair) int { return cmp.Compare(a.Seat, b.Seat) })
	return kept
}

// withAbsent adds to members who is not there: those whose seats are kept, and nobody on
// each seat that is free below the last. They are down.
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

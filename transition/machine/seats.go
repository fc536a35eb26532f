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
	bySession := make(map[partition.Session]*partition.Member, len(members))
	for i := range members {
		bySession[members[i].Session] = &members[i]
	}
	for _, h := range had {
		if m := bySession[h.Session]; m != nil {
			sit(h.Seat, m)
		}
	}
	standing := make(map[string][]*partition.Member) // who has no seat yet, by peer id
	for i := range members {
		if m := &members[i]; m.Peer != "" && !seated[m.Session] {
			standing[m.Peer] = append(standing[m.Peer], m)
		}
	}
	var kept []Chair
	for _, h := range had {
		if taken[h.Seat] != nil {
			continue
		}
		namesakes := standing[h.Peer]
		switch {
		case len(namesakes) > 0:
			sit(h.Seat, namesakes[0])
			standing[h.Peer] = namesakes[1:]
		case h.Since == 0:
			h.Since = max(c.Clock, 1)
			kept = append(kept, h)
		case c.Clock-h.Since < Reservation:
			kept = append(kept, h)
		}
	}
	keeps := make(map[int]bool, len(kept))
	for _, k := range kept {
		keeps[k.Seat] = true
	}
	free := 0
	for i := range members {
		m := &members[i]
		for !seated[m.Session] {
			if !keeps[free] {
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

package machine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/countoff/countoff/partition"
)

// NextRoll returns the roll that should replace the one in c, ready for the
// ledger's Seal; false means that none is due. It is a pure function, and whoever
// calls it seals: nobody else computes an assignment, so that two builds with other
// strategies cannot disagree about the same roll.
//
// Sessions that are not live are left out. An index stays where it is; a peer id
// that came back under a new session takes the index of the old one, if that is
// still in the roll; holes are filled by the highest indexes, then by newcomers.
// The strategy starts from the table of the roll before, in which a partition whose
// named peer is gone counts as its holder's: a joiner that was promised partitions
// and died before it asked for them moves nothing.
//
// A member of weight 0 claims nothing: it has an index, and counts among the replicas,
// but partitions are for those who work on them. Only where nobody does they are
// shared out among the members for the index alone, as mere wishes.
//
// A partition goes to a member that has the tags it asks for. A member that is unwell, or drained,
// keeps its index and gets nothing. Where all are who are eligible for a partition, whoever
// of them has it keeps it, and otherwise it is nobody's: work that fails everywhere is not
// moved around, and the tasks of what nobody has do not use up their tries.
//
// What s gives to nobody who lives goes where [partition.Sticky] says, and fault tells what s
// did; "" is that it kept its contract.
func NextRoll(c Census, s partition.Strategy) (next Roll, fault string, due bool) {
	if c.Grace > 0 || c.Membership == c.Roll.Membership {
		return Roll{}, "", false
	}
	next, fault = roll(c, s)
	return next, fault, true
}

// Reshare returns a roll for the members of the one in c that shares out otherwise, ready for
// the ledger's Seal; false means that s would share out as it was, or that a roll is due
// anyhow. It is for strategies that look at more than the members.
func Reshare(c Census, s partition.Strategy) (next Roll, fault string, news bool) {
	if c.Grace > 0 || c.Membership != c.Roll.Membership {
		return Roll{}, "", false
	}
	next, fault = roll(c, s)
	return next, fault, !maps.Equal(tableOf(next), tableOf(c.Roll))
}

func tableOf(r Roll) partition.Table {
	table := make(partition.Table)
	for _, m := range r.Members {
		for _, id := range m.Partitions {
			table[id] = m.Session
		}
	}
	return table
}

// roll shares out by s among those who are there; fault is what s did against its contract.
func roll(c Census, s partition.Strategy) (next Roll, fault string) {
	present := living(c.Sessions)
	heir := heirs(c.Roll, present)
	members := seated(c.Roll, present, heir)
	takers, fit := takers(present)
	for i, m := range members {
		_, takes := fit[m.Session]
		members[i].Down = !takes
	}
	seats := chairs(c, members)
	w := &watched{Strategy: s}
	table := partition.Assign(w, c.Config, withAbsent(members, seats), basis(c, fit, heir))
	if len(fit) < len(takers) {
		for id, session := range basis(c, takers, heir) {
			seat, takes := takers[session] // an heir may be one that claims nothing
			if _, given := table[id]; !given && takes && seat.Tags.Has(c.Config.Asks(id)) {
				table[id] = session
			}
		}
	}

	next = Roll{Version: c.Roll.Version, Membership: c.Membership, Chairs: seats}
	place := make(map[partition.Session]int, len(members))
	for i, m := range members {
		place[m.Session] = i
		next.Members = append(next.Members, RollMember{Member: m})
	}
	for _, id := range c.Config.IDs() {
		if i, ok := place[table[id]]; ok {
			m := &next.Members[i]
			m.Partitions = append(m.Partitions, id)
		}
	}
	return next, w.fault
}

// Claimed reports whether somebody takes part who claims partitions.
func Claimed(c Census) bool { return anyTaker(c, func(Seat) bool { return true }) }

// Well reports whether somebody takes part who claims partitions, is well and is not drained.
func Well(c Census) bool { return anyTaker(c, Seat.fit) }

// Eligible reports whether somebody takes part who claims partitions and has what id asks
// for, well or not.
func Eligible(c Census, id partition.ID) bool {
	asks := c.Config.Asks(id)
	return anyTaker(c, func(s Seat) bool { return s.Tags.Has(asks) })
}

// Fit reports whether one of those who are eligible for id is well and not drained.
func Fit(c Census, id partition.ID) bool {
	asks := c.Config.Asks(id)
	return anyTaker(c, func(s Seat) bool { return s.fit() && s.Tags.Has(asks) })
}

// anyTaker reports whether one of those who take part and claim partitions is as is says.
func anyTaker(c Census, is func(Seat) bool) bool {
	for _, s := range living(c.Sessions) {
		if s.Weight > 0 && is(s) {
			return true
		}
	}
	return false
}

// fit reports whether s may take over what others have.
func (s Seat) fit() bool { return !s.Unwell && !s.Drained }

// takers returns those of present that partitions are for, and those of them that are fit.
func takers(present map[partition.Session]Seat) (all, fit map[partition.Session]Seat) {
	all, fit = make(map[partition.Session]Seat), make(map[partition.Session]Seat)
	for session, seat := range present {
		if seat.Weight > 0 {
			all[session] = seat
			if seat.fit() {
				fit[session] = seat
			}
		}
	}
	if len(all) == 0 {
		return present, present
	}
	return all, fit
}

// living returns the sessions that take part, by session. One whose lease has run
// out is dead, even if nobody has removed it yet.
func living(all []Seat) map[partition.Session]Seat {
	present := make(map[partition.Session]Seat)
	for _, s := range all {
		if s.State == Live && s.Lease >= 0 {
			present[s.Session] = s
		}
	}
	return present
}

// heirs returns, for members of the roll that are gone, the session under which
// their peer id came back.
func heirs(last Roll, present map[partition.Session]Seat) map[partition.Session]partition.Session {
	enrolled := make(map[partition.Session]bool, len(last.Members))
	for _, m := range last.Members {
		enrolled[m.Session] = true
	}
	newcomers := make(map[string][]partition.Session) // by peer id
	for _, session := range slices.Sorted(maps.Keys(present)) {
		if !enrolled[session] {
			peer := present[session].Peer
			newcomers[peer] = append(newcomers[peer], session)
		}
	}
	heir := make(map[partition.Session]partition.Session)
	for _, m := range last.Members {
		if _, ok := present[m.Session]; ok || m.Peer == "" || len(newcomers[m.Peer]) == 0 {
			continue
		}
		heir[m.Session] = newcomers[m.Peer][0]
		newcomers[m.Peer] = newcomers[m.Peer][1:]
	}
	return heir
}

// seated gives every present session an index, 0 to one less than their number.
func seated(last Roll, present map[partition.Session]Seat, heir map[partition.Session]partition.Session) []partition.Member {
	seats := make([]partition.Session, len(present)) // by index
	placed := make(map[partition.Session]bool, len(present))
	var moving []partition.Session // indexes that are too high now, ascending
	for _, m := range slices.SortedFunc(slices.Values(last.Members), byIndex) {
		session := m.Session
		if h, ok := heir[session]; ok {
			session = h
		}
		if _, ok := present[session]; !ok || placed[session] {
			continue
		}
		placed[session] = true
		if m.Index >= 0 && m.Index < len(seats) && seats[m.Index] == "" {
			seats[m.Index] = session
		} else {
			moving = append(moving, session)
		}
	}
	for _, session := range slices.Sorted(maps.Keys(present)) {
		if !placed[session] {
			moving = append(moving, session)
		}
	}
	members := make([]partition.Member, len(seats))
	for i, session := range seats {
		if session == "" {
			session, moving = moving[0], moving[1:]
		}
		seat := present[session]
		members[i] = partition.Member{Session: session, Peer: seat.Peer, Index: i, Weight: seat.Weight, Tags: seat.Tags}
	}
	return members
}

// basis is the table that the strategy starts from.
func basis(c Census, present map[partition.Session]Seat, heir map[partition.Session]partition.Session) partition.Table {
	table := tableOf(c.Roll)
	for _, g := range c.Grants {
		if _, ok := present[table[g.Grant.ID]]; ok {
			continue
		}
		if _, ok := present[g.Session]; ok {
			table[g.Grant.ID] = g.Session
		}
	}
	for id, session := range table {
		if _, ok := present[session]; ok {
			continue
		}
		if h, ok := heir[session]; ok {
			table[id] = h
		} else {
			delete(table, id)
		}
	}
	return table
}

func byIndex(a, b RollMember) int { return cmp.Compare(a.Index, b.Index) }

package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// activity is what must not change once everything has its place.
type activity struct{ rolls, serves, drains, aborts int }

func (w *World) activity() activity {
	return activity{w.stats.Rolls, w.stats.Serves, w.stats.Drains, w.stats.Aborts}
}

// look looks after calm whether everything has its place, and then whether
// anything moves.
func (w *World) look() {
	w.after(time.Second/2, event{kind: kLook})
	why := w.unsettled()
	switch {
	case w.settled == 0 && why == "":
		w.say("settled")
		w.settled, w.before = w.now, w.activity()
		w.stats.Settled = w.now - w.calmAt
	case w.settled != 0 && (why != "" || w.activity() != w.before):
		w.violate("P", "things move again: %+v, then %+v; %s", w.before, w.activity(), why)
	}
}

// unsettled says what has not its place yet.
func (w *World) unsettled() string {
	alive := w.living()
	for _, p := range w.peers {
		if p.runs() && p.stopping {
			return fmt.Sprintf("%v has not left", p)
		}
	}
	if len(alive) == 0 {
		return "" // nobody is left to whom anything could be given, or who could say who died
	}
	if w.store.known != w.store.runs {
		return "nobody has asked the store since it restarted"
	}
	for _, p := range alive {
		if p.machine.ValidUntil() <= p.clock(w.now) {
			return fmt.Sprintf("%v has no lease", p)
		}
	}
	census, err := w.store.Census(w.store.at(w.now))
	if err != nil {
		return err.Error()
	}
	if why := w.stale(alive, census); why != "" {
		return why
	}
	promised, why := w.promised(alive, census)
	if why != "" {
		return why
	}
	return w.misplaced(alive, census, promised)
}

// stale says what the store and those alive do not know of each other yet.
func (w *World) stale(alive []*peer, census machine.Census) string {
	for _, s := range census.Sessions {
		if s.State == machine.Live && bySession(alive, s.Session) == nil {
			return fmt.Sprintf("the store knows %s, which does not live", s.Session)
		}
	}
	for _, s := range census.Sessions {
		if p := bySession(alive, s.Session); p != nil && (s.Unwell || s.Weight != p.weight) {
			return fmt.Sprintf("the store has weight %d, unwell %v of %v", s.Weight, s.Unwell, p)
		}
	}
	if census.Membership != census.Roll.Membership || census.Grace > 0 {
		return "a roll is due"
	}
	for _, p := range alive {
		if w.mix.Barrier && p.view.Version != census.Roll.Version {
			return fmt.Sprintf("%v is under roll %d, the newest is %d", p, p.view.Version, census.Roll.Version)
		}
	}
	return ""
}

// promised says whose each partition is to be, by the views or by the roll, whose members
// have to be those alive.
func (w *World) promised(alive []*peer, census machine.Census) (to map[partition.ID]*peer, why string) {
	to = make(map[partition.ID]*peer)
	if w.mix.Views {
		for _, p := range alive {
			for _, id := range p.view.Wish {
				to[id] = p
			}
		}
		return to, ""
	}
	if len(census.Roll.Members) != len(alive) {
		return nil, fmt.Sprintf("the roll has %d members, %d live", len(census.Roll.Members), len(alive))
	}
	for _, m := range census.Roll.Members {
		p := bySession(alive, m.Session)
		if p == nil {
			return nil, fmt.Sprintf("the roll has %s, which does not live", m.Session)
		}
		for _, id := range m.Partitions {
			to[id] = p
		}
	}
	return to, ""
}

// misplaced says which partition is not worked on by the one that it is promised to, and by
// nobody else.
func (w *World) misplaced(alive []*peer, census machine.Census, promised map[partition.ID]*peer) string {
	for _, g := range census.Grants {
		if p := promised[g.Grant.ID]; g.Waiter != "" && (p == nil || p.session != g.Waiter) && bySession(alive, g.Waiter) != nil {
			return fmt.Sprintf("%s stands as waiting for partition %d, which is promised to %v", g.Waiter, g.Grant.ID, p)
		}
	}
	for _, id := range w.config.IDs() {
		p := promised[id]
		if p == nil && !w.mix.Views && len(takers(census, id)) == 0 {
			continue // nobody has what it asks for, or whoever has is drained
		}
		if seat, _ := seatOf(census, p); seat.Drained && len(takers(census, id)) > 0 {
			return fmt.Sprintf("partition %d is promised to %v, which is drained", id, p)
		}
		if p == nil {
			return fmt.Sprintf("partition %d is promised to nobody", id)
		}
		for _, q := range alive {
			k, works := q.works[id]
			if works != (q == p && !p.idler) || works && (!k.running || k.ending) {
				return fmt.Sprintf("partition %d is promised to %v, and %v works on it: %v", id, p, q, works)
			}
		}
	}
	return ""
}

// takers are the live sessions that id can go to.
func takers(c machine.Census, id partition.ID) (all []partition.Session) {
	claimed := machine.Claimed(c)
	for _, s := range c.Sessions {
		if s.State == machine.Live && s.Lease >= 0 && (s.Weight > 0 || !claimed) && !s.Unwell && !s.Drained && s.Tags.Has(c.Config.Asks(id)) {
			all = append(all, s.Session)
		}
	}
	return all
}

// seatOf returns the seat of p, if it has one.
func seatOf(c machine.Census, p *peer) (machine.Seat, bool) {
	i := slices.IndexFunc(c.Sessions, func(s machine.Seat) bool { return p != nil && s.Session == p.session })
	if i < 0 {
		return machine.Seat{}, false
	}
	return c.Sessions[i], true
}

// bySession returns the one of peers that has that session, or nil.
func bySession(peers []*peer, session partition.Session) *peer {
	for _, p := range peers {
		if p.session == session {
			return p
		}
	}
	return nil
}

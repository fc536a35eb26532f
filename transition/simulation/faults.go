package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

const (
	mostPeers   = 8
	longPause   = 25 * time.Second
	longCut     = 30 * time.Second
	longOutage  = 20 * time.Second
	longRestart = 2500 * time.Millisecond
	jumpsApart  = 12 * time.Second // at most one jump in a lease
)

// fault lets one fault happen and schedules the next.
func (w *World) fault() {
	if w.calm {
		return
	}
	every := w.mix.Every
	if every == 0 {
		every = 4 * time.Second
	}
	w.after(w.upTo(every), event{kind: kFault})
	m := w.mix
	faults := []struct {
		weight int
		do     func()
	}{
		{m.Joins, func() { w.joinOne(false) }},
		{m.BornDead, func() { w.joinOne(true) }},
		{m.Leaves, func() {
			w.onePeer(2, func(p *peer) {
				p.stopping = true
				w.after(0, event{kind: kStop, peer: p.place})
			})
		}},
		{m.Crashes, func() { w.onePeer(1, w.crash) }},
		{m.Pauses, func() {
			w.onePeer(1, func(p *peer) { w.pause(p, min(w.upTo(longPause), faulty-w.now)) })
		}},
		{m.Cuts, func() {
			w.onePeer(1, func(p *peer) {
				p.cutUntil = w.now + min(w.upTo(longCut), faulty-w.now)
				w.say("%v does not reach the store until %v", p, p.cutUntil)
			})
		}},
		{m.Jumps, w.jump},
		{m.Weighs, func() {
			w.onePeer(1, func(p *peer) {
				if !p.asleep { // who sleeps says nothing
					p.weight = w.between(1, 4)
					w.say("%v is to have weight %d", p, p.weight)
					w.step(p, machine.Weigh{Weight: p.weight})
				}
			})
		}},
		{m.Moods, func() {
			w.onePeer(1, func(p *peer) {
				if !p.asleep {
					w.feel(p, p.unwell)
				}
			})
		}},
		{m.Restarts, func() { w.restart("restarts", w.store.Store) }},
		{m.Setbacks, func() {
			if n := len(w.store.old); n > 0 {
				w.restart("falls back", w.store.old[w.between(0, n-1)].Clone())
			}
		}},
		{m.Forgets, func() { w.restart("forgets everything", &memledger.Store{}) }},
		{m.Disasters, func() {
			// Nobody is left who remembers a number, but the data does.
			w.restart("forgets everything", &memledger.Store{})
			for _, p := range w.peers {
				w.crash(p)
			}
			for range w.between(1, 3) {
				w.joinOne(false)
			}
		}},
		{m.Outages, func() {
			d := w.upTo(longOutage)
			w.say("nobody reaches the store for %v", d)
			w.store.outage = true
			w.after(d, event{kind: kOutageOver})
		}},
	}
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	pick := w.between(1, sum)
	for _, f := range faults {
		if pick -= f.weight; pick <= 0 {
			f.do()
			return
		}
	}
}

// joinOne starts a peer, sometimes one that was here before.
func (w *World) joinOne(bornDead bool) {
	if len(w.living()) >= mostPeers {
		return
	}
	var gone []string
	for _, p := range w.peers {
		if !p.runs() && !slices.ContainsFunc(w.living(), func(q *peer) bool { return q.name == p.name }) {
			gone = append(gone, p.name)
		}
	}
	name := ""
	if len(gone) > 0 && w.chance(0.5) {
		name = gone[w.between(0, len(gone)-1)]
	}
	w.join(name, bornDead)
}

// onePeer does something to a living peer, if there are at least so many.
func (w *World) onePeer(atLeast int, do func(*peer)) {
	if alive := w.living(); len(alive) >= atLeast {
		do(alive[w.between(0, len(alive)-1)])
	}
}

// feel lets a peer report how it is.
func (w *World) feel(p *peer, well bool) {
	p.unwell = !well
	w.say("%v is well: %v", p, well)
	w.step(p, machine.Health{Well: well})
}

func (w *World) jump() {
	if w.now < w.truth.jumped+jumpsApart && w.truth.jumped != 0 {
		return
	}
	w.truth.jumped = w.now
	d := w.upTo(2*time.Hour) - time.Hour
	w.say("the store's clock jumps by %v", d)
	w.store.jumped += d
}

// restart takes the store down for a while; it comes back as what it becomes.
func (w *World) restart(how string, as *memledger.Store) {
	if w.store.down {
		return
	}
	d := w.upTo(longRestart)
	w.say("the store %s, back in %v", how, d)
	w.store.Store, w.store.down, w.store.old = as, true, nil
	w.after(d, event{kind: kStoreUp})
}

// becalm ends the faults.
func (w *World) becalm() {
	w.say("calm")
	w.calm, w.calmAt = true, w.now
	w.store.outage = false
	if w.store.down {
		w.storeUp()
	}
	if len(w.living()) == 0 {
		w.join("", false)
	}
	for _, p := range w.living() {
		if p.unwell {
			w.feel(p, true)
		}
	}
	if w.mix.Views {
		w.giveViews()
	}
	look := time.Second / 2
	if w.mix.Disturbed > 0 || w.mix.Cuts > 0 {
		look = latest // the last late call has been carried out by then, and every peer was heard of
	}
	w.after(look, event{kind: kLook})
}

// giveViews is an indexer that says anything, until calm: then it says what makes
// sense.
func (w *World) giveViews() {
	alive := w.living()
	w.views++
	for i, p := range alive {
		v := partition.View{Version: w.views, Index: i, Replicas: len(alive)}
		for _, id := range w.config.IDs() {
			if w.calm && int(id)%len(alive) == i || !w.calm && w.chance(0.4) {
				v.Wish = append(v.Wish, id)
			}
		}
		w.after(w.upTo(100*time.Millisecond), event{kind: kView, peer: p.place, view: &v})
	}
	if !w.calm {
		w.after(w.upTo(5*time.Second), event{kind: kViews})
	}
}

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
	for _, s := range census.Sessions {
		if s.State == machine.Live && !slices.ContainsFunc(alive, func(p *peer) bool { return p.session == s.Session }) {
			return fmt.Sprintf("the store knows %s, which does not live", s.Session)
		}
	}
	for _, s := range census.Sessions {
		if i := slices.IndexFunc(alive, func(p *peer) bool { return p.session == s.Session }); i >= 0 && (s.Unwell || s.Weight != alive[i].weight) {
			return fmt.Sprintf("the store has weight %d, unwell %v of %v", s.Weight, s.Unwell, alive[i])
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
	wished := make(map[partition.ID]*peer)
	if w.mix.Views {
		for _, p := range alive {
			for _, id := range p.view.Wish {
				wished[id] = p
			}
		}
	} else {
		if len(census.Roll.Members) != len(alive) {
			return fmt.Sprintf("the roll has %d members, %d live", len(census.Roll.Members), len(alive))
		}
		for _, m := range census.Roll.Members {
			i := slices.IndexFunc(alive, func(p *peer) bool { return p.session == m.Session })
			if i < 0 {
				return fmt.Sprintf("the roll has %s, which does not live", m.Session)
			}
			for _, id := range m.Partitions {
				wished[id] = alive[i]
			}
		}
	}
	for _, g := range census.Grants {
		if p := wished[g.Grant.ID]; g.Waiter != "" && (p == nil || p.session != g.Waiter) && w.waits(g.Waiter) {
			return fmt.Sprintf("%s stands as waiting for partition %d, which is promised to %v", g.Waiter, g.Grant.ID, p)
		}
	}
	for _, id := range w.config.IDs() {
		p := wished[id]
		if p == nil {
			return fmt.Sprintf("partition %d is promised to nobody", id)
		}
		for _, q := range alive {
			k, works := q.works[id]
			if works != (q == p) || works && (!k.running || k.ending) {
				return fmt.Sprintf("partition %d is promised to %v, and %v works on it: %v", id, p, q, works)
			}
		}
	}
	return ""
}

// waits reports whether session is of somebody who could be handed a partition.
func (w *World) waits(session partition.Session) bool {
	return slices.ContainsFunc(w.living(), func(p *peer) bool { return p.session == session })
}

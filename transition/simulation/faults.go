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
				if !p.asleep && !p.idler { // who sleeps says nothing
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
		{m.Requires, w.require},
		{m.Rests, w.rest},
		{m.Drains, func() { w.onePeer(1, w.dismiss) }},
		{m.Reshares, func() { w.onePeer(1, w.reshare) }},
		{m.Renames, func() {
			w.onePeer(1, func(p *peer) {
				if !p.asleep {
					w.named++
					p.name = fmt.Sprintf("p%d", w.named)
					w.say("%v has this name from now on", p)
					w.step(p, machine.Rename{Peer: p.name})
				}
			})
		}},
		{m.Losses, func() { w.onePeer(1, w.lose) }},
		{m.Hurries, func() {
			w.onePeer(2, func(p *peer) {
				p.stopping = true
				w.after(0, event{kind: kStop, peer: p.place, ok: true})
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

// tagged are what peers have, and partitions ask for, where there are tags.
var tagged = []partition.Tags{"", "a", "b", "a b"}

// require lets some partitions ask for something else.
func (w *World) require() {
	if w.store.down {
		return
	}
	var all []partition.Requirement
	for range w.between(0, 3) {
		first := w.between(0, w.config.Total-1)
		all = append(all, partition.Requirement{
			First: partition.ID(first), Last: partition.ID(w.between(first, w.config.Total-1)), Tags: tagged[w.between(1, len(tagged)-1)],
		})
	}
	w.say("what partitions ask for: %v", all)
	w.hint(w.store.Require(all))
}

// requireAnother lets partition 0 ask for what every second peer has, or for nothing again.
func (w *World) requireAnother() {
	all := []partition.Requirement{{Tags: tagged[1]}}
	if asks, _ := w.store.ReadConfig(w.store.at(w.now)); len(asks.Requires) > 0 {
		all = nil
	}
	w.say("what partitions ask for: %v", all)
	w.hint(w.store.Require(all))
}

// rest pauses the name, or resumes it.
func (w *World) rest() {
	if w.store.down {
		return
	}
	w.checkRests()
	p := partition.Pause{Since: time.UnixMilli(1)}
	if w.paused() != 0 {
		p = partition.Pause{}
	}
	w.restAt = w.now
	w.say("the name is paused: %v", p != partition.Pause{})
	w.hint(w.store.Pause(p))
}

// dismiss drains p, or recalls it.
func (w *World) dismiss(p *peer) {
	if w.store.down {
		return
	}
	if state, _ := w.store.State(); slices.ContainsFunc(state.Config.Drained, func(d partition.Drain) bool { return d.Peer == p.name }) {
		w.say("%v is recalled", p)
		w.hint(w.store.Recall(p.name))
		return
	}
	w.say("%v is drained", p)
	hints, err := w.store.Drain(partition.Drain{Peer: p.name, Since: time.UnixMilli(1)})
	if err != nil {
		w.violate("L", "%v cannot be drained: %v", p, err)
	}
	w.hint(hints)
}

// reshare lets p seal a roll for the members of the newest.
func (w *World) reshare(p *peer) {
	if w.store.down || w.store.outage || p.asleep || w.now < p.cutUntil {
		return
	}
	census, err := w.store.Census(w.store.by(p, w.now))
	if err != nil {
		return
	}
	strategy := w.mix.strategy(&peer{place: w.between(0, 4)})
	if next, _, news := machine.Reshare(census, strategy); news {
		w.say("%v shares out anew by %s", p, strategy.Name())
		w.send(p, event{kind: kSeal, peer: p.place, roll: &next})
	}
}

// lose lets the data forget who works on something of p's, without a word of who does.
func (w *World) lose(p *peer) {
	if p.asleep {
		return
	}
	for _, id := range sortedKeys(p.works) {
		if k := p.works[id]; k.running && !k.ending {
			g := partition.Grant{ID: id, Epoch: k.epoch}
			w.say("the data of %v forgets %v", g, p)
			w.step(p, machine.Lost{Grant: g})
			return
		}
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
	if w.paused() != 0 {
		w.rest()
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

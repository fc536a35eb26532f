package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// truth is what really is, and was.
type truth struct {
	violation *Violation
	fence     map[partition.ID]partition.Token // at the data; it never forgets
	worked    map[token]bool                   // handlers ran under it
	closed    map[token]bool                   // and ended
	claimed   map[partition.ID]map[partition.Session]bool
	idle      map[partition.ID]time.Duration // nobody works on it since
	jumped    time.Duration                  // of the store's clock, the last time
	stood     time.Duration                  // nobody works on anything since; 0: somebody does
	died      time.Duration                  // the last time that somebody did
}

// token is a fence of a partition.
type token struct {
	id    partition.ID
	token partition.Token
}

func newTruth() truth {
	return truth{
		fence:   make(map[partition.ID]partition.Token),
		worked:  make(map[token]bool),
		closed:  make(map[token]bool),
		claimed: make(map[partition.ID]map[partition.Session]bool),
		idle:    make(map[partition.ID]time.Duration),
	}
}

func (t truth) clone() truth {
	t.fence = maps.Clone(t.fence)
	t.worked = maps.Clone(t.worked)
	t.closed = maps.Clone(t.closed)
	t.idle = maps.Clone(t.idle)
	claimed := make(map[partition.ID]map[partition.Session]bool, len(t.claimed))
	for id, sessions := range t.claimed {
		claimed[id] = maps.Clone(sessions)
	}
	t.claimed = claimed
	return t
}

// open installs the fence: the same token again is no news, a smaller or an equal
// epoch is refused with the one that stands.
func (t truth) open(id partition.ID, tok partition.Token) (stands partition.Epoch, ok bool) {
	stored := t.fence[id]
	if stored != tok && tok.Epoch <= stored.Epoch {
		return stored.Epoch, false
	}
	t.fence[id] = tok
	return tok.Epoch, true
}

// asked notes what a request that reached the store claims.
func (t truth) asked(r machine.Request) {
	for _, id := range r.Claim {
		if t.claimed[id] == nil {
			t.claimed[id] = make(map[partition.Session]bool)
		}
		t.claimed[id][r.Session] = true
	}
}

// checkAlone is S: of all processes that run, at most one has handlers on id.
func (w *World) checkAlone(id partition.ID) {
	var working []*peer
	for _, p := range w.peers {
		if k := p.works[id]; p.runs() && !p.asleep && k.running && !k.excused {
			working = append(working, p)
		}
	}
	if len(working) > 1 {
		w.violate("S", "handlers of %v work on partition %d at once", working, id)
	}
}

// checkTable is B: nobody works under another roll than p, which begins under this one.
// Handlers that were told to end count as long as they run.
func (w *World) checkTable(p *peer, roll uint64) {
	if !w.mix.Barrier {
		return
	}
	for _, q := range w.peers {
		if !q.runs() || q.asleep {
			continue
		}
		for _, id := range sortedKeys(q.works) {
			if k := q.works[id]; k.running && !k.excused && k.roll != roll {
				w.violate("B", "%v begins under roll %d while %v works on partition %d under %d", p, roll, q, id, k.roll)
			}
		}
	}
}

// stands notes that nobody works on anything, if so.
func (w *World) stands() {
	for _, p := range w.peers {
		for _, k := range p.works {
			if p.runs() && k.running {
				return
			}
		}
	}
	w.truth.stood = w.now
}

// worksAgain is H: what stood did not stand for too long.
func (w *World) worksAgain() {
	if since := w.truth.stood; since != 0 {
		w.truth.stood = 0
		if w.truth.died != 0 {
			since = max(since, min(w.truth.died+mourning, w.now))
		}
		w.stats.Halt = max(w.stats.Halt, w.now-since)
		if w.mix.Halt != 0 && w.now-since > w.mix.Halt {
			w.violate("H", "nobody worked on anything for %v, the bound is %v", w.now-since, w.mix.Halt)
		}
	}
}

// checkDrain is D, and U for drains: a peer that stays drains only what it should
// not have, and for somebody who asked.
func (w *World) checkDrain(p *peer, g partition.Grant) {
	if p.stopping || p.rests || w.mix.Barrier { // then everything stops for a roll
		return
	}
	w.checkPause(p, g, "drained")
	for session := range w.truth.claimed[g.ID] {
		if session != p.session {
			return
		}
	}
	w.violate("D", "%v drains %v although nobody asked for it", p, g)
}

// checkPause is U.
func (w *World) checkPause(p *peer, g partition.Grant, why string) {
	if !p.disturbed && !p.stopping && slices.Contains(p.view.Wish, g.ID) {
		w.violate("U", "%v is to work on %v, its lease stands, and it was paused: %s", p, g, why)
	}
}

// checkRest is R for what begins: the peer has asked, and was answered, since the pause.
func (w *World) checkRest(p *peer, g partition.Grant) {
	if since := w.paused(); since != 0 && w.now > since+p.timing.CallTimeout()+lateTimer {
		w.violate("R", "%v begins with %v, and the name is paused since %v", p, g, since)
	}
}

// checkRests is R for what runs, at the end of a pause: whoever works has heard nothing since, and has no
// lease any more, or its handlers take as long as they may.
func (w *World) checkRests() {
	since := w.paused()
	for _, p := range w.peers {
		takes := min(w.mix.Handler, p.timing.Drain) + 2*p.timing.CancelGrace // a drain may end in an abort
		if since == 0 || p.asleep || !p.runs() || w.now < max(since, p.resumeAt)+p.timing.Lease+takes {
			continue
		}
		for _, id := range sortedKeys(p.works) {
			w.violate("R", "%v works on %v, and the name is paused since %v", p, id, since)
		}
	}
}

// paused returns since when the store says to everybody that the name is paused; 0: it does not.
func (w *World) paused() time.Duration {
	state, known := w.store.State()
	if !known || state.Config.Paused == (partition.Pause{}) {
		return 0
	}
	return w.restAt
}

// checkDrained is O: a drained peer is given nothing that anybody else can have, and nothing that it did not have.
func (w *World) checkDrained(c machine.Census, next machine.Roll) {
	for _, m := range next.Members {
		if _, drains := c.Config.Drains(m.Peer); !drains {
			continue
		}
		for _, id := range m.Partitions {
			had := slices.ContainsFunc(c.Roll.Members, func(was machine.RollMember) bool {
				return (was.Session == m.Session || was.Peer == m.Peer) && slices.Contains(was.Partitions, id)
			}) || slices.ContainsFunc(c.Grants, func(g machine.Ownership) bool { return g.Session == m.Session && g.Grant.ID == id })
			if len(takers(c, id)) > 0 || !had {
				w.violate("O", "%s is drained, and partition %d is given to it", m.Peer, id)
			}
		}
	}
}

// checkLeast is M: as many partitions stay as can stay if all shares are even to
// one by weight. It is a matter of counting, done in another way than the strategy's:
// try every choice of who gets one more. Where nobody is well everything stays.
func (w *World) checkLeast(c machine.Census, next machine.Roll) {
	n, sum := len(next.Members), 0
	for _, m := range next.Members {
		if !m.Down {
			sum += m.Weight
		}
	}
	if n == 0 {
		return
	}
	was := stayers(c, next)
	had, stays := make([]int, n), 0
	for id, i := range was {
		had[i]++
		if slices.Contains(next.Members[i].Partitions, id) {
			stays++
		}
	}
	best := 0
	for choice := range 1 << n {
		shared, kept := 0, 0
		for i, m := range next.Members {
			if m.Down {
				if sum == 0 {
					kept += had[i]
				}
				continue
			}
			share := w.config.Total*m.Weight/sum + choice>>i&1*min(1, w.config.Total*m.Weight%sum)
			shared += share
			kept += min(had[i], share)
		}
		if shared == w.config.Total || sum == 0 {
			best = max(best, kept)
		}
	}
	if stays < best {
		w.violate("M", "%d partitions stay in the roll after %d, %d could", stays, c.Roll.Version, best)
	}
}

// stayers says with which member of next a partition could stay: the one that the
// roll names, else the one that holds it, else the one that came back under the peer
// id of the one named. Nothing stays with a member that is down, unless all are.
func stayers(c machine.Census, next machine.Roll) map[partition.ID]int {
	place := make(map[partition.Session]int)
	newcomers := make(map[string][]partition.Session) // by peer id
	all := !slices.ContainsFunc(next.Members, func(m machine.RollMember) bool { return !m.Down })
	here := make(map[partition.Session]bool)
	for i, m := range next.Members {
		here[m.Session] = true
		if all || !m.Down {
			place[m.Session] = i
		}
		if !slices.ContainsFunc(c.Roll.Members, func(old machine.RollMember) bool { return old.Session == m.Session }) {
			newcomers[m.Peer] = append(newcomers[m.Peer], m.Session)
		}
	}
	was := make(map[partition.ID]int)
	taken := make(map[partition.ID]bool) // by the roll, for one who is there
	for _, m := range c.Roll.Members {
		heir := m.Session
		if !here[heir] {
			slices.Sort(newcomers[m.Peer])
			if len(newcomers[m.Peer]) == 0 {
				continue
			}
			heir, newcomers[m.Peer] = newcomers[m.Peer][0], newcomers[m.Peer][1:]
		}
		i, ok := place[heir]
		if !ok {
			continue
		}
		for _, id := range m.Partitions {
			was[id] = i
			taken[id] = heir == m.Session
		}
	}
	for _, g := range c.Grants {
		if i, ok := place[g.Session]; ok && !taken[g.Grant.ID] {
			was[g.Grant.ID] = i
		}
	}
	return was
}

package machine

import (
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
)

// pace says when the next Sync is due.
type pace struct {
	phase     Instant // beats are whole periods from here: not all peers' at once
	beat      Instant // the next one
	soon      Instant // something wants a Sync before; 0: nothing
	notBefore Instant // after a failure
	hints     ration
	drains    ration
}

// A ration lets a few Syncs of one cause follow each other at once, and then one in each
// spacing: the cause may come in crowds, but for the first of a crowd a partition may be
// waiting. It is the generic cell rate algorithm (ITU-T I.371).
type ration struct {
	even  Instant // when the next were due if they came evenly
	wants bool    // the next Sync is one of them
}

// next returns when the next one may be sent, and notes that it is wanted.
func (r *ration) next(now Instant, spacing time.Duration) Instant {
	r.wants = true
	return max(now, r.even.Add(-(burst-1)*spacing))
}

// spend takes note of a Sync.
func (r *ration) spend(now Instant, spacing time.Duration) {
	if r.wants {
		r.wants = false
		r.even = max(r.even, now).Add(spacing)
	}
}

// nextBeat returns the first beat after now.
func (m *Machine) nextBeat() Instant {
	if m.now < m.pace.phase {
		return m.pace.phase
	}
	beat := Instant(m.cfg.Times.Beat)
	return m.pace.phase + ((m.now-m.pace.phase)/beat+1)*beat
}

func (m *Machine) soonest(at Instant) {
	if m.pace.soon == 0 || at < m.pace.soon {
		m.pace.soon = at
	}
}

func (m *Machine) nextSync() Instant {
	at := m.pace.beat
	if m.pace.soon != 0 {
		at = min(at, m.pace.soon)
	}
	return max(at, m.pace.notBefore)
}

// hinted asks soon, but not all peers at the same moment, and not for every hint.
func (m *Machine) hinted() {
	spread := min(m.cfg.Times.Beat/2, time.Duration(m.view.replicas)*hintSpread)
	m.soonest(m.pace.hints.next(m.now, hintSpacing).Add(m.random(0, spread)))
}

// syncIfDue sends a Sync. There is only ever one: what comes up meanwhile waits for
// its end, so that answers come in the order of their questions.
func (m *Machine) syncIfDue(out *[]Effect) {
	if m.sync.number != 0 || m.now < m.nextSync() {
		return
	}
	m.calls++
	m.arrive()
	m.sync = call{number: m.calls, sent: m.now, state: m.state, arrived: m.barrier.arrived, hinted: m.pace.hints.wants}
	m.pace.hints.spend(m.now, hintSpacing)
	m.pace.drains.spend(m.now, drainSpacing)
	m.pace.soon, m.pace.notBefore = 0, 0
	m.pace.beat = m.nextBeat()
	*out = append(*out, Sync{m.calls, m.request()})
}

// request says everything about this peer.
func (m *Machine) request() Request {
	r := Request{
		Session: m.cfg.Session,
		Peer:    m.cfg.Peer,
		Weight:  m.standing.said,
		Unwell:  m.standing.unwell,
		Tags:    m.cfg.Tags,
		State:   m.state,
		View:    m.view.version,
		Top:     m.top,
		Longest: m.longest,
		Claim:   m.claims(),
		Barrier: m.cfg.Barrier,
		Arrived: m.barrier.arrived,

		Strategy: m.cfg.Strategy,
	}
	for i := range m.parts {
		p := &m.parts[i]
		if p.phase == serving || p.phase == draining {
			r.Hold = append(r.Hold, p.grant())
		}
		if p.release != 0 {
			r.Release = append(r.Release, p.givenUp())
		}
	}
	return r
}

// claims returns what this peer should have and does nothing for yet. What it
// aborts it does not ask for: the handlers of the old epoch have to return first. Who
// is unwell asks for nothing, but works on what it has until somebody waits for it. With a
// barrier nobody waits for anybody, and who is unwell asks for what the roll gives it: if
// anybody is well, nothing.
func (m *Machine) claims() []partition.ID {
	if m.state != Live || m.paused || m.cfg.ClaimNothing || m.standing.unwell && !m.cfg.Barrier {
		return nil
	}
	var ids []partition.ID
	for _, id := range m.view.wish {
		if i, ok := m.find(id); !ok || m.parts[i].phase == none {
			ids = append(ids, id)
		}
	}
	return ids
}

// syncFailed forgets a call that failed or timed out; its answer, if there ever is
// one, is not the answer to an outstanding call and is dropped. Peers that a store
// failed together come back one by one.
func (m *Machine) syncFailed() {
	m.sync.number = 0
	m.pace.notBefore = m.now.Add(m.random(m.cfg.Times.Beat/8, m.cfg.Times.Beat/2))
	m.soonest(m.pace.notBefore)
}

// synced takes in an answer.
func (m *Machine) synced(ev Synced, out *[]Effect) {
	if m.sync.number == 0 || ev.Call != m.sync.number {
		return // of a call that timed out: newer ones know better
	}
	a := ev.Answer
	m.sync.number = 0
	if m.sync.state == Gone {
		for i := range m.parts { // all that it had was taken back
			m.parts[i].takenBack(out)
		}
		m.done = true
		*out = append(*out, Left{})
		return
	}
	m.validUntil = m.sync.sent.Add(m.cfg.Times.Validity)
	m.top = max(m.top, a.Count)
	m.longest = a.Longest // not the longest ever: those who kept it may be gone
	m.told(a, out)
	if a.Line != nil && a.Line.Version > m.view.version {
		m.rolled(a.Line, out)
	}
	m.pass(a, out)
	m.compareAll(a.Mine, out)
	m.review(out)
	m.askAgain(a)
	m.sealLater(a)
}

// told takes in what an answer says of the name and of this peer, and says what has changed.
func (m *Machine) told(a Answer, out *[]Effect) {
	if (a.Grace > 0) != m.inGrace {
		m.inGrace = a.Grace > 0
		if m.inGrace {
			*out = append(*out, GraceOpened{a.Grace})
		}
	}
	if a.Paused != m.paused {
		m.paused = a.Paused
		if m.paused {
			*out = append(*out, Paused{})
		} else {
			*out = append(*out, Resumed{})
			m.soonest(m.now)
		}
	}
	if a.Drained != m.dismissed { // what comes of it is for the rolls
		m.dismissed = a.Drained
		if m.dismissed {
			*out = append(*out, Dismissed{})
		} else {
			*out = append(*out, Recalled{})
		}
	}
}

// compareAll compares all parts with all that the ledger lists: what it does not
// list is lost.
func (m *Machine) compareAll(mine []Held, out *[]Effect) {
	mine = slices.Clone(mine)
	slices.SortFunc(mine, func(a, b Held) int { return int(a.Grant.ID) - int(b.Grant.ID) })
	for _, h := range mine {
		if i, ok := m.find(h.Grant.ID); !ok {
			m.parts = slices.Insert(m.parts, i, part{id: h.Grant.ID})
		}
	}
	for i := range m.parts {
		p := &m.parts[i]
		if len(mine) > 0 && mine[0].Grant.ID == p.id {
			m.compare(p, mine[0].Grant.Epoch, mine[0].Wanted, out)
			mine = mine[1:]
		} else {
			m.compare(p, 0, false, out)
		}
	}
}

// askAgain finds out when the next Sync could bring something.
func (m *Machine) askAgain(a Answer) {
	t := m.cfg.Times
	if len(m.claims()) > 0 || m.atBarrier() {
		wait := m.random(t.Beat/8, t.Beat/4)
		if a.Grace > 0 { // nothing is granted before
			wait = a.Grace + m.random(0, t.Beat/8)
		}
		m.soonest(m.sync.sent.Add(wait))
	}
	if a.Expiry > 0 {
		// A Sync right after it finds out who died. Index by index: one is enough.
		at := max(m.now.Add(a.Expiry+m.turn()), m.sync.sent.Add(hintSpacing))
		if at < m.pace.beat {
			m.soonest(at)
		}
	}
}

// rolled takes in the line of a newer roll.
func (m *Machine) rolled(l *Line, out *[]Effect) {
	m.view.version, m.view.index, m.view.replicas = l.Version, l.Index, l.Replicas
	v := partition.View{Version: l.Version, Index: l.Index, Replicas: l.Replicas, Wish: l.Partitions}
	switch {
	case m.cfg.Viewed:
	case m.cfg.Barrier:
		m.halt(v, out)
	default:
		m.wish(v, out)
	}
}

// viewed takes in what another indexer wishes. The rolls' numbers stay what they
// are: they say who seals.
func (m *Machine) viewed(v partition.View, out *[]Effect) {
	if !m.cfg.Viewed {
		return
	}
	m.wish(v, out)
	m.review(out)
}

func (m *Machine) wish(v partition.View, out *[]Effect) {
	v.Wish = slices.Compact(slices.Sorted(slices.Values(v.Wish)))
	m.view.wish = v.Wish
	*out = append(*out, Adopt{v})
	if len(m.claims()) > 0 {
		m.soonest(m.now)
	}
}

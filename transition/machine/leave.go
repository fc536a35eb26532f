package machine

import "time"

// lastWord bounds what comes after the shutdown and the cancel grace: once the time
// until what has not returned is left behind, and once more the time for a peer that
// works on nothing to say so. If it cannot, its lease runs out.
const lastWord = time.Second

// leaving is the way out of a peer that was asked to stop.
type leaving struct {
	since   Instant // 0: nobody asked
	drainAt Instant // what nobody waits for drains as well; 0: it does
	abortAt Instant // the shutdown is over; 0: everything is aborted
	quitAt  Instant // what has not returned by then is left behind
	goneAt  Instant // the last word was chosen; 0: not yet
}

// Linger is how long a leaving peer goes on with what nobody waits for yet. Of a long lease
// two beats are longer than the shutdown, at whose end handlers are cancelled: those that
// begin until then have half of it.
func (t Times) Linger() time.Duration { return min(t.Settle+2*t.Beat, t.Shutdown/2) }

// stop begins to leave, or hurries. When the shutdown is over the tenant ends the
// contexts of handlers; they have the cancel grace to return and to be settled.
func (m *Machine) stop(ev Stop) {
	t, l := m.cfg.Times, &m.leaving
	if l.since == 0 {
		m.state = Leaving
		l.since = m.now
		l.drainAt = m.now.Add(t.Linger())
		l.abortAt = m.now.Add(t.Shutdown + t.CancelGrace)
		l.quitAt = l.abortAt.Add(min(t.CancelGrace, lastWord))
		m.soonest(m.now)
	}
	if ev.Now && l.abortAt > m.now {
		l.abortAt = m.now
		l.quitAt = m.now.Add(t.CancelGrace)
	}
}

// leave goes on with leaving. Successors claim what the next roll gives them, and
// what is waited for drains as it is waited for; after a settle time and two beats
// nobody will come for the rest. Who is alone waits for nobody, nor who knows of a roll
// that has no member: all are leaving.
func (m *Machine) leave(out *[]Effect) {
	l := &m.leaving
	if l.since == 0 || m.done {
		return
	}
	alone := m.view.version > 0 && (m.view.replicas == 0 || m.view.replicas == 1 && m.view.index == 0)
	if l.drainAt != 0 && (alone || m.now >= l.drainAt) {
		l.drainAt = 0
		m.drainAll(out)
	}
	if l.abortAt != 0 && m.now >= l.abortAt {
		l.abortAt, l.drainAt = 0, 0
		m.abortAll(ShutdownOver, out)
	}
	switch {
	case m.working == 0 && l.goneAt == 0:
		m.state = Gone
		l.goneAt = m.now
		m.soonest(m.now)
		if m.calls == 0 { // nobody ever heard of this peer
			m.leftWith(out)
		}
	case m.working == 0 && m.now >= m.lastWordBy():
		m.leftWith(out)
	case m.working > 0 && m.now >= l.quitAt:
		// A release of what still runs would be a lie. The lease runs out by itself.
		m.leftWith(out)
	}
}

// lastWordBy is when a peer that works on nothing leaves without an answer.
func (m *Machine) lastWordBy() Instant {
	l := &m.leaving
	return min(l.goneAt.Add(2*m.cfg.Times.Beat), max(l.goneAt, l.quitAt).Add(lastWord))
}

func (m *Machine) leftWith(out *[]Effect) {
	m.done = true
	var left Left
	for i := range m.parts {
		switch p := &m.parts[i]; {
		case p.phase != none:
			left.Stuck = append(left.Stuck, p.grant())
		case p.release != 0:
			left.Unheard = append(left.Unheard, p.givenUp())
		}
	}
	*out = append(*out, left)
}

func (m *Machine) leavingWake() Instant {
	l := &m.leaving
	switch {
	case l.since == 0:
		return 0
	case l.goneAt != 0:
		return m.lastWordBy()
	case l.drainAt != 0:
		return min(l.drainAt, l.abortAt)
	case l.abortAt != 0:
		return l.abortAt
	}
	return l.quitAt
}

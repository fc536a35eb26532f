package machine

import "time"

// sealing says when this peer seals the next roll, if no other did before.
type sealing struct {
	at        Instant // 0: none is due
	notBefore Instant // whatever goes wrong, seals keep a distance
	call      uint64  // the outstanding one; 0: none
	sent      Instant
	jitter    time.Duration // of a peer that has no index yet
}

// elapse forgets a Seal that has not ended: it is two calls.
func (s *sealing) elapse(now Instant, t Times) {
	if s.call != 0 && now >= s.sent.Add(2*t.CallTimeout) {
		s.call = 0
	}
}

func (s *sealing) wake(t Times) Instant {
	switch {
	case s.call != 0:
		return s.sent.Add(2 * t.CallTimeout)
	case s.at != 0:
		return max(s.at, s.notBefore)
	}
	return 0
}

// turn is how long this peer lets others go first: by its index, and after all of
// them if it has none.
func (m *Machine) turn() time.Duration {
	if m.view.index >= 0 {
		return time.Duration(m.view.index) * sealStep
	}
	return time.Duration(m.view.replicas)*sealStep + m.seal.jitter
}

// sealLater notes when the roll that a says is due is this peer's to seal.
func (m *Machine) sealLater(a Answer) {
	m.seal.at = 0
	if a.Sealing && m.state != Gone {
		m.seal.at = max(m.now.Add(a.Due+m.turn()), 1)
	}
}

func (m *Machine) sealIfDue(out *[]Effect) {
	s := &m.seal
	if s.at == 0 || s.call != 0 || m.now < max(s.at, s.notBefore) {
		return
	}
	m.calls++
	s.at, s.call, s.sent = 0, m.calls, m.now
	s.notBefore = m.now.Add(m.cfg.Times.Beat / 8)
	*out = append(*out, Seal{m.calls})
}

// sealEnded asks for the roll at once. After a failure the next answer says whether
// one is still due.
func (m *Machine) sealEnded(ev SealEnded) {
	if m.seal.call == 0 || ev.Call != m.seal.call {
		return
	}
	m.seal.call = 0
	if ev.OK {
		m.soonest(m.now)
	}
}

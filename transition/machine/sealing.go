package machine

import (
	"math/bits"
	"time"
)

// sealing says when this peer seals the next roll, if no other did before.
type sealing struct {
	at        Instant // 0: none is due
	notBefore Instant // whatever goes wrong, seals keep a distance
	call      uint64  // the outstanding one; 0: none
	sent      Instant
	luck      uint64 // says how early it goes among those whose index says nothing
	asked     bool   // it has asked once more what a hint told of
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

// turn is how long this peer lets others go first: by its index if that is small, and
// after all of those if it is not, or there is none. It is half a beat and 100 ms at most,
// since it counts twice in a takeover: who has the turn finds a death, and seals after it.
// An index cannot say more. It counts the dead, and they may be all but the last.
func (m *Machine) turn() time.Duration {
	most := m.cfg.Times.Beat / 4
	if i := time.Duration(m.view.index) * sealStep; m.view.index >= 0 && i < most {
		return i
	}
	return min(time.Duration(m.view.replicas)*sealStep, most) + m.place()
}

// place is where this peer goes among those whose index does not say. Each place has half
// as many takers as the next: whoever goes first is nearly alone, be they ten or a
// thousand, and few go before they hear of its roll.
func (m *Machine) place() time.Duration {
	n := m.view.replicas
	if n == 0 {
		n = int(min(m.top, unknownCrowd)) // there is no roll yet: who joins takes a number
	}
	places := max(bits.Len(uint(n)), 1)
	room := (min(m.cfg.Times.Beat/4, time.Duration(n)*sealSpread) + 2*sealStep) / time.Duration(places)
	back := min(bits.LeadingZeros64(m.seal.luck), places-1)
	return time.Duration(places-1-back)*room + time.Duration(m.seal.luck%uint64(room))
}

// sealLater notes when the roll that a says is due is this peer's to seal.
func (m *Machine) sealLater(a Answer) {
	m.seal.at = 0
	if a.Sealing && m.state != Gone {
		m.seal.at = max(m.now.Add(a.Due+m.turn()), 1)
	} else {
		m.seal.asked = false
	}
}

func (m *Machine) sealIfDue(out *[]Effect) {
	s := &m.seal
	if s.at == 0 || s.call != 0 || m.now < max(s.at, s.notBefore) {
		return
	}
	if !s.asked && m.unheard() {
		s.at, s.asked = 0, true // the answer says whether it is still due; once, or a storm of hints keeps it from sealing
		m.soonest(m.now)
		return
	}
	m.calls++
	s.at, s.call, s.sent, s.asked = 0, m.calls, m.now, false
	s.notBefore = m.now.Add(m.cfg.Times.Beat / 8)
	*out = append(*out, Seal{m.calls})
}

// unheard reports whether a hint waits for its answer: it may tell of the roll that was due.
func (m *Machine) unheard() bool {
	return m.pace.hints.wants || m.sync.number != 0 && m.sync.hinted
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

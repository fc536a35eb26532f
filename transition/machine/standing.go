package machine

// wellAfter is for how many beats a peer that was unwell must be well before it says
// so: as long as a lease. A check that flips costs two rolls in that time at most.
const wellAfter = 5

// standing is what a peer says of itself that may change while it takes part. Each
// change of it makes a roll due and moves partitions, so that what flips is held back.
type standing struct {
	weight int // that is wished for
	said   int // that requests carry
	sayAt  Instant
	unwell bool // that requests carry
	// turnAt is when unwell turns, if no report says otherwise until then; 0: the last
	// report agrees with it.
	turnAt  Instant
	wasWell bool
}

func newStanding(cfg Config) standing {
	return standing{weight: cfg.Weight, said: cfg.Weight, unwell: cfg.Unwell, wasWell: !cfg.Unwell}
}

// weigh notes a new weight.
func (s *standing) weigh(ev Weigh) {
	if s.weight > 0 { // who claims nothing never does
		s.weight = max(ev.Weight, 1)
	}
}

// report takes in how the peer is. It becomes unwell when two reports in a row, a beat
// apart, say so, and well when all do for as long as a lease; for the first time at once.
func (s *standing) report(now Instant, t Times, well bool) {
	switch {
	case well != s.unwell:
		s.turnAt = 0
	case s.turnAt != 0: // it lasts already
	case !well:
		s.turnAt = now.Add(t.Beat + t.Beat/2)
	case s.wasWell:
		s.turnAt = now.Add(wellAfter * t.Beat)
	default:
		s.turnAt = now
	}
	s.wasWell = s.wasWell || well
}

// declare decides what is said from now on. A weight changes once in a lease at most:
// of several the last counts.
func (m *Machine) declare(out *[]Effect) {
	s := &m.standing
	changed := false
	if s.turnAt != 0 && m.now >= s.turnAt {
		s.unwell, s.turnAt, changed = !s.unwell, 0, true
	}
	if s.weight != s.said && m.now >= s.sayAt {
		s.said, s.sayAt, changed = s.weight, m.now.Add(wellAfter*m.cfg.Times.Beat), true
	}
	if changed && m.state == Live {
		*out = append(*out, Declared{Weight: s.said, Well: !s.unwell})
		m.soonest(m.now)
	}
}

func (s *standing) wake() Instant {
	at := s.turnAt
	if s.weight != s.said && (at == 0 || s.sayAt < at) {
		at = max(s.sayAt, 1)
	}
	return at
}

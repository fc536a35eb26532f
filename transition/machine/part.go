package machine

import (
	"slices"

	"github.com/countoff/countoff/partition"
)

// phase is where a partition is on this peer.
type phase uint8

const (
	none     phase = iota // nothing of it runs here
	serving               // worked on
	draining              // starts nothing new; what runs may end
	aborting              // its handlers were cancelled and have not all returned
)

// part is one partition on this peer.
type part struct {
	id    partition.ID
	phase phase
	// epoch is that of the phase; 0 in none.
	epoch partition.Epoch
	// release is an epoch given up that the ledger may still show, 0 if there is
	// none.
	release partition.Epoch
	// ended is the highest epoch that was worked or given up here. It is never
	// worked again: a release of it may be under way, or arrive late.
	ended partition.Epoch
	// wanted: by the last answer somebody live waits for it.
	wanted bool
	// overdueAt is when a drain takes too long; 0: not draining, or said already.
	overdueAt Instant
}

func (p *part) grant() partition.Grant { return partition.Grant{ID: p.id, Epoch: p.epoch} }

// find returns where id is or would be among the parts, and whether it is.
func (m *Machine) find(id partition.ID) (int, bool) {
	return slices.BinarySearchFunc(m.parts, id, func(p part, id partition.ID) int { return int(p.id) - int(id) })
}

// at returns the part of a grant that is in work, or nil.
func (m *Machine) at(g partition.Grant) *part {
	if i, ok := m.find(g.ID); ok && m.parts[i].phase != none && m.parts[i].epoch == g.Epoch {
		return &m.parts[i]
	}
	return nil
}

func (m *Machine) wished(id partition.ID) bool {
	_, ok := slices.BinarySearch(m.view.wish, id)
	return ok
}

// compare takes in what the ledger says of a partition: m's epoch of it, 0 if the
// ledger does not list it.
func (m *Machine) compare(p *part, e partition.Epoch, wanted bool, out *[]Effect) {
	p.wanted = wanted
	if p.release != e {
		p.takenBack(out)
	}
	switch p.phase {
	case none:
		switch {
		case e == 0:
		case m.state == Live && !m.paused && m.wished(p.id) && e > p.ended && !m.cfg.ClaimNothing:
			p.phase, p.epoch, p.release = serving, e, 0
			m.working++
			*out = append(*out, Serve{p.grant()})
		default:
			p.giveUp(e)
			m.soonest(m.sync.sent.Add(drainSpacing))
		}
	case serving, draining:
		if e != p.epoch {
			m.abort(p, NotMine, out)
		}
	case aborting: // its handlers have to return first, whatever the ledger says
	}
}

// giveUp asks the ledger to take e back, with every Sync until it did.
func (p *part) giveUp(e partition.Epoch) {
	p.release = e
	p.ended = max(p.ended, e)
}

// givenUp is the grant that the ledger is asked to take back. It has epoch 0 if there is none.
func (p *part) givenUp() partition.Grant { return partition.Grant{ID: p.id, Epoch: p.release} }

// takenBack says that the ledger has taken back what was given up, if anything was.
func (p *part) takenBack(out *[]Effect) {
	if p.release != 0 {
		*out = append(*out, Released{p.givenUp()})
		p.release = 0
	}
}

func (m *Machine) drain(p *part, out *[]Effect) {
	p.phase = draining
	p.overdueAt = m.now.Add(m.cfg.Times.Drain)
	*out = append(*out, Drain{p.grant()})
}

func (m *Machine) abort(p *part, cause Cause, out *[]Effect) {
	p.phase, p.overdueAt = aborting, 0
	*out = append(*out, Abort{p.grant(), cause})
}

// drainAll drains what is served.
func (m *Machine) drainAll(out *[]Effect) {
	for i := range m.parts {
		if p := &m.parts[i]; p.phase == serving {
			m.drain(p, out)
		}
	}
}

// abortAll aborts what is served or drained.
func (m *Machine) abortAll(cause Cause, out *[]Effect) {
	for i := range m.parts {
		if p := &m.parts[i]; p.phase == serving || p.phase == draining {
			m.abort(p, cause, out)
		}
	}
}

// drained: only now may the epoch be given up, and another be asked for.
func (m *Machine) drained(g partition.Grant) {
	p := m.at(g)
	if p == nil || p.phase == serving {
		return
	}
	p.giveUp(p.epoch)
	p.phase, p.epoch, p.overdueAt = none, 0, 0
	m.working--
	m.soonest(m.pace.drains.next(m.now, drainSpacing))
}

// lost: the epoch that stands at the data raises what this peer has seen, so that
// the next grant of anybody is greater.
func (m *Machine) lost(ev Lost, out *[]Effect) {
	m.top = max(m.top, uint64(ev.Stored))
	if p := m.at(ev.Grant); p != nil && p.phase != aborting {
		m.abort(p, DataLost, out)
	}
}

// lapse: the ledger may have given everything away. The number of the roll is
// forgotten too: a store that lost its memory may seal another roll under the same
// number while this peer is away, and it would not take it for news.
func (m *Machine) lapse(out *[]Effect) {
	m.validUntil = 0
	m.view.version = 0
	m.seal.at = 0
	m.astray()
	*out = append(*out, Lapsed{})
	m.abortAll(LeaseLapsed, out)
}

// review drains what this peer should not have and somebody waits for, and everything while
// the name is paused. Without a waiter it works on: a successor that died before asking stops
// nobody.
func (m *Machine) review(out *[]Effect) {
	for i := range m.parts {
		p := &m.parts[i]
		if p.phase == serving && (m.paused || p.wanted && (m.state != Live || !m.wished(p.id))) {
			m.drain(p, out)
		}
	}
}

// overdue says which drains take too long. It gives none of them up: the tenant ends the
// contexts of their handlers, and the partition is held, and its lease renewed, until they
// have returned.
func (m *Machine) overdue(out *[]Effect) {
	for i := range m.parts {
		if p := &m.parts[i]; p.overdueAt != 0 && m.now >= p.overdueAt {
			p.overdueAt = 0
			*out = append(*out, Overdue{p.grant()})
		}
	}
}

func (m *Machine) overdueWake() Instant {
	var at Instant
	for i := range m.parts {
		if t := m.parts[i].overdueAt; t != 0 && (at == 0 || t < at) {
			at = t
		}
	}
	return at
}

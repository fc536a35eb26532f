package machine

import "github.com/countoff/countoff/partition"

// barrier is the eager way from one roll to the next. A peer that learns of a newer roll
// wishes for nothing and drains all it has. When nothing runs here any more it has
// arrived: each Sync says at which roll, and gives up what was drained. It wishes for its
// line of the roll when one answer says that the roll it has arrived at is the newest and
// that nobody who ever arrived anywhere is behind.
//
// Whoever works under a roll stands in the ledger as arrived there, until it has arrived
// at a newer one or its lease is over. So nobody works under one roll while another works
// under another. Who never arrived runs nothing and is not waited for; it
// cannot begin under any roll but the newest.
//
// That is all the barrier promises. Who owns a partition is a matter of grants, as ever.
type barrier struct {
	arrived uint64 // the roll that this peer works under, or has stopped for; 0: none
	counted bool   // it has said so once: the ledger may wait for it
	waits   bool
	next    partition.View // what it waits for
}

// halt stops everything: a newer roll is known.
func (m *Machine) halt(v partition.View, out *[]Effect) {
	m.barrier.waits, m.barrier.next = true, v
	m.view.wish = nil
	*out = append(*out, Waits{v.Version})
	m.drainAll(out)
	if m.working == 0 {
		m.soonest(m.now)
	}
}

// arrive notes at which roll this peer stands, before it says so. The first is one that
// has a place for it: a newcomer that dies before is waited for by nobody.
func (m *Machine) arrive() {
	b := &m.barrier
	b.counted = b.counted || m.view.index >= 0
	if m.cfg.Barrier && b.counted && m.working == 0 {
		b.arrived = m.view.version
	}
}

// atBarrier reports whether this peer has done its part and waits for others.
func (m *Machine) atBarrier() bool {
	return m.barrier.waits && m.barrier.arrived == m.barrier.next.Version
}

// pass goes on if a, which answers what was said at the roll, says that nobody is
// behind. In a grace the ledger may not know yet who is.
func (m *Machine) pass(a Answer, out *[]Effect) {
	b := &m.barrier
	if !b.waits || m.sync.arrived != b.next.Version || a.Behind > 0 || a.Grace > 0 {
		return
	}
	b.waits = false
	m.wish(b.next, out)
}

// astray forgets which roll this peer is under: its lease lapsed, and the others may have
// gone on without it.
func (m *Machine) astray() {
	if m.cfg.Barrier {
		m.barrier.waits = false
		m.view.wish = nil
	}
}

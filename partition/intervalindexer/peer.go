package intervalindexer

// A peer is what a peer remembers from interval to interval. It is pure.
type peer struct {
	memory   bool // ask for the index of the interval before
	patience bool // adopt a count, and the loss of a place, when seen twice

	last    uint64 // the interval of the last turn; 0: there was none
	index   int    // had in it
	seen    int    // count it read, that of the interval before
	adopted int    // count that views are made of
	out     int    // closed intervals in a row that we had no place in
	missed  uint64 // intervals missed since the last turn

	told pair // what was last emitted
}

// A pair is an index and the number of replicas of one and the same interval.
type pair struct{ index, replicas int }

func newPeer(memory, patience bool) *peer {
	return &peer{memory: memory, patience: patience, index: none, told: pair{index: none}}
}

// begin returns the turn of the interval number.
func (p *peer) begin(number uint64) *turn {
	t := &turn{
		number: number,
		had:    p.indexIn(number - 1),
		prefer: p.index,
		memory: p.memory,
		seen:   none,
		index:  none,
	}
	if p.patience {
		t.bound, t.seen = p.adopted, p.seen
	}
	return t
}

// indexIn returns the index the peer had in the interval number.
func (p *peer) indexIn(number uint64) int {
	if p.last != number {
		return none
	}
	return p.index
}

// end takes in a turn that is over and returns the pair of the interval that was
// closed before it, if there is something new to tell.
func (p *peer) end(t *turn) (pair, bool) {
	closed := pair{p.indexIn(t.number - 1), t.closed}
	again := p.seen == t.closed
	p.last, p.index, p.seen, p.missed = t.number, t.index, t.closed, 0
	if t.closed != p.adopted {
		if p.patience && !again {
			return pair{}, false // the old pair stands, whole
		}
		p.adopted = t.closed
	}
	if closed.index != none && closed.index < closed.replicas {
		p.out = 0
		return p.tell(closed)
	}
	// Who has no index, or one that the count does not reach, is no member.
	p.out++
	if p.patience && p.out < 2 {
		return pair{}, false
	}
	return p.tell(pair{none, closed.replicas})
}

// miss takes in n intervals without a turn: a store that did not answer, a pause. When
// the others have adopted a count without us, we are no member.
func (p *peer) miss(n uint64) (pair, bool) {
	p.missed += n
	if p.patience && p.missed < 2 {
		return pair{}, false
	}
	return p.tell(pair{none, p.adopted})
}

// tell says a pair that differs from the last. That one is no member is said only to
// take back a membership.
func (p *peer) tell(now pair) (pair, bool) {
	if now == p.told || now.index == none && p.told.index == none {
		return pair{}, false
	}
	p.told = now
	return now, true
}

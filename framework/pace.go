package framework

import "time"

const (
	// mostAhead is how many tasks of one lane may be asked for at once. What is
	// fetched counts as started if the process dies, so it is what can be started
	// soon, not what fits. It is half the default window of most logs: with more a log is full.
	mostAhead = 1024
	// mostTogether is what all lanes of a peer may ask for, busy or not, as any may become
	// so; but each may have half of mostAhead.
	mostTogether = 128 * mostAhead
	// leastAhead keeps a lane of a peer with many busy ones from fetching one by
	// one.
	leastAhead = 4
	// mostHeld bounds the tasks a lane keeps while their keys are stuck: as many as a
	// log carries past its base.
	mostHeld = 8192
	// mostUnsettled bounds how far handlers run ahead of a source that does not
	// answer for what they did.
	mostUnsettled = 2048
	// stallAfter is how long a lane may have nothing to start, with workers idle,
	// before it looks further; it asks itself ever less often, down to once in
	// mostPatience.
	stallAfter   = 5 * time.Millisecond
	mostPatience = 200 * time.Millisecond
	// blockedAfter is how long a lane holds all that it may, and fetches nothing, until that is told: where
	// another comes for each task that ends it is full again and again, for a moment.
	blockedAfter = time.Second
	// brisk and slack are how fast a lane uses up what it fetched for the next
	// limit to be twice as large or more, or half.
	brisk = 25 * time.Millisecond
	slack = 250 * time.Millisecond
	// mostFaster is how many times as much as before a lane asks for at most.
	mostFaster = 8
)

// A pace is how far a lane fetches ahead. It starts at twice the lane's share of
// the workers and follows how fast tasks finish. The pool's lock guards it.
type pace struct {
	ahead int       // tasks that may be ready, active or waiting
	came  time.Time // the last ones
	full  bool      // as many as had been asked for
}

// arrived notes that tasks have arrived.
func (p *pace) arrived(full bool, now time.Time) { p.came, p.full = now, full }

// widen keeps the pace at twice the lane's share of the workers, or at most.
func (p *pace) widen(share, most int) {
	p.ahead = min(max(p.ahead, 2*share, leastAhead), most)
}

// used notes that what came has been used up so far that more is wanted, and
// adapts.
func (p *pace) used(share, most int, now time.Time) {
	switch took := now.Sub(p.came); {
	case p.came.IsZero():
	case p.full && took < brisk:
		p.ahead *= int(min(max(brisk/max(took, 1), 2), mostFaster)) // what would have lasted for brisk
	case took > slack:
		p.ahead /= 2
	}
	p.full = false
	p.widen(share, most)
}

// wants is how many tasks the lane would fetch now.
func (l *lane) wants() int {
	near := l.book.held - l.book.asleep
	if near > l.pace.ahead/2 || l.full() {
		return 0
	}
	return min(l.pace.ahead-near, mostHeld-l.book.held)
}

// full reports whether nothing may be fetched whatever there is to start.
func (l *lane) full() bool {
	return l.book.held >= mostHeld || l.sheet.unsettled() >= mostUnsettled
}

// room waits until tasks are wanted and returns how many; not ok means that the
// lane is to end.
//
// A lane whose tasks are slow, or all wait for a few keys, would fetch no more
// although there are workers with nothing to do and other keys behind: so while
// that is so it now and then asks for more than its pace allows.
func (l *lane) room() (limit int, ok bool) {
	p := l.pool
	patience, blocked, began := stallAfter, false, time.Now()
	defer func() {
		if blocked {
			p.observe(Unblocked{Where: l.where})
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if l.over() {
			return 0, false
		}
		l.pace.widen(p.share(), p.farthest())
		if l.wants() > 0 && !l.rides() {
			l.pace.used(p.share(), p.farthest(), time.Now())
			if n := l.wants(); n > 0 { // of a pace that may be slower now
				return n, true
			}
		}
		var told Event
		if l.book.held >= mostHeld && !blocked && time.Since(began) >= blockedAfter {
			blocked, told = true, l.blocked()
		}
		switch nudged := l.starve(told, patience); {
		case nudged, l.over():
		case p.idle > 0 && l.book.ready.n == 0 && !l.full():
			return min(l.pace.ahead, mostHeld-l.book.held), true
		default:
			patience = min(2*patience, mostPatience)
		}
	}
}

// blocked says what those wait for that l holds.
func (l *lane) blocked() Blocked {
	key, n := l.book.mostWaited()
	return Blocked{Where: l.where, Key: key, Waiting: n, Parked: len(l.book.parked), Held: l.book.held}
}

// starve tells what there is to tell, if anything, waits for a nudge, at most for patience, and
// reports whether it came. The caller holds mu, which is free meanwhile.
func (l *lane) starve(told Event, patience time.Duration) (nudged bool) {
	l.phase.hungry = true
	l.pool.mu.Unlock()
	if told != nil {
		l.pool.observe(told)
	}
	nudged = wait(l.wake, patience)
	l.pool.mu.Lock()
	l.phase.hungry = false
	return nudged
}

// over reports whether the lane is to end.
func (l *lane) over() bool { return l.phase.draining || l.phase.lost }

// rides reports whether the next fetch is to leave with a settlement that is about to:
// there is enough to start until then.
func (l *lane) rides() bool { return l.sheet.waiting && l.book.ready.n > l.pace.ahead/4 }

// nudge tells the lane that it may fetch again, and lets what is to be settled leave with
// the fetch.
func (l *lane) nudge() {
	if !l.phase.hungry || l.wants() == 0 || l.rides() {
		return
	}
	l.phase.hungry = false
	poke(l.wake)
	l.flush()
}

// wait waits for a token of c, at most for d, and reports whether it came.
func wait(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

package framework

import (
	"fmt"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

var _ transition.Idler = (*pool)(nil)

// Serve starts a lane for g. A pool that was closed starts none.
func (p *pool) Serve(g partition.Grant) {
	l := &lane{
		pool:  p,
		where: Where{Consumer: p.name, Grant: g},
		token: partition.Token{Epoch: g.Epoch, Session: p.session},
		ctxs:  newContexts(p.gate.Valid),
		wake:  make(chan struct{}, 1),
		sheet: newSheet(),
		times: times{granted: time.Now()},
	}
	l.book = newBook()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	l.pause = p.pauseOf(g.ID, l.times.granted)
	p.lanes[g.ID] = l
	if g.ID.IsUnit() {
		p.units++
	} else {
		p.valve.found(g.ID, l.times.granted)
		p.starts(1, l.times.granted)
	}
	p.lives.Add(1)
	go l.live()
}

// Drain lets the handlers of g end and settles what ended; it gives back the rest.
func (p *pool) Drain(g partition.Grant, drained func()) {
	now := time.Now()
	p.mu.Lock()
	l := p.lane(g)
	if l == nil {
		p.mu.Unlock()
		drained()
		return
	}
	l.recall()
	l.phase.drained = drained
	within := p.cfg.Timing.Drain
	if !p.stopBy.IsZero() {
		within = min(within, max(p.stopBy.Sub(now), 0))
	}
	var all []news
	if !l.over() {
		all = l.tell(all, Draining{Where: l.where, Running: l.book.active, Within: within})
		p.startsNone(l, now)
		l.phase.draining = true
		l.times.ended, l.times.drain = now, now.Add(within)
		l.end()
	}
	p.changed(l)
	p.mu.Unlock()
	p.tell(all)
}

// Abort takes g away at once.
func (p *pool) Abort(g partition.Grant, cause error, drained func()) {
	cause = lostFor(cause)
	p.mu.Lock()
	l := p.lane(g)
	if l == nil {
		p.mu.Unlock()
		drained()
		return
	}
	l.phase.drained = drained
	lost := p.lose(l, cause, nil)
	p.changed(l)
	p.mu.Unlock()
	p.tell(lost)
}

// Idle reports whether no handler runs. What a unit does is its stream's, and not seen
// here: while there is one it runs.
func (p *pool) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.runs {
		if p.runs[i].lane != nil {
			return false
		}
	}
	return p.units == 0
}

// lane returns the lane of exactly the grant g, or nil.
func (p *pool) lane(g partition.Grant) *lane {
	if l := p.lanes[g.ID]; l != nil && l.where.Grant == g {
		return l
	}
	return nil
}

// forfeit ends a lane that found out for itself that it is lost.
func (p *pool) forfeit(l *lane, cause error) {
	cause = lostFor(cause)
	p.mu.Lock()
	p.refused(l)
	lost := p.lose(l, cause, nil)
	p.changed(l)
	p.mu.Unlock()
	p.tell(lost)
}

// lostFor is the cause with which the handlers of a lane end that is lost for cause. It asks cause
// for its text, which may be code of the source's: the caller does not hold mu.
func lostFor(cause error) error { return fmt.Errorf("%w: %w", ErrLost, cause) }

// abortAll takes every lane away, without being asked: nobody else will.
func (p *pool) abortAll(cause error) {
	p.mu.Lock()
	var lost []news
	for _, l := range p.lanes {
		lost = p.lose(l, cause, lost)
		if l.phase.drained == nil {
			l.phase.drained = func() {}
		}
		p.changed(l)
	}
	p.mu.Unlock()
	p.tell(lost)
}

// lose marks l as lost, cancels its handlers and drops what it holds. It adds to all what
// there is to tell, the first time.
func (p *pool) lose(l *lane, cause error, all []news) []news {
	if l.phase.lost {
		return all
	}
	l.recall()
	now := time.Now()
	p.startsNone(l, now)
	l.phase.lost = true
	l.times.ended = now
	if l.book.active > 0 {
		l.times.stuck = now.Add(p.cfg.Timing.CancelGrace)
	}
	l.times.drain = time.Time{}
	l.ctxs.stopHandlers(cause)
	l.ctxs.stopCalls()
	l.sheet.pending = nil
	l.end()
	return l.tell(all, Lost{Where: l.where, Cause: cause, Running: l.book.active})
}

// end stops fetching and gives up what has not been started.
func (l *lane) end() {
	l.ctxs.stopFetching()
	l.book.shed()
}

// leave removes a lane that is closed, then says so. The order matters: the
// coordinator may serve the partition again as soon as it knows.
func (p *pool) leave(l *lane) {
	now := time.Now()
	p.mu.Lock()
	l.until(l.told)
	delete(p.lanes, l.where.Grant.ID)
	if l.where.Grant.ID.IsUnit() {
		p.units--
	}
	delete(p.alarm.lanes, l)
	drained, lost, open, took := l.phase.drained, l.phase.lost, l.phase.open, now.Sub(l.times.ended)
	p.mu.Unlock()
	l.ctxs.stopHandlers(ErrStopped) // frees them; nothing runs
	l.ctxs.stopCalls()
	if lost {
		p.observe(Dropped{Where: l.where, Took: took, Tasks: open})
	} else {
		p.observe(Drained{Where: l.where, Took: took, GivenBack: open})
	}
	drained()
}

// news are to be told, without the lock, before the lane is said to have ended.
type news struct {
	lane  *lane // nil: it is of no lane
	event Event
}

// tell adds to all that e is to be told of l. The caller holds mu.
func (l *lane) tell(all []news, e Event) []news {
	l.phase.telling++
	return append(all, news{l, e})
}

func (p *pool) tell(all []news) {
	for _, n := range all {
		p.observe(n.event)
		if n.lane == nil {
			continue
		}
		p.mu.Lock()
		n.lane.phase.telling--
		poke(n.lane.wake)
		p.mu.Unlock()
	}
}

// stopWithin cuts the drain times to what is left of the shutdown.
func (p *pool) stopWithin(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopBy = time.Now().Add(d)
	for _, l := range p.lanes {
		if l.phase.draining && !l.phase.lost {
			l.times.drain = earlier(l.times.drain, p.stopBy)
			p.changed(l)
		}
	}
}

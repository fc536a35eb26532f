package framework

import (
	"context"
	"time"
)

// gatedFor is how long a lane whose tasks were refused a start is left alone. The
// coordinator is about to abort it, or the lease is about to be renewed.
const gatedFor = 10 * time.Millisecond

// An alarm is what a pool has to do later: parked tasks that become due, drain
// times that are over, handlers that should have returned, lanes to ask again. One
// goroutine (watch) waits for all of it. The pool's lock guards it.
type alarm struct {
	lanes map[*lane]struct{} // those with something to do later
	gates time.Time          // ask the gated lanes again; zero: none is
	rate  time.Time          // a task may start of the consumer's rate; zero: none waits for that
	runs  time.Time          // call back the long runs; zero: none is
	scan  time.Time          // look for handlers past their timeout; zero: no timeout
	news  []news             // to tell at once, after what watch has told before: see say
	armed time.Time          // watch wakes then; zero: never
	poke  chan struct{}      // wake earlier
	end   chan struct{}
}

func newAlarm() alarm {
	return alarm{lanes: map[*lane]struct{}{}, poke: make(chan struct{}, 1), end: make(chan struct{})}
}

// wakeAt is the earliest instant at which l has something to do; zero: none.
func (l *lane) wakeAt() time.Time {
	at := l.book.due()
	if !l.phase.overdue {
		at = earlier(at, l.times.drain)
	}
	return earlier(at, l.times.stuck)
}

// setAlarm sees to it that watch looks at l in time.
func (p *pool) setAlarm(l *lane) {
	at := l.wakeAt()
	if at.Equal(l.times.alarm) {
		return
	}
	l.times.alarm = at
	if at.IsZero() {
		delete(p.alarm.lanes, l)
		return
	}
	p.alarm.lanes[l] = struct{}{}
	p.wakeBy(at)
}

func (p *pool) wakeBy(at time.Time) {
	if p.alarm.armed.IsZero() || at.Before(p.alarm.armed) {
		poke(p.alarm.poke)
	}
}

// hold leaves l alone for a moment: its tasks may not start.
func (p *pool) hold(l *lane, now time.Time) {
	if l.phase.gated {
		return
	}
	l.phase.gated = true
	p.gated = append(p.gated, l)
	if p.alarm.gates.IsZero() {
		p.alarm.gates = now.Add(gatedFor)
		p.wakeBy(p.alarm.gates)
	}
}

// say has watch tell e of l at once: the caller cannot do so itself, under the lock, nor later,
// when something that comes after it may have been told. The caller holds mu.
func (p *pool) say(l *lane, e Event, now time.Time) {
	p.alarm.news = l.tell(p.alarm.news, e)
	p.wakeBy(now)
}

// recallBy sees to it that the long runs are called back in time.
func (p *pool) recallBy(at time.Time) {
	if p.alarm.runs.IsZero() {
		p.alarm.runs = at
		p.wakeBy(at)
	}
}

// watch does what is due until the pool closes.
func (p *pool) watch() {
	defer p.workers.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		at, all := p.due(time.Now())
		p.tell(all)
		if !at.IsZero() {
			// Not more than once in a millisecond, however many tasks are parked.
			timer.Reset(max(time.Until(at), time.Millisecond))
		}
		select {
		case <-timer.C:
		case <-p.alarm.poke:
		case <-p.alarm.end:
			return
		}
	}
}

// due does what is due and returns when there is more to do, and what to tell.
func (p *pool) due(now time.Time) (at time.Time, all []news) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, p.alarm.news = p.alarm.news, nil
	if come(p.alarm.gates, now) {
		all = p.openGates(now, all)
	}
	if come(p.alarm.rate, now) {
		p.reopen()
	}
	all = p.limited(now, all)
	if come(p.alarm.runs, now) {
		p.alarm.runs = time.Time{}
		p.recallAll()
	}
	for l := range p.alarm.lanes {
		if come(l.times.alarm, now) {
			all = p.ring(l, now, all)
		}
	}
	if limit := p.cfg.HandlerTimeout; limit > 0 {
		all = p.scan(now, limit+p.cfg.Timing.CancelGrace, all)
	}
	for l := range p.alarm.lanes {
		at = earlier(at, l.times.alarm)
	}
	at = earlier(at, p.alarm.gates)
	at = earlier(at, p.alarm.rate)
	at = earlier(at, p.valve.tell())
	at = earlier(at, p.alarm.runs)
	at = earlier(at, p.alarm.scan)
	p.alarm.armed = at
	return at, all
}

// openGates lets the tasks of gated lanes ask for their start again, and tells whose source
// still does not answer.
func (p *pool) openGates(now time.Time, all []news) []news {
	p.alarm.gates = time.Time{}
	for i, l := range p.gated {
		p.gated[i] = nil
		l.phase.gated = false
		if l.unanswered(now) && !l.phase.halted {
			l.phase.halted = true
			all = l.tell(all, Halted{Where: l.where, For: l.unheard(now)})
		}
		p.changed(l)
	}
	p.gated = p.gated[:0]
	return all
}

// ring does what is due of l: parked tasks may start, a drain time is over, handlers should
// have returned.
func (p *pool) ring(l *lane, now time.Time, all []news) []news {
	l.book.unpark(now)
	if !l.phase.overdue && come(l.times.drain, now) {
		all = p.drainOver(l, now, all)
	}
	if come(l.times.stuck, now) {
		all = p.graceOver(l, now, all)
	}
	p.changed(l)
	return all
}

// drainOver ends the contexts of what still runs of l.
func (p *pool) drainOver(l *lane, now time.Time, all []news) []news {
	l.phase.overdue = true
	if l.book.active == 0 {
		return all
	}
	l.ctxs.stopHandlers(ErrDrainOver)
	l.times.stuck = now.Add(p.cfg.Timing.CancelGrace)
	return l.tell(all, DrainOverdue{Where: l.where, Running: l.book.active, After: l.times.drain.Sub(l.times.ended)})
}

// graceOver tells which handlers of l should have returned by now. While l goes on only those of
// cancelled tasks should, each a grace after its own cancellation.
func (p *pool) graceOver(l *lane, now time.Time, all []news) []news {
	l.times.stuck = time.Time{}
	for r := range l.runs {
		if r.alarmed || r.handling.Err() == nil || r.running() == nil {
			continue
		}
		if end := r.cancelled.Add(p.cfg.Timing.CancelGrace); l.ctxs.handlers.Err() == nil && end.After(now) {
			l.times.stuck = earlier(l.times.stuck, end)
			continue
		}
		all = l.tell(all, r.stuck(now, context.Cause(r.handling)))
	}
	return all
}

// scan finds handlers that run for limit or longer although their own time was
// over long before.
func (p *pool) scan(now time.Time, limit time.Duration, all []news) []news {
	if p.alarm.scan.After(now) {
		return all
	}
	if grace := p.cfg.Timing.CancelGrace; !p.alarm.scan.IsZero() && now.Sub(p.alarm.scan) > grace {
		// This process was frozen, and their time is over for them only now, too.
		p.alarm.scan = now.Add(grace)
		return all
	}
	p.alarm.scan = now.Add(limit)
	p.recallAll()
	for i := range p.runs {
		r := &p.runs[i]
		if r.alarmed || r.running() == nil {
			continue
		}
		if end := r.began.Add(limit); end.After(now) {
			p.alarm.scan = earlier(p.alarm.scan, end)
			continue
		}
		all = r.lane.tell(all, r.stuck(now, ErrTimeout))
	}
	return all
}

func (r *run) stuck(now time.Time, cause error) Event {
	r.alarmed = true
	return HandlerStuck{Where: r.lane.where, Task: r.running(), For: now.Sub(r.began), Cause: cause}
}

// come reports whether at has come; zero never does.
func come(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// earlier is the earlier of two instants of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

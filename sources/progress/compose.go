package progress

// Blocked returns the lowest open position if nothing more can be read because too
// many open positions were carried past the base already.
func (l *Log) Blocked() (pos int64, blocked bool) {
	if l.room(l.first) > 0 || len(l.lifted) < l.cfg.Lifted {
		return None, false
	}
	return l.Lowest(), true
}

// Full reports whether nothing more can be read until the oldest open task has ended, unless
// it is carried past the base.
func (l *Log) Full() bool {
	if l.room(l.first) > 0 {
		return false
	}
	i := l.first
	for i < l.end && l.at(i).state >= settled {
		i++
	}
	return l.room(i) <= 0
}

// room is how many more positions may be read if the entries before i go. What was announced
// is still to be read.
func (l *Log) room(i uint64) int {
	n := l.cfg.Window - int(l.end-i)
	if l.announced != None {
		n++
	}
	return n
}

// Compose writes the next request into r, reusing its slices. limit is how many
// tasks the caller can start soon, 0 if it waits for none; with fetch they are
// read. upto bounds the verdicts in the request (all: ^0); those that were sent
// before are always in it, so that a lost request is repeated in full.
func (l *Log) Compose(limit int, fetch bool, upto uint64, r *Request) {
	*r = Request{
		Seen: l.seen, Read: l.read, Gate: l.gate, Alone: None, Before: l.base,
		Done: r.Done[:0], Others: r.Others[:0], Lift: r.Lift[:0], Upto: l.answered,
	}
	for r.queued < len(l.queue) && (r.queued < l.sent || l.queue[r.queued].Seq <= upto) {
		v := &l.queue[r.queued]
		if v.Position == l.announced { // and what is behind it: verdicts are answered in their order
			break
		}
		if e := l.find(v.Position); e != nil && e.state == settled && v.Outcome != Retry {
			e.state = said
		}
		r.Upto = v.Seq
		r.queued++
	}
	l.sent = r.queued

	nb := l.first
	for nb < l.end && l.at(nb).state >= said {
		nb++
	}
	if limit > 0 && fetch && l.room(nb) <= 0 {
		nb = l.lift(nb, r)
	}
	r.Base = l.read
	if nb < l.end {
		r.Base = l.at(nb).pos
	}
	for _, v := range l.queue[:r.queued] {
		if v.Outcome != Done {
			r.Others = append(r.Others, v)
			continue
		}
		if e := l.find(v.Position); v.Position >= r.Base || e != nil && e.named {
			r.Done = append(r.Done, v.Position)
		}
	}
	if limit > 0 && fetch {
		r.Fetch = max(0, min(limit, l.room(nb)))
	}
	if limit > 0 {
		r.Gate = max(r.Gate, l.read+int64(r.Fetch))
	}
	if l.alone != None && !l.told && l.ended() {
		r.Alone, r.AloneTries = l.alone, int(l.find(l.alone).tries)
	}
}

// ended reports whether the end of the suspect that was handed out is said, if there is one.
func (l *Log) ended() bool {
	if l.solo == None {
		return true
	}
	e := l.find(l.solo)
	return e == nil || e.state >= said
}

// lift carries the open positions at the head past the base, so that one stuck task
// does not stop the rest.
func (l *Log) lift(nb uint64, r *Request) uint64 {
	for ; nb < l.end; nb++ {
		e := l.at(nb)
		if e.state >= said {
			continue
		}
		if len(r.Lift) == liftBatch || len(l.lifted)+len(r.Lift) >= l.cfg.Lifted {
			break
		}
		// From here on the store may have it beside the log, whatever is
		// answered: it is settled by name.
		e.named = true
		r.Lift = append(r.Lift, e.pos)
	}
	return nb
}

// Apply takes in the answer to r, and reports whether what was read beside it
// counts. It must be the answer to the request composed last.
//
// There is nothing to do for a request whose answer did not come: the next one says
// the same and more.
func (l *Log) Apply(r *Request, a Answer) (readCounts bool) {
	if a.Status != Admitted {
		return false
	}
	for _, v := range l.queue[:r.queued] {
		if e := l.find(v.Position); e != nil && e.state == said && v.Outcome != Retry {
			e.state = known
		}
		if v.Position == l.solo {
			l.solo = None
		}
	}
	l.queue = append(l.queue[:0], l.queue[r.queued:]...)
	l.sent = 0
	l.answered = max(l.answered, r.Upto)
	if r.Alone != None && r.Alone == l.alone {
		l.told = true
	}
	for l.first < l.end && l.at(l.first).pos < a.Base {
		if e := l.at(l.first); e.state != known {
			l.lifted = append(l.lifted, *e) // the base passed it: it was carried along
		}
		l.first++
	}
	l.next = max(l.next, l.first)
	l.forget()
	l.base = max(l.base, a.Base)
	l.seen = max(l.seen, a.Writes)
	l.gate = max(l.gate, a.Gate)
	return a.Before == r.Before
}

// forget drops what was lifted and is known to be finished.
func (l *Log) forget() {
	kept, ahead := l.lifted[:0], -1
	for _, e := range l.lifted {
		if e.state == known {
			continue
		}
		if e.state == buffered && ahead < 0 {
			ahead = len(kept)
		}
		kept = append(kept, e)
	}
	l.lifted = kept
	if l.ahead = ahead; ahead < 0 {
		l.ahead = len(kept)
	}
}

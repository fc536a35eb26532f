package progress

import "time"

// Hand appends to out the positions that may be started now, at most limit, and
// counts them as started. Where limit is not above 0 nothing changes.
//
// Without suspects that is whatever was read, what was lifted first. Suspects go
// first, one at a time: one of them runs when nothing else does, and nothing else
// is handed out before its end was answered, so that a crash of the peer points at
// one task. Only if the caller holds nothing at all, not even a task that waits for
// its retry and that it may start by itself, is the suspect recorded as alone: then
// a crash counts against it, and never against an innocent one.
func (l *Log) Hand(now time.Time, limit int, out []int64) []int64 {
	if limit <= 0 {
		return out
	}
	l.need, l.wanted = NeedNothing, false
	if l.solo != None {
		return out
	}
	if l.held > 0 {
		return l.handCarefully(now, limit, out)
	}
	l.need = NeedRoundTrip
	for ; l.ahead < len(l.lifted) && limit > 0; l.ahead++ {
		if e := &l.lifted[l.ahead]; e.state == buffered {
			if e.pos >= l.gate {
				return out
			}
			out = l.give(e, now, out)
			limit--
		}
	}
	for ; l.next < l.end && limit > 0; l.next++ {
		if e := l.at(l.next); e.state == buffered {
			if e.pos >= l.gate {
				return out
			}
			out = l.give(e, now, out)
			limit--
		}
	}
	l.need = NeedRead
	return out
}

// A Need is what could give Hand more.
type Need uint8

// The needs.
const (
	NeedNothing   Need = iota // a settlement, or time
	NeedRoundTrip             // the gate, or the record of what runs alone
	NeedRead                  // more of the log
)

// Need says what could give Hand more, after it gave nothing.
func (l *Log) Need() Need { return l.need }

func (l *Log) give(e *entry, now time.Time, out []int64) []int64 {
	if l.due[e.pos].After(now) {
		e.state = parked // as after a retry: the caller keeps it until then
		l.parked++
	} else {
		e.state = running
		l.running++
	}
	delete(l.due, e.pos)
	if e.suspect {
		l.held--
		l.solo = e.pos
		l.alone, l.told = None, false
	}
	return append(out, e.pos)
}

func (l *Log) handCarefully(now time.Time, limit int, out []int64) []int64 {
	e := l.suspect(now)
	l.wanted = e != nil && e.accused && l.alone == None && l.parked == 0
	if e != nil && (l.permit || !l.wanted) {
		switch {
		case e.pos >= l.gate:
			l.need = NeedRoundTrip
		case l.runs():
		case l.parked > 0 || l.alone == e.pos && l.told:
			out = l.give(e, now, out)
		default:
			l.alone = e.pos
			l.need = NeedRoundTrip
		}
		return out
	}
	l.need = NeedRead
	// No suspect can start: their keys are parked, or it waits for its permit.
	// Others go on, except those of the keys that wait here.
	l.scratch()
	for e := range l.all {
		if limit == 0 {
			break
		}
		if e.state != buffered {
			continue
		}
		// What must wait and is in hand would take the blame from the accused, which runs beside it then.
		waits := l.wanted && l.due[e.pos].After(now)
		if _, behind := l.keys[e.key]; e.suspect || behind || waits || e.pos >= l.gate {
			if e.key != 0 {
				l.keys[e.key] = struct{}{}
			}
			continue
		}
		out = l.give(e, now, out)
		limit--
	}
	return out
}

// runs reports whether anything that was handed out may run by itself now: neither a retry,
// nor what stands behind one in its key.
func (l *Log) runs() bool {
	if l.running == 0 || l.parked == 0 {
		return l.running > 0
	}
	l.scratch()
	for e := range l.all {
		if e.state == parked && e.key != 0 && !e.passed {
			l.keys[e.key] = struct{}{}
		}
		if _, behind := l.keys[e.key]; e.state == running && !behind {
			return true
		}
	}
	return false
}

// Follow chooses the suspect that runs next while the end of the one before is still to be
// said, so that one request says both; after it Hand gives the next at once. It is for who
// will ask Hand: what was chosen is blamed if the peer dies.
//
// The store must not learn of the choice before that end: what had been chosen would take
// the blame for what runs. So Compose leaves it out until it says the end, or has said it.
// What is accused of a crash waits until Hand asks for a permit.
func (l *Log) Follow(now time.Time) {
	if l.solo == None || l.alone != None || l.held == 0 || l.running > 0 || l.parked > 0 || l.permit {
		return
	}
	if e := l.suspect(now); e != nil && !e.accused && e.pos < l.gate {
		l.alone = e.pos
	}
}

// Leave says that nothing will be handed out any more: what was chosen will not run, and is
// not recorded as alone.
func (l *Log) Leave() { l.alone = None }

// suspect returns the suspect to run next, or nil if none can start: not before its
// time, and not before every earlier task of its key is final. Those that failed
// before go last, so that one bad task is not hidden behind the retries of others;
// after those that are not accused of anything.
func (l *Log) suspect(now time.Time) *entry {
	if l.alone != None {
		// The store may know it as alone already: it must be this one.
		return l.find(l.alone)
	}
	l.scratch()
	var best *entry
	for e := range l.all {
		if !e.state.open() || e.state == withheld {
			continue
		}
		_, behind := l.keys[e.key]
		if e.state == buffered && e.suspect && !behind && !l.due[e.pos].After(now) && (best == nil || e.before(best)) {
			best = e
		}
		if e.key != 0 {
			l.keys[e.key] = struct{}{}
		}
	}
	return best
}

// scratch empties keys.
func (l *Log) scratch() {
	if l.keys == nil {
		l.keys = make(map[uint64]struct{})
	}
	clear(l.keys)
}

// before reports whether a suspect is to run before another that waits as well.
func (e *entry) before(f *entry) bool {
	if e.accused != f.accused {
		return f.accused
	}
	return e.tries < f.tries
}

// all goes over all entries in the order of their positions.
func (l *Log) all(yield func(*entry) bool) {
	for i := range l.lifted {
		if !yield(&l.lifted[i]) {
			return
		}
	}
	for i := l.first; i < l.end; i++ {
		if !yield(l.at(i)) {
			return
		}
	}
}

// Due returns when Hand may have more to give because a suspect's time has come;
// zero: time changes nothing.
func (l *Log) Due(now time.Time) time.Time {
	var first time.Time
	for _, t := range l.due {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

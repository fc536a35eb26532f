package framework

import (
	"slices"
	"time"

	"github.com/countoff/countoff/sources"
)

const (
	settleBatch = 64                    // so many settlements do not wait for more, nor half of what is fetched ahead
	settleAge   = 10 * time.Millisecond // nor does one that may be so old, nor one of an idle lane
)

// A sheet is what a lane has to tell its source. The pool's lock guards it, but
// not the slices while the settler sends them.
type sheet struct {
	again    backoff // the settler's
	pending  []sources.Settlement
	spare    []sources.Settlement // the former batch's memory
	kept     int                  // so many pending ones were kept back once
	batch    uint64               // counts the pending slices
	sending  int                  // in the settler's hands
	settling bool                 // a settler exists
	waiting  bool                 // for more to settle
	flush    chan struct{}        // something the settler waits for may have changed
}

func newSheet() sheet { return sheet{flush: make(chan struct{}, 1)} }

// unsettled is how many outcomes the source has not answered for.
func (s *sheet) unsettled() int { return len(s.pending) + s.sending }

// line returns where to write down what became of e, over whatever stands there; if there
// is no place left it makes some for so many. A newer outcome of a task that was run again
// before the former was sent takes its place: in one batch a task stands once.
func (s *sheet) line(e *entry, many int) *sources.Settlement {
	if e.place > 0 && e.batch == s.batch {
		return &s.pending[e.place-1]
	}
	n := len(s.pending)
	if n == cap(s.pending) {
		s.pending = slices.Grow(s.pending, max(many, 1))
	}
	s.pending = s.pending[:n+1]
	e.batch, e.place = s.batch, int32(len(s.pending))
	return &s.pending[e.place-1]
}

// take hands out the pending settlements, but keeps back once those of tasks behind
// hole, which a worker is about to end: a log whose beginning is done forgets it, while
// each task that is done behind one that is not has to be said, and kept, by name. What
// is not done goes at once; its entry knows where it stands.
func (s *sheet) take(hole sources.Receipt) []sources.Settlement {
	batch, n := s.pending, 0
	s.pending, s.spare = s.spare[:0], nil
	for i := range batch {
		d := &batch[i]
		if i >= s.kept && d.Outcome == sources.Done && d.Task.Receipt > hole {
			s.pending = append(s.pending, *d)
			continue
		}
		if n < i {
			batch[n] = *d
		}
		n++
	}
	s.kept = len(s.pending)
	s.batch++
	s.sending = n
	return batch[:n]
}

// sent takes the batch's memory back.
func (s *sheet) sent(batch []sources.Settlement) {
	s.spare = batch[:0]
	s.sending = 0
}

// tidy lets go of the payloads of what was sent; nothing is pending. While one batch
// follows the other that is left to the next, which is written over them.
func (s *sheet) tidy() {
	for _, lines := range [][]sources.Settlement{s.pending, s.spare} {
		lines, n := lines[:cap(lines)], 0
		for n < len(lines) && lines[n].Task != nil { // what was never written stays untouched
			n++
		}
		clear(lines[:n])
	}
}

// due reports whether the settler should send now rather than wait for more.
func (l *lane) due() bool {
	return len(l.sheet.pending) >= max(settleBatch, l.pace.ahead/2) ||
		l.book.active == 0 && l.book.ready.n == 0
}

// note writes down what became of t, which has run attempt times, and sees to it that the source is told.
func (l *lane) note(t *runTask, attempt int) {
	e, v := l.book.entries.at(t.slot), &t.verdict
	s := l.sheet.line(e, l.pace.ahead)
	// The plain fields first: when garbage is collected a pointer is read before it is written, and
	// memory that was never touched costs two faults when it is read first, one when it is written.
	s.Outcome, s.Attempt, s.Waits, s.Delay = v.outcome, attempt, t.task.Waits, v.delay
	if v.waits {
		s.Waits++
	}
	s.Task = t.task
	if v.reason != s.Reason {
		s.Reason = v.reason
	}
	if !l.sheet.settling {
		l.sheet.settling = true
		l.pool.lives.Add(1)
		go l.settler(nil, nil)
	}
}

// hurry lets the settler send if it need not wait any more.
func (l *lane) hurry() {
	if l.due() {
		l.flush()
	}
}

// flush lets the settler send whatever there is.
func (l *lane) flush() {
	if l.sheet.waiting {
		l.sheet.waiting = false
		poke(l.sheet.flush)
	}
}

// settler tells the source what became of tasks, batch by batch, until there is
// nothing to tell. The pool starts one when there is, without a batch.
func (l *lane) settler(batch []sources.Settlement, failed error) {
	p := l.pool
	defer p.lives.Done()
	p.mu.Lock()
	for len(batch) > 0 || len(l.sheet.pending) > 0 {
		if len(batch) == 0 && !l.due() {
			l.sheet.waiting = true
			p.mu.Unlock()
			// All lanes look at one clock, so that what they wait for leaves together. Each
			// trip wakes the process, and a process that sleeps in between wakes for its
			// timers (the handlers') only in whole milliseconds.
			wait(l.sheet.flush, settleAge-time.Since(p.began)%settleAge)
			p.mu.Lock()
			l.sheet.waiting = false
			l.nudge()
		}
		if len(batch) == 0 {
			batch = l.sheet.take(l.hole())
			l.sheet.again = backoff{}
		}
		p.mu.Unlock()
		ended := 0
		if len(batch) > 0 {
			ended = l.settle(batch, failed)
			failed = nil
			l.heard()
		}
		p.mu.Lock()
		l.phase.open -= ended
		l.sheet.sent(batch)
		batch = nil
		l.nudge()
	}
	l.sheet.tidy()
	l.sheet.settling = false
	poke(l.wake)
	p.mu.Unlock()
}

// settle says batch until the source has answered, or the lane is lost. What was
// said before changes nothing: whatever became of a call that failed, the same is
// said again. failed is why it was not said yet, if nobody has looked at that. It returns how many
// tasks the source has answered for that are not to be tried again here.
func (l *lane) settle(batch []sources.Settlement, failed error) (over int) {
	p := l.pool
	// 0 says that it does not wait; it does since the call before, if that ended its goroutine.
	l.asked.CompareAndSwap(0, max(int64(time.Since(p.began)), 1))
	for failed == nil || l.settlesAgain(batch, failed) {
		began := time.Now()
		if failed = l.report(batch); failed != nil {
			continue
		}
		e := settled(l.where, batch, time.Since(began))
		if p.observer != nil {
			p.observer.Observe(e)
		}
		return len(batch) - e.Retried
	}
	return 0
}

// settlesAgain waits as long as it takes after batch was said and that failed with err, and reports whether it is to be
// said again.
func (l *lane) settlesAgain(batch []sources.Settlement, err error) bool {
	if l.ctxs.calls.Err() != nil {
		return false
	}
	wait := l.judge(err, &l.sheet.again)
	l.pool.observe(SettleFailed{Where: l.where, Tasks: len(batch), Err: err, Again: wait})
	return wait > 0 && sleep(l.ctxs.calls, wait)
}

// report makes the source settle. Another settler says batch again if that ends this goroutine, as ask has it.
func (l *lane) report(batch []sources.Settlement) error {
	gone := true
	defer func() {
		if gone {
			l.pool.lives.Add(1)
			go l.settler(batch, errGoexit)
		}
	}()
	err := trySettle(l.ctxs.calls, l.stream, batch)
	gone = false
	return err
}

// heard takes in that nothing is waited for any more: the source has answered, or the lane
// is lost.
//
// That starts go on is told by watch, as that they do not: told from here it could come
// first, between watch finding that there is no answer, under the lock, and telling so. For
// the same reason the question is over before the lock is taken: who finds under it that
// there is no answer has found so before.
func (l *lane) heard() {
	p := l.pool
	now := time.Now()
	took := l.unheard(now)
	l.asked.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.phase.halted && !l.phase.lost {
		p.say(l, Resumed{Where: l.where, For: took}, now)
	}
	l.phase.halted = false
}

// unheard is how long the source has not answered for what ended; 0: nothing is waited for.
func (l *lane) unheard(now time.Time) time.Duration {
	asked := l.asked.Load()
	if asked == 0 {
		return 0
	}
	return now.Sub(l.pool.began) - time.Duration(asked)
}

// unanswered reports whether the source has not answered for what ended for longer than a call
// of the ledger may take. Then nothing more is started: a store that is away would otherwise
// be found out with the end of the lease, when all that ended since its last answer is done
// once more.
func (l *lane) unanswered(now time.Time) bool {
	return l.unheard(now) > l.pool.patience
}

func settled(w Where, batch []sources.Settlement, took time.Duration) Settled {
	e := Settled{Where: w, Took: took}
	for i := range batch {
		switch batch[i].Outcome {
		case sources.Done:
			e.Done++
		case sources.Retry:
			e.Retried++
		case sources.Requeue:
			e.Requeued++
		case sources.Dead:
			e.Dead++
		}
	}
	return e
}

package framework

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/sources"
)

const (
	// mostRun is how many tasks a worker takes at once while handlers are short.
	mostRun = 16
	// runFor is how long a run goes on to its next task. After one that took longer a
	// worker takes a single task.
	runFor = 20 * time.Microsecond
	// recallAfter is how long what has ended may stay out of the books because a later
	// task of its run takes its time.
	recallAfter = 5 * time.Millisecond
)

// A run is what a worker has taken from a lane, to do one after the other. While
// handlers take microseconds it is several tasks, so that the pool's lock is taken once
// for all of them.
//
// No task waits for the handler of another: what is not started is called back by a
// worker that has nothing to do, by the end of the lane and by the alarm, and what has
// ended goes into the books at the same time. The pool's lock guards the fields, except
// that a verdict is the worker's until ended has passed it.
type run struct {
	lane    *lane     // nil: the worker has nothing
	before  *run      // of the same lane; the first has none
	after   *run      // of the same lane; the last has none
	from    time.Time // when it began
	began   time.Time // the first that is not in the books
	tasks   [mostRun]runTask
	n       int          // so many are the worker's
	next    atomic.Int32 // the first that is not started; who counts it here starts it
	ended   atomic.Int32 // those before have ended
	booked  int          // those before are in the books
	long    bool         // counted in the pool's long
	listed  bool         // in the pool's longs
	alarmed bool         // the one that runs was reported as stuck

	handling  *handling // nil: the worker has nothing
	cancelled time.Time // when the one that runs was; zero: it was not
}

type runTask struct {
	slot    slot
	task    *Task // as the handler gets it
	verdict verdict
}

// clear makes t zero, and writes no pointer that is zero anyway: while garbage is
// collected each costs more than all the rest.
func (t *runTask) clear() {
	t.slot, t.task = 0, nil
	v := &t.verdict
	v.refused, v.waits, v.outcome, v.delay, v.at = false, false, 0, 0, 0
	if v.err != nil {
		v.err, v.reason = nil, ""
	}
}

// begin makes r a run of the first n of its tasks. The caller holds mu.
func (p *pool) begin(r *run, l *lane, n int, now time.Time) {
	r.lane, r.from, r.began, r.n, r.booked, r.alarmed = l, now, now, n, 0, false
	r.handling, r.cancelled = l.handling(), time.Time{}
	if r.after = l.first; r.after != nil {
		r.after.before = r
	}
	l.first = r
	r.ended.Store(0)
	r.next.Store(0)
	if n > 1 {
		r.long = true
		p.long++
		p.recallBy(now.Add(recallAfter))
		if !r.listed {
			r.listed = true
			p.longs = append(p.longs, r)
		}
	}
}

// end puts what is left of r into the books: its worker has nothing then. The caller holds mu.
func (p *pool) end(r *run) {
	p.recall(r)
	if r.after != nil {
		r.after.before = r.before
	}
	if r.before != nil {
		r.before.after = r.after
	} else {
		r.lane.first = r.after
	}
	r.lane.leave(r.handling)
	r.lane, r.before, r.after, r.handling = nil, nil, nil, nil
}

// runs goes over those of l, in no order: what a lane asks of its runs does not get dearer
// with the workers of others.
func (l *lane) runs(yield func(*run) bool) {
	for r := l.first; r != nil && yield(r); r = r.after {
	}
}

// do runs the n tasks of r, as far as nobody calls them back, and returns when it began
// and ended. The clock is read when a handler has returned, once for its end and for the
// start of the next.
func (p *pool) do(r *run, l *lane, n int) (began, ended time.Time) {
	began = time.Now()
	ended = began
	for ended.Sub(began) < runFor {
		i := int(r.next.Add(1)) - 1
		if i >= n {
			break
		}
		t := &r.tasks[i]
		ended = p.run(r.handling, l, t.task, ended, &t.verdict)
		t.verdict.at = ended.Sub(r.from)
		refused := t.verdict.refused
		r.ended.Store(int32(i + 1)) // from here on it is no longer ours
		if refused {
			break
		}
	}
	return began, ended
}

// recall makes ready again what of r is not started, and puts into the books what has
// ended: nothing is left of it but the task that runs, if one does. The caller holds mu.
func (p *pool) recall(r *run) {
	l := r.lane
	if l == nil {
		return
	}
	next := min(int(r.next.Swap(mostRun)), r.n)
	for r.n > next {
		r.n--
		l.book.back(r.tasks[r.n].slot)
		p.unstarted()
		r.tasks[r.n].clear()
	}
	ended := r.began
	for n := int(r.ended.Load()); r.booked < n; r.booked++ {
		t := &r.tasks[r.booked]
		ended = r.from.Add(t.verdict.at)
		p.finish(l, t, ended)
		t.clear()
		r.alarmed = false
	}
	r.began = ended
	if r.long {
		r.long = false
		p.long--
	}
	p.changed(l)
}

// recallAll calls back the long runs. The caller holds mu.
func (p *pool) recallAll() {
	for _, r := range p.longs {
		r.listed = false
		if r.long {
			p.recall(r)
		}
	}
	p.longs = p.longs[:0]
}

// recall calls back the long runs of l. The caller holds mu.
func (l *lane) recall() {
	for r := range l.runs {
		if r.long {
			l.pool.recall(r)
		}
	}
}

// hole returns the first of the tasks of l that a worker has, or the last receipt there
// is if none has one or l is to end. The caller holds mu.
func (l *lane) hole() sources.Receipt {
	first := sources.Receipt(math.MaxInt64)
	if l.over() {
		return first
	}
	for r := range l.runs {
		for k := r.booked; k < r.n; k++ { // not the verdicts, which are the worker's
			first = min(first, r.tasks[k].task.Receipt)
		}
	}
	return first
}

// running returns the task that r runs, or nil. The caller holds mu.
func (r *run) running() *Task {
	if r.lane == nil || r.booked >= min(int(r.next.Load()), r.n) || int(r.ended.Load()) > r.booked {
		return nil
	}
	return r.tasks[r.booked].task
}

package framework

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countoff/countoff/sources"
)

// A verdict is what a run came to.
type verdict struct {
	refused bool            // not started: the lease or the partition does not stand
	outcome sources.Outcome // 0: the run was for nothing, the next owner repeats it
	delay   time.Duration   // of Retry and Requeue
	waits   bool            // it is to run again, and nothing failed
	err     error
	reason  string        // what err says, as it is stored
	at      time.Duration // when it ended, since its run began
}

// worker runs handlers until the pool closes. A handler, or an observer of what it did, that
// ends its goroutine (runtime.Goexit, as testing's FailNow does) takes the worker with it:
// another takes its place. A panic that is not the handler's ends the process.
func (p *pool) worker(i int) {
	r := &p.runs[i]
	over := false
	defer func() {
		if v := recover(); v != nil {
			panic(v) // and waits for no lock, which this worker may hold
		}
		if over {
			p.workers.Done()
			return
		}
		defer func() { go p.worker(i) }() // also if an observer ends the goroutine once more
		p.abandoned(r)
	}()
	most := 1
	ended := time.Now()
	p.mu.Lock()
	for {
		l, n := p.next(r, most, ended)
		p.mu.Unlock()
		if n == 0 {
			over = true
			return
		}
		p.gate.Attend()
		var began time.Time
		began, ended = p.do(r, l, n)
		if most = min(2*most, mostRun); ended.Sub(began) >= runFor {
			most = 1
		}
		p.mu.Lock()
		p.end(r)
	}
}

// abandoned ends the run whose worker went away in the middle of a task: in its handler, or when
// that had returned, in an observer. Then its verdict stands.
func (p *pool) abandoned(r *run) {
	p.mu.Lock()
	p.recall(r)
	t := &r.tasks[r.booked] // the one that is left
	l, began := r.lane, r.began
	p.mu.Unlock()
	v := &t.verdict
	v.at = time.Since(r.from)
	defer func() { // an observer that is told of it may end the goroutine, too
		r.ended.Add(1)
		p.mu.Lock()
		p.end(r)
		p.mu.Unlock()
	}()
	if v.outcome == 0 && v.err == nil {
		p.judge(r.handling, l, t.task, errGoexit, began, v)
	}
}

// run runs the handler, if it may still start, and returns when it ended. now was read
// just before; v is zero.
//
// The question comes last before the start, and the answer counts suspend: a
// process that was stopped past its lease and goes on finds here that nothing may
// start, before anybody has told it so.
func (p *pool) run(ctx context.Context, l *lane, t *Task, now time.Time, v *verdict) time.Time {
	if !p.gate.Valid(now) || !p.gate.Has(l.where.Grant.ID) || l.ctxs.handlers.Err() != nil || l.unanswered(now) {
		v.refused = true
		return time.Now()
	}
	err := p.call(ctx, t, v)
	return p.judge(ctx, l, t, err, now, v)
}

// call calls the handler with its context. A panic is an error.
//
// The error's own methods are code of the application, too, and panic if there is a nil pointer
// in it. So they are called once here, where a panic is caught, and the text is kept in v.
func (p *pool) call(ctx context.Context, t *Task, v *verdict) (err error) {
	defer catch("the handler", &err)
	if d := p.cfg.HandlerTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, ErrTimeout)
		defer cancel()
	}
	if err = p.handler.Handle(ctx, t); err != nil {
		_, _ = sources.Asked(err)
		_ = cancelled(err)
		v.reason = reason(err)
	}
	return err
}

// judge decides what becomes of a task whose run has just ended with err, and returns
// the time.
//
// A run that was ended from outside is no failure of the task: no outcome is set, and the next
// owner runs the task again without the loss of a try.
func (p *pool) judge(ctx context.Context, l *lane, t *Task, err error, began time.Time, v *verdict) (ended time.Time) {
	ended = time.Now()
	if err != nil {
		v.err = err
	}
	asked, after := sources.Asked(err)
	cut := causeOf(l.ctxs.handlers)
	drainOver := errors.Is(cut, ErrDrainOver)
	unwanted := causeOf(ctx)
	switch { // the order matters
	case cut != nil && !drainOver: // nothing counts, not even that the task is done
	case asked == sources.Done: // a cancel comes too late
		v.outcome = sources.Done
	case errors.Is(unwanted, ErrCancelled): // before a hand-over, or the next owner would run it again
		v.outcome, v.reason = sources.Dead, ""
		v.err = cancelledWith(unwanted, err)
	case errors.Is(err, ErrHandedOver) && l.ctxs.fetching.Err() != nil:
	case drainOver && (asked != sources.Dead || cancelled(err)): // its error is likely to be that of its context
	case asked == sources.Dead:
		v.outcome = sources.Dead
	case t.Attempt >= p.cfg.Retry.Tries && !counted(err) && !sources.Waits(err):
		v.outcome = sources.Dead
		v.err, v.reason = fmt.Errorf("gave up after %d tries: %w", t.Attempt, err), ""
	default:
		v.outcome, v.delay, v.waits = sources.Retry, after, sources.Waits(err)
		if asked == 0 {
			v.delay = p.cfg.Retry.Delay(t.Attempt, p.random())
		}
		if t.Key == "" || p.cfg.Pass {
			v.outcome = sources.Requeue
		}
	}
	if v.waits {
		v.reason = "" // it is nobody's first error
	} else if v.err != nil && v.reason == "" {
		v.reason = reason(v.err) // not where it is stored, under the pool's lock
	}
	if p.observer != nil {
		observeHandled(p.observer, Handled{Where: l.where, Task: t, Outcome: v.outcome, Delay: v.delay, Took: ended.Sub(began), Err: v.err})
	}
	return ended
}

// causeOf is context.Cause, without its lock as long as ctx has not ended.
func causeOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// counted reports whether somebody else counts the tries.
func counted(err error) bool {
	r, ok := errors.AsType[*sources.RetryError](err)
	return ok && r.Counted
}

// cancelled reports whether err is what somebody returned because the context had ended, or was
// soon to end: its error, or the cause of it, as net/http does. ErrHandedOver comes first, as it is
// also asked for alone: an error whose methods panic does so here.
func cancelled(err error) bool {
	return errors.Is(err, ErrHandedOver) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrDrainOver)
}

// finish puts what the run of t, which ended at now, came to into the lane's books. The
// caller holds mu and calls changed.
func (p *pool) finish(l *lane, t *runTask, now time.Time) {
	v := &t.verdict
	switch {
	case v.refused:
		if !l.over() {
			p.hold(l, now)
		}
		l.book.back(t.slot)
		p.unstarted()
		if l.unwantedOf(t.task) {
			p.bury(l, now)
		}
	case l.phase.lost || v.outcome == 0:
		// The lane takes nothing more: nothing of the key starts here.
		l.book.finish(t.slot, now)
	default:
		l.note(t, t.task.Run())
		if v.outcome == sources.Retry {
			l.book.park(t.slot, v.again(t.task), now, now.Add(v.delay))
			if l.unwantedOf(t.task) {
				p.bury(l, now)
			}
		} else {
			l.book.finish(t.slot, now)
		}
	}
}

// again is the task as the handler gets it the next time. Others may have its Delivery,
// so it gets one of its own.
func (v *verdict) again(t *Task) *Task {
	if v.waits {
		next := t.Copy()
		next.Waits++
		return next
	}
	return again(t, v.reason)
}

// again is the task after a run that failed for reason.
func again(t *Task, reason string) *Task {
	next := t.Copy()
	next.Attempt++
	if next.FirstError == "" {
		next.FirstError = reason
	}
	return next
}

// mostReason bounds what of an error is stored with a task, in bytes.
const mostReason = 2000

func reason(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	if len(s) > mostReason {
		s = strings.ToValidUTF8(s[:mostReason], "") + "…"
	}
	return s
}

package framework

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countoff/countoff/sources"
)

// A handling is the context of the runs of a lane that one worker does at a time: it can be ended
// for one of them. A lane has as many as it ever had runs at once, and uses them again, so that a
// run costs none.
type handling struct {
	context.Context
	end context.CancelCauseFunc
}

// handling returns one that nobody has. The caller holds mu.
func (l *lane) handling() *handling {
	if last := len(l.handlings) - 1; last >= 0 {
		h := l.handlings[last]
		l.handlings[last] = nil
		l.handlings = l.handlings[:last]
		return h
	}
	h := new(handling)
	h.Context, h.end = context.WithCancelCause(l.ctxs.given)
	return h
}

// leave gives h back, unless it has ended. The caller holds mu.
func (l *lane) leave(h *handling) {
	if h.Err() == nil {
		l.handlings = append(l.handlings, h)
	}
}

// cancelledFor is the cause with which the context of a task ends that is cancelled.
func cancelledFor(why string) error {
	if why == "" {
		return ErrCancelled
	}
	return fmt.Errorf("%w: %s", ErrCancelled, why)
}

// cancelledWith is what is said of a run that was cancelled for cause and has returned err.
func cancelledWith(cause, err error) error {
	if cancelled(err) || errors.Is(err, ErrCancelled) {
		return cause
	}
	return fmt.Errorf("%w (the handler returned: %w)", cause, err)
}

// cancel takes in which tasks of l are to be cancelled, and why: what runs is told, what waits becomes a
// dead letter. It returns the IDs of those that run.
func (p *pool) cancel(l *lane, why map[string]string) (running []string) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	l.unwanted = why
	if len(why) == 0 || l.phase.lost {
		return nil
	}
	for r := range l.runs {
		p.recall(r) // then it starts nothing more
		t := r.running()
		if t == nil {
			continue
		}
		text, is := why[t.ID]
		if !is {
			continue
		}
		running = append(running, t.ID)
		if r.handling.Err() == nil {
			r.handling.end(cancelledFor(text))
			r.cancelled = now
			l.times.stuck = earlier(l.times.stuck, now.Add(p.cfg.Timing.CancelGrace))
			p.say(l, Cancelled{Where: l.where, Task: t, Why: text, Runs: true}, now)
		}
	}
	p.bury(l, now)
	p.changed(l)
	return running
}

// unwantedOf reports whether t is to be cancelled.
func (l *lane) unwantedOf(t *Task) bool {
	_, is := l.unwanted[t.ID]
	return is
}

// bury makes dead letters of what is to be cancelled and waits, for a worker, for a task before it or for its
// next try. The caller holds mu and calls changed.
func (p *pool) bury(l *lane, now time.Time) {
	if l.book.over {
		return
	}
	for i := range l.book.waiting {
		t := runTask{slot: i, task: l.book.entries.at(i).run()}
		text, is := l.unwanted[t.task.ID]
		if !is {
			continue
		}
		t.verdict.outcome, t.verdict.reason = sources.Dead, reason(cancelledFor(text))
		l.note(&t, t.task.Run()-1)
		l.book.withdraw(i, now)
		p.say(l, Cancelled{Where: l.where, Task: t.task, Why: text}, now)
	}
}

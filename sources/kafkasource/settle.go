package kafkasource

import (
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// Record takes in one settlement and returns the verdict that must be answered. The
// caller holds the lock.
func (s *stream) Record(d *sources.Settlement, now time.Time) (uint64, error) {
	pos, ok := s.passed.position(d.Task.Receipt)
	if !ok {
		return s.Log.Seq(), nil // of a delivery that was settled
	}
	switch d.Outcome {
	case sources.Done:
		return s.settle(pos, progress.Done, d.Attempt, progress.Content{}), nil
	case sources.Dead:
		return s.die(pos, d), nil
	case sources.Retry:
		if d.Attempt < 1 {
			return 0, errors.New("a retry that does not say how often it has run")
		}
		return s.settle(pos, progress.Retry, d.Attempt, progress.Content{Delay: d.Delay, Waits: d.Waits, Error: logstream.Short(logstream.FirstError(d.Task, d.Reason))}), nil
	case sources.Requeue:
		return s.requeue(pos, d, now), nil
	}
	return 0, errors.New("a settlement without an outcome")
}

// settle records a verdict. The caller holds the lock.
func (s *stream) settle(pos int64, o progress.Outcome, attempt int, c progress.Content) uint64 {
	before := s.Log.Seq()
	seq := s.Log.Settle(pos, o, attempt)
	if s.Log.Seq() != before && o == progress.Retry {
		s.content[seq] = c
	}
	if o != progress.Retry {
		s.records.remove(pos)
		s.passed.forget(pos)
	} else if c.Delay >= longWait {
		s.records.keep(pos)
	}
	return seq
}

// die records that a task is dead. Its letter is on the dead topic before the store
// hears of it. The caller holds the lock.
func (s *stream) die(pos int64, d *sources.Settlement) uint64 {
	r := s.records.at(pos)
	seq := s.settle(pos, progress.Dead, d.Attempt, progress.Content{})
	if r != nil { // else it had ended
		s.letters[seq] = &letter{record: s.source.bury(r, death{
			reason: d.Reason, attempts: d.Attempt - d.Waits, crashes: d.Task.Crashes, first: logstream.FirstError(d.Task, d.Reason),
		})}
	}
	return seq
}

// requeue records that a task gives way: the log cannot put it at the end, so it
// stays open where it is, and comes again as another delivery when its time has
// come. The caller holds the lock.
func (s *stream) requeue(pos int64, d *sources.Settlement, now time.Time) uint64 {
	if s.records.at(pos) == nil {
		return s.Log.Seq() // it ended
	}
	seq := s.settle(pos, progress.Retry, d.Attempt, progress.Content{Delay: d.Delay, Waits: d.Waits, Error: logstream.Short(logstream.FirstError(d.Task, d.Reason))})
	s.Log.Passed(pos)
	s.passed.put(pos, d, s.records.at(pos), now.Add(d.Delay))
	return seq
}

// A redelivery is a task that comes again.
type redelivery struct {
	at   time.Time
	task sources.Task
}

// redeliveries are the tasks that come again, and the receipts of those that did: a
// receipt of an earlier delivery must not reach a later one.
type redeliveries struct {
	waiting []redelivery // by time
	last    sources.Receipt
	current map[int64]sources.Receipt // of positions with more than one delivery
	of      map[sources.Receipt]int64
}

// position returns what a receipt is for, unless there was another delivery since.
func (a *redeliveries) position(r sources.Receipt) (pos int64, ok bool) {
	if r < 0 {
		pos, ok = a.of[r]
		return pos, ok
	}
	_, later := a.current[int64(r)]
	return int64(r), !later
}

// put makes the task of a settlement, which is that of r, come again at an instant.
func (a *redeliveries) put(pos int64, d *sources.Settlement, r *kgo.Record, at time.Time) {
	if a.of == nil {
		a.current, a.of = make(map[int64]sources.Receipt), make(map[sources.Receipt]int64)
	}
	a.forget(pos)
	a.last--
	a.current[pos], a.of[a.last] = a.last, pos
	t := d.Task.Copy()
	t.Receipt, t.Attempt, t.Waits, t.FirstError, t.NotBefore = a.last, d.Attempt-d.Waits+1, d.Waits, logstream.FirstError(d.Task, d.Reason), time.Time{}
	t.ID, t.Type, t.Key, t.Payload = strings.Clone(t.ID), strings.Clone(t.Type), strings.Clone(t.Key), r.Value
	i := len(a.waiting)
	for i > 0 && a.waiting[i-1].at.After(at) {
		i--
	}
	a.waiting = append(a.waiting, redelivery{})
	copy(a.waiting[i+1:], a.waiting[i:])
	a.waiting[i] = redelivery{at, *t}
}

// forget takes in that a position has ended, or is delivered anew.
func (a *redeliveries) forget(pos int64) {
	if r, ok := a.current[pos]; ok {
		delete(a.of, r)
		delete(a.current, pos)
	}
}

// due is when the next one comes; zero: none.
func (a *redeliveries) due() time.Time {
	if len(a.waiting) == 0 {
		return time.Time{}
	}
	return a.waiting[0].at
}

// take returns those whose time has come.
func (a *redeliveries) take(now time.Time, limit int) []sources.Task {
	var tasks []sources.Task
	for len(a.waiting) > 0 && len(tasks) < limit && !a.waiting[0].at.After(now) {
		tasks = append(tasks, a.waiting[0].task)
		a.waiting = a.waiting[1:]
	}
	return tasks
}

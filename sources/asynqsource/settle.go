package asynqsource

import (
	"errors"
	"time"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// Record takes in one settlement: in asynq's own words if it has said something that
// fits, else in ours. The caller holds the lock.
func (s *stream) Record(d *sources.Settlement, now time.Time) (uint64, error) {
	pos := int64(d.Task.Receipt)
	it := s.items[pos]
	if it == nil {
		return 0, nil // finished
	}
	said := it.said(d.Attempt)
	switch d.Outcome {
	case sources.Done:
		c := s.done(it, said, now)
		before := s.Log.Seq()
		seq := s.Log.Settle(pos, progress.Done, d.Attempt)
		if s.Log.Seq() != before {
			it.end = c
			if c.weight() > 0 {
				s.content[seq] = c
			}
		}
		return seq, nil
	case sources.Retry:
		if d.Attempt < 1 {
			return 0, errors.New("a retry that does not say how often it has run")
		}
		c := again(it, said, d, now) // not its script: the task keeps its place
		before := s.Log.Seq()
		seq := s.note(pos, progress.Retry, d.Attempt, c)
		if s.Log.Seq() != before {
			it.recorded(d.Attempt, c.message)
		}
		return seq, nil
	case sources.Requeue:
		c := again(it, said, d, now)
		if said.is(kindRetry) && said.script != nil {
			c.native = said
		}
		return s.note(pos, progress.Requeue, d.Attempt, c), nil
	case sources.Dead:
		c := content{message: archived(it.raw, d.Reason, now)}
		if said.is(kindArchive) {
			c.native = said
		}
		return s.note(pos, progress.Dead, d.Attempt, c), nil
	}
	return 0, errors.New("a settlement without an outcome")
}

// done is what there is to say of a task that is done.
func (s *stream) done(it *item, said *native, now time.Time) content {
	c := content{keep: it.retention, lock: it.uniqueKey}
	if s.Grant.ID.IsUnit() { // it goes on elsewhere
		c.keep = 0
		if s.keepLocks {
			c.lock = ""
		}
	}
	if said.is(kindComplete) || said.is(kindDone) && (it.uniqueKey != "" || s.source.modest.Load()) {
		c.native = said
	} else if c.keep > 0 {
		c.message = completed(it.raw, now)
		if said.is(kindDone) { // revoked: nothing is kept
			c.keep = 0
		}
	}
	return c
}

// again is what there is to say of a task that is to run again.
func again(it *item, said *native, d *sources.Settlement, now time.Time) content {
	c := content{delay: d.Delay, reason: logstream.Short(logstream.FirstError(d.Task, d.Reason)), waits: d.Waits, message: failed(it.raw, d.Attempt-d.Waits, d.Reason, now)}
	switch {
	case said.is(kindRetry):
		c.message, c.quiet = said.message(), !said.failure()
	case said.is(kindRequeue) || d.Waits > d.Task.Waits: // given back, or it waits for something: no failure
		c.message, c.quiet = it.message(d.Attempt), true
	}
	return c
}

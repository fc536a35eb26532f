package asynqsource

import (
	"context"
	"errors"
	"time"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// Settle says what became of tasks. See [sources.Stream].
func (s *stream) Settle(ctx context.Context, verdicts ...sources.Settlement) error {
	now := time.Now()
	upto := uint64(0)
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return s.fail("settle", s.err)
	}
	for i := range verdicts {
		seq, err := s.judge(&verdicts[i], now)
		if err != nil {
			s.mu.Unlock()
			return s.fail("settle", err)
		}
		upto = max(upto, seq)
	}
	if upto <= s.log.Answered() {
		s.mu.Unlock()
		return nil
	}
	answered := s.callers.Settle(upto)
	s.mu.Unlock()
	poke(s.wake)
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// judge takes in one settlement: in asynq's own words if it has said something that
// fits, else in ours. The caller holds mu.
func (s *stream) judge(d *sources.Settlement, now time.Time) (uint64, error) {
	pos := int64(d.Task.Receipt)
	it := s.items[pos]
	if it == nil {
		return 0, nil // finished
	}
	said := it.native
	switch d.Outcome {
	case sources.Done:
		c := content{keep: it.retention, lock: it.uniqueKey}
		if s.grant.ID.IsUnit() { // it goes on elsewhere
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
		before := s.log.Seq()
		seq := s.log.Settle(pos, progress.Done, d.Attempt)
		if s.log.Seq() != before {
			it.end = c
		}
		return seq, nil
	case sources.Retry:
		if d.Attempt < 1 {
			return 0, errors.New("a retry that does not say how often it has run")
		}
		c := content{delay: d.Delay, reason: short(d.Reason), message: failed(it.raw, d.Attempt, d.Reason, now)}
		switch {
		case said.is(kindRetry):
			c.message, c.quiet = said.message(), !said.failure()
		case said.is(kindRequeue):
			c.message, c.quiet = it.raw, true
		}
		before := s.log.Seq()
		seq := s.record(pos, progress.Retry, d.Attempt, c)
		if s.log.Seq() != before {
			it.raw, it.native = c.message, nil
		}
		return seq, nil
	case sources.Requeue:
		c := content{delay: d.Delay, reason: short(firstOf(d.Task, d.Reason)), message: failed(it.raw, d.Attempt, d.Reason, now)}
		switch {
		case said.is(kindRetry):
			c.native = said
		case said.is(kindRequeue):
			c.message, c.quiet = it.raw, true
		}
		return s.record(pos, progress.Requeue, d.Attempt, c), nil
	case sources.Dead:
		c := content{message: archived(it.raw, d.Reason, now)}
		if said.is(kindArchive) {
			c.native = said
		}
		return s.record(pos, progress.Dead, d.Attempt, c), nil
	}
	return 0, errors.New("a settlement without an outcome")
}

// firstOf is the first error of a task whose last run ended with reason.
func firstOf(t *sources.Task, reason string) string {
	if t.FirstError != "" {
		return t.FirstError
	}
	return reason
}

// maxError is how much of a first error is kept.
const maxError = 1024

func short(reason string) string { return reason[:min(len(reason), maxError)] }

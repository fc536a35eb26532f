package asynqsource

import (
	"fmt"
	"time"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// apply takes in what the round trip brought.
func (s *stream) apply(t *trip) error {
	head, err := t.head.Slice()
	if err != nil || len(head) == 0 {
		return errReply
	}
	now := time.Now()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch head[0] {
	case int64(1):
	case int64(0):
		if epoch := number(head, 1); uint64(epoch) < uint64(s.Grant.Epoch) { // it had answered that ours stands
			s.Lose(sources.ErrForgot)
		} else {
			s.Lose(sources.ErrFenced)
		}
		return nil
	case int64(3):
		// Another stream of this token was at work: go on behind it.
		s.number = max(s.number, number(head, 1))
		return nil
	default:
		s.Lose(sources.ErrForgot)
		return nil
	}
	s.seen = t.number
	s.settled(t, now)
	if t.extend || s.lease.IsZero() {
		s.lease = now.Add(leaseEvery)
	}
	if t.taken != nil {
		if err := s.applyTaken(t, now); err != nil {
			return err
		}
	}
	if s.Ended() {
		return nil
	}
	s.Admitted()
	return nil
}

// settled takes in that the store knows of all verdicts of a trip. The caller holds the lock.
func (s *stream) settled(t *trip, now time.Time) {
	r := &t.request
	answered := s.Log.Answered()
	s.Log.Apply(r, progress.Answer{Status: progress.Admitted, Before: r.Before, Base: r.Base, Writes: t.number, Gate: everything})
	for i, v := range r.Others {
		c := &t.content[i]
		if v.Outcome == progress.Requeue {
			if due := now.Add(c.delay); due.Before(s.look) { // it comes back then
				s.look = due
			}
			s.atEnd = s.atEnd && c.delay > 0
		}
		if v.Outcome != progress.Retry {
			s.drop(v.Position)
		}
	}
	for _, pos := range r.Done {
		s.drop(pos)
	}
	for seq := answered + 1; seq <= s.Log.Answered() && len(s.content) > 0; seq++ {
		delete(s.content, seq)
	}
}

// drop forgets a task that is finished. The caller holds the lock.
func (s *stream) drop(pos int64) {
	if it := s.items[pos]; it != nil {
		delete(s.open, it.id)
		delete(s.items, pos)
	}
}

// applyTaken takes in the tasks that have become active. The caller holds the lock.
func (s *stream) applyTaken(t *trip, now time.Time) error {
	reply, err := t.taken.Slice()
	if err != nil || len(reply) == 0 {
		return errReply
	}
	switch {
	case reply[0] == int64(2):
		s.Lose(sources.ErrForgot)
		return nil
	case reply[0] != int64(1):
		return nil // the head would have told: a later trip is under way, of another stream
	case len(reply)%3 != 0:
		return errReply
	}
	for i := 3; i < len(reply); i += 3 {
		id, _ := reply[i].(string)
		raw, _ := reply[i+1].(string)
		since, _ := reply[i+2].(string)
		p, err := parsePast(since, now)
		if err != nil {
			return fmt.Errorf("%s of %q: %w", s.keys.tries, id, err)
		}
		s.take(id, raw, p)
	}
	due, ends := number(reply, 1), reply[1] != int64(-2)
	if len(t.single) > 0 {
		n, err := s.applyDequeued(t, now)
		if err != nil {
			return err
		}
		ends = n < t.most
	}
	flags := number(reply, 2)
	if flags&4 != 0 && s.source.cfg.Plain == Refuse {
		poke(s.source.doubt)
	}
	s.atEnd, s.paused = ends, flags&1 != 0
	look := now.Add(lookEvery)
	switch {
	case flags&2 != 0:
		look = now
	case s.paused:
		look = now.Add(pausedEvery)
	case due >= 0:
		look = now.Add(min(lookEvery, time.Duration(due)*time.Millisecond))
	case !ends: // what is scheduled must not wait for the end of a backlog
		look = now.Add(time.Second)
	}
	if t.forward || look.Before(s.look) {
		s.look = look
	}
	return nil
}

func number(reply []any, i int) int64 {
	if i >= len(reply) {
		return 0
	}
	n, _ := reply[i].(int64)
	return n
}

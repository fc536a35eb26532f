package kafkasource

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// A trip is one round trip to the store.
type trip struct {
	request progress.Request
	content []progress.Content
	letters []uint64  // not on the dead topic when it left
	corpses []*corpse // that it is the first to leave with
}

// Tend tells who is to be told that the log is stuck, or is no longer. Close buries what is
// dead with it: it paces itself. What nobody may start is not: who is next finds it again.
func (s *stream) Tend(ctx context.Context) time.Duration {
	s.watch()
	s.TellBuried(s.source.cfg.Buried)
	select {
	case <-s.buried:
		s.unburied = s.bury(ctx)
	default:
	}
	return s.check()
}

// burials buries what is dead, until Close. Everything else goes on meanwhile, up to the first
// letter that is not on the dead topic.
func (s *stream) burials(ctx context.Context) {
	defer close(s.buried)
	var bad logstream.Trouble
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	wake := s.dead
	for {
		select {
		case <-wake:
		case <-timer.C:
		case <-s.Stopped():
			timer.Stop()
			return
		}
		err := s.bury(ctx)
		holds := err != nil // settlements wait for its letter; nothing waits for that of a task that nobody may start
		if !holds {
			err = s.buryCorpses(ctx)
		}
		if err == nil {
			bad, wake = logstream.Trouble{}, s.dead
			continue
		}
		pause, tell := bad.Next(time.Now(), errors.Is(err, errLate))
		if tell && holds {
			s.Mu.Lock()
			s.TellSettles(err)
			s.Mu.Unlock()
		}
		timer.Reset(pause)
		wake = nil // it failed: nothing hurries
	}
}

// check is how long the store may go without a word.
func (s *stream) check() time.Duration { return time.Duration(s.source.check.Load()) }

// Compose fills the trip with whatever is waiting. The caller holds the lock.
func (s *stream) Compose(now time.Time) bool {
	t := &s.trip
	limit, read := s.Wants(now, len(s.buffer.records) > 0)
	t.letters = t.letters[:0]
	upto := s.Log.Seq()
	for seq, l := range s.letters {
		if !l.buried {
			t.letters = append(t.letters, seq)
			upto = min(upto, seq-1)
		}
	}
	t.corpses = t.corpses[:0]
	for _, c := range s.corpses {
		if c.taken && !c.admitted {
			t.corpses = append(t.corpses, c)
		}
	}
	unasked := len(t.corpses) > 0 || slices.ContainsFunc(t.letters, func(seq uint64) bool { return !s.letters[seq].admitted })
	if limit == 0 && upto <= s.Log.Answered() && !unasked && now.Sub(s.said) < s.check() {
		return false
	}
	s.Log.Compose(limit, read, upto, &t.request)
	// What is read lies in this process: it is taken in now, and not when the answer
	// comes, and may be started when the answer admits it. The gate is no higher than
	// what was read, so that what is pushed later is no suspect after a crash.
	full := s.buffer.full()
	records := s.buffer.next(t.request.Fetch)
	s.take(records, false)
	clear(records)
	if limit > 0 {
		t.request.Gate = s.Log.Read()
	}
	if full && !s.buffer.full() {
		s.source.reader.ebb()
	}
	if s.buffer.thirsty() {
		s.source.reader.resume(s)
	}
	clear(t.content)
	t.content = t.content[:0]
	for _, v := range t.request.Others {
		t.content = append(t.content, s.content[v.Seq])
	}
	return true
}

// Trip does the round trip.
func (s *stream) Trip(ctx context.Context) error {
	t := &s.trip
	a, err := s.source.store.Settle(ctx, s.Grant, s.token, &t.request, t.content)
	void := errors.Is(err, sources.ErrFenced) || errors.Is(err, sources.ErrForgot)
	if err != nil && !void {
		return err
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if void {
		s.Lose(err)
		return nil
	}
	s.said = time.Now()
	s.Log.Apply(&t.request, a)
	for _, v := range t.request.Others {
		delete(s.content, v.Seq)
		delete(s.letters, v.Seq)
	}
	for _, seq := range t.letters {
		s.letters[seq].admitted = true
	}
	for _, c := range t.corpses {
		c.admitted = true
	}
	if len(t.letters)+len(t.corpses) > 0 {
		select {
		case s.dead <- struct{}{}:
		default:
		}
	}
	s.Admitted()
	return nil
}

// bury puts letters on the dead topic. The store has admitted the owner since they
// were written: one that was followed by another, and does not know, buries nothing.
func (s *stream) bury(ctx context.Context) error {
	var due []*letter
	s.Mu.Lock()
	if s.Lost() {
		clear(s.letters)
	}
	for seq := s.Log.Answered() + 1; len(s.letters) > 0 && seq <= s.Log.Seq(); seq++ {
		if l := s.letters[seq]; l != nil && l.admitted && !l.buried {
			due = append(due, l)
		}
	}
	s.Mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	n, err := s.source.grave.put(ctx, due)
	s.Mu.Lock()
	for _, l := range due[:n] {
		l.buried = true
	}
	s.Mu.Unlock()
	s.Nudge()
	return err
}

// buryCorpses puts on the dead topic what nobody may start, and says then that it is dead: not
// before, since nothing that ends later could be said until the letters are there.
func (s *stream) buryCorpses(ctx context.Context) error {
	var due []*corpse
	var letters []*letter
	s.Mu.Lock()
	for _, c := range s.corpses {
		if c.admitted && !s.Lost() {
			due, letters = append(due, c), append(letters, &c.letter)
		}
	}
	s.Mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	n, err := s.source.grave.put(ctx, letters)
	s.Mu.Lock()
	for _, c := range due[:n] {
		c.buried = true
		s.Stream.Bury(s.Log.Settle(c.pos, progress.Dead, 0), sources.Buried{Position: c.pos, Reason: c.reason})
	}
	s.corpses = slices.DeleteFunc(s.corpses, func(c *corpse) bool { return c.buried })
	s.Mu.Unlock()
	s.Nudge()
	return err
}

// Clear clears the fence, unless what is dead is not on the dead topic: the store must not
// hear of its end, and who is next buries it.
func (s *stream) Clear(ctx context.Context) error {
	if s.unburied != nil {
		return s.unburied
	}
	return s.source.store.Close(ctx, s.Grant, s.token)
}

// Lasting says no: what a store says is not known here.
func (s *stream) Lasting(error) bool { return false }

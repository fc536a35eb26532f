package kafkasource

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sort"
	"time"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// A trip is one round trip to the store.
type trip struct {
	request progress.Request
	content []progress.Content
	fetch   *logstream.Fetch // the Fetch that waited when it left
	letters []uint64         // not on the dead topic when it left
}

// run does round trips until Close, or until the partition is lost.
func (s *stream) run(ctx context.Context) {
	defer close(s.ended)
	var t trip
	var bad, grave logstream.Trouble
	var again time.Time // before which letters are not tried again
	timer := time.NewTimer(s.check())
	defer timer.Stop()
	for {
		// Who was woken by the last answer speaks first: a settlement and the fetch
		// that follows it then travel together instead of one after the other.
		runtime.Gosched()
		s.watch()
		wait := s.check()
		if now := time.Now(); now.Before(again) {
			wait = min(wait, again.Sub(now))
		} else if pause := s.buryPaced(ctx, &grave); pause > 0 {
			again, wait = time.Now().Add(pause), min(wait, pause)
		}
		pause, leave, over := s.step(ctx, &t, &bad)
		switch {
		case over:
			return
		case leave && pause == 0:
			continue
		case leave:
			wait = pause
		}
		timer.Reset(wait)
		select {
		case <-s.wakeIf(!leave):
		case <-timer.C:
		case <-s.quit:
			return
		}
	}
}

// wakeIf is what wakes the goroutine; nothing does while it waits after a failure.
func (s *stream) wakeIf(ok bool) <-chan struct{} {
	if ok {
		return s.wake
	}
	return nil
}

// check is how long the store may go without a word.
func (s *stream) check() time.Duration { return time.Duration(s.source.check.Load()) }

// buryPaced buries what is dead. If that fails it returns how long to wait before the
// next attempt: everything else goes on meanwhile, up to the first letter.
func (s *stream) buryPaced(ctx context.Context, bad *logstream.Trouble) time.Duration {
	err := s.bury(ctx)
	if err == nil {
		*bad = logstream.Trouble{}
		return 0
	}
	pause, tell := bad.Next(time.Now(), false)
	if tell {
		s.mu.Lock()
		s.tellSettles(err)
		s.mu.Unlock()
	}
	return pause
}

// step does one round trip, if there is anything to say. It returns how long to wait
// before the next.
func (s *stream) step(ctx context.Context, t *trip, bad *logstream.Trouble) (pause time.Duration, leave, over bool) {
	s.mu.Lock()
	over = s.err != nil
	leave = !over && s.compose(t, time.Now())
	s.mu.Unlock()
	if !leave {
		return 0, false, over
	}
	err := s.send(ctx, t)
	if err == nil {
		*bad = logstream.Trouble{}
		return 0, true, false
	}
	pause, tell := bad.Next(time.Now(), false)
	if tell {
		s.mu.Lock()
		s.tell(err)
		s.mu.Unlock()
	}
	return pause, true, false
}

// compose fills t with whatever is waiting, and reports whether there is anything.
// The caller holds mu.
func (s *stream) compose(t *trip, now time.Time) bool {
	limit, read := 0, false
	if f := s.callers.Fetch; f != nil {
		_, blocked := s.log.Blocked()
		switch {
		case f.Need == progress.NeedRead && !blocked && len(s.buffer.records) > 0:
			limit, read = f.Limit, true
		case f.Need == progress.NeedRoundTrip || !f.Asked:
			limit = f.Limit
		}
	}
	t.letters = t.letters[:0]
	upto := s.log.Seq()
	for seq, l := range s.letters {
		if !l.buried {
			t.letters = append(t.letters, seq)
			upto = min(upto, seq-1)
		}
	}
	unasked := slices.ContainsFunc(t.letters, func(seq uint64) bool { return !s.letters[seq].admitted })
	if limit == 0 && upto <= s.log.Answered() && !unasked && now.Sub(s.said) < s.check() {
		return false
	}
	t.fetch = s.callers.Fetch
	s.log.Compose(limit, read, upto, &t.request)
	// What is read lies in this process: it is taken in now, and not when the answer
	// comes, and may be started when the answer admits it. The gate is no higher than
	// what was read, so that what is pushed later is no suspect after a crash.
	records := s.buffer.next(t.request.Fetch)
	s.take(records, false)
	clear(records)
	if limit > 0 {
		t.request.Gate = s.log.Read()
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

// send does the round trip and takes in what it brought. Its error says that nothing
// is known of it.
func (s *stream) send(ctx context.Context, t *trip) error {
	a, err := s.source.store.Settle(ctx, s.grant, s.token, &t.request, t.content)
	void := errors.Is(err, sources.ErrFenced) || errors.Is(err, sources.ErrForgot)
	if err != nil && !void {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if void {
		s.lost = true
		s.over(err)
		return nil
	}
	s.said = time.Now()
	s.log.Apply(&t.request, a)
	for _, v := range t.request.Others {
		delete(s.content, v.Seq)
		delete(s.letters, v.Seq)
	}
	for _, seq := range t.letters {
		s.letters[seq].admitted = true
	}
	if t.fetch != nil {
		t.fetch.Asked = true
	}
	s.seat.Look(s.log, s.err != nil)
	s.callers.Answered(s.log.Answered())
	return nil
}

// bury puts letters on the dead topic. The store has admitted the owner since they
// were written: one that was followed by another, and does not know, buries nothing.
func (s *stream) bury(ctx context.Context) error {
	var due []*letter
	s.mu.Lock()
	if s.lost {
		clear(s.letters)
	}
	for seq := s.log.Answered() + 1; len(s.letters) > 0 && seq <= s.log.Seq(); seq++ {
		if l := s.letters[seq]; l != nil && l.admitted && !l.buried {
			due = append(due, l)
		}
	}
	s.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	n, err := s.source.grave.put(ctx, due)
	s.mu.Lock()
	for _, l := range due[:n] {
		l.buried = true
	}
	s.mu.Unlock()
	return err
}

// unhold takes a task out of what is held. The caller holds mu.
func (s *stream) unhold(pos int64) sources.Task {
	i := sort.Search(len(s.held), func(i int) bool { return int64(s.held[i].Receipt) >= pos })
	t := s.held[i]
	if i == 0 {
		s.held[0] = sources.Task{}
		s.held = s.held[1:]
	} else {
		s.held = slices.Delete(s.held, i, i+1)
	}
	return t
}

// tell gives err to all who wait; what they said stays queued. The caller holds mu.
func (s *stream) tell(err error) {
	s.callers.Tell(func(op string) error { return s.fail(op, err) })
}

// tellSettles gives err to all who wait for what they said to be answered. The caller
// holds mu.
func (s *stream) tellSettles(err error) {
	s.callers.TellSettles(func(op string) error { return s.fail(op, err) })
}

// over ends the stream for its callers; the first reason stands. The caller holds
// mu.
func (s *stream) over(err error) {
	if s.err == nil {
		s.err = err
	}
	s.seat.Leave()
	s.tell(s.err)
	s.nudge()
}

// finish says what was settled and not answered, then clears the fence. The goroutine
// has ended.
func (s *stream) finish(ctx context.Context) error {
	var t trip
	for {
		if err := s.bury(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		lost := s.lost
		say := s.log.Seq() > s.log.Answered() && s.compose(&t, time.Now())
		s.mu.Unlock()
		switch {
		case lost:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !say:
			return s.source.store.Close(ctx, s.grant, s.token)
		}
		if err := s.send(ctx, &t); err != nil {
			return err
		}
	}
}

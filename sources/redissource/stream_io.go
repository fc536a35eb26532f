package redissource

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

const (
	// tripBytes is about the most that the letters and envelopes of one round trip
	// weigh; more waits for the next.
	tripBytes = 8 << 20
	// readBytes is about the most that is read at once, reckoned by what the last
	// elements weighed.
	readBytes = 16 << 20
	// moveBatch is how many delayed tasks one script moves.
	moveBatch = 128
)

// A trip is one round trip: a plain pipeline of [move what is due,] [LRANGE,]
// settle, in this order. The read counts only if the script behind it admitted the
// token and found the base that the read reckoned with: then the base was the same
// before, too, since it only rises and tokens never come back. In the other order a
// settle could trim the list under the read.
type trip struct {
	request progress.Request
	content []redisprogress.Content
	locks   []redisprogress.Lock
	fetch   *logstream.Fetch // the Fetch that waited when it left
	rings   uint64           // bells heard when it left
	move    bool
	source  bool // the server has forgotten the scripts: bring them along

	moved   *redis.Cmd
	read    *redis.StringSliceCmd
	settled *redis.Cmd
}

// run does round trips until Close, or until the partition is lost.
func (s *stream) run(ctx context.Context) {
	defer close(s.ended)
	var t trip
	var bad logstream.Trouble
	for {
		// Who was woken by the last answer speaks first: a settlement and the fetch
		// that follows it then travel together instead of one after the other.
		runtime.Gosched()
		s.mu.Lock()
		over := s.err != nil
		leave := !over && s.compose(&t, time.Now())
		s.mu.Unlock()
		s.watch(ctx)
		switch {
		case over:
			return
		case !leave:
			select {
			case <-s.wake:
			case <-s.quit:
				return
			}
			continue
		}
		if pause := s.round(ctx, &t, &bad); pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-s.quit:
				timer.Stop()
				return
			}
		}
	}
}

// compose fills t with whatever is waiting, and reports whether there is anything.
// The caller holds mu.
func (s *stream) compose(t *trip, now time.Time) bool {
	limit, read := 0, false
	due := !s.due.IsZero() && !s.due.After(now)
	if f := s.callers.Fetch; f != nil {
		_, blocked := s.log.Blocked()
		switch {
		case f.Need == progress.NeedRead && !blocked && (due || !s.atEnd || !f.Asked):
			limit, read = f.Limit, true
		case f.Need == progress.NeedRoundTrip || !f.Asked:
			limit = f.Limit
		}
	}
	if limit == 0 && s.log.Seq() == s.log.Answered() {
		return false
	}
	if s.weight > 0 {
		limit = min(limit, max(1, readBytes/s.weight))
	}
	t.fetch, t.rings, t.move = s.callers.Fetch, s.rings, read && due
	s.log.Compose(limit, read, s.upto(), &t.request)
	clear(t.content)
	clear(t.locks)
	t.content, t.locks = t.content[:0], t.locks[:0]
	for _, v := range t.request.Others {
		t.content = append(t.content, s.content[v.Seq])
		if v.Outcome == progress.Dead {
			t.lock(s, v.Position)
		}
	}
	for _, pos := range t.request.Done {
		t.lock(s, pos)
	}
	return true
}

func (t *trip) lock(s *stream, pos int64) {
	if len(s.locks) == 0 {
		return
	}
	if l, ok := s.locks[pos]; ok {
		t.locks = append(t.locks, l)
	}
}

// upto is the last verdict that fits in a round trip. The caller holds mu.
func (s *stream) upto() uint64 {
	if len(s.content) == 0 {
		return s.log.Seq()
	}
	bytes := 0
	for seq := s.log.Answered() + 1; seq <= s.log.Seq(); seq++ {
		if bytes += len(s.content[seq].Body); bytes > tripBytes && seq > s.log.Answered()+1 {
			return seq - 1
		}
	}
	return s.log.Seq()
}

// round does one round trip and returns how long to wait before the next.
func (s *stream) round(ctx context.Context, t *trip, bad *logstream.Trouble) time.Duration {
	err := s.send(ctx, t)
	if err == nil {
		err = s.apply(t)
	}
	switch {
	case err == nil:
		*bad, t.source = logstream.Trouble{}, false
		return 0
	case forgotten(err) && !t.source:
		t.source = true
		return 0
	}
	pause, tell := bad.Next(time.Now(), lasting(err))
	if tell {
		s.mu.Lock()
		s.tell(explain(err))
		s.mu.Unlock()
	}
	return pause
}

// send does the round trip. Its error says that nothing is known of it.
func (s *stream) send(ctx context.Context, t *trip) error {
	pipe := s.source.client.Pipeline()
	t.moved, t.read = nil, nil
	if t.move {
		t.moved = s.store.Move(ctx, pipe, moveBatch, t.source)
	}
	if r := &t.request; r.Fetch > 0 {
		from := r.Read - r.Before
		t.read = pipe.LRange(ctx, s.keys.Pending, from, from+int64(r.Fetch)-1)
	}
	t.settled = s.store.Settle(ctx, pipe, &t.request, t.content, t.locks, t.source)
	pipe.Exec(ctx) // each command has its own error
	return t.settled.Err()
}

// apply takes in what the round trip brought.
func (s *stream) apply(t *trip) error {
	reply, err := s.store.Answer(t.settled)
	if err != nil {
		return err
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch reply.Status {
	case progress.Stale:
		if reply.Epoch < s.grant.Epoch { // it had answered that ours stands
			s.lose(sources.ErrForgot)
		} else {
			s.lose(&sources.FencedError{Grant: s.grant, Stored: reply.Epoch})
		}
		return nil
	case progress.Forgot:
		s.lose(sources.ErrForgot)
		return nil
	}
	counts := s.log.Apply(&t.request, reply.Answer)
	for _, v := range t.request.Others {
		delete(s.content, v.Seq)
		if v.Outcome != progress.Retry {
			delete(s.locks, v.Position)
		}
	}
	if len(s.locks) > 0 {
		for _, pos := range t.request.Done {
			delete(s.locks, pos)
		}
	}
	if t.moved != nil {
		err = s.applyMoved(t, now)
	}
	if t.read != nil {
		err = errors.Join(err, s.applyRead(t, reply, counts, now))
	} else if reply.End > s.log.Read() {
		s.atEnd = false
	}
	if reply.Asked {
		s.next(now, reply.Due)
	}
	if t.fetch != nil {
		t.fetch.Asked = true
	}
	s.seat.Look(s.log, s.err != nil)
	s.callers.Answered(s.log.Answered())
	return err
}

// applyRead takes in what was read, if it counts.
func (s *stream) applyRead(t *trip, reply redisprogress.Reply, counts bool, now time.Time) error {
	s.atEnd = false
	if !counts || t.read.Err() != nil {
		return t.read.Err()
	}
	if s.held == nil {
		s.held = make([]sources.Task, 0, len(t.read.Val()))
	}
	bytes := 0
	for i, element := range t.read.Val() {
		s.take(t.request.Read+int64(i), element, now, false)
		bytes += len(element)
	}
	if n := len(t.read.Val()); n > 0 {
		s.weight = bytes / n
	}
	// If the list ended before what was asked for, the script has left the wish for
	// a bell. A push between the read and the script did not ring, but it is before
	// the end that the script found; one after it rings, and if that bell was heard
	// before this answer, it was heard since the trip left.
	short := reply.End < t.request.Read+int64(t.request.Fetch)
	s.atEnd = short && reply.End <= s.log.Read() && t.rings == s.rings
	return nil
}

func (s *stream) applyMoved(t *trip, now time.Time) error {
	_, next, err := redisprogress.Moved(t.moved)
	if err != nil {
		return err
	}
	s.next(now, next)
	return nil
}

// next notes when the next delayed task is due. The caller holds mu.
func (s *stream) next(now time.Time, in time.Duration) {
	s.due = time.Time{}
	if in >= 0 {
		s.due = now.Add(in)
	}
}

// tell gives err to all who wait; what they said stays queued. The caller holds mu.
func (s *stream) tell(err error) {
	s.callers.Tell(func(op string) error { return s.fail(op, err) })
}

// lose ends the stream because the partition is another's. The caller holds mu.
func (s *stream) lose(err error) {
	s.lost = true
	s.over(err)
}

// over ends the stream for its callers; the first reason stands. The caller holds
// mu.
func (s *stream) over(err error) {
	if s.err == nil {
		s.err = err
	}
	s.seat.Leave()
	s.tell(s.err)
}

// finish says what was settled and not answered, then clears the fence, until that
// is answered or there is something to tell. The goroutine has ended.
func (s *stream) finish(ctx context.Context) error {
	var t trip
	var bad logstream.Trouble
	for {
		var last error
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.mu.Lock()
		lost := s.lost
		say := !lost && s.compose(&t, time.Now())
		s.mu.Unlock()
		if lost {
			return nil
		}
		if say {
			last = s.send(ctx, &t)
			if last == nil {
				last = s.apply(&t)
			}
			if t.source = forgotten(last); t.source || last == nil {
				continue
			}
		} else if last = s.store.Close(ctx); last == nil {
			return nil
		}
		pause, tell := bad.Next(time.Now(), lasting(last))
		if tell {
			return explain(last)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

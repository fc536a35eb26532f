package redissource

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

const (
	// tripBytes is about the most that the letters and envelopes of one round trip
	// weigh; more waits for the next.
	tripBytes = 8 << 20
	// moveBatch is how many delayed tasks one script moves.
	moveBatch = 128
)

// A trip is one round trip: a plain pipeline of [move what is due,] [read,]
// settle, in this order. The read counts only if the script behind it admitted the
// token and found the base that the read reckoned with: then the base was the same
// before, too, since it only rises and tokens never come back. In the other order a
// settle could trim the list under the read: where a client does not keep the order,
// the read looks at the base itself ([redisprogress.Log.Read]).
type trip struct {
	request   progress.Request
	content   []redisprogress.Content
	locks     []redisprogress.Lock
	rings     uint64 // bells heard when it left
	announced int64  // what is to be among what is read, or progress.None
	move      bool
	source    bool // the server has forgotten the scripts: bring them along

	moved   *redis.Cmd
	read    *redis.StringSliceCmd
	settled *redis.Cmd
}

// Tend tells who is to be told that the log is stuck, or is no longer, and what was buried.
func (s *stream) Tend(ctx context.Context) time.Duration {
	s.watch(ctx)
	s.TellBuried(s.source.cfg.Buried)
	return 0
}

// lookAfter is how long an owner that always finds more to read goes without asking what is
// delayed: of what was scheduled meanwhile it hears nothing else, since nobody rings a
// bell for who is busy.
const lookAfter = time.Second

// Compose fills the trip with whatever is waiting. The caller holds the lock.
func (s *stream) Compose(now time.Time) bool {
	t := &s.trip
	due := !s.due.IsZero() && !s.due.After(now)
	limit, read := s.Wants(now, due || !s.atEnd || s.Fresh())
	if t.announced = s.Log.Announced(); t.announced != progress.None {
		limit, read = max(limit, 2), true // one more, so that a list that ends there asks for a bell
	}
	if limit == 0 && s.Log.Seq() == s.Log.Answered() {
		return false
	}
	limit = s.portion.of(limit)
	t.rings = s.rings
	// Whoever brings the scripts along brings both: if the one that moves was forgotten, the next
	// trip may be one that reads nothing.
	t.move = t.source || read && (due || now.Sub(s.looked) >= lookAfter)
	s.Log.Compose(limit, read, s.upto(), &t.request)
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

// upto is the last verdict that fits in a round trip. The caller holds the lock.
func (s *stream) upto() uint64 {
	if len(s.content) == 0 {
		return s.Log.Seq()
	}
	bytes := 0
	for seq := s.Log.Answered() + 1; seq <= s.Log.Seq(); seq++ {
		if bytes += len(s.content[seq].Body); bytes > tripBytes && seq > s.Log.Answered()+1 {
			return seq - 1
		}
	}
	return s.Log.Seq()
}

// Trip does the round trip.
func (s *stream) Trip(ctx context.Context) error {
	t := &s.trip
	err := s.send(ctx, t)
	if err == nil {
		err = s.apply(t)
	}
	switch {
	case err == nil:
		t.source = false
		return nil
	case redisprogress.NoScript(err) && !t.source:
		t.source = true // by the next trip, at once
		return nil
	}
	s.Mu.Lock()
	s.portion.failed(t.request.Fetch)
	s.Mu.Unlock()
	return redisconfig.Explain(err)
}

// Clear clears the fence.
func (s *stream) Clear(ctx context.Context) error { return redisconfig.Explain(s.store.Close(ctx)) }

// Lasting reports whether an error does not pass by itself.
func (s *stream) Lasting(err error) bool { return redisconfig.Lasting(err) }

// send does the round trip. Its error says that nothing is known of it.
func (s *stream) send(ctx context.Context, t *trip) error {
	pipe := s.source.client.Pipeline()
	t.moved, t.read = nil, nil
	if t.move {
		t.moved = s.store.Move(ctx, pipe, moveBatch, t.source)
	}
	if r := &t.request; r.Fetch > 0 {
		t.read = s.store.Read(ctx, pipe, r.Before, r.Read, r.Fetch, t.source)
	}
	t.settled = s.store.Settle(ctx, pipe, &t.request, t.content, t.locks, t.source)
	redisconfig.Exec(ctx, pipe)
	return t.settled.Err()
}

// apply takes in what the round trip brought.
func (s *stream) apply(t *trip) error {
	reply, err := s.store.Answer(t.settled)
	if err != nil {
		return err
	}
	now := time.Now()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch reply.Status {
	case progress.Stale:
		if reply.Epoch < s.Grant.Epoch { // it had answered that ours stands
			s.source.forgot.Store(true)
			s.Lose(sources.ErrForgot)
		} else {
			s.Lose(&sources.FencedError{Grant: s.Grant, Stored: reply.Epoch})
		}
		return nil
	case progress.Forgot:
		s.source.forgot.Store(true)
		s.Lose(sources.ErrForgot)
		return nil
	}
	counts := s.Log.Apply(&t.request, reply.Answer)
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
	} else if reply.End > s.Log.Read() {
		s.atEnd = false
	}
	if reply.Asked {
		s.next(now, reply.Due)
	}
	s.Admitted()
	return err
}

// applyRead takes in what was read, if it counts.
func (s *stream) applyRead(t *trip, reply redisprogress.Reply, counts bool, now time.Time) error {
	s.atEnd = false
	if err := t.read.Err(); errors.Is(err, redis.Nil) { // it came behind the settlement, or another's: the next one reads it
		return nil
	} else if !counts || err != nil {
		return err
	}
	s.Held.Grow(len(t.read.Val()))
	bytes := 0
	for i, element := range t.read.Val() {
		bytes += len(element)
		pos := t.request.Read + int64(i)
		if pos != s.Log.Announced() {
			s.take(pos, element, now, false)
			continue
		}
		if element != s.heard {
			break
		}
		s.Log.Confirm()
		s.heard = ""
	}
	if t.announced != progress.None && t.announced == s.Log.Announced() {
		s.Lose(sources.ErrForgot) // it is not there, or something else is
		return nil
	}
	s.portion.weighed(len(t.read.Val()), bytes)
	// If the list ended before what was asked for, the script has left the wish for
	// a bell. A push between the read and the script did not ring, but it is before
	// the end that the script found; one after it rings, and if that bell was heard
	// before this answer, it was heard since the trip left.
	short := reply.End < t.request.Read+int64(t.request.Fetch)
	s.atEnd = short && reply.End <= s.Log.Read() && t.rings == s.rings
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

// next notes when the next delayed task is due. The caller holds the lock.
func (s *stream) next(now time.Time, in time.Duration) {
	s.due, s.looked = time.Time{}, now
	if in >= 0 {
		s.due = now.Add(in)
	}
}

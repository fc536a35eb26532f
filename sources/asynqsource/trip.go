package asynqsource

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/progress"
)

const (
	// lookEvery is how often a queue is looked at in which nothing seems to happen:
	// a task that was scheduled since is found then at the latest, as by asynq.
	lookEvery = 5 * time.Second
	// pausedEvery is how often a paused queue is looked at.
	pausedEvery = time.Second
	// leaseEvery is how often asynq's leases of what the stream has are extended. They
	// protect nothing here; asynqmon calls a task without one orphaned.
	leaseEvery = 10 * time.Second
	// tripBytes is about the most that the messages of one round trip weigh that go back with
	// what became of their tasks; more waits for the next.
	tripBytes = 8 << 20
	// tripTasks is how many tasks a round trip takes at most, and of how many it says what
	// became of them: Redis serves nobody else while a script is at them, some 6 us each.
	tripTasks = 256
)

// A trip is one round trip: a pipeline of settle.lua, asynq's own scripts for what they
// say better, and fetch.lua. The first one admits the token and raises the number; the
// others check that it is theirs. Since numbers only rise and trips do not overlap, a
// trip that comes late, or again, finds that its number is over, or does the same.
type trip struct {
	request progress.Request
	number  int64
	content []content // of request.Others
	most    int       // to take
	known   int       // tasks that are active once this is settled
	forward bool
	extend  bool // asynq's leases
	source  bool // the server has forgotten the scripts: bring them along

	head    *redis.Cmd
	natives []*redis.Cmd
	taken   *redis.Cmd
	single  []*redis.Cmd // of asynq's own dequeue, see modest.go
	pasts   []string     // of what that brought
}

// Tend tells what was buried, and returns when to look again.
func (s *stream) Tend(context.Context) time.Duration {
	s.TellBuried(s.source.cfg.Buried)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Ended() {
		s.waiter.idle(false)
	}
	now, wait := time.Now(), time.Hour
	if s.Reads() {
		wait = min(wait, s.look.Sub(now))
	}
	if len(s.items) > 0 {
		wait = min(wait, s.lease.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// Compose fills the trip with whatever is waiting. The caller holds the lock.
func (s *stream) Compose(now time.Time) bool {
	t := &s.trip
	due := !s.look.After(now)
	more := due || !s.atEnd || s.Fresh()
	limit, read := s.Wants(now, more)
	t.extend = len(s.items) > 0 && !s.lease.After(now)
	s.waiter.idle(!more && s.Reads() && !s.paused)
	if limit == 0 && s.Log.Seq() == s.Log.Answered() && !t.extend {
		return false
	}
	s.Log.Compose(min(limit, tripTasks), read, s.upto(), &t.request)
	s.number++
	t.number, t.most = s.number, t.request.Fetch
	t.forward = due
	t.known = len(s.items)
	clear(t.content)
	t.content = t.content[:0]
	for _, v := range t.request.Others {
		t.content = append(t.content, s.content[v.Seq])
		if v.Outcome != progress.Retry {
			t.known--
		}
	}
	t.known -= len(t.request.Done)
	return true
}

// upto is the last verdict that fits in a round trip. The caller holds the lock.
func (s *stream) upto() uint64 {
	last := min(s.Log.Seq(), s.Log.Answered()+tripTasks)
	if len(s.content) == 0 {
		return last
	}
	bytes := 0
	for seq := s.Log.Answered() + 1; seq <= last; seq++ {
		c := s.content[seq]
		if bytes += c.weight(); bytes > tripBytes && seq > s.Log.Answered()+1 {
			return seq - 1
		}
	}
	return last
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
	case forgotten(err) && !t.source:
		t.source = true // by the next trip, at once
		return nil
	}
	return redisconfig.Explain(err)
}

// Lasting reports whether an error does not pass by itself.
func (s *stream) Lasting(err error) bool { return redisconfig.Lasting(err) }

// Clear clears the fence.
func (s *stream) Clear(ctx context.Context) error {
	k := &s.keys
	reply, err := closeScript.Run(ctx, s.source.client, []string{k.fence, k.pending, k.active, k.lease},
		s.fence, s.Grant.Epoch.String(), k.task).Slice()
	if err == nil && len(reply) == 0 {
		return errReply
	}
	return redisconfig.Explain(err) // {1} or {0}: it is not ours any more
}

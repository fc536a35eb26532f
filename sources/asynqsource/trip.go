package asynqsource

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources/logstream"
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
)

// A trip is one round trip: a pipeline of settle.lua, asynq's own scripts for what they
// say better, and fetch.lua. The first one admits the token and raises the number; the
// others check that it is theirs. Since numbers only rise and trips do not overlap, a
// trip that comes late, or again, finds that its number is over, or does the same.
type trip struct {
	request progress.Request
	number  int64
	content []content        // of request.Others
	fetch   *logstream.Fetch // the Fetch that waited when it left
	most    int              // to take
	known   int              // tasks that are active once this is settled
	forward bool
	extend  bool // asynq's leases
	source  bool // the server has forgotten the scripts: bring them along

	head    *redis.Cmd
	natives []*redis.Cmd
	taken   *redis.Cmd
	single  []*redis.Cmd // of asynq's own dequeue, see modest.go
}

// run does round trips until Close, or until the partition is lost.
func (s *stream) run(ctx context.Context) {
	var t trip
	var bad logstream.Trouble
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		// Who was woken by the last answer speaks first: a settlement and the fetch
		// that follows it then travel together instead of one after the other.
		runtime.Gosched()
		now := time.Now()
		s.mu.Lock()
		over := s.err != nil
		leave := !over && s.compose(&t, now)
		again := s.next(now)
		s.mu.Unlock()
		if over {
			return
		}
		if leave {
			again = s.round(ctx, &t, &bad)
			if again <= 0 {
				continue
			}
		}
		timer.Reset(again)
		if leave { // it failed: nothing hurries
			select {
			case <-timer.C:
			case <-s.quit:
				return
			}
			continue
		}
		select {
		case <-s.wake:
		case <-timer.C:
		case <-s.quit:
			return
		}
	}
}

// next is how long nothing is to be done unless somebody asks. The caller holds mu.
func (s *stream) next(now time.Time) time.Duration {
	wait := time.Hour
	if s.reads() {
		wait = min(wait, s.look.Sub(now))
	}
	if len(s.items) > 0 {
		wait = min(wait, s.lease.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// reads reports whether a Fetch waits for tasks that are not taken yet. The caller holds
// mu.
func (s *stream) reads() bool {
	if s.callers.Fetch == nil || s.callers.Fetch.Need != progress.NeedRead {
		return false
	}
	_, blocked := s.log.Blocked()
	return !blocked
}

// compose fills t with whatever is waiting, and reports whether there is anything. The
// caller holds mu.
func (s *stream) compose(t *trip, now time.Time) bool {
	limit, read := 0, false
	due := !s.look.After(now)
	if f := s.callers.Fetch; f != nil {
		switch {
		case s.reads() && (due || !s.atEnd || !f.Asked):
			limit, read = f.Limit, true
		case f.Need == progress.NeedRoundTrip || !f.Asked:
			limit = f.Limit
		}
	}
	t.extend = len(s.items) > 0 && !s.lease.After(now)
	s.waiter.idle(limit == 0 && s.reads() && !s.paused)
	if limit == 0 && s.log.Seq() == s.log.Answered() && !t.extend {
		return false
	}
	s.log.Compose(limit, read, s.log.Seq(), &t.request)
	s.number++
	t.number, t.fetch, t.most = s.number, s.callers.Fetch, t.request.Fetch
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
		s.tell(err)
		s.mu.Unlock()
	}
	return pause
}

// finish says what was settled and not answered, then clears the fence, until that is
// answered or there is something to tell. The goroutine has ended.
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
		} else if last = s.clear(ctx); last == nil {
			return nil
		}
		pause, tell := bad.Next(time.Now(), lasting(last))
		if tell {
			return last
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// clear clears the fence.
func (s *stream) clear(ctx context.Context) error {
	k := &s.keys
	reply, err := closeScript.Run(ctx, s.source.client, []string{k.fence, k.pending, k.active, k.lease},
		s.fence, s.grant.Epoch.String(), k.task).Slice()
	if err == nil && len(reply) == 0 {
		return errReply
	}
	return err // {1} or {0}: it is not ours any more
}

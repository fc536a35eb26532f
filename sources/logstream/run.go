package logstream

import (
	"context"
	"runtime"
	"time"
)

// run does round trips until Stop, or until the stream is over.
func (s *Stream) run(ctx context.Context) {
	var bad Trouble
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		// Who was woken by the last answer speaks first: a settlement and the fetch
		// that follows it then travel together instead of one after the other.
		runtime.Gosched()
		wake, wait := s.wake, s.driver.Tend(ctx)
		s.Mu.Lock()
		over := s.err != nil
		leave := !over && s.compose()
		wait = s.untilStuck(time.Now(), s.full.look(wait))
		s.Mu.Unlock()
		if over {
			return
		}
		if leave {
			if wait = s.trip(ctx, &bad); wait == 0 {
				continue
			}
			wake = nil // it failed: nothing hurries
		}
		if wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-wake:
		case <-timer.C:
		case <-s.quit:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// compose makes the next trip of whatever is waiting, and reports whether there is
// anything. The caller holds the lock.
func (s *Stream) compose() bool {
	s.left, s.full.again = s.callers.fetch, 0
	return s.driver.Compose(time.Now())
}

// trip does a round trip and returns how long to wait before the next.
func (s *Stream) trip(ctx context.Context, bad *Trouble) time.Duration {
	err := s.driver.Trip(ctx)
	if err == nil {
		*bad = Trouble{}
		return 0
	}
	pause, tell := bad.Next(time.Now(), s.driver.Lasting(err))
	if tell {
		s.Mu.Lock()
		s.Tell(err)
		s.Mu.Unlock()
	}
	return pause
}

// Finish is the end of Close, after Wait: it says what was settled and not answered, then
// clears the fence, until that is answered or there is something to tell. It sends nothing
// if the partition is another's.
func (s *Stream) Finish(ctx context.Context) error {
	var bad Trouble
	for {
		s.Mu.Lock()
		lost := s.lost
		s.Mu.Unlock()
		if lost {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return s.Fail("close", err)
		}
		done, err := s.last(ctx)
		if done {
			return nil
		}
		if err == nil {
			continue
		}
		pause, tell := bad.Next(time.Now(), s.driver.Lasting(err))
		if tell {
			return s.Fail("close", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// last says what is left to say, or clears the fence if that is nothing: then all is done.
func (s *Stream) last(ctx context.Context) (done bool, err error) {
	s.driver.Tend(ctx)
	s.Mu.Lock()
	say := s.Log.Seq() > s.Log.Answered() && s.compose()
	s.Mu.Unlock()
	if say {
		return false, s.driver.Trip(ctx)
	}
	err = s.driver.Clear(ctx)
	return err == nil, err
}

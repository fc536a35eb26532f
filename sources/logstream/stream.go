package logstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// A Driver is a source's own part of a stream: the content of tasks and verdicts, and the
// round trips to the store.
//
// The first four methods are called with the stream's lock held and do not wait. The
// others are called without it, one at a time: by the stream's goroutine, and by Finish
// when that has ended.
type Driver interface {
	// Trouble returns why a Fetch cannot go on although the stream is not over, or nil.
	Trouble() error
	// Beside returns tasks that come beside the log and may start now, at most limit. If
	// there are none, due is when something may come by itself; zero: not known.
	Beside(now time.Time, limit int) (tasks []sources.Task, due time.Time)
	// Record takes in a settlement and returns the verdict that must be answered.
	Record(d *sources.Settlement, now time.Time) (seq uint64, err error)
	// Compose makes the next trip of whatever is waiting, and reports whether there is
	// anything: Wants says what of tasks, Seq and Answered of the log whether there are
	// verdicts. What is read beside the store, in this process, is taken in here, and the
	// request's Gate raised to what was read.
	Compose(now time.Time) bool

	// Tend does what is to be done beside the trips, and returns how long nothing is to
	// be done unless the stream is nudged; 0: for ever.
	Tend(ctx context.Context) time.Duration
	// Trip does the trip that was composed last and takes in what it brought, with
	// Admitted or with Lose. Its error says that nothing is known of it: what it said is
	// composed again.
	Trip(ctx context.Context) error
	// Clear clears the fence. It fails while something is settled and cannot be said.
	Clear(ctx context.Context) error
	// Lasting reports whether an error of Trip or Clear does not pass by itself.
	Lasting(err error) bool
}

// A Stream is one ownership of one log. Fetch and Settle only change what is in memory,
// and wait; one goroutine does the round trips, each of which carries whatever is waiting
// when it leaves. Trips never overlap.
//
// The methods that are not those of sources.Stream are for its Driver. Those that say
// nothing of the lock take it.
type Stream struct {
	Grant  partition.Grant
	driver Driver

	wake       chan struct{} // holds a value if the goroutine has something to look at
	quit       chan struct{} // closed by Stop
	goroutines []chan struct{}
	cancel     context.CancelFunc // of the goroutines' calls

	// Mu guards what follows, and what the driver keeps in memory. It is never held over
	// a call or a wait.
	Mu   sync.Mutex
	Log  *progress.Log
	Held Held

	hand    []int64   // scratch
	callers callers   // who waits
	left    *fetch    // the Fetch that waited when the last trip left
	stuck   bool      // Stuck has said so
	since   time.Time // a Fetch waits because too much is stuck; zero: none does
	graves  []grave   // not told of, by verdict
	full    full      // the log, while a Fetch waits
	seat    *seat     // for the permit
	err     error     // why it is over
	lost    bool      // ... because the fence is another's
	closed  bool
}

// New returns the stream of the ownership g of log. It does nothing before Start.
func New(d Driver, g partition.Grant, log *progress.Log, permit *Permit) *Stream {
	return &Stream{
		Grant: g, driver: d, wake: make(chan struct{}, 1), quit: make(chan struct{}),
		Log: log, seat: permit.newSeat(),
	}
}

// Start starts the goroutine that does the round trips, and others beside it, which return
// soon after Stopped is closed, or when their context ends.
func (s *Stream) Start(beside ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, run := range append(beside, s.run) {
		ended := make(chan struct{})
		s.goroutines = append(s.goroutines, ended)
		go func() {
			defer close(ended)
			run(ctx)
		}()
	}
}

// Nudge makes the goroutine look. The lock may be held.
func (s *Stream) Nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Fail returns the error of an operation. The lock may be held.
func (s *Stream) Fail(op string, err error) error {
	return &sources.Error{Op: op, Grant: s.Grant, Err: err}
}

// Fetch waits for tasks. See [sources.Stream].
func (s *Stream) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	if limit < 1 {
		return nil, s.Fail("fetch", errors.New("the limit is below 1"))
	}
	f := newFetch(limit)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		tasks, again, err := s.look(f)
		if err != nil || len(tasks) > 0 {
			return tasks, err
		}
		s.Nudge()
		if err := f.wait(ctx, again, s.seat, func() { s.forget(f) }); err != nil {
			return nil, err
		}
	}
}

// look hands out what may start. If that is nothing, f is among the callers, and is to look
// at the instant again even if it is told nothing; zero: no such instant is known.
func (s *Stream) look(f *fetch) (tasks []sources.Task, again time.Time, err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.callers.forget(f) // its time was up: it may be among them still
	if err = s.err; err == nil {
		err = s.driver.Trouble()
	}
	if err != nil {
		return nil, again, s.Fail("fetch", err)
	}
	now := time.Now()
	if f.asked {
		if tasks, again = s.give(now, f.limit); len(tasks) > 0 {
			return tasks, again, nil
		}
		f.need = s.Log.Need()
	} else if f.need = progress.NeedRead; s.Held.Len() > 0 {
		f.need = progress.NeedRoundTrip
	}
	if err := f.told(); err != nil {
		return nil, again, err
	}
	s.callers.fetch = f
	if due := s.Log.Due(now); !due.IsZero() && (again.IsZero() || due.Before(again)) {
		again = due
	}
	return nil, again, nil
}

// give hands out what may start; if that is nothing, due is when something comes beside
// the log. The caller holds the lock.
func (s *Stream) give(now time.Time, limit int) (tasks []sources.Task, due time.Time) {
	tasks, due = s.driver.Beside(now, limit)
	limit -= len(tasks)
	s.hand = s.Log.Hand(now, limit, s.hand[:0])
	if s.seat.look(s.Log, s.err != nil) && s.Log.WantsPermit() {
		s.hand = s.Log.Hand(now, limit-len(s.hand), s.hand)
	}
	return s.Held.Take(tasks, s.hand), due
}

func (s *Stream) forget(f *fetch) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.callers.forget(f)
}

// Settle says what became of tasks. See [sources.Stream].
func (s *Stream) Settle(ctx context.Context, done ...sources.Settlement) error {
	now := time.Now()
	upto := uint64(0)
	s.Mu.Lock()
	if s.err != nil {
		s.Mu.Unlock()
		return s.Fail("settle", s.err)
	}
	for i := range done {
		seq, err := s.driver.Record(&done[i], now)
		if err != nil {
			s.Mu.Unlock()
			return s.Fail("settle", err)
		}
		upto = max(upto, seq)
	}
	if upto <= s.Log.Answered() {
		s.Mu.Unlock()
		return nil
	}
	answered := s.callers.settle(upto)
	s.Mu.Unlock()
	s.Nudge()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Waits reports whether a Fetch waits. The caller holds the lock.
func (s *Stream) Waits() bool { return s.callers.fetch != nil }

// Fresh reports whether a Fetch waits for which nothing was asked yet. The caller holds the
// lock.
func (s *Stream) Fresh() bool { return s.Waits() && !s.callers.fetch.asked }

// Reads reports whether a Fetch waits for what was not read yet, and there is room for it.
// The caller holds the lock.
func (s *Stream) Reads() bool {
	if !s.Waits() || s.callers.fetch.need != progress.NeedRead {
		return false
	}
	_, blocked := s.Log.Blocked()
	return !blocked
}

// stuckAfter is how long too much is stuck before that is told: a log of which each task that ends lets another in is
// full again in an instant.
const stuckAfter = time.Second

// Stuck reports whether a Fetch has waited for stuckAfter because too much is stuck behind the task at pos, and
// whether that is news since it was asked last. Once begun it is over when there is room.
// The caller holds the lock.
func (s *Stream) Stuck(now time.Time) (pos int64, stuck, news bool) {
	pos, stuck = s.Log.Blocked()
	switch {
	case !stuck:
		s.since = time.Time{}
	case s.since.IsZero() && s.Waits():
		s.since = now
	}
	stuck = stuck && !s.since.IsZero() && now.Sub(s.since) >= stuckAfter
	news = stuck != s.stuck
	s.stuck = stuck
	return pos, stuck, news
}

// untilStuck is when to look again at the latest for Stuck to tell, if nothing happens in wait; 0: for ever. The caller
// holds the lock.
func (s *Stream) untilStuck(now time.Time, wait time.Duration) time.Duration {
	left := stuckAfter - now.Sub(s.since)
	if s.since.IsZero() || s.stuck || wait > 0 && wait <= left {
		return wait
	}
	return max(left, 1)
}

// Wants returns for how many tasks the next trip is to ask, 0: none, and whether it is to
// read them; more says whether reading may bring anything. The caller holds the lock.
func (s *Stream) Wants(now time.Time, more bool) (limit int, read bool) {
	f := s.callers.fetch
	if f == nil {
		return 0, false
	}
	s.Log.Follow(now)
	switch {
	case more && s.Reads() && !s.full.wait(s.Log.Full(), now):
		return f.limit, true
	case f.need == progress.NeedRoundTrip || !f.asked:
		return f.limit, false
	}
	return 0, false
}

// Admitted takes in that the store has admitted the trip that was composed last, and that
// the log has applied its answer. The caller holds the lock.
func (s *Stream) Admitted() {
	if s.left != nil {
		s.left.asked = true
	}
	s.seat.look(s.Log, s.err != nil)
	s.callers.answered(s.Log.Answered())
}

// Tell gives err to all who wait; what they said stays queued. The caller holds the lock.
func (s *Stream) Tell(err error) {
	s.TellFetch(err)
	s.TellSettles(err)
}

// Look lets the Fetch that waits look again: there is something for it. The caller holds the
// lock.
func (s *Stream) Look() { s.callers.tellFetch(nil) }

// TellFetch gives err to the Fetch that waits, and reports whether one does. The caller
// holds the lock.
func (s *Stream) TellFetch(err error) bool {
	return s.callers.tellFetch(s.Fail("fetch", err))
}

// TellSettles gives err to all who wait for what they said to be answered. The caller holds
// the lock.
func (s *Stream) TellSettles(err error) { s.callers.tellSettles(s.Fail("settle", err)) }

// Lose ends the stream because the partition is another's. The caller holds the lock.
func (s *Stream) Lose(err error) {
	s.lost = true
	s.End(err)
}

// End ends the stream for its callers; the first reason stands. The caller holds the lock.
func (s *Stream) End(err error) {
	if s.err == nil {
		s.err = err
	}
	s.seat.leave()
	s.Tell(s.err)
	s.Nudge()
}

// Ended reports whether the stream is over. The caller holds the lock.
func (s *Stream) Ended() bool { return s.err != nil }

// Lost reports whether the partition is another's. The caller holds the lock.
func (s *Stream) Lost() bool { return s.lost }

// Stop is the beginning of Close, and reports whether it is the first.
func (s *Stream) Stop() (first bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.Log.Leave()
	close(s.quit)
	s.End(sources.ErrClosed)
	return true
}

// Stopped is closed by Stop.
func (s *Stream) Stopped() <-chan struct{} { return s.quit }

// Wait returns when the stream's goroutines have. If ctx ends first, so do their calls.
func (s *Stream) Wait(ctx context.Context) {
	for _, ended := range s.goroutines {
		select {
		case <-ended:
		case <-ctx.Done():
			s.cancel()
			<-ended
		}
	}
	s.cancel()
}

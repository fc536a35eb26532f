package framework

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A lane is one grant being worked on: from Serve until its drained was called.
//
//	opening ──► working ──► draining ──► closed
//	   └───────────┴───────────┴──► lost ──► closed
//
// Its own goroutine (live) opens the stream, fetches and at last closes; the
// workers of the pool run its handlers; a settler exists while there is something
// to settle. The pool's lock guards what stands below asked; nobody holds it while
// waiting.
type lane struct {
	pool  *pool
	where Where
	token partition.Token
	pause time.Duration // before it is opened: the ones before were refused
	again backoff       // of fetches
	ctxs  contexts
	wake  chan struct{} // something live waits for may have changed
	// asked is since when the settler waits for an answer, counted from the pool's
	// beginning; 0: it does not.
	asked atomic.Int64

	stream sources.Stream // nil until it is open; then it does not change
	first  *run           // of those that workers have of it; see runs
	behind *lane          // who is next in the pool's line
	// handlings are those that no run has.
	handlings []*handling
	unwanted  map[string]string // tasks to be cancelled: ID -> why; never changed

	book  book
	sheet sheet
	pace  pace
	phase phase
	times times
}

// contexts are those of a lane: fetching ends with a drain or a loss, calls of the
// store only with a loss, handlers with a loss or the end of the drain time.
type contexts struct {
	fetching, calls, handlers context.Context
	given                     context.Context // handlers, as they get it
	stopFetching, stopCalls   context.CancelFunc
	stopHandlers              context.CancelCauseFunc
}

func newContexts(valid func(time.Time) bool) contexts {
	var c contexts
	c.handlers, c.stopHandlers = context.WithCancelCause(context.Background())
	c.calls, c.stopCalls = context.WithCancel(context.Background())
	c.fetching, c.stopFetching = context.WithCancel(c.calls)
	c.given = &tenure{Context: c.handlers, valid: valid, handOver: c.fetching.Done()}
	return c
}

// A phase is how far a lane is, and what the pool has noted of it on the way.
type phase struct {
	draining bool
	lost     bool
	overdue  bool // the drain time is over
	queued   bool // in the pool's line
	gated    bool // its tasks were refused a start; asked again soon
	halted   bool // ... because its source does not answer, and that was told
	busy     bool // counted in the pool's busy
	telling  int  // events that come before its end and were not told yet
	hungry   bool // live waits for room
	open     int  // tasks that were fetched and that the source has not said it knows to be over
	drained  func()
}

// times are instants of a lane that matter to the alarm; zero: not set.
type times struct {
	granted time.Time
	ended   time.Time // the drain or the loss
	drain   time.Time // the drain time is over
	stuck   time.Time // cancelled handlers should have returned
	alarm   time.Time // what the pool's alarm is set to for this lane
}

// live is the life of the lane.
func (l *lane) live() {
	defer l.pool.lives.Done()
	s := l.open()
	l.work(s, l.listen(s))
}

// work fetches from stream, if there is one, and closes it. failed is what the call before ended
// with, if nobody has looked at it yet.
func (l *lane) work(stream sources.Stream, failed error) {
	if stream != nil {
		l.fetch(stream, failed)
	}
	l.close(stream)
}

// open opens the stream, as often as it takes. It returns nil if the lane is to
// end, or is lost.
func (l *lane) open() sources.Stream {
	if l.pause > 0 && !sleep(l.ctxs.fetching, l.pause) {
		return nil
	}
	var again backoff
	for {
		var s sources.Stream
		err := <-apart("the source's Open", func() (err error) {
			s, err = l.pool.source.Open(l.ctxs.fetching, l.where.Grant, l.token)
			return err
		})
		if err == nil && partition.Absent(s) {
			err = errNoStream
		}
		if err == nil {
			l.pool.mu.Lock()
			l.stream = s
			took := time.Since(l.times.granted)
			l.pool.mu.Unlock()
			l.pool.observe(Opened{Where: l.where, Took: took})
			return s
		}
		if l.ctxs.fetching.Err() != nil {
			return nil
		}
		wait := l.judge(err, &again)
		l.pool.observe(OpenFailed{Where: l.where, Err: err, Again: wait})
		if wait == 0 || !sleep(l.ctxs.fetching, wait) {
			return nil
		}
	}
}

// listen has s say what is to be cancelled, if it can, and returns why it could not.
func (l *lane) listen(s sources.Stream) error {
	c, can := s.(sources.Cancelable)
	if !can {
		return nil
	}
	return <-apart("the source's Cancelled", func() error {
		c.Cancelled(l.ctxs.fetching, func(why map[string]string) []string { return l.pool.cancel(l, why) })
		return nil
	})
}

// fetch takes in tasks until the lane is to end. failed is what the call before ended with, if
// nobody has looked at it yet.
func (l *lane) fetch(s sources.Stream, failed error) {
	for failed == nil || l.fetchesAgain(failed) {
		limit, ok := l.room()
		if !ok {
			return
		}
		var tasks []sources.Task
		tasks, failed = l.ask(s, limit)
		if broken := whole(tasks); broken != nil {
			tasks, failed = nil, broken
		} else if failed == nil && len(tasks) == 0 {
			failed = errEmpty
		}
		if len(tasks) > 0 {
			l.again = backoff{}
			if l.pool.observer != nil {
				l.pool.observer.Observe(Fetched{Where: l.where, Tasks: len(tasks), Limit: limit})
			}
			l.pool.takeIn(l, tasks, len(tasks) >= limit)
		}
	}
}

// fetchesAgain waits as long as it takes after a call that failed with err, and reports whether another is to be made.
func (l *lane) fetchesAgain(err error) bool {
	if l.ctxs.fetching.Err() != nil {
		return false
	}
	wait := l.judge(err, &l.again)
	l.pool.observe(FetchFailed{Where: l.where, Err: err, Again: wait})
	return wait > 0 && sleep(l.ctxs.fetching, wait)
}

// ask makes the source fetch. A Fetch that ends its goroutine (runtime.Goexit, as testing's FailNow
// does) takes this one with it: another goes on, for which that call has failed. It is only the
// source that is tried again: what an observer ends, which must not, would begin anew without a pause.
func (l *lane) ask(s sources.Stream, limit int) (tasks []sources.Task, err error) {
	gone := true
	defer func() {
		if gone {
			l.pool.lives.Go(func() { l.work(s, errGoexit) })
		}
	}()
	tasks, err = tryFetch(l.ctxs.fetching, s, limit)
	gone = false
	return tasks, err
}

// errBroken ends the consumer: what a source does so once, it does each time.
var errBroken = errors.New("the source breaks its contract (see sources.Source; package sourcetest finds what else it may break)")

// errNoStream ends it as well: nothing would ever be worked on.
var errNoStream = fmt.Errorf("Open returned neither a stream nor an error: %w", errBroken)

// errEmpty costs a pause, as every error that may pass: asked again at once it would keep a processor busy.
var errEmpty = errors.New("the source breaks its contract: Fetch returned no task and no error")

// whole returns an error if one of the tasks lacks what is read of each of them, here and
// by handlers.
func whole(tasks []sources.Task) error {
	for i := range tasks {
		if t := &tasks[i]; t.Delivery == nil {
			return fmt.Errorf("Fetch returned task %q, with receipt %d, without a Delivery: %w", t.ID, t.Receipt, errBroken)
		}
	}
	return nil
}

// judge says how long to wait before what failed with err is tried again: zero if
// never, because the ownership is over or the consumer cannot go on.
func (l *lane) judge(err error, again *backoff) time.Duration {
	var fenced *sources.FencedError
	switch {
	case errors.As(err, &fenced) && fenced != nil:
		l.pool.forfeit(l, err)
		l.pool.gate.Fenced(l.where.Grant, fenced.Stored)
	case errors.Is(err, sources.ErrFenced), errors.Is(err, sources.ErrForgot), errors.Is(err, sources.ErrClosed):
		l.pool.forfeit(l, err)
		l.pool.gate.Lost(l.where.Grant, err)
	case errors.Is(err, partition.ErrConfig), errors.Is(err, errBroken):
		l.pool.fatal(err)
	default:
		return again.next()
	}
	return 0
}

// close ends the lane: it waits until its handlers have returned and what ended is
// settled, closes the stream and says that the lane is drained.
func (l *lane) close(s sources.Stream) {
	var again backoff
	for {
		lost := l.quiet()
		if s == nil {
			break
		}
		if lost {
			// Nothing more may be sent under this token: a context that has ended
			// only frees what the stream holds here. That it returns the end of ctx is no news.
			err := l.tryClose(s)
			if _, panicked := errors.AsType[*PanicError](err); panicked || errors.Is(err, errGoexit) {
				l.pool.observe(CloseFailed{Where: l.where, Err: err})
			}
			break
		}
		err := l.tryClose(s)
		if err == nil {
			break
		}
		if l.ctxs.calls.Err() != nil {
			continue // lost meanwhile
		}
		wait := again.next()
		l.pool.observe(CloseFailed{Where: l.where, Err: err, Again: wait})
		sleep(l.ctxs.calls, wait)
	}
	l.pool.leave(l)
}

func (l *lane) tryClose(s sources.Stream) error {
	return <-apart("the source's Close", func() error { return s.Close(l.ctxs.calls) })
}

// quiet waits until the lane is to end and nothing of it runs or is unsettled. It
// reports whether the lane is lost. A lane that found out for itself that it is
// lost waits here for the coordinator, which learns of it and aborts it.
func (l *lane) quiet() (lost bool) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.until(l.ended)
	return l.phase.lost
}

// until waits until done returns true. The caller holds the pool's lock, under which done is asked.
func (l *lane) until(done func() bool) {
	for !done() {
		l.pool.mu.Unlock()
		<-l.wake
		l.pool.mu.Lock()
	}
}

// ended reports whether nothing is left but to close: somebody has asked for it, no handler
// runs, and there is no settler, as there is one for as long as anything is unsettled.
func (l *lane) ended() bool {
	return l.phase.drained != nil && l.book.active == 0 && !l.sheet.settling
}

// told reports whether all that comes before the end of l was told.
func (l *lane) told() bool { return l.phase.telling == 0 }

// A backoff doubles from 20 ms to 2 s.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	const first, most = 20 * time.Millisecond, 2 * time.Second
	b.last = min(max(2*b.last, first), most)
	return b.last
}

// sleep waits for d and reports whether ctx outlived it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// closed reports whether c is.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// poke sends a token that may already be there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

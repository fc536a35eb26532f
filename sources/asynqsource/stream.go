package asynqsource

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// A stream is one ownership of one queue. Fetch and Settle only change what is in
// memory, and wait; one goroutine does the round trips (trip.go), each of which carries
// whatever is waiting when it leaves. Trips are numbered and never overlap.
//
// A progress.Log knows what may be handed out. Its positions are counted by the stream,
// in the order in which tasks came: the store knows them by their ids.
type stream struct {
	source *Source
	grant  partition.Grant
	token  partition.Token
	fence  string // token as the store has it
	queue  string
	keys   keys

	wake  chan struct{} // holds a value if the goroutine has something to look at
	quit  chan struct{} // closed by Close
	ended chan struct{} // closed when the goroutines have returned

	mu      sync.Mutex // never held over a call or a wait
	log     *progress.Log
	items   map[int64]*item    // open tasks, by position
	open    map[string]int64   // their positions, by id
	content map[uint64]content // of verdicts that are not answered, by Seq; see item.end
	tried   map[string]tried   // what the store knows of tasks that were not taken yet
	suspect map[string]bool    // they were perhaps running when their peer died
	hand    []int64            // scratch
	callers logstream.Callers  // who waits
	number  int64              // of the last trip
	seen    int64              // of the last trip that was answered
	atEnd   bool               // pending was empty when it was last looked at
	paused  bool               // somebody has paused the queue
	look    time.Time          // when to look again whatever happens
	lease   time.Time          // when asynq's leases are extended next
	seat    *logstream.Seat    // for the permit
	// keepLocks: the locks of unique tasks outlive their end here, see router.
	keepLocks bool
	err       error // why it is over
	lost      bool  // ... because the fence is another's
	closed    bool

	waiter *waiter
	cancel context.CancelFunc // of the goroutine's calls
}

// An item is an open task: it is in asynq's list of active ones.
type item struct {
	id        string
	raw       string // its message, as it is in the store or will be by the next trip
	key       string
	uniqueKey string
	retention int64
	task      sources.Task
	native    *native // what asynq said of its last run
	end       content // of the verdict that it is done
}

// tried is what the store knows of the runs of a task beside asynq.
type tried struct {
	tries, crashes int
	notBefore      time.Time
	firstError     string
}

// content is what a verdict carries beside the outcome.
type content struct {
	native  *native // asynq's own script says it
	message string  // the new message; empty: none is needed
	delay   time.Duration
	reason  string
	quiet   bool  // the run is not counted among those that failed
	keep    int64 // seconds for which a finished task is kept
	lock    string
}

// everything is a position that is never reached: whatever was taken may be started.
const everything = 1 << 62

func newStream(src *Source, g partition.Grant, tok partition.Token, queue string, o opened) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{
		source: src, grant: g, token: tok, fence: tok.String(), queue: queue, keys: keysOf(queue),
		seat: src.permit.NewSeat(), wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
		log:     progress.New(progress.Config{Window: src.cfg.Window}, progress.Opened{Gate: everything, Writes: o.number}),
		items:   make(map[int64]*item),
		open:    make(map[string]int64),
		content: make(map[uint64]content),
		tried:   o.tried,
		suspect: o.suspects,
		number:  o.number,
		seen:    o.number,
		cancel:  cancel,
	}
	s.waiter = newWaiter(src, s)
	var goroutines sync.WaitGroup
	goroutines.Go(func() { s.run(ctx) })
	goroutines.Go(s.waiter.run)
	go func() {
		goroutines.Wait()
		close(s.ended)
	}()
	return s
}

// take takes in a task that has become active. since is when it became pending, in
// nanoseconds. The caller holds mu.
func (s *stream) take(id, raw string, since int64) {
	if _, known := s.open[id]; known {
		return // it was told again
	}
	pos := s.log.Read()
	m, err := parseMessage(raw)
	if err == nil && m.id != id {
		err = errMessage
	}
	if err == nil {
		err = s.source.cfg.name(&m)
	}
	it := &item{id: id, raw: raw, key: m.key, uniqueKey: m.uniqueKey, retention: m.retention}
	s.items[pos], s.open[id] = it, pos
	s.log.Add(pos, keyHash(m.key))
	s.log.Named(pos)
	t, had := s.tried[id]
	delete(s.tried, id)
	if s.suspect[id] {
		delete(s.suspect, id)
		s.log.Suspect(pos)
	}
	if had {
		s.log.Tried(pos, t.tries, t.notBefore)
	}
	if t.crashes > 0 {
		s.log.Accused(pos)
	}
	if err != nil {
		// Nobody can run it: asynq's own server would only say so, again and again.
		s.record(pos, progress.Dead, 0, content{message: archived(raw, err.Error(), time.Now())})
		return
	}
	if m.born.IsZero() && since > 0 {
		m.born = time.Unix(0, since)
	}
	it.task = sources.Task{
		ID: id, Type: m.typ, Key: m.key, Payload: m.payload, Headers: m.headers, Born: m.born,
		Attempt: max(m.retried, t.tries) + 1, Crashes: t.crashes, NotBefore: t.notBefore, FirstError: t.firstError,
		Grant: s.grant, Token: s.token, Receipt: sources.Receipt(pos),
	}
}

// keyHash is what package progress knows of a key: 0 is no key.
func keyHash(key string) uint64 {
	if key == "" {
		return 0
	}
	return max(1, xxhash.Sum64String(key))
}

// record notes a verdict. The caller holds mu.
func (s *stream) record(pos int64, o progress.Outcome, attempt int, c content) uint64 {
	former := s.log.Seq()
	seq := s.log.Settle(pos, o, attempt)
	if s.log.Seq() != former {
		s.content[seq] = c
	}
	return seq
}

func (s *stream) fail(op string, err error) error {
	return &sources.Error{Op: op, Grant: s.grant, Err: err}
}

// poke leaves a value in c, where one may lie already.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ring says that there may be something new in pending.
func (s *stream) ring() {
	s.mu.Lock()
	s.atEnd = false
	s.mu.Unlock()
	poke(s.wake)
}

// Fetch waits for tasks. See [sources.Stream].
func (s *stream) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	if limit < 1 {
		return nil, s.fail("fetch", errors.New("the limit is below 1"))
	}
	f := logstream.NewFetch(limit)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.source.refused(); err != nil {
			return nil, s.fail("fetch", err)
		}
		s.mu.Lock()
		if s.err != nil {
			s.mu.Unlock()
			return nil, s.fail("fetch", s.err)
		}
		now := time.Now()
		if f.Asked {
			if tasks := s.give(now, limit); len(tasks) > 0 {
				s.mu.Unlock()
				return tasks, nil
			}
			f.Need = s.log.Need()
		} else {
			f.Need = progress.NeedRead
		}
		if told, err := f.Told(); told { // at the same moment as time was up
			s.mu.Unlock()
			if err != nil {
				return nil, err
			}
			continue
		}
		s.callers.Fetch = f
		again := s.log.Due(now)
		s.mu.Unlock()
		poke(s.wake)
		if err := f.Wait(ctx, again, s.seat, func() { s.forget(f) }); err != nil {
			return nil, err
		}
	}
}

// give hands out what may start. The caller holds mu.
func (s *stream) give(now time.Time, limit int) []sources.Task {
	s.hand = s.log.Hand(now, limit, s.hand[:0])
	if s.seat.Look(s.log, s.err != nil) && s.log.WantsPermit() {
		s.hand = s.log.Hand(now, limit-len(s.hand), s.hand)
	}
	if len(s.hand) == 0 {
		return nil
	}
	tasks := make([]sources.Task, len(s.hand))
	for i, pos := range s.hand {
		tasks[i] = s.items[pos].task
	}
	return tasks
}

func (s *stream) forget(f *logstream.Fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers.Forget(f)
}

// raw returns the message of a task that the stream has handed out and that is not
// finished.
func (s *stream) raw(pos int64) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[pos]
	if it == nil || s.err != nil {
		return "", false
	}
	return it.raw, true
}

// said notes what asynq said of the last run of a task.
func (s *stream) said(pos int64, n *native) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.items[pos]; it != nil {
		n.restore(it.raw)
		it.native = n
	}
}

// lose ends the stream because the partition is another's. The caller holds mu.
func (s *stream) lose(err error) {
	s.lost = true
	s.over(err)
}

// over ends the stream for its callers; the first reason stands. The caller holds mu.
func (s *stream) over(err error) {
	if s.err == nil {
		s.err = err
	}
	s.seat.Leave()
	s.tell(s.err)
	s.waiter.idle(false)
}

// tell gives err to all who wait; what they said stays queued. The caller holds mu.
func (s *stream) tell(err error) {
	s.callers.Tell(func(op string) error { return s.fail(op, err) })
}

// Close ends the ownership: what was settled is said to the end, then the fence is
// cleared and what is open given back. See [sources.Stream].
func (s *stream) Close(ctx context.Context) error {
	s.mu.Lock()
	first, lost := !s.closed, s.lost
	if first {
		s.closed = true
		close(s.quit)
		s.over(sources.ErrClosed)
	}
	s.mu.Unlock()
	if first {
		s.waiter.close()
	}
	select {
	case <-s.ended:
	case <-ctx.Done():
		s.cancel()
		<-s.ended
	}
	var err error
	if !lost {
		err = s.finish(ctx)
	}
	if first { // after the fence: the next owner need not wait for what stops here
		s.cancel()
		s.source.leave(s)
	}
	if err != nil {
		return s.fail("close", err)
	}
	return nil
}

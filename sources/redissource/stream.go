package redissource

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// A stream is one ownership of one partition. Fetch and Settle only change what is
// in memory, and wait; one goroutine does the round trips (stream_io.go), each of
// which carries whatever is waiting when it leaves.
type stream struct {
	source *Source
	grant  partition.Grant
	token  partition.Token
	keys   Keys
	store  *redisprogress.Log

	wake   chan struct{} // holds a value if the goroutine has something to look at
	quit   chan struct{} // closed by Close
	ended  chan struct{} // closed when the goroutine has returned
	ticked chan struct{} // closed when no job is fired any more

	mu      sync.Mutex // never held over a call or a wait
	log     *progress.Log
	content map[uint64]redisprogress.Content // of verdicts that are not answered
	tried   map[int64]redisprogress.Tried    // of positions that were not read yet
	locks   map[int64]redisprogress.Lock     // of open tasks
	held    []sources.Task                   // read and not handed out, by position
	hand    []int64                          // scratch
	callers logstream.Callers                // who waits
	rings   uint64                           // bells heard
	weight  int                              // of an element, on average of the last read
	atEnd   bool                             // all there was is read, and the next push rings
	due     time.Time                        // of the next delayed task; zero: none
	stuck   bool                             // Stuck was told
	seat    *logstream.Seat                  // for the permit
	err     error                            // why it is over
	lost    bool                             // ... because the fence is another's
	closed  bool

	cancel context.CancelFunc // of the goroutines' calls
}

func newStream(src *Source, g partition.Grant, tok partition.Token, keys Keys, store *redisprogress.Log, o redisprogress.Opened,
	layout partition.Config) *stream {
	s := &stream{
		seat:   src.permit.NewSeat(),
		source: src, grant: g, token: tok, keys: keys, store: store,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
		log:     progress.New(src.limits(), o.Opened),
		content: make(map[uint64]redisprogress.Content),
		tried:   o.Tried,
		locks:   make(map[int64]redisprogress.Lock),
	}
	now := time.Now()
	if o.Due >= 0 {
		s.due = now.Add(o.Due)
	}
	for _, l := range o.Lifted {
		s.take(l.Position, l.Envelope, now, true)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	src.waker.add(s)
	go s.run(ctx)
	s.tick(ctx, layout)
	return s
}

// take takes in one element of the log. The caller holds mu, or nobody else knows s.
func (s *stream) take(pos int64, element string, now time.Time, lifted bool) {
	e, err := parseEnvelope(element)
	var tried redisprogress.Tried
	had := false
	if len(s.tried) > 0 {
		tried, had = s.tried[pos]
		delete(s.tried, pos)
	}
	if lifted {
		s.log.AddLifted(pos, keyHash(e.key))
	} else if !s.log.Add(pos, keyHash(e.key)) {
		return // finished by an earlier owner
	}
	if had {
		s.log.Tried(pos, tried.Tries, tried.NotBefore)
	}
	if tried.Crashes+e.crashes > 0 {
		s.log.Accused(pos)
	}
	if e.unique {
		s.locks[pos] = lockOf(pos, s.keys, &e)
		s.log.Named(pos)
	}
	if err != nil {
		s.settle(pos, progress.Dead, 0, redisprogress.Content{Body: buryUnread(pos, element, tried, err, true, now)})
		return
	}
	deliver(s.hold(), &e, pos, tried, s.grant, s.token)
}

// hold returns the place of one more task in held, zero. The caller holds mu.
func (s *stream) hold() *sources.Task {
	n := len(s.held)
	if n < cap(s.held) {
		s.held = s.held[:n+1] // what left it was cleared
	} else {
		s.held = append(s.held, sources.Task{})
	}
	return &s.held[n]
}

// settle records a verdict. The caller holds mu.
func (s *stream) settle(pos int64, o progress.Outcome, attempt int, c redisprogress.Content) uint64 {
	before := s.log.Seq()
	seq := s.log.Settle(pos, o, attempt)
	if s.log.Seq() != before && o != progress.Done {
		s.content[seq] = c
	}
	return seq
}

func (s *stream) fail(op string, err error) error {
	return &sources.Error{Op: op, Grant: s.grant, Err: err}
}

// nudge makes the goroutine look.
func (s *stream) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// ring says that there may be something new in the list.
func (s *stream) ring() {
	s.mu.Lock()
	s.rings++
	s.atEnd = false
	s.mu.Unlock()
	s.nudge()
}

// idle reports how long the list should be, and how often the log was written at
// least, while a Fetch waits for the list to grow.
func (s *stream) idle() (i idler, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return idler{s, s.log.Read() - s.log.Base(), s.log.Seen()}, s.callers.Fetch != nil && s.atEnd && s.err == nil
}

func (s *stream) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	if limit < 1 {
		return nil, s.fail("fetch", errors.New("the limit is below 1"))
	}
	f := logstream.NewFetch(limit)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
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
		} else if f.Need = progress.NeedRead; len(s.held) > 0 {
			f.Need = progress.NeedRoundTrip
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
		if s.due.After(now) && (again.IsZero() || s.due.Before(again)) {
			again = s.due
		}
		s.mu.Unlock()
		s.nudge()
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
	if len(s.hand) == len(s.held) { // the same: both are by position
		tasks := s.held
		s.held = nil
		return tasks
	}
	tasks := make([]sources.Task, len(s.hand))
	for n, pos := range s.hand {
		i := sort.Search(len(s.held), func(i int) bool { return int64(s.held[i].Receipt) >= pos })
		tasks[n] = s.held[i]
		if i == 0 {
			s.held[0] = sources.Task{}
			s.held = s.held[1:]
		} else {
			s.held = slices.Delete(s.held, i, i+1)
		}
	}
	return tasks
}

func (s *stream) forget(f *logstream.Fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers.Forget(f)
}

func (s *stream) Settle(ctx context.Context, done ...sources.Settlement) error {
	now := time.Now()
	upto := uint64(0)
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return s.fail("settle", s.err)
	}
	for i := range done {
		seq, err := s.record(&done[i], now)
		if err != nil {
			s.mu.Unlock()
			return s.fail("settle", err)
		}
		upto = max(upto, seq)
	}
	if upto <= s.log.Answered() {
		s.mu.Unlock()
		return nil
	}
	answered := s.callers.Settle(upto)
	s.mu.Unlock()
	s.nudge()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// record takes in one settlement. The caller holds mu.
func (s *stream) record(d *sources.Settlement, now time.Time) (uint64, error) {
	t := d.Task
	pos := int64(t.Receipt)
	// A smaller number of runs never takes the place of a greater, whether that came
	// with the task or with a retry since. (Of retries the log itself sees to it.)
	attempt := max(d.Attempt, t.Attempt-1, s.log.Tries(pos))
	switch d.Outcome {
	case sources.Done:
		return s.settle(pos, progress.Done, d.Attempt, redisprogress.Content{}), nil
	case sources.Retry:
		if d.Attempt < 1 {
			return 0, errors.New("a retry that does not say how often it has run")
		}
		return s.settle(pos, progress.Retry, d.Attempt, redisprogress.Content{Delay: d.Delay, Error: short(d.Reason)}), nil
	case sources.Requeue:
		_, unique := s.locks[pos]
		body := enclose(t, attempt, short(firstOf(t, d.Reason)), unique)
		return s.settle(pos, progress.Requeue, attempt, redisprogress.Content{Delay: d.Delay, Body: body}), nil
	case sources.Dead:
		return s.settle(pos, progress.Dead, attempt, redisprogress.Content{Body: bury(d, attempt, now)}), nil
	}
	return 0, errors.New("a settlement without an outcome")
}

// Close ends the ownership: what was settled is said to the end, then the fence is
// cleared. It returns after the stream's goroutines, which the client's own timeouts
// bound.
func (s *stream) Close(ctx context.Context) error {
	s.mu.Lock()
	first, lost := !s.closed, s.lost
	if first {
		s.closed = true
		close(s.quit)
		s.over(sources.ErrClosed)
	}
	s.mu.Unlock()
	for _, ended := range []chan struct{}{s.ended, s.ticked} {
		select {
		case <-ended:
		case <-ctx.Done():
			s.cancel()
			<-ended
		}
	}
	if first {
		s.source.waker.remove(s)
		s.cancel()
	}
	if lost {
		return nil
	}
	if err := s.finish(ctx); err != nil {
		return s.fail("close", err)
	}
	return nil
}

package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// A stream is one ownership of one partition. The reader brings records, Fetch and
// Settle only change what is in memory, and wait; one goroutine does the round trips
// to the store (stream_io.go), each of which carries whatever is waiting when it
// leaves.
type stream struct {
	source *Source
	grant  partition.Grant
	token  partition.Token
	opened time.Time
	prefix string // of the ids of its tasks

	wake  chan struct{} // holds a value if the goroutine has something to look at
	quit  chan struct{} // closed by Close
	ended chan struct{} // closed when the goroutine has returned

	mu      sync.Mutex // never held over a call or a wait
	buffer  buffer     // read and not taken in
	log     *progress.Log
	content map[uint64]progress.Content // of verdicts that are not answered
	letters map[uint64]*letter          // of dead tasks that are not answered
	tried   map[int64]progress.Tried    // of positions that were not taken in yet
	records shelf                       // of open positions that were taken in
	again   redeliveries                // of tasks that come again
	held    []sources.Task              // taken in and not handed out, by position
	hand    []int64                     // scratch
	callers logstream.Callers           // who waits
	said    time.Time                   // when the store last answered
	stuck   bool                        // Stuck was told
	seat    *logstream.Seat             // for the permit
	readErr error                       // why nothing is read; told to the next Fetch
	err     error                       // why it is over
	lost    bool                        // ... because the fence is another's
	closed  bool

	cancel context.CancelFunc // of the goroutine's calls
}

func newStream(src *Source, g partition.Grant, tok partition.Token, f progress.Found, lifted []*kgo.Record) *stream {
	s := &stream{
		seat:   src.permit.NewSeat(),
		source: src, grant: g, token: tok, opened: time.Now(), prefix: fmt.Sprintf("%s-%d-", src.cfg.Topic, g.ID),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
		log:     progress.New(src.limits(), f.Opened),
		content: make(map[uint64]progress.Content),
		letters: make(map[uint64]*letter),
		tried:   f.Tried,
		said:    time.Now(),
	}
	s.take(lifted, true)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.run(ctx)
	return s
}

// take takes in records of the log, by position. The caller holds mu, or nobody else
// knows s.
func (s *stream) take(records []*kgo.Record, lifted bool) {
	s.held = slices.Grow(s.held, len(records))
	clear(s.held[len(s.held) : len(s.held)+len(records)]) // takeOne fills in what a task has
	n := names{prefix: s.prefix}
	n.grow(records)
	for _, r := range records {
		s.takeOne(r, lifted, &n)
	}
}

func (s *stream) takeOne(r *kgo.Record, lifted bool, n *names) {
	if r.Attrs.IsControl() {
		s.log.Skip(r.Offset + 1)
		return
	}
	var tried progress.Tried
	had := false
	if len(s.tried) > 0 {
		tried, had = s.tried[r.Offset]
		delete(s.tried, r.Offset)
	}
	if lifted {
		s.log.AddLifted(r.Offset, keyHash(r.Key))
	} else if !s.log.Add(r.Offset, keyHash(r.Key)) {
		return // finished by an earlier owner
	}
	if had {
		s.log.Tried(r.Offset, tried.Tries, tried.NotBefore)
	}
	if tried.Crashes > 0 {
		s.log.Accused(r.Offset)
	}
	s.records.put(r)
	s.held = s.held[:len(s.held)+1] // there is room, and it is zero: see its caller
	t := &s.held[len(s.held)-1]     // made where it stays: it is large
	t.Grant, t.Token, t.Attempt = s.grant, s.token, 1
	if had {
		t.Attempt, t.Crashes, t.NotBefore, t.FirstError = tried.Tries+1, tried.Crashes, tried.NotBefore, tried.FirstError
	}
	deliver(t, r, n)
}

// arrive takes what the reader brings, and reports whether it is to pause.
func (s *stream) arrive(f *kgo.FetchPartition, share int) (pause bool) {
	s.mu.Lock()
	expected := s.log.Read()
	if n := len(s.buffer.records); n > 0 {
		expected = s.buffer.records[n-1].Offset + 1
	}
	if f.LogStartOffset > expected {
		// The client does not tell of a position that is gone if it did not know the
		// topic yet when it was added: it goes on where the topic begins now.
		s.mu.Unlock()
		s.readFailed(kerr.OffsetOutOfRange)
		return true
	}
	s.buffer.most = share
	s.buffer.put(f.Records)
	pause = s.buffer.full()
	s.mu.Unlock()
	s.nudge()
	return pause
}

// readFailed takes in that the reader cannot read the partition, and has paused it.
func (s *stream) readFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffer.paused = true
	if gone(err) {
		s.over(errors.Join(sources.ErrForgot, err))
		return
	}
	s.readErr = explain(err)
	if s.callers.Fetch != nil {
		s.callers.TellFetch(s.fail("fetch", s.readErr))
		s.readErr = nil
	}
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
		if err := s.trouble(); err != nil {
			s.mu.Unlock()
			return nil, s.fail("fetch", err)
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
		if due := s.again.due(); !due.IsZero() && (again.IsZero() || due.Before(again)) {
			again = due
		}
		s.mu.Unlock()
		s.nudge()
		if err := f.Wait(ctx, again, s.seat, func() { s.forget(f) }); err != nil {
			return nil, err
		}
	}
}

// trouble returns why a Fetch cannot go on. What only the reader has met is told
// once, and tried again. The caller holds mu.
func (s *stream) trouble() error {
	if s.err != nil {
		return s.err
	}
	err := s.readErr
	s.readErr = nil
	if err == nil && s.buffer.thirsty() {
		s.source.reader.resume(s)
	}
	return err
}

// give hands out what may start. The caller holds mu.
func (s *stream) give(now time.Time, limit int) []sources.Task {
	tasks := s.again.take(now, limit)
	limit -= len(tasks)
	s.hand = s.log.Hand(now, limit, s.hand[:0])
	if s.seat.Look(s.log, s.err != nil) && s.log.WantsPermit() {
		s.hand = s.log.Hand(now, limit-len(s.hand), s.hand)
	}
	if len(tasks) == 0 && len(s.hand) == len(s.held) { // the same: both are by position
		tasks, s.held = s.held, nil
		return tasks
	}
	tasks = slices.Grow(tasks, len(s.hand))
	for _, pos := range s.hand {
		tasks = append(tasks, s.unhold(pos))
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

// Close ends the ownership: what was settled is said to the end, then the fence is
// cleared. Before that nothing of the partition is read any more.
func (s *stream) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	if first {
		s.closed = true
		close(s.quit)
		s.over(sources.ErrClosed)
	}
	s.mu.Unlock()
	select {
	case <-s.ended:
	case <-ctx.Done():
		s.cancel()
		<-s.ended
	}
	if first {
		s.cancel()
		s.source.reader.remove(s)
		defer s.source.mirror.remove(s)
	}
	if err := s.finish(ctx); err != nil {
		return s.fail("close", err)
	}
	return nil
}

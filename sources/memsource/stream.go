package memsource

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A stream is the caller's side of one ownership: it knows what the caller has and
// says to the log what is to be recorded.
type stream struct {
	log  *log
	link Link
	g    partition.Grant
	tok  partition.Token
	kick chan struct{} // holds a value after an answer changed hand

	mu     sync.Mutex // never held over a call or a wait
	hand   hand
	next   int64  // the log was read up to here
	seen   uint64 // writes the log has told of
	closed bool   // Close was called
	over   bool   // and answered

	// batch is what was chosen and not yet returned; the log may not know that it
	// starts. Only Fetch uses it.
	batch choice
}

func open(ctx context.Context, s *Store, link Link, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	st := &stream{link: link, g: g, tok: tok, kick: make(chan struct{}, 1), hand: newHand()}
	l, err := s.log(g.ID)
	if err == nil && (tok.Epoch != g.Epoch || tok.Epoch == 0) {
		err = errors.New("the token is not of the grant's epoch")
	}
	if err != nil {
		return nil, &sources.Error{Op: "open", Grant: g, Err: err}
	}
	writes, err := call(ctx, link, "open", func() (uint64, error) { return l.open(g, tok) })
	if fenced, ok := errors.AsType[*sources.FencedError](err); ok {
		return nil, fenced
	}
	if err != nil {
		return nil, &sources.Error{Op: "open", Grant: g, Err: err}
	}
	st.log, st.seen = l, writes
	return st, nil
}

// call does f at the store, over the peer's link, and returns its first reply.
func call[A any](ctx context.Context, link Link, op string, f func() (A, error)) (A, error) {
	if link == nil {
		return f()
	}
	type reply struct {
		answer A
		err    error
	}
	first := make(chan reply, 1)
	err := link(ctx, op, func() {
		a, err := f()
		select {
		case first <- reply{a, err}:
		default: // executed again, or late: nobody hears of it
		}
	})
	var r reply
	if err != nil {
		return r.answer, err
	}
	select {
	case r = <-first:
		return r.answer, r.err
	default:
		return r.answer, errors.New("the link brought no reply")
	}
}

func (s *stream) failed(op string, err error) error {
	return &sources.Error{Op: op, Grant: s.g, Err: err}
}

// learn notes that the log has told of n writes.
func (s *stream) learn(n uint64) { s.seen = max(s.seen, n) }

func (s *stream) state() (seen uint64, next int64, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen, s.next, s.closed
}

func (s *stream) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	if limit < 1 {
		return nil, s.failed("fetch", errors.New("the limit is below 1"))
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := s.choose(ctx, limit)
		if err != nil {
			return nil, err
		}
		if len(s.batch.tasks) > 0 {
			return s.deliver(ctx, limit)
		}
		if err := s.wait(ctx, a); err != nil {
			return nil, err
		}
	}
}

// choose fills the batch if there is something to start; otherwise the look that it
// returns says what to wait for.
func (s *stream) choose(ctx context.Context, limit int) (look, error) {
	s.mu.Lock()
	want := max(0, limit-len(s.hand.held))
	s.mu.Unlock()
	for ; ; want = limit {
		seen, next, closed := s.state()
		if closed {
			return look{}, s.failed("fetch", sources.ErrClosed)
		}
		if len(s.batch.tasks) > 0 {
			return look{}, nil // chosen before: the answer to recording it was lost, or the limit smaller
		}
		a, err := call(ctx, s.link, "read", func() (look, error) { return s.log.read(s.g, s.tok, seen, next, want) })
		if err != nil {
			return look{}, s.failed("fetch", err)
		}
		s.mu.Lock()
		s.learn(a.writes)
		s.next = a.next
		s.hand.held = append(s.hand.held, a.tasks...)
		s.batch = s.hand.choose(limit)
		s.mu.Unlock()
		if len(s.batch.tasks) > 0 || s.batch.blocked || want > 0 && len(a.tasks) == 0 {
			return a, nil
		}
	}
}

// deliver records the batch as started, and only then hands it out. If the answer
// is lost, the same batch is recorded again by the next Fetch: were it chosen anew,
// it could be another suspect, and two would be under way where each has to be
// alone.
func (s *stream) deliver(ctx context.Context, limit int) ([]sources.Task, error) {
	positions := make([]int64, len(s.batch.tasks))
	for i, f := range s.batch.tasks {
		positions[i] = f.pos
	}
	seen, _, _ := s.state()
	writes, err := call(ctx, s.link, "fetch", func() (uint64, error) { return s.log.start(s.tok, seen, positions) })
	if err != nil {
		return nil, s.failed("fetch", err)
	}
	s.mu.Lock()
	s.learn(writes)
	s.mu.Unlock()
	n := min(limit, len(s.batch.tasks))
	tasks := make([]sources.Task, n)
	for i, f := range s.batch.tasks[:n] {
		tasks[i] = f.task
	}
	s.batch.tasks = s.batch.tasks[n:]
	return tasks, nil
}

// wait blocks until something may have become ready since a.
func (s *stream) wait(ctx context.Context, a look) error {
	var due <-chan time.Time
	if !a.due.IsZero() {
		t := time.NewTimer(time.Until(a.due))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-a.changed:
	case <-s.kick:
	case <-due:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (s *stream) Settle(ctx context.Context, done ...sources.Settlement) error {
	seen, _, closed := s.state()
	if closed {
		return s.failed("settle", sources.ErrClosed)
	}
	writes, err := call(ctx, s.link, "settle", func() (uint64, error) { return s.log.settle(s.tok, seen, done) })
	if err != nil {
		return s.failed("settle", err)
	}
	s.mu.Lock()
	s.learn(writes)
	for _, d := range done {
		s.hand.settled(int64(d.Task.Receipt), d.Outcome)
	}
	s.mu.Unlock()
	select { // Fetch may have looked between the store's answer and this
	case s.kick <- struct{}{}:
	default:
	}
	return nil
}

func (s *stream) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	over := s.over
	s.mu.Unlock()
	if over {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return s.failed("close", err) // the log hears nothing
	}
	if _, err := call(ctx, s.link, "close", func() (struct{}, error) { s.log.close(s.tok); return struct{}{}, nil }); err != nil {
		return s.failed("close", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return nil
}

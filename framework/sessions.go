package framework

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/countoff/countoff/transition"
)

// sessions are the runs of a consumer or of a peer of units, one after the other: each is a
// session of its own, and the next begins when nothing is left of the one before.
type sessions[S oneSession] struct {
	whose string   // as in `consumer "mail-sender"`
	next  func() S // begins one
	ends  ends

	// weighing is held while a weight is set and told: one that is set while a session begins is not lost.
	weighing sync.Mutex
	weight   int // of the current session and the next ones

	mu    sync.Mutex
	began bool // last is one
	last  S    // the current or the last one
}

// oneSession is one run, from Start until the last goroutine has returned.
type oneSession interface {
	ended() <-chan struct{}     // is closed then
	stopping() bool             // it is on its way out: it was asked to stop, or could not go on
	stop(context.Context) error // asks to stop and waits for the end; with ctx the stop turns hard
	ready() error               // says what is missing
	failure() error             // why it could not go on, once it has ended
	// part returns by what it takes part, nil before it does, and whether another indexer than the ledger's rolls
	// counts it.
	part() (co *transition.Coordinator, counted bool)
}

// now returns the current session, or the last one; not ok before the first.
func (s *sessions[S]) now() (last S, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.began
}

// start begins a session unless there is one, once no earlier one is on its way out.
func (s *sessions[S]) start(ctx context.Context) error {
	if err := s.free(ctx); err != nil {
		return err
	}
	s.begin()
	return nil
}

// free waits until no earlier session is on its way out.
func (s *sessions[S]) free(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("start %s: %w", s.whose, err)
		}
		former, ok := s.now()
		if !ok || closed(former.ended()) || !former.stopping() {
			return nil
		}
		select {
		case <-former.ended():
		case <-ctx.Done():
		}
	}
}

// begin begins a session, after free, unless there is one. One that is on its way out by now was
// stopped by somebody else, or could not go on: as if that had come just after begin.
func (s *sessions[S]) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began || closed(s.last.ended()) {
		s.last, s.began = s.next(), true
	}
}

func (s *sessions[S]) hear(do func(error)) (enough func()) { return s.ends.hear(do) }

// tell says that a session has ended, and why it could not go on.
func (s *sessions[S]) tell(failure error) { s.ends.tell(s.named(failure)) }

func (s *sessions[S]) stop(ctx context.Context) error {
	last, ok := s.now()
	if !ok {
		return nil
	}
	if err := last.stop(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", s.whose, err)
	}
	return nil
}

// run starts a session, waits until ctx ends or it cannot go on, and calls stop. It returns why
// it could not go on, and what stop returned.
func (s *sessions[S]) run(ctx context.Context, stop func() error) error {
	if s.start(ctx) != nil { // ctx has ended and nothing began: what runs was started by somebody else
		return stop()
	}
	select {
	case <-ctx.Done():
		return errors.Join(stop(), s.failure())
	case <-s.ended():
		return s.failure()
	}
}

// ended is closed when nothing is left of the current session; nil before the first.
func (s *sessions[S]) ended() <-chan struct{} {
	last, ok := s.now()
	if !ok {
		return nil
	}
	return last.ended()
}

// failure returns why the last session could not go on, once it has ended.
func (s *sessions[S]) failure() error {
	last, ok := s.now()
	if !ok || !closed(last.ended()) {
		return nil
	}
	return s.named(last.failure())
}

// part is that of the current session.
func (s *sessions[S]) part() (co *transition.Coordinator, counted bool) {
	if last, ok := s.now(); ok {
		return last.part()
	}
	return nil, false
}

// setWeight sets the weight, and tells the current session.
func (s *sessions[S]) setWeight(weight int) error {
	if weight < 1 {
		return fmt.Errorf("%s: weight %d: want at least 1", s.whose, weight)
	}
	s.weighing.Lock()
	defer s.weighing.Unlock()
	co, counted := s.part()
	if counted && weight > 1 {
		return fmt.Errorf("%s: weight %d needs the ledger's rolls: the configured indexer counts every peer once", s.whose, weight)
	}
	s.weight = weight
	if co != nil {
		co.SetWeight(weight)
	}
	return nil
}

// nextWeight is the weight that a session begins with.
func (s *sessions[S]) nextWeight() int {
	s.weighing.Lock()
	defer s.weighing.Unlock()
	return s.weight
}

// weigh tells co the weight, once setWeight can find it: before that there was nobody to tell of a change.
func (s *sessions[S]) weigh(co *transition.Coordinator) {
	s.weighing.Lock()
	defer s.weighing.Unlock()
	co.SetWeight(s.weight)
}

func (s *sessions[S]) ready() error {
	last, ok := s.now()
	if !ok {
		return fmt.Errorf("%s: not started", s.whose)
	}
	return s.named(last.ready())
}

// named says whose err is, if there is one.
func (s *sessions[S]) named(err error) error {
	if err == nil {
		return nil
	}
	return named(s.whose, err)
}

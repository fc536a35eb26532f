package framework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// A session is one run of a consumer, from Start until the last goroutine has
// returned. It is never used again: the next run is another session.
type session struct {
	c    *Consumer
	id   partition.Session
	done chan struct{} // closed at the end; err and hard may be read then
	err  error         // why it could not go on
	hard error         // it was stopped hard; guarded by mu before done is closed

	prepare, run         context.Context // end with a stop; with a hard stop
	stopPrepare, stopRun context.CancelFunc

	checkup  checkup
	observer Observer // nil: nobody listens; one that fails ends the session

	mu          sync.Mutex
	final       bool  // no stop changes anything any more, though done may still be open
	troubled    error // why it has not started to take part yet
	pool        *pool // nil before it takes part
	coordinator *transition.Coordinator
	counted     bool        // by another indexer than the ledger's rolls
	asked       time.Time   // to stop; zero: not yet
	harden      *time.Timer // turns the stop hard
}

func newSession(c *Consumer) *session {
	s := &session{c: c, id: transition.NewSession(), done: make(chan struct{})}
	s.observer = guard(c.observer, s.fail)
	s.checkup = newCheckup(c.name, c.health, c.cfg.Timing, s.observe)
	s.run, s.stopRun = context.WithCancel(context.Background())
	s.prepare, s.stopPrepare = context.WithCancel(s.run)
	go s.live()
	return s
}

func (s *session) ended() <-chan struct{} { return s.done }

func (s *session) failure() error { return s.err }

// stopping reports whether the session was asked to stop, or takes part no more and waits for
// its last handlers.
func (s *session) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.asked.IsZero() || s.prepare.Err() != nil
}

func (s *session) observe(e Event) { observe(s.observer, e) }

// live is the life of the session.
func (s *session) live() {
	for _, w := range s.c.warnings {
		s.observe(Warned{Consumer: s.c.name, Warning: w})
	}
	err := s.work()
	s.stopRun()
	s.mu.Lock()
	if s.harden != nil {
		s.harden.Stop()
	}
	switch {
	case err == nil:
	case s.hard != nil:
		s.hard = fmt.Errorf("%w: %w", s.hard, err)
	case isLeft(err):
		s.hard = err
	case s.err == nil:
		s.err = err
	}
	var took time.Duration
	if !s.asked.IsZero() {
		took = time.Since(s.asked)
	}
	told := errors.Join(s.err, s.hard)
	s.final = true // a stop that turns hard while the end is told comes too late to have cut anything
	s.mu.Unlock()
	s.observe(Stopped{Consumer: s.c.name, Took: took, Err: told})
	s.mu.Lock()
	why := s.err // an observer may have failed at that
	s.mu.Unlock()
	s.c.sessions.tell(why)
	s.mu.Lock()
	close(s.done)
	s.mu.Unlock()
}

// isLeft reports whether err is what an orderly stop left behind: its last word, which the
// ledger did not answer, or handlers that had not returned.
func isLeft(err error) bool {
	_, unheard := errors.AsType[*transition.UnheardError](err)
	_, stuck := errors.AsType[*transition.StuckError](err)
	return unheard || stuck
}

// work takes part until it is stopped or cannot go on.
func (s *session) work() error {
	found, err := question{
		name: s.c.name, layout: s.c.source.Layout, control: s.c.control, peer: s.c.peer, within: s.c.cfg.Timing.Lease, failed: s.notYet,
	}.ask(s.prepare)
	if err != nil || s.prepare.Err() != nil {
		return err
	}
	p := newPool(s.crew(found))
	defer p.close()
	co, err := transition.NewCoordinator(s.peer(found, p))
	if err != nil {
		return err
	}
	p.gate = turnstile{co, co.Filter()}
	s.mu.Lock()
	s.pool, s.coordinator, s.counted = p, co, found.indexer != nil
	asked := s.asked
	s.mu.Unlock()
	s.c.mu.Lock()
	co.SetWeight(s.c.weight) // it may have changed before there was anybody to tell, and cannot while it is told
	s.c.mu.Unlock()
	if !asked.IsZero() {
		return nil // the stop found no coordinator to tell
	}
	s.observe(Started{Consumer: s.c.name, Peer: found.peer, Session: s.id, Config: found.layout, Takeover: s.c.cfg.Timing.Takeover()})
	defer s.stopPrepare() // whoever starts it again waits for handlers that have not returned
	defer s.look(found, co)()
	return co.Run(s.run)
}

// crew is what the pool is made of.
func (s *session) crew(found found) crew {
	return crew{
		name:     s.c.name,
		session:  s.id,
		source:   s.c.source,
		handler:  s.c.handler,
		cfg:      s.c.cfg,
		total:    found.layout.Total,
		observer: s.observer,
		random:   rand.Float64,
		fatal:    s.fail,
	}
}

// peer is the session as the coordinator knows it.
func (s *session) peer(found found, p *pool) transition.Config {
	return transition.Config{
		Ledger:   found.ledger,
		Tenant:   p,
		Config:   found.layout,
		Timing:   s.c.cfg.Timing,
		Peer:     found.peer,
		Yield:    s.c.peer == "",
		Weight:   s.c.nextWeight(),
		Tags:     s.c.tags,
		Unwell:   s.c.health != nil,
		Session:  s.id,
		Strategy: s.c.strategy,
		Barrier:  s.c.barrier,
		Indexer:  found.indexer,
		Observer: coordinated(s.c.name, s.observer),
	}
}

// look begins to look after the name and after the peer's health; enough ends that and waits for it.
func (s *session) look(found found, co *transition.Coordinator) (enough func()) {
	looking, stop := context.WithCancel(s.run)
	var looks sync.WaitGroup
	survey := s.c.survey
	if survey == nil && s.observer != nil { // else nobody would hear of it
		survey = dataless
	}
	if survey != nil {
		looks.Go(func() {
			p := patrol{
				name: s.c.name, survey: survey, timing: s.c.cfg.Timing,
				layout: found.layout, view: co.View, observe: s.observe,
				lead: lead{ledger: found.ledger, rolls: found.indexer == nil},
			}
			p.run(looking)
		})
	}
	if s.c.health != nil {
		looks.Go(func() { s.checkup.run(looking, co) })
	}
	return func() {
		stop()
		looks.Wait()
	}
}

// notYet takes note that the source or the ledger has not answered.
func (s *session) notYet(err error, again time.Duration) {
	s.mu.Lock()
	s.troubled = err
	s.mu.Unlock()
	s.observe(StartFailed{Consumer: s.c.name, Err: err, Again: again})
}

// turnstile is what the workers ask before each start.
type turnstile struct {
	*transition.Coordinator
	filter *partition.Filter
}

func (t turnstile) Has(id partition.ID) bool { return t.filter.Has(id) }

// stop asks to stop and waits for it. It turns hard with ctx.
func (s *session) stop(ctx context.Context) error {
	s.leave()
	select {
	case <-s.done:
	case <-ctx.Done():
		s.cut()
		<-s.done
	}
	return s.hard
}

// leave begins an orderly stop.
func (s *session) leave() {
	t := s.c.cfg.Timing
	// What is left after it is for handlers that it cancels. At the end of the shutdown they are cancelled
	// in any case, and what they do in the cancel grace counts: there is nothing to gain before that is over.
	soft := max(s.c.cfg.StopTimeout-t.CancelGrace, t.Shutdown+t.CancelGrace)
	s.mu.Lock()
	if !s.asked.IsZero() || s.final {
		s.mu.Unlock()
		return
	}
	s.asked = time.Now()
	s.harden = time.AfterFunc(soft, s.cut)
	p, co := s.pool, s.coordinator
	s.mu.Unlock()
	s.observe(Stopping{Consumer: s.c.name, Within: soft})
	s.stopPrepare()
	if co != nil {
		p.stopWithin(s.c.cfg.Timing.Shutdown)
		co.Stop()
	}
}

// cut turns a stop hard.
func (s *session) cut() {
	s.mu.Lock()
	if s.hard != nil || s.final {
		s.mu.Unlock()
		return
	}
	s.hard = fmt.Errorf("%w hard", ErrStopped)
	p := s.pool
	s.mu.Unlock()
	if p != nil {
		p.abortAll(ErrStopped) // before the coordinator aborts them, so that the handlers learn why
	}
	s.stopRun()
}

// fail ends the session because of err.
func (s *session) fail(err error) {
	s.mu.Lock()
	if s.err == nil && !closed(s.done) {
		s.err = err
	}
	s.mu.Unlock()
	s.leave()
}

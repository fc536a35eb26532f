package framework

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// A session is one run of a consumer, from Start until the last goroutine has
// returned. It is never used again: the next run is another session.
type session struct {
	course
	c  *Consumer
	id partition.Session

	prepare, run         context.Context // end with a stop; with a hard stop
	stopPrepare, stopRun context.CancelFunc

	checkup checkup
	heard   hearing

	// Guarded by mu.
	pool        *pool // nil before it takes part
	coordinator *transition.Coordinator
	counted     bool        // by another indexer than the ledger's rolls
	asked       time.Time   // to stop; zero: not yet
	harden      *time.Timer // turns the stop hard
}

func newSession(c *Consumer) *session {
	s := &session{course: newCourse(c.name), c: c, id: transition.NewSession()}
	s.observer = guard(c.observer, s.fail)
	s.checkup = newCheckup(c.name, c.health, c.cfg.Timing, s.observe)
	s.run, s.stopRun = context.WithCancel(context.Background())
	s.prepare, s.stopPrepare = context.WithCancel(s.run)
	go s.live()
	return s
}

// stopping reports whether the session was asked to stop, or takes part no more and waits for
// its last handlers.
func (s *session) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.asked.IsZero() || s.prepare.Err() != nil
}

func (s *session) part() (co *transition.Coordinator, counted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.coordinator, s.counted
}

// live is the life of the session.
func (s *session) live() {
	for _, w := range s.c.warnings {
		s.observe(Warned{Consumer: s.name, Warning: w})
	}
	err := s.work()
	s.stopRun()
	s.mu.Lock()
	if s.harden != nil {
		s.harden.Stop()
	}
	var took time.Duration
	if !s.asked.IsZero() {
		took = time.Since(s.asked)
	}
	told := s.conclude(err)
	s.mu.Unlock()
	s.end(Stopped{Consumer: s.name, Took: took, Err: told}, s.c.sessions.tell)
}

// work takes part until it is stopped or cannot go on.
func (s *session) work() error {
	found, err := question{
		name: s.name, layout: s.c.source.Layout, control: s.c.control, peer: s.c.peer, within: s.c.cfg.Timing.Lease, failed: s.notYet,
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
	s.c.sessions.weigh(co)
	if !asked.IsZero() {
		return nil // the stop found no coordinator to tell
	}
	s.observe(Started{Consumer: s.name, Peer: found.peer, Session: s.id, Config: found.layout, Takeover: s.c.cfg.Timing.Takeover()})
	defer s.stopPrepare() // whoever starts it again waits for handlers that have not returned
	defer s.look(found, co)()
	return co.Run(s.run)
}

// crew is what the pool is made of.
func (s *session) crew(found found) crew {
	return crew{
		name:     s.name,
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
		Weight:   s.c.sessions.nextWeight(),
		Tags:     s.c.tags,
		Unwell:   s.c.health != nil,
		Session:  s.id,
		Strategy: s.c.strategy,
		Barrier:  s.c.barrier,
		Indexer:  found.indexer,
		Observer: s.heard.before(coordinated(s.name, s.observer)),
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
				name: s.name, survey: survey, timing: s.c.cfg.Timing,
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

// turnstile is what the workers ask before each start.
type turnstile struct {
	*transition.Coordinator
	filter *partition.Filter
}

func (t turnstile) Has(id partition.ID) bool { return t.filter.Has(id) }

// stop asks to stop and waits for it. It turns hard with ctx.
func (s *session) stop(ctx context.Context) error {
	s.leave()
	return s.outlast(ctx, s.cut)
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
	s.observe(Stopping{Consumer: s.name, Within: soft})
	s.stopPrepare()
	if co != nil {
		p.stopWithin(s.c.cfg.Timing.Shutdown)
		co.Stop()
	}
}

// cut turns a stop hard.
func (s *session) cut() {
	s.mu.Lock()
	if s.left != nil || s.final {
		s.mu.Unlock()
		return
	}
	s.left = errHard
	p := s.pool
	s.mu.Unlock()
	if p != nil {
		p.abortAll(ErrStopped) // before the coordinator aborts them, so that the handlers learn why
	}
	s.stopRun()
}

// fail ends the session because of err.
func (s *session) fail(err error) {
	s.fails(err)
	s.leave()
}

package framework

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// ErrHandedOver is the cause with which the context of an [Admission] ends when its
// partition is to be another peer's. A [Handler] returns it, or an error that wraps it, to leave
// its task to the next owner once [HandOver] has told it of one; before that it is an error like any other.
var ErrHandedOver = errors.New("the partition is handed over")

// ErrLeaving is an [ErrHandedOver] whose reason is that this peer stops.
var ErrLeaving = fmt.Errorf("%w: this peer stops", ErrHandedOver)

// A ShareConfig is what a [Share] may be told. Ledger must be given.
type ShareConfig struct {
	Ledger transition.Ledger
	// Partitions, Timing and Peer are those of a consumer; Partitions and Timing must be what
	// the ledger was made with, others are refused. Default: 256 partitions, the defaults of
	// [transition.Timing], the session as the peer's id.
	Partitions partition.Config
	Timing     transition.Timing
	Peer       string
	Weight     int            // share of the work relative to the other peers; default 1
	Tags       partition.Tags // what the peer has, for partitions that ask for some
	// Health says how the peer is; see [WithHealth]. What it says is told as [Checked].
	// Default: always well.
	Health   func(ctx context.Context) error
	Barrier  bool               // every change of the peers stops them all; see WithBarrier
	Strategy partition.Strategy // default partition.Sticky, with a barrier partition.Modulo
	Indexer  partition.Indexer  // default: the ledger's rolls, which Weight, Tags, Health and Barrier need
	Observer Observer           // default: nobody listens
}

// A Share is a peer without a source: it says which keys are this process's to work on, for loops
// over what no source hands out, such as the rows of a table, files or an API.
//
// The context of an admitted key ends when its partition is to be handed over or is lost; the
// partition is given up only once all its admissions were released. Several admissions of one key
// in one process are possible: to keep them apart is up to the loop. All methods may be called
// concurrently.
type Share struct {
	name        string
	cfg         ShareConfig
	coordinator *transition.Coordinator
	checkup     checkup
	heard       hearing

	mu      sync.Mutex
	serving map[partition.ID]*place
	ending  map[partition.Grant]*place
	awaited map[partition.ID]chan struct{} // closed, and taken out, when the partition is served
	ran     bool
	leaving bool
	over    bool
	failed  error // the observer has
}

// A place is one ownership of a partition.
type place struct {
	grant   partition.Grant
	ctx     context.Context
	cancel  context.CancelCauseFunc
	lost    atomic.Bool // it may be another's; whatever the lease says later
	running int         // admissions that were not released
	drained func()      // to be called once none is; nil while it is served
}

// NewShare returns a peer of name that has not begun. It says all that is wrong with cfg at
// once.
func NewShare(name string, cfg ShareConfig) (*Share, error) {
	var s *Share
	cfg.Observer = guard(cfg.Observer, func(err error) { s.fail(err) })
	var err error
	s, err = newShare(name, cfg, false)
	if wrong := transition.CheckLayout(cfg.Ledger, cfg.Partitions); wrong != nil {
		return nil, errors.Join(err, fmt.Errorf("share %q: %w", name, wrong))
	}
	return s, err
}

// newShare is NewShare of a peer that takes another id if yield is set and somebody has its own.
func newShare(name string, cfg ShareConfig, yield bool) (*Share, error) {
	cfg.Partitions = cfg.Partitions.WithDefaults()
	cfg.Timing = cfg.Timing.WithDefaults()
	s := &Share{
		name: name, cfg: cfg,
		serving: map[partition.ID]*place{}, ending: map[partition.Grant]*place{},
		awaited: map[partition.ID]chan struct{}{},
	}
	co, err := transition.NewCoordinator(transition.Config{
		Ledger: cfg.Ledger, Tenant: (*tenancy)(s), Config: cfg.Partitions, Timing: cfg.Timing,
		Peer: cfg.Peer, Yield: yield, Weight: cfg.Weight, Tags: cfg.Tags, Unwell: cfg.Health != nil,
		Strategy: cfg.Strategy, Barrier: cfg.Barrier, Indexer: cfg.Indexer, Observer: s.heard.before(coordinated(name, cfg.Observer)),
	})
	if err := errors.Join(partition.CheckName(name), err, partition.SameName(name, "ledger", cfg.Ledger)); err != nil {
		return nil, named(fmt.Sprintf("share %q", name), err)
	}
	s.coordinator = co
	s.checkup = newCheckup(name, cfg.Health, cfg.Timing, func(e Event) { observe(cfg.Observer, e) })
	return s, nil
}

// Run takes part until ctx ends, then hands over: the contexts of all admissions end, and it
// waits until they are released, for at most Timing.Shutdown, the cancel grace and 2 s. It
// returns nil if all was handed over, otherwise what was not, or why it could not go on. A share
// runs once: another call is an error and changes nothing.
func (s *Share) Run(ctx context.Context) error { return s.runUntil(ctx, context.Background()) }

// runUntil is Run, with an end of the handing over when hard ends.
func (s *Share) runUntil(ctx, hard context.Context) error {
	s.mu.Lock()
	again := s.ran
	s.ran = true
	s.mu.Unlock()
	if again {
		return fmt.Errorf("share %q: it runs once: make another one", s.name)
	}
	leave := context.AfterFunc(ctx, s.leave)
	defer leave()
	var looks sync.WaitGroup
	looking, enough := context.WithCancel(hard)
	if s.cfg.Health != nil {
		looks.Go(func() { s.checkup.run(looking, s.coordinator) })
	}
	err := s.coordinator.Run(hard)
	enough()
	looks.Wait()
	s.mu.Lock()
	s.over = true
	for _, served := range s.awaited {
		close(served)
	}
	clear(s.awaited)
	err = errors.Join(s.failed, err)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("share %q: %w", s.name, err)
	}
	return nil
}

func (s *Share) leave() {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	s.coordinator.Stop()
}

// fail ends the share because of err.
func (s *Share) fail(err error) {
	s.mu.Lock()
	if s.failed == nil && !s.over {
		s.failed = err
	}
	s.mu.Unlock()
	s.leave()
}

// SetWeight changes the share of the work relative to the other peers, to at least 1; see
// [Consumer.SetWeight]. An Indexer does not ask for it, and after Run it changes nothing.
func (s *Share) SetWeight(weight int) { s.coordinator.SetWeight(weight) }

// View returns the newest view: this peer's index and how many replicas there are. Its
// Version is 0, and its Index -1, before the first and once Run has returned. It says nothing of
// the lease: once ValidFor is 0 another peer may have the index.
func (s *Share) View() partition.View { return s.coordinator.View() }

// ValidFor returns for how long what is admitted can be relied on to stay this peer's if the
// ledger does not answer any more; 0: the lease may have run out. It says nothing of an admission
// whose context has ended.
func (s *Share) ValidFor() time.Duration { return s.coordinator.ValidFor() }

// An Admission is leave to work on a key.
type Admission struct {
	// Token of the ownership. Give it to what you write to: it can refuse older epochs.
	Token partition.Token
	Grant partition.Grant

	share  *Share
	place  *place
	ctx    context.Context
	cancel context.CancelFunc
	once   sync.Once
}

// Context ends with the context that Admit was given, when the admission is released, and
// when the partition is to be handed over ([ErrHandedOver], of a peer that stops [ErrLeaving]) or
// ends at once ([transition.ErrLapsed], [transition.ErrTaken], or [transition.ErrShutdown] where a
// peer that stops has no time left): context.Cause says why.
func (a *Admission) Context() context.Context { return a.ctx }

// Release says that the work on the key has ended, and ends the context. Further calls do
// nothing.
func (a *Admission) Release() {
	a.once.Do(func() {
		a.cancel()
		a.share.release(a.place)
	})
}

// Admit reports whether key is this peer's to work on now, and gives leave to do so, unless ctx
// has ended. The caller must Release what it was given. A key that the hash refuses is nobody's.
//
// A key may become this peer's at any moment, also in the middle of a pass over a list. A loop
// that keeps the order within a key must therefore, once it has passed over an entry of that key,
// leave the key alone until it reads the list again: see examples/poller.
func (s *Share) Admit(ctx context.Context, key string) (*Admission, bool) {
	id, err := s.cfg.Partitions.Hash.Of(key, s.cfg.Partitions.Total)
	if err != nil || ctx.Err() != nil || !s.coordinator.Valid(time.Now()) {
		return nil, false
	}
	s.mu.Lock()
	p := s.serving[id]
	if p == nil {
		s.mu.Unlock()
		return nil, false
	}
	p.running++
	s.mu.Unlock()
	inner, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })
	return &Admission{
		Token: partition.Token{Epoch: p.grant.Epoch, Session: s.coordinator.Session()},
		Grant: p.grant,
		share: s, place: p, ctx: inner,
		cancel: func() { stop(); cancel(nil) },
	}, true
}

// Await waits until key is this peer's to work on, and admits it as Admit does. It returns the
// error of ctx, or [ErrStopped] once the share is over. For a key that the hash refuses, which is
// nobody's, it returns at once with that error (see [partition.Hash.Of]).
func (s *Share) Await(ctx context.Context, key string) (*Admission, error) {
	id, err := s.cfg.Partitions.Hash.Of(key, s.cfg.Partitions.Total)
	if err != nil {
		return nil, fmt.Errorf("share %q: %w", s.name, err)
	}
	for {
		served, ok := s.waitFor(id)
		if !ok {
			return nil, ErrStopped
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if a, ok := s.Admit(ctx, key); ok {
			return a, nil
		}
		var look <-chan time.Time
		if served == nil {
			look = time.After(time.Second) // a lease that was about to run out may stand again
		}
		select {
		case <-served:
		case <-look:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// waitFor returns what is closed when the partition id is served next, and nil if it is served. Not
// ok: the share is over.
func (s *Share) waitFor(id partition.ID) (served <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, false
	}
	if s.serving[id] != nil {
		return nil, true
	}
	if s.awaited[id] == nil {
		s.awaited[id] = make(chan struct{})
	}
	return s.awaited[id], true
}

// Has reports whether key is this peer's now; a moment later it may not be. See Admit.
func (s *Share) Has(key string) bool {
	return s.coordinator.Valid(time.Now()) && s.coordinator.Filter().Admit(key)
}

func (s *Share) release(p *place) {
	s.mu.Lock()
	p.running--
	drained := s.emptied(p)
	s.mu.Unlock()
	if drained != nil {
		drained()
	}
}

// emptied returns what is to be told of p: that it was to end, and nothing is done for it
// any more. The caller holds mu.
func (s *Share) emptied(p *place) func() {
	if p.running > 0 || p.drained == nil {
		return nil
	}
	delete(s.ending, p.grant)
	drained := p.drained
	p.drained = nil
	return drained
}

// tenancy is the share as the coordinator sees it.
type tenancy Share

// Serve admits the keys of g.
func (t *tenancy) Serve(g partition.Grant) {
	p := &place{grant: g}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving[g.ID] = p
	if served := t.awaited[g.ID]; served != nil {
		delete(t.awaited, g.ID)
		close(served)
	}
}

// Drain ends the contexts: what no source hands out has no end of its own to wait for.
func (t *tenancy) Drain(g partition.Grant, drained func()) {
	t.mu.Lock()
	cause := ErrHandedOver
	if t.leaving {
		cause = ErrLeaving
	}
	t.mu.Unlock()
	t.end(g, cause, drained)
}

// Abort is the same, with another cause.
func (t *tenancy) Abort(g partition.Grant, cause error, drained func()) {
	t.mu.Lock()
	for _, p := range []*place{t.serving[g.ID], t.ending[g]} {
		if p != nil && p.grant == g {
			p.lost.Store(true)
		}
	}
	t.mu.Unlock()
	t.end(g, cause, drained)
}

func (t *tenancy) end(g partition.Grant, cause error, drained func()) {
	t.mu.Lock()
	p := t.ending[g]
	if p == nil {
		if p = t.serving[g.ID]; p == nil || p.grant != g {
			t.mu.Unlock()
			drained() // it ended before
			return
		}
		delete(t.serving, g.ID)
		t.ending[g] = p
	}
	p.drained = drained // an Abort's takes the place of a Drain's
	p.cancel(cause)
	drained = (*Share)(t).emptied(p)
	t.mu.Unlock()
	if drained != nil {
		drained()
	}
}

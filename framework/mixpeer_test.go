package framework_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/batch"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
)

var (
	errMixCut  = errors.New("cut off")
	errMixBad  = errors.New("an error")
	errMixGone = errors.New("a panic, or the end of its goroutine")
)

// A mixPeer is a peer of a mix.
type mixPeer struct {
	*mixFleet
	name string
	c    *framework.Consumer
	gone bool        // the driver's
	cut  atomic.Bool // no call gets through

	// The model's; its lock guards them.
	killed, troubled, limited bool
	runs, told                int
	grants                    map[partition.Grant]*modelGrant
}

func newMixPeer(f *mixFleet, name string) *mixPeer {
	f.model.tell("%s joins", name)
	return &mixPeer{mixFleet: f, name: name, grants: map[partition.Grant]*modelGrant{}}
}

// grant returns the books of g. The caller holds the model's lock.
func (p *mixPeer) grant(g partition.Grant) *modelGrant {
	if p.grants[g] == nil {
		p.grants[g] = &modelGrant{}
	}
	return p.grants[g]
}

// Observe hands on what is told.
func (p *mixPeer) Observe(e framework.Event) { p.model.event(p, e) }

// handler does every kind of task, in view of the model.
func (p *mixPeer) handler() framework.Handler {
	do := framework.HandlerFunc(p.do)
	var few, batches places
	limited := framework.HandlerFunc(func(ctx context.Context, t *framework.Task) error {
		defer few.take(p.model, p.atMost, "tasks of AtMost")()
		return p.do(ctx, t)
	})
	b, err := batch.New(batch.Config{Size: p.batchSize, Parallel: p.batchPar}, func(ctx context.Context, tasks []*framework.Task) error {
		defer batches.take(p.model, p.batchPar, "batches")()
		return p.doBatch(ctx, tasks)
	})
	if err != nil {
		p.model.t.Fatal(err)
	}
	mux, err := framework.NewMux(
		framework.On("plain", framework.Chain(do, framework.Recover(), framework.Timeout(time.Hour), framework.Log(nil))),
		framework.On("chain", do), framework.On("long", do), framework.On("quick", do),
		framework.On("few", framework.Chain(limited, framework.AtMost(p.atMost))), framework.On("batch", b))
	if err != nil {
		p.model.t.Fatal(err)
	}
	return framework.HandlerFunc(func(ctx context.Context, t *framework.Task) error {
		r := p.model.begin(ctx, p, t)
		if r == nil {
			return errMixCut
		}
		err := errMixGone // unless it returns
		defer func() { p.model.end(r, err) }()
		err = mux.Handle(ctx, t)
		return err
	})
}

// places counts who is inside.
type places struct{ taken atomic.Int32 }

func (s *places) take(m *model, most int, what string) (leave func()) {
	n := s.taken.Add(1)
	m.check(int(n) <= most, "%d %s at once, at most %d", n, what, most)
	return func() { s.taken.Add(-1) }
}

// do does what is planned for the task, unless its context ends first.
func (p *mixPeer) do(ctx context.Context, t *framework.Task) error {
	d, what := p.model.plan(t.ID, t.Type, t.Attempt)
	r := p.model.dice(t.ID, t.Attempt, "manner")
	manner := r.IntN(6)
	var handOver <-chan struct{}
	if t.Type == "long" && manner < 3 {
		handOver = framework.HandOver(ctx)
	}
	if t.Type == "quick" && d > 0 && manner < 2 {
		p.cancel(t.ID, t.Grant.ID) // what was taken along with it is not to hear of that
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-handOver:
		return fmt.Errorf("left: %w", framework.ErrHandedOver)
	case <-ctx.Done():
		switch {
		case p.stubborn && manner == 3:
			time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			return nil
		case manner == 2 && errors.Is(context.Cause(ctx), framework.ErrCancelled):
			return nil // it has done what there was to do
		case manner == 4: // takes its time, but not more than it has
			time.Sleep(p.cfg.Timing.CancelGrace * 9 / 10)
		case manner == 5:
			return errMixBad
		}
		return context.Cause(ctx)
	}
	if next := t.ID + ".next"; t.Type == "chain" && len(next) < 25 && p.model.isNew(p, next) {
		p.push(next, fmt.Sprint("k", r.IntN(p.keys)), []string{"chain", "plain"}[r.IntN(2)], 0)
	}
	switch what {
	case "error":
		return errMixBad
	case "panic":
		panic("a panic")
	case "bad error": // whose own method panics
		return fmt.Errorf("bad: %w", (*panickyError)(nil))
	case "after":
		return framework.RetryAfter(time.Duration(r.IntN(2000))*time.Millisecond, errMixBad)
	case "dead":
		return framework.Dead(errMixBad)
	case "goexit":
		runtime.Goexit()
	case "handed over": // if nobody takes over, that is an error as any
		return framework.ErrHandedOver
	}
	return nil
}

type panickyError struct{ text *string }

func (e *panickyError) Error() string { return *e.text }

// isNew reports whether a living p may push a task.
func (m *model) isNew(p *mixPeer, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tasks[id] == nil && !p.killed
}

// doBatch says of each task what is planned for it, or fails as a whole.
func (p *mixPeer) doBatch(ctx context.Context, tasks []*framework.Task) error {
	keys := map[string]bool{}
	for _, t := range tasks {
		p.model.check(t.Key == "" || !keys[t.Key], "%s: two tasks of key %s in a batch", p.name, t.Key)
		keys[t.Key] = true
	}
	p.model.check(len(tasks) > 0 && len(tasks) <= p.batchSize, "%s: a batch of %d", p.name, len(tasks))
	d, _ := p.model.plan(tasks[0].ID, "batch", tasks[0].Attempt)
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	whole := p.model.dice(tasks[0].ID, 0, "each").IntN(2) == 0
	errs := make([]error, len(tasks))
	for i, t := range tasks {
		switch _, what := p.model.plan(t.ID, "batch", t.Attempt); what {
		case "ok":
		case "dead":
			errs[i] = framework.Dead(errMixBad)
		default:
			errs[i] = errMixBad
		}
		if errs[i] != nil && whole {
			return errs[i]
		}
	}
	return batch.Each(errs)
}

// link is the peer's way to the store, where calls and answers are lost, late and repeated.
func (p *mixPeer) link(ctx context.Context, _ string, execute func()) error {
	if p.cut.Load() {
		return errMixCut
	}
	late, ms := p.model.strikes(p.lateStore, 3000)
	asked := ms%2 == 0 // the call is late, not its answer
	wait := func() error {
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if p.cut.Load() {
			return errMixCut
		}
		return nil
	}
	if late && asked {
		if err := wait(); err != nil {
			return err
		}
	}
	bad, how := p.model.strikes(p.badStore, 3)
	if bad && how == 0 {
		return errMixBad
	}
	execute()
	if late && !asked {
		if err := wait(); err != nil {
			return err
		}
	}
	switch {
	case bad && how == 1:
		return errMixBad // the answer is lost
	case bad:
		execute()
	}
	return nil
}

// A mixSource shows the model what is fetched and settled, and cancels tasks.
type mixSource struct {
	sources.Source
	p *mixPeer
}

func (s mixSource) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	st, err := s.Source.Open(ctx, g, tok)
	if err != nil {
		return nil, err
	}
	return &mixStream{Stream: st, p: s.p, grant: g}, nil
}

type mixStream struct {
	sources.Stream
	p     *mixPeer
	grant partition.Grant

	mu   sync.Mutex // one call of tell at a time
	tell func(map[string]string) []string
}

// Fetch may return late what it brings, whether or not anybody still wants it.
func (s *mixStream) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	s.p.model.fetch(s.p, s.grant)
	tasks, err := s.Stream.Fetch(ctx, limit)
	if late, ms := s.p.model.strikes(s.p.lateStore, 3000); late {
		time.Sleep(time.Duration(ms) * time.Millisecond)
	}
	return tasks, err
}

func (s *mixStream) Settle(ctx context.Context, done ...sources.Settlement) error {
	answer := s.p.model.settle(s.p, s.grant, done)
	err := s.Stream.Settle(ctx, done...)
	answer(err)
	return err
}

func (s *mixStream) Cancelled(_ context.Context, tell func(map[string]string) []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = tell
	tell(s.p.canceller.add(s))
}

func (s *mixStream) Close(ctx context.Context) error {
	s.mu.Lock()
	s.tell = nil
	s.mu.Unlock()
	return s.Stream.Close(ctx)
}

// A mixCanceller knows what is to be cancelled, and whom to tell.
type mixCanceller struct {
	mu      sync.Mutex
	why     map[partition.ID]map[string]string
	streams []*mixStream
}

// add returns what is to be cancelled in the partition of s, which is told of more.
func (c *mixCanceller) add(s *mixStream) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = append(c.streams, s)
	return maps.Clone(c.why[s.grant.ID])
}

// want tells all peers that a task is to be cancelled.
func (f *mixFleet) want(at partition.ID, id string) {
	c := &f.canceller
	c.mu.Lock()
	if c.why[at] == nil {
		c.why[at] = map[string]string{}
	}
	c.why[at][id] = "mix"
	streams := c.streams
	c.mu.Unlock()
	for _, s := range streams {
		if s.grant.ID != at {
			continue
		}
		s.mu.Lock()
		if s.tell != nil {
			c.mu.Lock()
			why := maps.Clone(c.why[at])
			c.mu.Unlock()
			s.tell(why)
		}
		s.mu.Unlock()
	}
}

// A mixLedger is the peer's way to the ledger, where calls and answers are lost.
type mixLedger struct {
	transition.Ledger
	p *mixPeer
}

func (l mixLedger) fails() error {
	if l.p.cut.Load() {
		return errMixCut
	}
	if bad, _ := l.p.model.strikes(l.p.badLedger, 1); bad {
		return errMixBad
	}
	return nil
}

func (l mixLedger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	if err := l.fails(); err != nil {
		return transition.Answer{}, err
	}
	a, err := l.Ledger.Sync(ctx, r)
	if lost := l.fails(); lost != nil {
		return transition.Answer{}, lost
	}
	return a, err
}

func (l mixLedger) Seal(ctx context.Context, next transition.Roll) error {
	if err := l.fails(); err != nil {
		return err
	}
	return l.Ledger.Seal(ctx, next)
}

func (l mixLedger) Census(ctx context.Context) (transition.Census, error) {
	if err := l.fails(); err != nil {
		return transition.Census{}, err
	}
	return l.Ledger.Census(ctx)
}

func (l mixLedger) Hints(ctx context.Context, s partition.Session, hint func()) error {
	return l.Ledger.Hints(ctx, s, func() {
		if l.fails() == nil {
			hint()
		}
	})
}

package frameworktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// A Config says what a fleet is like. The zero value is ready.
type Config struct {
	// Partitions of the name. Default 16.
	Partitions int
	// Timing of ledger and peers. A test in real time wants a short lease. Default:
	// that of package transition.
	Timing transition.Timing
}

// A Fleet is a name with its store and its peers. All methods may be called
// concurrently.
type Fleet struct {
	t      testing.TB
	cfg    Config
	store  *memsource.Store
	ledger *memledger.Ledger

	mu     sync.Mutex
	pushed []framework.Task
	runs   []*Run
	peers  []*Peer
}

// A Run is one run of a handler, as it was seen from outside.
type Run struct {
	Peer  string
	Task  framework.Task
	Began time.Time
	Ended time.Time // zero while it runs
	Err   error
	// Killed: its peer was killed meanwhile, so that what it returned was heard by
	// nobody.
	Killed bool

	peer *Peer
}

// New returns a fleet without peers. They are stopped at the end of the test.
func New(t testing.TB, cfg Config) *Fleet {
	t.Helper()
	if cfg.Partitions == 0 {
		cfg.Partitions = 16
	}
	layout := partition.Config{Total: cfg.Partitions}
	store, err := memsource.New(memsource.Config{Partitions: layout})
	if err != nil {
		t.Fatal(err)
	}
	f := &Fleet{t: t, cfg: cfg, store: store, ledger: memledger.New(layout, cfg.Timing, memledger.Options{})}
	t.Cleanup(f.stop)
	return f
}

// Push enqueues tasks, in order. A task needs an ID that no other has for Check to
// make sense of it.
func (f *Fleet) Push(tasks ...framework.Task) {
	f.t.Helper()
	f.mu.Lock()
	f.pushed = append(f.pushed, tasks...)
	f.mu.Unlock()
	if err := f.store.Push(tasks...); err != nil {
		f.t.Fatal(err)
	}
}

// Start starts a peer that runs h. Options are those of framework.New; a Config
// among them must have the Timing of the fleet's, or the test fails.
func (f *Fleet) Start(peer string, h framework.Handler, opts ...framework.Option) *Peer {
	f.t.Helper()
	if framework.Chain(h) == nil {
		f.t.Fatalf("frameworktest: %s has no handler", peer)
	}
	p := &Peer{fleet: f, name: peer}
	opts = append([]framework.Option{
		framework.WithConfig(framework.Config{Timing: f.cfg.Timing}),
		framework.WithPeer(peer, 1),
	}, opts...)
	opts = append(opts, framework.WithLedger(cutLedger{f.ledger, p}))
	c, err := framework.New("frameworktest", f.store.Via(p.link), p.journal(h), opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	if has, want := c.Config().Timing, f.cfg.Timing.WithDefaults(); has != want {
		f.t.Fatalf("frameworktest: %s has the timing %+v, and the fleet %+v: give both the same", peer, has, want)
	}
	p.consumer = c
	f.mu.Lock()
	f.peers = append(f.peers, p)
	f.mu.Unlock()
	if err := c.Start(context.Background()); err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *Fleet) stop() {
	f.mu.Lock()
	peers := f.peers
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() { _ = p.consumer.Stop(context.Background()) }) // a killed one has left a mess
	}
	wg.Wait()
}

// Open returns how many tasks are neither done nor dead letters.
func (f *Fleet) Open() int {
	n := 0
	for id := range f.cfg.Partitions {
		open, delayed := f.store.Pending(partition.ID(id))
		n += open + delayed
	}
	return n
}

// Wait waits until no task is open. It fails the test if that takes longer than
// within.
func (f *Fleet) Wait(within time.Duration) {
	f.t.Helper()
	for end := time.Now().Add(within); f.Open() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("%d tasks are still open after %v", f.Open(), within)
		}
	}
}

// WaitReady waits until every peer that was neither killed nor stopped is ready. It fails
// the test if that takes longer than within.
func (f *Fleet) WaitReady(within time.Duration) {
	f.t.Helper()
	end := time.Now().Add(within)
	f.mu.Lock()
	peers := f.peers
	f.mu.Unlock()
	for _, p := range peers {
		for !p.gone() && p.consumer.Ready() != nil {
			if time.Now().After(end) {
				f.t.Fatalf("%s is not ready after %v: %v", p.name, within, p.consumer.Ready())
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// Runs returns all runs so far, in the order they began.
func (f *Fleet) Runs() []Run {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Run, len(f.runs))
	for i, r := range f.runs {
		all[i] = *r
	}
	return all
}

// A DeadLetter is a task that will not run again.
type DeadLetter = memsource.DeadLetter

// Dead returns the dead letters, by partition and age.
func (f *Fleet) Dead() []DeadLetter {
	var all []DeadLetter
	for id := range f.cfg.Partitions {
		all = append(all, f.store.Dead(partition.ID(id))...)
	}
	return all
}

// Handle runs h once and returns what becomes of the task: sources.Done,
// sources.Dead, or sources.Retry with the delay that the handler asked for, zero if
// it left that to the retry policy. A panic fails the test. A task without a Delivery,
// or with Attempt 0, runs for the first time.
func Handle(t testing.TB, h framework.Handler, task framework.Task) (o sources.Outcome, after time.Duration, err error) {
	t.Helper()
	if framework.Chain(h) == nil {
		t.Fatalf("frameworktest: no handler")
	}
	run := task.Copy()
	if run.Attempt == 0 {
		run.Attempt = 1
	}
	err = framework.Chain(h, framework.Recover()).Handle(t.Context(), run)
	if p := (*framework.PanicError)(nil); errors.As(err, &p) {
		t.Fatalf("%v\n%s", p, p.Stack)
	}
	o, after = sources.Asked(err)
	if o == 0 {
		o = sources.Retry
	}
	return o, after, err
}

var (
	errCut      = errors.New("frameworktest: the peer is cut off")
	errPanicked = errors.New("frameworktest: the handler panicked")
)

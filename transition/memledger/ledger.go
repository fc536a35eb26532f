package memledger

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// Options replace what a Ledger takes from its surroundings. The zero value is
// ready.
type Options struct {
	// Clock is the wall clock of the store. Default time.Now.
	Clock func() time.Time
	// Forgot makes a store that knows nothing and cannot tell whether it ever did,
	// so that it begins with a grace. By default a Ledger is known to be new.
	Forgot bool
}

// A Ledger is a store in memory with one name in it. It implements
// transition.Ledger and may be used concurrently. All peers of a process can share
// one; [Ledger.As] gives a peer with another configuration its own handle.
type Ledger struct {
	config partition.Config
	timing transition.Timing
	shared *shared
}

// shared is what all handles have in common.
type shared struct {
	clock func() time.Time

	mu    sync.Mutex
	store *Store
	runs  int
	hints map[*subscription]struct{}
}

type subscription struct {
	session partition.Session
	wake    chan struct{} // holds one: hints that pile up are one hint
}

// New returns a ledger for the name that cfg describes. Zero fields of cfg and
// timing get their defaults.
func New(cfg partition.Config, timing transition.Timing, opts Options) *Ledger {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	l := &Ledger{
		config: cfg.WithDefaults(),
		timing: timing.WithDefaults(),
		shared: &shared{clock: opts.Clock, hints: make(map[*subscription]struct{})},
	}
	if opts.Forgot {
		l.shared.store = &Store{}
	} else {
		l.shared.store = NewStore(l.call())
	}
	return l
}

var (
	_ transition.Ledger    = (*Ledger)(nil)
	_ transition.Historian = (*Ledger)(nil)

	_ transition.ConfigReader = (*Ledger)(nil)
	_ transition.Timed        = (*Ledger)(nil)
	_ transition.Laid         = (*Ledger)(nil)
	_ transition.Pauser       = (*Ledger)(nil)
	_ transition.Drainer      = (*Ledger)(nil)
)

// As returns another handle to the same store, as a peer with its own
// configuration has one.
func (l *Ledger) As(cfg partition.Config, timing transition.Timing) *Ledger {
	return &Ledger{config: cfg.WithDefaults(), timing: timing.WithDefaults(), shared: l.shared}
}

// Times implements transition.Timed.
func (l *Ledger) Times() transition.Timing { return l.timing }

// Layout implements transition.Laid.
func (l *Ledger) Layout() partition.Config { return l.config }

// Restart ends this run of the store and begins another. What it knew stays.
func (l *Ledger) Restart() {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	l.shared.runs++
}

// Forget is a Restart after which the store knows nothing.
func (l *Ledger) Forget() {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	l.shared.runs++
	l.shared.store = &Store{}
}

// Require says which tags partitions and units ask of their owners, in place of all that
// was said before, and makes a roll due that goes by it.
func (l *Ledger) Require(requires ...partition.Requirement) {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	l.shared.tell(l.shared.store.Require(requires))
}

// Pause implements transition.Pauser.
func (l *Ledger) Pause(ctx context.Context, p partition.Pause) error {
	if err := errors.Join(ctx.Err(), p.Check()); err != nil {
		return err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	l.shared.tell(l.shared.store.Pause(p))
	return nil
}

// Drain implements transition.Drainer.
func (l *Ledger) Drain(ctx context.Context, d partition.Drain) error {
	if err := errors.Join(ctx.Err(), d.Check()); err != nil {
		return err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	hints, err := l.shared.store.Drain(d)
	l.shared.tell(hints)
	return err
}

// Recall implements transition.Drainer.
func (l *Ledger) Recall(ctx context.Context, peer string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	l.shared.tell(l.shared.store.Recall(peer))
	return nil
}

// Sync implements transition.Ledger.
func (l *Ledger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	if err := ctx.Err(); err != nil {
		return transition.Answer{}, err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	a, hints, err := l.shared.store.Sync(l.call(), r)
	l.shared.tell(hints)
	return a, err
}

// Seal implements transition.Ledger.
func (l *Ledger) Seal(ctx context.Context, next transition.Roll) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	hints, err := l.shared.store.Seal(l.call(), next)
	l.shared.tell(hints)
	return err
}

// Census implements transition.Ledger.
func (l *Ledger) Census(ctx context.Context) (transition.Census, error) {
	if err := ctx.Err(); err != nil {
		return transition.Census{}, err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	return l.shared.store.Census(l.call())
}

// ReadConfig implements transition.ConfigReader.
func (l *Ledger) ReadConfig(ctx context.Context) (partition.Config, error) {
	if err := ctx.Err(); err != nil {
		return partition.Config{}, err
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	return l.shared.store.ReadConfig(l.call())
}

// Hints implements transition.Ledger.
func (l *Ledger) Hints(ctx context.Context, session partition.Session, hint func()) error {
	sub := &subscription{session: session, wake: make(chan struct{}, 1)}
	l.shared.mu.Lock()
	l.shared.hints[sub] = struct{}{}
	l.shared.mu.Unlock()
	defer func() {
		l.shared.mu.Lock()
		delete(l.shared.hints, sub)
		l.shared.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.wake:
			hint()
		}
	}
}

func (l *Ledger) call() Call {
	return Call{
		Now:    l.shared.clock().UnixMilli(),
		Run:    strconv.Itoa(l.shared.runs),
		Config: l.config,
		Timing: l.timing,
	}
}

func (s *shared) tell(h Hints) {
	for sub := range s.hints {
		concerned := h.All
		for _, session := range h.Sessions {
			concerned = concerned || session == sub.session
		}
		if !concerned {
			continue
		}
		select {
		case sub.wake <- struct{}{}:
		default:
		}
	}
}

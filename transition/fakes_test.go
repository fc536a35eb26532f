package transition_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// faulty is a ledger that can be cut off, slowed down and silenced.
type faulty struct {
	transition.Ledger
	mu    sync.Mutex
	err   error
	few   error // of Sync, beside its answer
	late  time.Duration
	full  error // of Seal alone
	deaf  error
	calls int
}

func (f *faulty) fail(err error)        { f.mu.Lock(); defer f.mu.Unlock(); f.err = err }
func (f *faulty) delay(d time.Duration) { f.mu.Lock(); defer f.mu.Unlock(); f.late = d }
func (f *faulty) promise(err error)     { f.mu.Lock(); defer f.mu.Unlock(); f.few = err }
func (f *faulty) deafen(err error)      { f.mu.Lock(); defer f.mu.Unlock(); f.deaf = err }
func (f *faulty) fill(err error)        { f.mu.Lock(); defer f.mu.Unlock(); f.full = err }
func (f *faulty) state() (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.late, f.err
}

// Sync is carried out, and answered late or never.
func (f *faulty) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	late, err := f.state()
	if err != nil {
		return transition.Answer{}, err
	}
	a, err := f.Ledger.Sync(ctx, r)
	if late > 0 {
		select {
		case <-ctx.Done():
			return transition.Answer{}, ctx.Err()
		case <-time.After(late):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return a, errors.Join(err, f.few)
}

func (f *faulty) Seal(ctx context.Context, next transition.Roll) error {
	_, err := f.state()
	f.mu.Lock()
	err = errors.Join(err, f.full)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Ledger.Seal(ctx, next)
}

func (f *faulty) Census(ctx context.Context) (transition.Census, error) {
	if _, err := f.state(); err != nil {
		return transition.Census{}, err
	}
	return f.Ledger.Census(ctx)
}

func (f *faulty) Hints(ctx context.Context, session partition.Session, hint func()) error {
	f.mu.Lock()
	deaf := f.deaf
	f.mu.Unlock()
	if deaf != nil {
		return deaf
	}
	return f.Ledger.Hints(ctx, session, hint)
}

// reluctant is a ledger whose hints end a while after their context.
type reluctant struct {
	transition.Ledger
	inside atomic.Int32
}

func (r *reluctant) Hints(ctx context.Context, session partition.Session, hint func()) error {
	r.inside.Add(1)
	defer r.inside.Add(-1)
	err := r.Ledger.Hints(ctx, session, hint)
	time.Sleep(100 * time.Millisecond) // virtual: in a bubble
	return err
}

// views is an indexer that says what it is told to.
type views struct {
	emits chan partition.View
	fails chan error
}

func (v *views) Index(ctx context.Context, emit func(partition.View)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case view := <-v.emits:
			emit(view)
		case err := <-v.fails:
			return err
		}
	}
}

package frameworktest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// A Peer is one of a fleet.
type Peer struct {
	fleet    *Fleet
	name     string
	consumer *framework.Consumer
	cut      atomic.Bool // no call gets through
	troubled atomic.Bool // it was cut off, or killed, at some time
	killed   atomic.Bool
	stopped  atomic.Bool
}

// Consumer returns what runs in the peer.
func (p *Peer) Consumer() *framework.Consumer { return p.consumer }

// Stop stops the peer politely: it hands over what it has. It fails the test if
// that cannot be done.
func (p *Peer) Stop() {
	p.fleet.t.Helper()
	p.stopped.Store(true)
	if err := p.consumer.Stop(context.Background()); err != nil {
		p.fleet.t.Error(err)
	}
}

// Kill ends the peer as kill -9 does, as far as others can tell: from now on nothing
// of it reaches the store or the ledger, and what its handlers return is heard by
// nobody. Their contexts end; Kill returns when they have returned. The other peers
// get its partitions when its lease has run out.
func (p *Peer) Kill() {
	p.fleet.mu.Lock()
	p.troubled.Store(true)
	p.killed.Store(true)
	p.cut.Store(true) // first: what a run that is marked comes to must not be heard
	for _, r := range p.fleet.runs {
		if r.peer == p && r.Ended.IsZero() {
			r.Killed = true
		}
	}
	p.fleet.mu.Unlock()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.consumer.Stop(now) // it says that it was hard
}

// Cut keeps the peer from reaching the store and the ledger, until Heal.
func (p *Peer) Cut() {
	p.troubled.Store(true)
	p.cut.Store(true)
}

// Heal ends a Cut. A killed peer stays what it is.
func (p *Peer) Heal() { p.cut.Store(p.killed.Load()) }

func (p *Peer) gone() bool { return p.killed.Load() || p.stopped.Load() }

// link is the peer's way to the store.
func (p *Peer) link(_ context.Context, _ string, execute func()) error {
	if p.cut.Load() {
		return errCut
	}
	execute()
	return nil
}

// journal writes down the runs of h in this peer.
func (p *Peer) journal(h framework.Handler) framework.Handler {
	f := p.fleet
	return framework.HandlerFunc(func(ctx context.Context, t *framework.Task) error {
		r := &Run{Peer: p.name, Task: *t, Began: time.Now(), peer: p}
		f.mu.Lock()
		if p.killed.Load() {
			f.mu.Unlock()
			return errCut // the dead start nothing
		}
		f.runs = append(f.runs, r)
		f.mu.Unlock()
		err := errPanicked // unless h returns
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			r.Ended, r.Err = time.Now(), err
		}()
		err = h.Handle(ctx, t)
		return err
	})
}

// cutLedger is the peer's way to the ledger.
type cutLedger struct {
	transition.Ledger
	peer *Peer
}

func (l cutLedger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	if l.peer.cut.Load() {
		return transition.Answer{}, errCut
	}
	return l.Ledger.Sync(ctx, r)
}

func (l cutLedger) Seal(ctx context.Context, next transition.Roll) error {
	if l.peer.cut.Load() {
		return errCut
	}
	return l.Ledger.Seal(ctx, next)
}

func (l cutLedger) Census(ctx context.Context) (transition.Census, error) {
	if l.peer.cut.Load() {
		return transition.Census{}, errCut
	}
	return l.Ledger.Census(ctx)
}

func (l cutLedger) Hints(ctx context.Context, session partition.Session, hint func()) error {
	return l.Ledger.Hints(ctx, session, func() {
		if !l.peer.cut.Load() {
			hint()
		}
	})
}

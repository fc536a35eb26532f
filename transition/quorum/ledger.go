package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// A Ledger is another ledger with a majority as the witness of its epochs. They rise even
// if that ledger's store comes back with nothing, or with an older state:
//
//   - an epoch is shown to its owner, and so worked, only after a majority has heard of it;
//   - a partition is claimed only after a majority was asked for the largest epoch that it
//     has heard of, which the claim carries: the other ledger lifts its count to it. So
//     whatever was worked before the claim has a smaller epoch than what it brings. (What is
//     handed over needs no such question: the owner who gives it up says its epoch.)
//
// While less than a majority answers nobody gains a partition: claims are held back, and
// what was granted is not shown. Who holds partitions works on: leases are renewed, and
// what is given up is given up.
//
// Its methods may be called concurrently. To pause a name, or to drain a peer, is asked of the other ledger.
type Ledger struct {
	inner   transition.Ledger
	counter *Counter
	trouble func(error)

	mu    sync.Mutex
	heard uint64 // a majority has heard of all up to it
	told  bool   // of a trouble that stands
}

var (
	_ transition.Ledger    = (*Ledger)(nil)
	_ transition.Historian = (*Ledger)(nil)

	_ transition.ConfigReader = (*Ledger)(nil)
	_ transition.Timed        = (*Ledger)(nil)
	_ transition.Laid         = (*Ledger)(nil)
	_ partition.Named         = (*Ledger)(nil)
)

// Witness returns inner with counter as the witness of its epochs. trouble is called when
// the majority is missed, and with nil when it is back; it must not block. Nil: nobody is
// told. The counter stays the caller's.
func Witness(inner transition.Ledger, counter *Counter, trouble func(error)) *Ledger {
	if trouble == nil {
		trouble = func(error) {}
	}
	return &Ledger{inner: inner, counter: counter, trouble: trouble}
}

// Sync implements [transition.Ledger].
func (l *Ledger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	var missed error // why the majority did not do what this call wanted of it
	claims := len(r.Claim) > 0
	if claims {
		largest, err := l.read(ctx)
		if missed = err; err != nil {
			l.tell(err)
			r.Claim = nil
		}
		r.Top = max(r.Top, largest)
	}
	a, err := l.inner.Sync(ctx, r)
	if err != nil {
		return a, err
	}
	news := l.news(a, r)
	if news > 0 {
		err := l.raise(ctx, news)
		if err != nil {
			missed = err
			a.Mine = slices.DeleteFunc(slices.Clone(a.Mine), func(h machine.Held) bool { return l.unheard(h.Grant, r) })
		} else {
			l.mu.Lock()
			l.heard = max(l.heard, news)
			l.mu.Unlock()
		}
	}
	// Registers that are full answer what is asked and take nothing: the majority is back
	// when it has done all that a call wanted.
	if claims || news > 0 {
		l.tell(missed)
	}
	return a, nil
}

// The registers get a part of the time that a call has: if they keep silent, the lease
// must still be renewed, and the answer still reach the peer in time.
func (l *Ledger) read(ctx context.Context) (uint64, error) {
	ctx, cancel := part(ctx)
	defer cancel()
	return l.counter.Read(ctx)
}

func (l *Ledger) raise(ctx context.Context, n uint64) error {
	ctx, cancel := part(ctx)
	defer cancel()
	return l.counter.Raise(ctx, n)
}

func part(ctx context.Context) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(end)/3)
}

// news returns the largest epoch of an answer that no majority is known to have heard of; 0
// if there is none.
func (l *Ledger) news(a transition.Answer, r transition.Request) (largest uint64) {
	for _, h := range a.Mine {
		if l.unheard(h.Grant, r) {
			largest = max(largest, uint64(h.Grant.Epoch))
		}
	}
	return largest
}

// unheard reports whether a grant is new: what the sender holds or gives up was shown to
// it before.
func (l *Ledger) unheard(g partition.Grant, r transition.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(g.Epoch) > l.heard && !slices.Contains(r.Hold, g) && !slices.Contains(r.Release, g)
}

// tell tells of a trouble once, and of its end.
func (l *Ledger) tell(err error) {
	l.mu.Lock()
	news := (err != nil) != l.told
	l.told = err != nil
	l.mu.Unlock()
	if news {
		l.trouble(err)
	}
}

// Seal implements [transition.Ledger].
func (l *Ledger) Seal(ctx context.Context, next transition.Roll) error {
	return l.inner.Seal(ctx, next)
}

// Census implements [transition.Ledger].
func (l *Ledger) Census(ctx context.Context) (transition.Census, error) { return l.inner.Census(ctx) }

// Name implements [partition.Named]: that of the other ledger, empty if it does not tell.
func (l *Ledger) Name() string {
	if inner, ok := l.inner.(partition.Named); ok {
		return inner.Name()
	}
	return ""
}

// Times implements [transition.Timed]: those of the other ledger, zero if it does not tell.
func (l *Ledger) Times() transition.Timing {
	if inner, ok := l.inner.(transition.Timed); ok {
		return inner.Times()
	}
	return transition.Timing{}
}

// Layout implements [transition.Laid]: that of the other ledger, zero if it does not tell.
func (l *Ledger) Layout() partition.Config {
	if inner, ok := l.inner.(transition.Laid); ok {
		return inner.Layout()
	}
	return partition.Config{}
}

// ReadConfig implements [transition.ConfigReader].
func (l *Ledger) ReadConfig(ctx context.Context) (partition.Config, error) {
	return transition.ReadConfig(ctx, l.inner)
}

// Hints implements [transition.Ledger].
func (l *Ledger) Hints(ctx context.Context, session partition.Session, hint func()) error {
	return l.inner.Hints(ctx, session, hint)
}

// History implements [transition.Historian]. It has no entries if the other ledger keeps none.
func (l *Ledger) History(ctx context.Context, limit int) (machine.History, error) {
	if inner, ok := l.inner.(transition.Historian); ok {
		return inner.History(ctx, limit)
	}
	return nil, nil
}

package memledger_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/ledgertest"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) ledgertest.Harness {
		return &harness{now: time.Unix(1_800_000_000, 0)}
	})
}

func TestConformanceOfAStoreThatMayHaveForgotten(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) ledgertest.Harness {
		return &harness{now: time.Unix(1_800_000_000, 0), forgot: true}
	})
}

type harness struct {
	now    time.Time
	forgot bool
	main   *memledger.Ledger
}

func (h *harness) Ledger(cfg partition.Config, timing transition.Timing) transition.Ledger {
	if h.main == nil {
		h.main = memledger.New(cfg, timing, memledger.Options{
			Clock:  func() time.Time { return h.now },
			Forgot: h.forgot,
		})
		return h.main
	}
	return h.main.As(cfg, timing)
}

func (h *harness) Advance(d time.Duration) { h.now = h.now.Add(d) }

func (h *harness) Restart(keepMemory bool) {
	if keepMemory {
		h.main.Restart()
	} else {
		h.main.Forget()
	}
}

func (h *harness) Can() ledgertest.Abilities {
	return ledgertest.Abilities{Jump: true, Restart: true, Forget: true, Fresh: !h.forgot}
}

// What a clause does between two looks at the clock takes time on a store whose clock nobody sets.
func TestConformanceWhereCallsTakeTime(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) ledgertest.Harness { return new(slow) })
}

// slow is the harness of a store each of whose calls takes a while, and whose clock cannot be set.
type slow struct {
	now  atomic.Int64
	main *memledger.Ledger
}

func (h *slow) Ledger(cfg partition.Config, timing transition.Timing) transition.Ledger {
	if h.main != nil {
		return delayed{h.main.As(cfg, timing), h}
	}
	h.main = memledger.New(cfg, timing, memledger.Options{
		Clock: func() time.Time { return time.Unix(1_800_000_000, h.now.Load()) },
	})
	return delayed{h.main, h}
}

// Advance waits, and who waits is never woken in time.
func (h *slow) Advance(d time.Duration) { h.now.Add(int64(d + time.Millisecond)) }

func (h *slow) Restart(keepMemory bool) {
	if keepMemory {
		h.main.Restart()
	} else {
		h.main.Forget()
	}
}

func (h *slow) Can() ledgertest.Abilities {
	return ledgertest.Abilities{Restart: true, Forget: true, Fresh: true}
}

type delayed struct {
	*memledger.Ledger
	h *slow
}

func (d delayed) call() { d.h.now.Add(int64(50 * time.Millisecond)) }

func (d delayed) Sync(ctx context.Context, r machine.Request) (machine.Answer, error) {
	d.call()
	return d.Ledger.Sync(ctx, r)
}

func (d delayed) Seal(ctx context.Context, next machine.Roll) error {
	d.call()
	return d.Ledger.Seal(ctx, next)
}

func (d delayed) Census(ctx context.Context) (machine.Census, error) {
	d.call()
	return d.Ledger.Census(ctx)
}

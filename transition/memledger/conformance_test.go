package memledger_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/ledgertest"
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

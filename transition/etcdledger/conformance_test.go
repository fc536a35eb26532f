package etcdledger_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
	"github.com/countoff/countoff/transition/ledgertest"
)

func TestMain(m *testing.M) {
	etcdtest.Main()
	goleak.VerifyTestMain(m)
}

const prefix = "/test"

func TestConformance(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		t.Run(map[bool]string{true: "made by init", false: "first start"}[fresh], func(t *testing.T) {
			server := etcdtest.Start(t)
			n := 0
			ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
				n++
				return &harness{t: t, server: server, name: "clause-" + partition.ID(n).String(), fresh: fresh}
			})
		})
	}
}

// A harness is one name in one etcd whose peers' clocks the test moves. It gives every peer
// a beat before time passes, as every peer has in life: who has not looked at the store's
// clock lets no time pass on it.
type harness struct {
	t       *testing.T
	server  *etcdtest.Server
	name    string
	fresh   bool
	now     time.Duration
	ledgers []*etcdledger.Ledger
}

func (h *harness) Ledger(cfg partition.Config, timing transition.Timing) transition.Ledger {
	l, err := etcdledger.New(h.server.Client(), prefix, h.name, etcdledger.Config{Config: cfg, Timing: timing})
	if err != nil {
		h.t.Fatal(err)
	}
	l.SetClock(func() time.Duration { return h.now })
	if len(h.ledgers) == 0 && h.fresh {
		if made, err := etcdledger.Init(h.t.Context(), h.server.Client(), prefix, h.name, cfg); err != nil || !made {
			h.t.Fatalf("init: made %v, error %v", made, err)
		}
	}
	h.ledgers = append(h.ledgers, l)
	return l
}

// Advance lets no time go back: the clock that a ledger measures by never does.
func (h *harness) Advance(d time.Duration) {
	for _, l := range h.ledgers {
		_, _ = l.Census(h.t.Context())
	}
	h.now += max(d, 0)
}

func (h *harness) Restart(keepMemory bool) { h.server.Replace(keepMemory) }

func (h *harness) Can() ledgertest.Abilities {
	return ledgertest.Abilities{Jump: true, Restart: true, Forget: true, Fresh: h.fresh}
}

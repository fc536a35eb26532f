package redisledger_test

import (
	"context"
	"os"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/ledgertest"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestConformance(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		t.Run(map[bool]string{true: "made by init", false: "first start"}[fresh], func(t *testing.T) {
			ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
				s, m := miniStage(t)
				return &harness{stage: s, fresh: fresh, restart: restartMini(m, s.client)}
			})
		})
	}
}

func TestConformanceOnAServer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client := ownTime(server.Client())
	ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
		return &harness{stage: realStage(t, client), fresh: true, restart: server.Restart}
	})
}

func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	client := ownTime(redistest.Cluster(t))
	ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
		return &harness{stage: realStage(t, client), fresh: true}
	})
}

// The server or the cluster that CI names.
func TestConformanceOnTheServerOfTheEnvironment(t *testing.T) {
	if os.Getenv(redistest.ServerVariable)+os.Getenv(redistest.ClusterVariable) == "" {
		t.Skip("neither " + redistest.ServerVariable + " nor " + redistest.ClusterVariable + " is set")
	}
	ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
		return &harness{stage: realStage(t, ownTime(redistest.New(t))), fresh: true}
	})
}

// restartMini does to m what a restart does: connections break, scripts are gone.
func restartMini(m *miniredis.Miniredis, client redis.UniversalClient) func(keepMemory bool) {
	return func(keepMemory bool) {
		if err := client.ScriptFlush(context.Background()).Err(); err != nil {
			panic(err)
		}
		m.Close()
		if !keepMemory {
			m.FlushAll()
		}
		if err := m.Restart(); err != nil {
			panic(err)
		}
	}
}

type harness struct {
	*stage
	fresh   bool
	restart func(keepMemory bool) // nil: cannot
	made    bool
}

func (h *harness) Ledger(cfg partition.Config, timing transition.Timing) transition.Ledger {
	h.t.Helper()
	if h.fresh && !h.made {
		makeName(h.t, h.client, h.name, cfg)
	}
	h.made = true
	return newLedger(h.t, h.client, h.name, redisledger.Config{Config: cfg, Timing: timing})
}

func (h *harness) Restart(keepMemory bool) {
	h.restart(keepMemory)
	h.setTime(h.now)
}

func (h *harness) Can() ledgertest.Abilities {
	can := h.restart != nil
	return ledgertest.Abilities{Jump: true, Restart: can, Forget: can, Fresh: h.fresh}
}

package transition_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// idleTenant works on nothing.
type idleTenant struct{}

func (idleTenant) Serve(partition.Grant)                      {}
func (idleTenant) Drain(_ partition.Grant, d func())          { d() }
func (idleTenant) Abort(_ partition.Grant, _ error, _ func()) {}

// Whoever was stopped before it runs asks nothing, of a store that is away either.
func TestStopBeforeRunAsksNothing(t *testing.T) {
	for range 50 { // the first tick is due as soon as the stop
		synctest.Test(t, func(t *testing.T) {
			cfg := partition.Config{Total: 4}
			l := &faulty{Ledger: memledger.New(cfg, transition.Timing{}, memledger.Options{})}
			l.fail(errors.New("down"))
			co, err := transition.NewCoordinator(transition.Config{Ledger: l, Tenant: idleTenant{}, Config: cfg})
			if err != nil {
				t.Fatal(err)
			}
			co.Stop()
			began := time.Now()
			_ = co.Run(t.Context())
			if took := time.Since(began); took > 0 || l.calls > 0 {
				t.Errorf("it took %v, and the ledger was asked %d times", took, l.calls)
			}
		})
	}
}

// Tags that nobody could read back would be in a roll that no later one can follow.
func TestTagsThatCannotBeRead(t *testing.T) {
	cfg := partition.Config{Total: 4}
	for tags, ok := range map[partition.Tags]bool{"gpu/a100": false, "gpu,eu": true, "eu gpu": true, "": true} {
		_, err := transition.NewCoordinator(transition.Config{
			Ledger: memledger.New(cfg, transition.Timing{}, memledger.Options{}), Tenant: idleTenant{}, Config: cfg, Tags: tags,
		})
		if (err == nil) != ok {
			t.Errorf("tags %q: %v", tags, err)
		}
	}
}

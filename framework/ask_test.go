package framework_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// A control that returns no ledger is told, whoever asks it.
func TestAControlWithoutALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		none := func(partition.Config) (transition.Ledger, partition.Indexer, error) { return nil, nil, nil }
		c, err := framework.New("test", f.store, f.handler("ann", 0), framework.WithControl(none))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the control returned none") {
			t.Errorf("run returned %v", err)
		}
	})
}

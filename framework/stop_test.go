package framework_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// A reclaimed ledger is another name's from some moment on.
type reclaimed struct {
	transition.Ledger
	now atomic.Bool
}

func (l *reclaimed) Sync(ctx context.Context, r machine.Request) (machine.Answer, error) {
	if l.now.Load() {
		return machine.Answer{}, fmt.Errorf("5 partitions: %w", partition.ErrConfig)
	}
	return l.Ledger.Sync(ctx, r)
}

// Run tells of a peer that could not go on, also where it was told to stop by then.
func TestRunTellsWhatFailedWhileItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, w := newFleet(t, 4), newTown(t, "a")
		ledger, town := &reclaimed{Ledger: f.ledger}, &reclaimed{Ledger: w.ledger}
		c := f.consumer("ann", f.handler("ann", 0), framework.WithLedger(ledger))
		u, err := framework.NewUnits("town", framework.UnitsConfig{
			Source:  w,
			Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) { return town, nil, nil },
			Handler: func(ctx context.Context, u framework.Unit) error { return w.work(ctx, "ann", u) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for what, run := range map[string]func(context.Context) error{"a consumer": c.Run, "units": u.Run} {
			ctx, term := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- run(ctx) }()
			time.Sleep(20 * time.Second)
			ledger.now.Store(true)
			town.now.Store(true)
			term()
			if err := <-ended; !errors.Is(err, partition.ErrConfig) {
				t.Errorf("%s: run returned %v", what, err)
			}
			ledger.now.Store(false)
			town.now.Store(false)
			// What an earlier run ended with is not said by one that does not begin.
			if err := run(ctx); err != nil {
				t.Errorf("%s: run with a context that has ended: %v", what, err)
			}
		}
	})
}

package memsource_test

import (
	"context"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/sources/sourcetest"
)

// harness shares one store among its peers, each with a line of its own.
func harness(t testing.TB) sourcetest.Harness {
	store, err := memsource.New(memsource.Config{Partitions: partition.Config{Total: 4}})
	if err != nil {
		t.Fatal(err)
	}
	return sourcetest.Harness{
		Moment: 10 * time.Millisecond,
		Peer: func() sourcetest.Peer {
			line := new(sourcetest.Line)
			src := store.Via(func(ctx context.Context, op string, execute func()) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return line.DoContext(ctx, execute, sourcetest.Op(op))
			})
			return sourcetest.Peer{Source: src, Inject: line.Inject, Kill: line.Kill}
		},
		Push: func(_ context.Context, id partition.ID, tasks ...sources.Task) error {
			return store.PushTo(id, tasks...)
		},
		Dead: func(_ context.Context, id partition.ID) ([]sourcetest.DeadLetter, error) {
			var list []sourcetest.DeadLetter
			for _, d := range store.Dead(id) {
				list = append(list, sourcetest.DeadLetter{Task: d.Task, Reason: d.Reason})
			}
			return list, nil
		},
		Snapshot: func(context.Context) (func(context.Context) error, error) {
			s := store.Snapshot()
			return func(context.Context) error { store.Restore(s); return nil }, nil
		},
	}
}

func TestContractInRealTime(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Harness { return harness(t) })
}

func TestContractInABubble(t *testing.T) {
	sourcetest.RunSynctest(t, func(t *testing.T) sourcetest.Harness { return harness(t) })
}

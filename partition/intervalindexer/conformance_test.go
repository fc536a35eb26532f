package intervalindexer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/indexertest"
	"github.com/countoff/countoff/partition/intervalindexer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A cuttable counter fails after it was cut.
type cuttable struct {
	intervalindexer.Counter
	cut atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cuttable) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	if c.cut.Load() {
		return 0, errCut
	}
	return c.Counter.Incr(ctx, key, expiry)
}

func (c *cuttable) Get(ctx context.Context, keys ...string) ([]int64, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Counter.Get(ctx, keys...)
}

// group returns a group of peers that count on counter.
func group(t *testing.T, counter intervalindexer.Counter, name string, config intervalindexer.Config) indexertest.Group {
	return indexertest.Group{
		// Four intervals, and one because the change may come just after a turn.
		Settle: 5 * config.Interval,
		IDs:    config.WithDefaults().Partitions.IDs(),
		Peer: func(string) (partition.Indexer, func()) {
			c := &cuttable{Counter: counter}
			x, err := intervalindexer.New(c, name, config)
			if err != nil {
				t.Fatal(err)
			}
			return x, func() { c.cut.Store(true) }
		},
	}
}

func TestConformance(t *testing.T) {
	parts := partition.Config{Total: 30, Units: []string{"inbox", "outbox"}}
	for name, config := range map[string]intervalindexer.Config{
		"memory and patience": {Partitions: parts},
		"hasty":               {Partitions: parts, Hasty: true},
		"by arrival":          {Partitions: parts, Arrival: true},
		"the seed's letter":   {Partitions: parts, Arrival: true, Hasty: true},
		"rendezvous":          {Partitions: parts, Strategy: partition.Rendezvous{}},
		"an hour":             {Partitions: parts, Interval: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			config = config.WithDefaults()
			indexertest.Run(t, indexertest.Harness{
				Bubble: true,
				New: func(t *testing.T) indexertest.Group {
					return group(t, new(intervalindexer.Memory), "mail-sender", config)
				},
			})
		})
	}
}

package intervalindexer_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/indexertest"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/intervalindexer/countertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
			indexertest.Run(t, indexertest.Harness{
				Bubble: true,
				New: func(t *testing.T) indexertest.Group {
					return countertest.Group(t, new(intervalindexer.Memory), "mail-sender", config)
				},
			})
		})
	}
}

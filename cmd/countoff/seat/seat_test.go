package seat_test

import (
	"context"
	"testing"

	"github.com/countoff/countoff/cmd/countoff/seat"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

type none struct{ framework.UnitSource }

// A deploy may end it when it has just been told where the store is.
func TestToldToEndBeforeItHadAnything(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	err := seat.Run(ended, t.Context(), seat.Config{
		Name: "crawler",
		Units: framework.UnitsConfig{
			Source: none{},
			Control: func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
				return memledger.New(layout, transition.Timing{}, memledger.Options{}), nil, nil
			},
		},
		Command: []string{"true"},
	})
	if err != nil {
		t.Errorf("it ended with %v", err)
	}
}

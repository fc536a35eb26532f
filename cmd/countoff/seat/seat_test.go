package seat_test

import (
	"context"
	"errors"
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

func (none) Layout(context.Context) (partition.Config, error) { return partition.Config{}, nil }

// Why the peer cannot go on is what the seat ends with.
func TestAPeerThatCannotGoOnIsTold(t *testing.T) {
	refused := errors.New("wait for -1 replicas")
	err := seat.Run(t.Context(), t.Context(), seat.Config{
		Name: "crawler",
		Units: framework.UnitsConfig{
			Source:  none{},
			Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) { return nil, nil, refused },
		},
		Command: []string{"true"},
	})
	if !errors.Is(err, refused) {
		t.Errorf("it ended with %v", err)
	}
}

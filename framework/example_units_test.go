package framework_test

import (
	"context"
	"fmt"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// feeds is a list of units that never changes; package unitsource has one in Redis.
type feeds []string

func (f feeds) Layout(context.Context) (partition.Config, error) {
	return partition.Config{Total: 16}, nil
}

func (f feeds) Units(context.Context) ([]string, error) { return f, nil }

// Each feed is followed by one peer at a time, for as long as that lives.
func ExampleNewUnits() {
	timing := transition.Timing{Settle: 10 * time.Millisecond}
	ledger := memledger.New(partition.Config{Total: 16}, timing, memledger.Options{})
	ctx, stop := context.WithCancel(context.Background())
	units, err := framework.NewUnits("feeds", framework.UnitsConfig{
		Source: feeds{"https://example.com/news.xml"},
		Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) {
			return ledger, nil, nil
		},
		Handler: func(ctx context.Context, u framework.Unit) error {
			fmt.Println("following", u.Name)
			stop() // as SIGTERM does
			<-ctx.Done()
			fmt.Println("ends:", context.Cause(ctx))
			return nil
		},
		Timing: timing,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := units.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// following https://example.com/news.xml
	// ends: the partition is handed over: this peer stops
}

// Command orders works the orders of a Kafka topic. Any number of its processes share
// the topic's partitions: they count off in Redis, and no consumer group rebalances.
// The orders of one customer are worked in order and never two at once, those of
// different customers side by side, also within one partition.
//
//	orders         the demo: broker, store and three peers, one of which is killed
//	orders work    one peer as a service
//	orders send    writes orders into the topic
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition/redisurl"
)

func main() {
	redisurl.Quiet()
	os.Exit(exit.Main(context.Background(), root()))
}

func root() *cobra.Command {
	demo := demoCommand()
	cmd := &cobra.Command{
		Use:   "orders",
		Short: "works the orders of a Kafka topic by peers that come and go",
		Args:  cobra.NoArgs,
		RunE:  demo.RunE,
	}
	cmd.Flags().AddFlagSet(demo.Flags())
	cmd.AddCommand(demo, workCommand(), sendCommand())
	return cmd
}

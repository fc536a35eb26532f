package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/examples/orders/play"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/sources/kafkasource"
)

func sendCommand() *cobra.Command {
	var url, topic string
	var partitions int
	load := play.Load{}
	cmd := &cobra.Command{
		Use:   "send",
		Short: "writes orders into the topic, the customer as their key",
		Args:  cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			opts, err := kafkasource.Options(url)
			errs := []error{load.Validate(), err}
			if partitions < 0 || load.Pause < 0 {
				errs = append(errs, fmt.Errorf("--create %d, --pause %v: must not be negative", partitions, load.Pause))
			}
			if err := errors.Join(errs...); err != nil {
				return exit.With(exit.Usage, err)
			}
			if partitions > 0 {
				if err := play.CreateTopic(cmd.Context(), opts, topic, partitions); err != nil {
					return err
				}
			}
			if err := load.Send(cmd.Context(), opts, topic); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d orders of %d customers\n", load.Customers*load.Each, load.Customers)
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&url, "kafka", "kafka://127.0.0.1:9092", "the brokers; see work")
	f.StringVar(&topic, "topic", "orders", "topic of the orders")
	f.IntVar(&partitions, "create", 0, "create the topic with so many partitions")
	f.IntVar(&load.Customers, "customers", 100, "how many customers order")
	f.IntVar(&load.Each, "each", 10, "how many orders each of them has")
	f.DurationVar(&load.Pause, "pause", 0*time.Second, "pause after each round of one order a customer")
	return cmd
}

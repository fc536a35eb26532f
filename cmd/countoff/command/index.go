package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

func indexCommand(stores Stores) *cobra.Command {
	var follow bool
	var peer string
	var lease time.Duration
	cmd := &cobra.Command{
		Use:   "index NAME",
		Short: "count off under NAME and print the bare pair: index replicas",
		Long: `Counts off under NAME and prints "index replicas", 0-based, for scripts that share
work by themselves:

  read -r index replicas < <(countoff index nightly-report)

The process is a member while it runs: without --follow it leaves once it knows
its place. With --follow it stays and prints a line at each change.

It takes a place and serves no partition: where consumers work under NAME it counts
among their replicas, and the partitions stay theirs. NAME must be known: countoff init
makes one.`,
		Args: cobra.ExactArgs(1),
		RunE: onLedger(stores, endless, func(*cobra.Command, []string) error {
			if lease <= 0 {
				return errors.Join(peerFault(peer), fmt.Errorf("--lease %v: want more than 0", lease))
			}
			return errors.Join(peerFault(peer), transition.Timing{Lease: lease}.Validate())
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			name := args[0]
			timing := transition.Timing{Lease: lease}
			ledger, cfg, err := at.ledger(ctx, name, timing)
			if err != nil {
				return err
			}
			if peer == "" {
				if peer, err = os.Hostname(); err != nil {
					return err
				}
				peer = fmt.Sprintf("%s-%d", peer, os.Getpid())
			}
			return countOff(ctx, transition.Config{Ledger: ledger, Config: cfg, Timing: timing, Peer: peer}, func(v partition.View) bool {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), v.Index, v.Replicas)
				return follow && err == nil // who is not heard has no reason to stay
			})
		}),
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "stay, and print a line at each change")
	cmd.Flags().StringVar(&peer, "id", "", "peer id, shown in status (default the host's name and the process id)")
	cmd.Flags().DurationVar(&lease, "lease", 10*time.Second, "how long others wait for a peer they hear nothing of; the same for all peers of NAME")
	return cmd
}

// countOff takes part until ctx ends or place, which is told each new place, returns
// false.
func countOff(ctx context.Context, cfg transition.Config, place func(partition.View) bool) error {
	roster, err := transition.NewRoster(cfg)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	index, replicas := -1, 0
	err = roster.Index(ctx, func(v partition.View) {
		if v.Index < 0 || v.Index == index && v.Replicas == replicas || context.Cause(ctx) != nil {
			return
		}
		index, replicas = v.Index, v.Replicas
		if !place(v) {
			cancel(enough)
		}
	})
	if errors.Is(context.Cause(ctx), enough) {
		return nil
	}
	return err
}

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/cmd/countoff/plan"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
)

func planCommand(stores Stores) *cobra.Command {
	var change plan.Change
	var strategy string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan NAME",
		Short: "show which partitions would move with more or fewer peers, or another strategy; changes nothing",
		Long: `Says what a change of the peers would move: which partitions and ingress lists, between which peers, what
runs in them now, and how many partitions do not pause. It uses the function by which the peers themselves
share out, and changes nothing.

  countoff plan mail-sender --peers 12                 12 peers instead of those there are
  countoff plan mail-sender --leave pod-3 --leave pod-4
  countoff plan mail-sender --leave pod-3 --peers 5    five once that one has been replaced
  countoff plan mail-sender --drain pod-3              what countoff drain would move
  countoff plan mail-sender --strategy ring            what another strategy would

If fewer are wanted, those with the highest indexes leave. Newcomers are like the last of the peers that
claims partitions, with its weight and tags. All of it is one change: peers that come and go one after the
other may move more. It goes by rolls, so it cannot tell what peers with --indexer interval would do.`,
		Args: cobra.ExactArgs(1),
		RunE: onLedger(stores, brief, func(cmd *cobra.Command, _ []string) error {
			var errs []error
			wants := cmd.Flags().Changed("peers")
			if wants && change.Peers < 1 {
				errs = append(errs, fmt.Errorf("--peers %d: want at least 1", change.Peers))
			}
			if !wants && len(change.Leave)+len(change.Drain) == 0 && strategy == "" {
				errs = append(errs, errors.New("nothing changes: give --peers, --leave, --drain or --strategy"))
			}
			if strategy != "" {
				var err error
				if change.Strategy, err = partition.StrategyByName(strategy); err != nil {
					errs = append(errs, fmt.Errorf("--strategy: %w", err))
				}
			}
			return errors.Join(errs...)
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			s, err := at.read(ctx, args[0])
			if err != nil {
				return err
			}
			place, err := at.of(ctx, args[0])
			if err != nil {
				return err
			}
			census, err := place.Census(ctx, args[0])
			if err != nil {
				return err
			}
			p, err := plan.Of(census, s, change)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			if census.Config.Paused != (partition.Pause{}) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is paused: nobody has anything now; what the peers have after countoff resume %[1]s moves\n", args[0])
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(p)
			}
			fmt.Fprintln(cmd.OutOrStdout(), strings.Join(p.Lines(), "\n"))
			return nil
		}),
	}
	cmd.Flags().IntVar(&change.Peers, "peers", 0, "how many peers there would be")
	cmd.Flags().StringArrayVar(&change.Leave, "leave", nil, "id of a peer that leaves; may be given more than once")
	cmd.Flags().StringArrayVar(&change.Drain, "drain", nil, "id of a peer that is drained; may be given more than once")
	cmd.Flags().StringVar(&strategy, "strategy", "", "how the peers share out: sticky, modulo, jump, rendezvous or ring (default: as they say)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object: peers_now, peers_then, peers, moves, stay, units, barrier, elsewhere, unsealed, gained, left, in_flight, work_units, drain_ms")
	return cmd
}

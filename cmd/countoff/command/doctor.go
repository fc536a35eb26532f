package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/cmd/countoff/doctor"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
)

func doctorCommand(stores Stores) *cobra.Command {
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:     "doctor NAME",
		Example: `  countoff doctor mail-sender --strict`,
		Short:   "find what may cost tasks or time, in the store and in NAME, and say what to do",
		Long: `Examines the store (version, persistence, memory, replicas, clock, cluster) and NAME in it (coverage,
peers that were refused, two deployments, the peers' times, queues of asynq that no program fills, and
other consumers of them). It changes nothing.

It ends with 7 if a finding is a danger, with --strict also if one is a warning.`,
		Args: cobra.ExactArgs(1),
		RunE: onLedger(stores, brief, nil, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			of := func(ctx context.Context) (status.Place, error) { return at.of(ctx, args[0]) }
			var store func(context.Context) ([]doctor.Finding, error)
			if at.store != nil {
				store = at.store.Examine
			}
			found, err := doctor.Examine(ctx, at.client, store, args[0], of, time.Now)
			if err = cmp.Or(cmd.Context().Err(), err); err != nil { // what it was kept from looking at is no finding
				return err
			}
			for _, f := range found {
				if asJSON {
					err = json.NewEncoder(cmd.OutOrStdout()).Encode(f)
				} else {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), f)
				}
				if err != nil {
					return err
				}
			}
			worst := doctor.Worst(found)
			if worst == doctor.Danger || strict && worst == doctor.Warning {
				return exit.Coded(exit.Verdict)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line: check, severity, what, risk, do, node")
	cmd.Flags().BoolVar(&strict, "strict", false, "end with 7 for a warning, too")
	return cmd
}

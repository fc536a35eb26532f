package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/cmd/countoff/doctor"
	"github.com/countoff/countoff/framework/program/exit"
)

func doctorCommand() *cobra.Command {
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "doctor NAME",
		Short: "what of the store or the name may cost tasks or time, and what to do",
		Long: `Examines the store (version, persistence, memory, replicas, clock, cluster) and the name
in it (coverage, peers that were refused, two deployments, the peers' times). It
changes nothing. It ends with 7 if something is a danger, with --strict also for a
warning.`,
		Args: cobra.ExactArgs(1),
		RunE: onStore(false, nil, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			found, err := doctor.Examine(ctx, client, args[0], time.Now)
			if err != nil {
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
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings too are a failure")
	return cmd
}

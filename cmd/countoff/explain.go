package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/cmd/countoff/explain"
)

func explainCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain NAME KEY",
		Short: "where a key is, whose, why, and what waits before it",
		Args:  cobra.ExactArgs(2),
		RunE: onStore(false, nil, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			e, err := explain.Read(ctx, client, args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
			}
			for _, l := range e.Lines() {
				fmt.Fprintln(cmd.OutOrStdout(), l)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

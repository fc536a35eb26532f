package command

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/cmd/countoff/explain"
	"github.com/countoff/countoff/framework/status/partitionmap"
)

func explainCommand(stores Stores) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "explain NAME KEY",
		Example: `  countoff explain mail-sender ann@example.com`,
		Short:   "say where a key is, which peer owns it and why, and what waits before it",
		Long: `Says for one key what countoff status and history say for all, and looks at the open tasks of
the key. Times are in UTC.`,
		Args: cobra.ExactArgs(2),
		RunE: onLedger(stores, brief, func(_ *cobra.Command, args []string) error { return keyFault(args[1]) }, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			place, err := at.of(ctx, args[0])
			if err != nil {
				return err
			}
			e, err := explain.Read(ctx, place, args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
			}
			for _, l := range e.Lines() {
				fmt.Fprintln(cmd.OutOrStdout(), partitionmap.Printable(l))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

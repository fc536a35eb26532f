package command

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
)

func statusCommand(stores Stores) *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use: "status NAME",
		Example: `  countoff status mail-sender
  countoff status mail-sender --json | jq .findings`,
		Short: "show peers, index, lease left; partitions with owner@epoch and what they hold",
		Args:  cobra.ExactArgs(1),
		RunE: onLedger(stores, brief, nil, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			s, err := at.read(ctx, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			}
			m := partitionmap.Map{Width: partitionmap.Columns(os.Stdout)} // rows that the terminal wraps are no map
			fmt.Fprintln(cmd.OutOrStdout(), strings.Join(m.Whole(s, all), "\n"))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object: name, roll, peers, partitions, units, coverage, grace_ms, takeover_bound_ms, "+
		"findings; barrier while one is closed, drained where peers are, to_cancel where tasks are, table of work units, tasks_unknown where only the record was looked at, or the store has nothing of a topic; ledger_elsewhere where only the tasks were")
	cmd.Flags().BoolVar(&all, "all", false, "list also empty partitions that are owned, and those without an owner if they are more than 16")
	return cmd
}

// fastest is how often watch may look.
const fastest = 100 * time.Millisecond

func watchCommand(stores Stores) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:     "watch NAME",
		Example: `  countoff watch mail-sender`,
		Short:   "show what status shows, live, until interrupted",
		Args:    cobra.ExactArgs(1),
		RunE: onLedger(stores, endless, func(*cobra.Command, []string) error {
			if every < fastest {
				return fmt.Errorf("--every %v: want at least %v", every, fastest)
			}
			return nil
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			timeout, err := cmd.Flags().GetDuration("timeout")
			if err != nil {
				return err
			}
			screen := partitionmap.NewScreen(os.Stdout)
			m := partitionmap.Map{Width: partitionmap.Columns(os.Stdout)}
			if screen != nil {
				m.Colour = screen.Colour()
			}
			tick := time.NewTicker(every)
			defer tick.Stop()
			defer context.AfterFunc(ctx, at.close)() // a client waits for an answer whatever its context says
			var last status.Status
			var seen time.Time // when last was read
			for {
				look, cancel := context.WithTimeout(ctx, timeout)
				s, err := at.read(look, args[0])
				cancel()
				if ctx.Err() != nil { // what stands there is the last that was seen
					return nil
				}
				if err == nil {
					last, seen = s, time.Now()
				}
				// A store that does not answer is what one watches for: say so and go on. A screen keeps what
				// was seen.
				var lines []string
				if err != nil {
					lines = []string{args[0], partitionmap.Printable("  " + err.Error())}
					if screen != nil && !seen.IsZero() {
						lines = append(lines, fmt.Sprintf("  What was seen %v ago:", time.Since(seen).Round(time.Second)), "")
					}
				}
				if screen != nil {
					screen.Fit()                                                         // its window may have changed since
					m.Width, m.Height = screen.Width, max(1, screen.Height-1-len(lines)) // the cursor stands below
				}
				if err == nil || screen != nil && !seen.IsZero() {
					lines = append(lines, m.Lines(last)...)
				}
				if screen != nil {
					screen.Draw(lines)
				} else if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n", strings.Join(lines, "\n")); err != nil {
					return err // it would go on for nobody
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return nil
				}
			}
		}),
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often to look, at least 100ms")
	return cmd
}

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

func historyCommand(stores Stores) *cobra.Command {
	var asJSON, one bool // one: of one partition
	var at, key string
	var id int32
	var n int
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "list which peer got what, from which peer and why; or who owned a key at a time",
		Long: `Prints the last changes of ownership, oldest first. The store keeps the last 2,000; one call of a
peer that changes several partitions counts as one.

  countoff history mail-sender                       everything
  countoff history mail-sender --key ann@example.com  of the partition of a key
  countoff history mail-sender --at 2026-01-31T14:03:00Z --key ann@example.com
                                                     who owned it then

--at takes a time as in RFC 3339, or a duration for "so long ago". What is printed is in UTC.`,
		Args: cobra.ExactArgs(1),
		RunE: onLedger(stores, brief, func(cmd *cobra.Command, _ []string) error {
			one = cmd.Flags().Changed("key") || cmd.Flags().Changed("partition")
			var errs []error
			if cmd.Flags().Changed("at") && at == "" { // a script whose variable is empty wants no history of all times
				errs = append(errs, errors.New("--at is empty: want a time as in 2026-01-31T14:03:00Z, or a duration as in 90s"))
			}
			if at != "" {
				_, err := parseAt(at)
				errs = append(errs, err)
			}
			if at != "" && !one {
				errs = append(errs, errors.New("--at wants --key or --partition"))
			}
			if cmd.Flags().Changed("key") {
				errs = append(errs, keyFault(key))
			}
			if n < 1 {
				errs = append(errs, fmt.Errorf("-n %d: want at least 1", n))
			}
			return errors.Join(errs...)
		}, func(ctx context.Context, stand *stand, cmd *cobra.Command, args []string) error {
			kept, cfg, err := stand.ledger(ctx, args[0], transition.Timing{})
			if err != nil {
				return err
			}
			ledger, ok := kept.(transition.Historian)
			if !ok {
				return exit.With(exit.Usage, errors.New("--ledger: this one keeps no history; the logs of the peers tell what each got and gave up, and status who owns what now"))
			}
			p := partition.ID(id)
			if cmd.Flags().Changed("key") {
				if p, err = cfg.Hash.Of(key, cfg.Total); err != nil {
					return exit.With(exit.Usage, err)
				}
			}
			history, err := ledger.History(ctx, machine.HistoryKept)
			if err != nil {
				return err
			}
			history = history.Apart()
			moves := history.Moves(p)
			// That the store forgot, or the name was made anew, is of the whole name; a former partition of one that was resized has moves of its own.
			moved := slices.ContainsFunc(moves, func(m machine.Move) bool { return m.What != machine.Forgot && m.What != machine.Made })
			if one && !moved && !slices.Contains(cfg.IDs(), p) {
				return exit.With(exit.Usage, fmt.Errorf("--partition %v: %s has 0 to %d", p, args[0], cfg.Total-1))
			}
			out := printer{to: cmd.OutOrStdout(), asJSON: asJSON}
			switch {
			case at != "":
				moment, isNow, err := instant(ctx, stand, args[0], at)
				if err != nil {
					return err
				}
				of := moment
				for _, e := range history {
					if isNow && e.At.After(of) { // it has happened, while the clock of the store was ahead
						of = e.At
					}
				}
				t := history.At(p, of)
				out.print(past.TenureLine(p, moment, t), past.TenureOf(p, moment, t))
			case one:
				for _, m := range moves[max(0, len(moves)-n):] {
					out.print(past.MoveLine(m), past.MoveOf(m))
				}
			default:
				for _, e := range history[max(0, len(history)-n):] {
					out.print(past.Line(e, cfg), past.EntryOf(e))
				}
			}
			return out.err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().StringVar(&at, "at", "", "who owned it at this time: RFC 3339, or a duration ago as in 90s")
	cmd.Flags().StringVar(&key, "key", "", "only the partition of this key")
	cmd.Flags().Int32Var(&id, "partition", 0, "only this partition")
	cmd.Flags().IntVarP(&n, "lines", "n", machine.HistoryKept, "the last n changes")
	cmd.MarkFlagsMutuallyExclusive("key", "partition")
	return cmd
}

// A printer prints what happened: for people, or as JSON for programs.
type printer struct {
	to     io.Writer
	asJSON bool
	err    error // the first of encoding
}

func (p *printer) print(line string, value any) {
	switch {
	case !p.asJSON:
		fmt.Fprintln(p.to, partitionmap.Printable(line))
	case p.err == nil:
		p.err = json.NewEncoder(p.to).Encode(value)
	}
}

// keyFault says what is wrong with a key that is asked for.
func keyFault(key string) error {
	if key == "" {
		return errors.New("the key is empty: tasks without one are in any partition")
	}
	return nil
}

// instant reads a time, or a duration before now.
func instant(ctx context.Context, stand *stand, name, text string) (at time.Time, isNow bool, err error) {
	now, err := stand.now(ctx, name)
	if err != nil {
		return now, false, err
	}
	of, err := parseAt(text)
	if err != nil {
		return now, false, exit.With(exit.Usage, err)
	}
	at = of(now)
	if at.After(now) {
		return at, false, exit.With(exit.Usage, fmt.Errorf("--at %s: has not come yet", text))
	}
	return at, at.Equal(now), nil
}

// parseAt returns which time text is, now.
func parseAt(text string) (of func(now time.Time) time.Time, err error) {
	if ago, err := time.ParseDuration(text); err == nil {
		return func(now time.Time) time.Time { return now.Add(-ago.Abs()) }, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, fmt.Errorf("--at %q: want a time as in 2026-01-31T14:03:00Z, or a duration as in 90s", text)
	}
	return func(time.Time) time.Time { return at }, nil
}

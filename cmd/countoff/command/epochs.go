package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/quorum"
	"github.com/countoff/countoff/transition/quorum/redisquorum"
)

func epochsCommand() *cobra.Command {
	var masters []string
	var admit bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "epochs NAME --masters URL,URL,URL",
		Example: `  countoff epochs mail-sender --masters redis://a:6379,redis://b:6379,redis://c:6379`,
		Short:   "show, check or set up the masters that witness the epochs of NAME",
		Long: `Three or five masters, independent of each other, let epochs rise even if the store of the ledger is
lost. Give peers the same URLs (redisfx.Config.Epochs).

Without --admit it shows the number that a majority of the masters holds, and what may make each of them
forget it. --admit sets up masters that are empty: at first all of them, which must all answer; later one
that has lost its memory, or a new one, for which a majority must answer.

It looks at the masters alone: --redis, --ledger and --timeout are refused.
Exit code 7 means that something is at risk, 3 that less than a majority answers.`,
		Args: cobra.ExactArgs(1),
		RunE: exit.Run(func(cmd *cobra.Command, args []string) error {
			errs := []error{flagenv.Apply(cmd)}
			if timeout <= 0 {
				errs = append(errs, fmt.Errorf("--wait %v: want more than 0", timeout))
			}
			for _, f := range []struct{ flag, instead string }{
				{"redis", "leave it out"}, {"ledger", "leave it out"}, {"timeout", "--wait is how long one of them may take"},
			} {
				if flagenv.Said(cmd, f.flag) {
					errs = append(errs, fmt.Errorf("--%s: epochs looks at the masters alone, which --masters names: %s", f.flag, f.instead))
				}
			}
			if len(masters) == 0 {
				errs = append(errs, errors.New("want --masters: the URLs of three or five masters, as the peers are told them"), partition.CheckName(args[0]))
				return exit.With(exit.Usage, errors.Join(errs...))
			}
			q, err := redisquorum.Open(args[0], masters, quorum.Config{Timeout: max(timeout, 0)})
			if err := errors.Join(append(errs, err)...); err != nil {
				if q != nil {
					err = errors.Join(err, q.Close())
				}
				return exit.With(exit.Usage, err)
			}
			defer q.Close()
			out := printing(cmd)
			return out.end(epochs(cmd.Context(), cmd, q, admit))
		}),
	}
	f := cmd.Flags()
	f.StringSliceVar(&masters, "masters", nil, "URLs of the masters, separated by commas")
	f.BoolVar(&admit, "admit", false, "set up the masters that are empty")
	f.DurationVar(&timeout, "wait", 2*time.Second, "how long one master may take to answer")
	return cmd
}

func epochs(ctx context.Context, cmd *cobra.Command, q *redisquorum.Quorum, admit bool) error {
	out := cmd.OutOrStdout()
	if admit {
		n, err := q.Admit(ctx)
		fmt.Fprintf(out, "%d admitted\n", n)
		if err != nil {
			return exit.With(exit.Unreachable, err)
		}
	}
	risks := q.Examine(ctx)
	for _, r := range risks {
		fmt.Fprintf(out, "AT RISK  %s %s\n", r.Register, r.Text)
	}
	largest, err := q.Read(ctx)
	if err != nil {
		return exit.With(exit.Unreachable, err)
	}
	fmt.Fprintf(out, "a majority has heard of %d\n", largest)
	if len(risks) > 0 {
		return exit.With(exit.Verdict, errors.New("something is at risk"))
	}
	return nil
}

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
)

// stillEach is how often it is looked who still works.
const stillEach = 200 * time.Millisecond

func pauseCommand(stores Stores) *cobra.Command {
	var p partition.Pause
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "stop all work under NAME until it is resumed",
		Long: `Each peer of NAME lets running handlers end, settles them and gives up what it has, within its drain.
Nothing is lost, and nothing new begins. Peers stay, with their indexes, and may come and go meanwhile.
Producers go on, and their tasks wait. Periodic jobs do not tick, work units stop, and ingress lists are left
as they are.

The pause is recorded with the name and outlives restarts, until countoff resume NAME: then each peer has
again what it had.

The command ends when nothing of NAME runs any more, or with 1 after --wait. NAME is paused all the same.`,
		Example: `  countoff pause mail-sender --why "the database moves, ask ann"
  countoff resume mail-sender`,
		Args: cobra.ExactArgs(1),
		RunE: onLedger(stores, long, func(*cobra.Command, []string) error {
			p.Since = time.Now()
			err := p.Check()
			if wait < 0 {
				err = errors.Join(err, fmt.Errorf("--wait %v: want 0 or more", wait))
			}
			return err
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			if now, err := at.now(ctx, args[0]); err == nil { // else it is paused all the same
				p.Since = now
			}
			ledger, before, err := at.pause(ctx, args[0], p)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if before.Paused != (partition.Pause{}) {
				fmt.Fprintf(out, "%s was paused already, since %s\n", args[0], since(before.Paused.Since, before.Paused.Why))
			} else {
				fmt.Fprintf(out, "%s is paused (countoff resume %[1]s goes on)\n", args[0])
			}
			if err := at.elsewhere(ctx, args[0]); err != nil {
				return fmt.Errorf("%s is paused for peers whose ledger is in this Redis, but %w", args[0], err)
			}
			if wait == 0 {
				return nil
			}
			if err := still(ctx, ledger, wait, cmd.ErrOrStderr(), working); err != nil {
				return fmt.Errorf("%s is paused, but %w", args[0], err)
			}
			fmt.Fprintln(out, "nothing of it runs")
			return nil
		}),
	}
	cmd.Flags().StringVar(&p.Why, "why", "", "the reason, for people: it is shown with the pause")
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long running handlers may take to end; 0: do not wait for them")
	return cmd
}

func resumeCommand(stores Stores) *cobra.Command {
	return &cobra.Command{
		Use:     "resume NAME",
		Example: `  countoff resume mail-sender`,
		Short:   "end the pause of NAME",
		Args:    cobra.ExactArgs(1),
		RunE: onLedger(stores, brief, nil, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			_, before, err := at.pause(ctx, args[0], partition.Pause{})
			if err != nil {
				return err
			}
			said := "%s is resumed\n"
			if before.Paused == (partition.Pause{}) {
				said = "%s was not paused\n"
			}
			fmt.Fprintf(cmd.OutOrStdout(), said, args[0])
			if s, err := at.read(ctx, args[0]); err == nil { // it is resumed, whatever can be read
				for _, f := range s.Findings {
					if f.Kind == status.Replicas {
						fmt.Fprintln(cmd.ErrOrStderr(), "but", partitionmap.Printable(f.String()))
					}
				}
			}
			return nil
		}),
	}
}

// pause says p of name, and returns what stood before.
func (at *stand) pause(ctx context.Context, name string, p partition.Pause) (transition.Ledger, partition.Config, error) {
	ledger, before, err := at.ledger(ctx, name, transition.Timing{})
	if err != nil {
		return nil, before, err
	}
	pauser, ok := ledger.(transition.Pauser)
	if !ok {
		return nil, before, errors.New("where the ledger stands nothing can be paused")
	}
	return ledger, before, pauser.Pause(ctx, p)
}

// elsewhere returns an error if peers of name may be at work that hear of nothing which is said to the ledger at.
func (at *stand) elsewhere(ctx context.Context, name string) error {
	if s, err := at.read(ctx, name); err == nil && s.LedgerElsewhere {
		return errors.New(partitionmap.Nobody(s))
	}
	return nil
}

// since says since when and why something stands, which a second order does not change.
func since(at time.Time, why string) string {
	text := at.UTC().Format(time.RFC3339)
	if why != "" {
		text += fmt.Sprintf(" (%s)", partitionmap.Printable(why))
	}
	return text
}

// still waits until nobody of those works whom look finds at work, and says now and then who does. What
// does not change by itself is not waited for.
func still(ctx context.Context, ledger transition.Ledger, wait time.Duration, out io.Writer, look func(machine.Census) (works string, stays bool)) error {
	late := time.NewTimer(wait)
	defer late.Stop()
	farther := newFarther(out)
	for works := "it cannot be told who still works"; ; {
		census, err := ledger.Census(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", works, err)
		}
		var stays bool
		if works, stays = look(coverage.Heard(census)); works == "" {
			return nil
		}
		if stays {
			return exit.With(exit.Failed, errors.New(works))
		}
		farther.say("%s", works)
		select {
		case <-time.After(stillEach):
		case <-late.C:
			return exit.With(exit.Failed, errors.New(works))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", works, ctx.Err())
		}
	}
}

// working says who still has partitions, "" if nobody who lives has; that never stays, unless the name is paused
// no more. In a grace some may work whom the store has forgotten: they say so before its end, or their leases are
// over then.
func working(c machine.Census) (works string, stays bool) {
	if c.Config.Paused == (partition.Pause{}) {
		return "no longer: it was resumed meanwhile, or forgotten in a fail-over to a replica that had not received it: pause it again", true
	}
	c = c.Apart()
	peers := make(map[partition.Session]string)
	for _, s := range c.Sessions {
		if s.State != machine.Gone && s.Lease > 0 {
			peers[s.Session] = s.Peer
		}
	}
	has := make(map[string]int)
	for _, g := range c.Grants {
		if peer, lives := peers[g.Session]; lives {
			has[peer]++
		}
	}
	var all []string
	for _, peer := range slices.Sorted(maps.Keys(has)) {
		all = append(all, fmt.Sprintf("%s %d", partitionmap.Printable(peer), has[peer]))
	}
	switch {
	case len(all) == 0 && c.Grace > 0:
		return fmt.Sprintf("the store is new, restarted or forgot: who works has %v to say so again", c.Grace.Round(time.Millisecond)), false
	case len(all) == 0:
		return "", false
	}
	return "partitions and ingress lists that are still worked on: " + strings.Join(all, ", "), false
}

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

func drainCommand(stores Stores) *cobra.Command {
	var d partition.Drain
	var wait time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "drain NAME PEER",
		Short: "make the other peers take over everything that PEER has, until it is recalled",
		Long: `The other peers of NAME take over the partitions, ingress lists and units of PEER, as in any hand-over:
what runs ends first, and nothing is lost, doubled or out of order. The process of PEER lives on, ready,
with its session and its index, and gets nothing until countoff recall NAME PEER. It keeps what no other
peer may have.

PEER is an id as countoff status shows it. The drain is recorded with the name, for the id: it outlives
restarts, a process that comes back under the id is drained too, and so are all that share the id. If no
such peer is there yet, give --force.

The command ends when PEER has nothing any more; with 1 after --wait, or at once if no other peer may
have the rest. PEER is drained all the same.`,
		Example: `  countoff drain mail-sender pod-3 --why "its disk is slow, ask ann"
  countoff recall mail-sender pod-3`,
		Args: cobra.ExactArgs(2),
		RunE: onLedger(stores, long, func(_ *cobra.Command, args []string) error {
			d.Peer, d.Since = args[1], time.Now()
			err := d.Check()
			if wait < 0 {
				err = errors.Join(err, fmt.Errorf("--wait %v: want 0 or more", wait))
			}
			return err
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			ledger, drainer, census, err := at.drainer(ctx, args[0])
			if err != nil {
				return err
			}
			missing, elsewhere := takesPart(census, d.Peer), error(nil)
			if missing != nil {
				elsewhere = at.elsewhere(ctx, args[0])
			}
			if missing != nil && !force {
				return fmt.Errorf("%w (--force drains it all the same, for when it comes)", cmp.Or(elsewhere, missing))
			}
			if now, err := at.now(ctx, args[0]); err == nil { // else it is drained all the same
				d.Since = now
			}
			if err := drainer.Drain(ctx, d); err != nil {
				return err
			}
			peer, out := partitionmap.Printable(d.Peer), cmd.OutOrStdout()
			if before, stands := census.Config.Drains(d.Peer); stands {
				fmt.Fprintf(out, "%s was drained already, since %s\n", peer, since(before.Since, before.Why))
			} else {
				fmt.Fprintf(out, "%s is drained (%s gives it its share back)\n", peer, partitionmap.Printable(partitionmap.Recall(args[0], d.Peer)))
			}
			if elsewhere != nil {
				return fmt.Errorf("%s is drained in the ledger of this Redis, but %w", peer, elsewhere)
			}
			if wait == 0 {
				return nil
			}
			if err := still(ctx, ledger, wait, cmd.ErrOrStderr(), func(c machine.Census) (string, bool) { return keeps(c, d.Peer) }); err != nil {
				return fmt.Errorf("%s is drained, but %w", peer, err)
			}
			fmt.Fprintln(out, "it has nothing any more")
			return nil
		}),
	}
	cmd.Flags().StringVar(&d.Why, "why", "", "the reason, for people: it is shown with the peer")
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long the hand-over may take; 0: do not wait for it")
	cmd.Flags().BoolVar(&force, "force", false, "also if no peer with that id takes part")
	return cmd
}

func recallCommand(stores Stores) *cobra.Command {
	return &cobra.Command{
		Use:     "recall NAME PEER",
		Example: `  countoff recall mail-sender pod-3`,
		Short:   "end the drain of PEER: it gets a share again",
		Args:    cobra.ExactArgs(2),
		RunE: onLedger(stores, brief, nil, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			_, drainer, census, err := at.drainer(ctx, args[0])
			if err != nil {
				return err
			}
			if err := drainer.Recall(ctx, args[1]); err != nil {
				return err
			}
			said := "%s is recalled\n"
			if _, stands := census.Config.Drains(args[1]); !stands {
				said = "%s was not drained\n"
			}
			fmt.Fprintf(cmd.OutOrStdout(), said, partitionmap.Printable(args[1]))
			return nil
		}),
	}
}

// drainer returns the ledger of name twice, and what stands there now.
func (at *stand) drainer(ctx context.Context, name string) (transition.Ledger, transition.Drainer, machine.Census, error) {
	ledger, _, err := at.ledger(ctx, name, transition.Timing{})
	if err != nil {
		return nil, nil, machine.Census{}, err
	}
	drainer, ok := ledger.(transition.Drainer)
	if !ok {
		return nil, nil, machine.Census{}, errors.New("where the ledger stands nobody can be drained")
	}
	census, err := ledger.Census(ctx)
	return ledger, drainer, census, err
}

// takesPart returns an error that says who is there if nobody with that id is.
func takesPart(c machine.Census, peer string) error {
	var ids []string
	for _, s := range c.Sessions {
		if s.State != machine.Gone && s.Lease > 0 {
			if s.Peer == peer {
				return nil
			}
			ids = append(ids, partitionmap.Printable(s.Peer))
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	const most = 20
	who := "nobody takes part"
	if n := len(ids) - most; n > 0 {
		who = fmt.Sprintf("there are %s and %d more", strings.Join(ids[:most], ", "), n)
	} else if len(ids) > 0 {
		who = "there are " + strings.Join(ids, ", ")
	}
	return exit.With(exit.Failed, fmt.Errorf("no peer that takes part has the id %s: %s", partitionmap.Printable(peer), who))
}

// keeps says what those with that id still have, "" if nothing, and whether it stays so.
func keeps(c machine.Census, peer string) (works string, stays bool) {
	if _, stands := c.Config.Drains(peer); !stands {
		return "no longer: it was recalled meanwhile, or forgotten in a fail-over to a replica that had not received it: drain it again", true
	}
	has := make(map[partition.Session]bool)
	for _, s := range c.Sessions {
		has[s.Session] = s.Peer == peer && s.State != machine.Gone && s.Lease > 0
	}
	given := make(map[partition.ID]bool) // by the newest roll
	for _, m := range c.Roll.Members {
		for _, id := range m.Partitions {
			given[id] = has[m.Session]
		}
	}
	n, left, wanted := 0, 0, false
	for _, g := range c.Grants {
		if has[g.Session] {
			n++
			if given[g.Grant.ID] {
				left++
			}
			wanted = wanted || machine.Fit(c, g.Grant.ID)
		}
	}
	switch {
	case n == 0 && c.Grace > 0:
		return fmt.Sprintf("the store is new, restarted or forgot: it has %v to say what it has", c.Grace.Round(time.Millisecond)), false
	case n == 0:
		return "", false
	}
	sealed := left == n && c.Membership == c.Roll.Membership && c.Grace == 0
	if sealed && wanted {
		return fmt.Sprintf("it has its share, %d of the partitions and ingress lists: a peer whose build does not know of drains sealed the roll; bring all up to date", n), true
	}
	if sealed {
		return fmt.Sprintf("it keeps %d of the partitions and ingress lists: nobody else who is well, and not drained, may have them", n), true
	}
	if c.Membership != c.Roll.Membership && c.Grace == 0 {
		return fmt.Sprintf("it still has %d of the partitions and ingress lists: no roll without it is sealed yet (with WaitReplicas none is while replicas are missing, "+
			"with a barrier none before all have arrived)", n), false
	}
	return fmt.Sprintf("it still has %d of the partitions and ingress lists (what runs ends first; a process that stands still keeps them for its lease; "+
		"peers that count off in another way than by rolls keep them)", n), false
}

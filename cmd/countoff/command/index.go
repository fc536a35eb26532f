package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

func indexCommand(stores Stores) *cobra.Command {
	var follow bool
	var peer string
	var lease time.Duration
	cmd := &cobra.Command{
		Use:     "index NAME",
		Example: `  countoff index mail-sender`,
		Short:   "count off under NAME and print the pair: index replicas",
		Long: `Counts off under NAME and prints "index replicas", 0-based, for scripts that share
work by themselves:

  read -r index replicas < <(countoff index nightly-report)

The process is a member while it runs. Without --follow it leaves once it knows its place, and gives up
after --timeout if the store does not answer (exit code 3). With --follow it stays and prints a line at
each change. The line "-1 0" means that it has no place any more: the store has not answered, its lease may
be over, and others may count without it. Stop then, until the next line has a place again.

It takes a place and serves no partition: if consumers work under NAME it counts among their replicas,
and the partitions stay theirs. NAME must exist: countoff init makes one.`,
		Args: cobra.ExactArgs(1),
		RunE: onLedger(stores, endless, func(*cobra.Command, []string) error {
			if lease <= 0 {
				return errors.Join(peerFault(peer), fmt.Errorf("--lease %v: want more than 0", lease))
			}
			return errors.Join(peerFault(peer), transition.Timing{Lease: lease}.Validate())
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			name := args[0]
			if at.store == nil { // one that was named is the one
				if err := at.elsewhere(ctx, name); err != nil {
					return fmt.Errorf("a place in the ledger in this Redis would be one among none of %s: %w", name, err)
				}
			}
			timing := transition.Timing{Lease: lease}
			ledger, cfg, err := at.ledger(ctx, name, timing)
			if err != nil {
				return err
			}
			if peer == "" {
				if peer, err = os.Hostname(); err != nil {
					return err
				}
				peer = fmt.Sprintf("%s-%d", peer, os.Getpid())
			}
			c := counting{
				place: func(p pair) bool {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), p.index, p.replicas)
					return follow && err == nil // who is not heard has no reason to stay
				},
				outage: func(err error) {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: the ledger was asked in vain, and is asked again: %s\n", cmd.CommandPath(), partitionmap.Printable(err.Error()))
				},
			}
			if !follow {
				if c.patience, err = cmd.Flags().GetDuration("timeout"); err != nil {
					return err
				}
			}
			return countOff(ctx, transition.Config{Ledger: ledger, Config: cfg, Timing: timing, Peer: peer}, c)
		}),
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "stay, and print a line at each change")
	cmd.Flags().StringVar(&peer, "id", "", "peer id, shown in status (default the host's name and the process id)")
	cmd.Flags().DurationVar(&lease, "lease", 10*time.Second, "how long others wait for a silent peer; the same for all peers of NAME")
	return cmd
}

// A pair is what is printed of a place.
type pair struct{ index, replicas int }

// noPlace is the pair of a peer that is not in the roll, or whose lease may be over.
var noPlace = pair{-1, 0}

// News are what a peer hears of itself. It tells them to nobody who could keep it waiting: the lease
// would pay for that.
type news struct {
	places  chan pair  // holds the newest
	outages chan error // holds how one began
	joined  atomic.Bool
	silent  bool // belongs to the observer
}

// observe is told the roll again that is known already when a lapse is over, which an indexer does
// not emit.
func (n *news) observe(e transition.Event) {
	switch e := e.(type) {
	case transition.RollSeen:
		if e.View.Index < 0 {
			n.place(noPlace)
		} else {
			n.place(pair{e.View.Index, e.View.Replicas})
		}
	case transition.Lapsed:
		n.place(noPlace)
	case transition.Synced:
		n.joined.Store(true)
		n.silent = false
	case transition.SyncFailed:
		if n.silent {
			return
		}
		n.silent = true
		select {
		case n.outages <- e.Err:
		default: // nobody has taken the one before
		}
	}
}

func (n *news) place(p pair) {
	select {
	case <-n.places: // nobody took it: it is old now
	default:
	}
	n.places <- p
}

// A counting is how somebody counts off.
type counting struct {
	patience time.Duration   // how long the first answer may take; 0: for ever
	place    func(pair) bool // whether it stays
	outage   func(error)
}

// countOff takes part until ctx ends or c.place, which is told each change, returns false. Who
// has no place at first has not lost one, and is told the first.
func countOff(ctx context.Context, cfg transition.Config, c counting) error {
	n := &news{places: make(chan pair, 1), outages: make(chan error, 1)}
	cfg.Observer = n.observe
	roster, err := transition.NewRoster(cfg)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- roster.Index(ctx, func(partition.View) {}) }()
	leave := func(err error) error {
		cancel()
		<-ended
		return err
	}
	var late <-chan time.Time
	if c.patience > 0 {
		late = time.After(c.patience)
	}
	has, why := noPlace, errors.New("its first call is still under way")
	for {
		select {
		case p := <-n.places:
			if p == has || ctx.Err() != nil {
				continue
			}
			if has = p; !c.place(p) {
				return leave(nil)
			}
		case why = <-n.outages:
			c.outage(why)
		case <-late:
			if !n.joined.Load() {
				return leave(exit.With(exit.Unreachable, fmt.Errorf("the ledger has not answered for %v: %w", c.patience, why)))
			}
		case err := <-ended:
			return err
		}
	}
}

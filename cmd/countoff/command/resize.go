package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

func resizeCommand() *cobra.Command {
	var partitions int
	var dry, gone bool
	cmd := &cobra.Command{
		Use:     "resize NAME --partitions N",
		Example: `  countoff resize mail-sender --partitions 512`,
		Short:   "change the number of partitions of NAME: its tasks move, those of a key in order",
		Long: `Moves pending, delayed and dead tasks to the partitions where their keys then belong. Stop all peers
first: it is refused while any is alive, or may be. From begin to end no peer can work under the name. If it
is interrupted, call it again: it goes on from where it was.`,
		Args: cobra.ExactArgs(1),
		RunE: onlyInRedis("stop all peers, move the tasks to a name with another number of partitions by a consumer that enqueues them there, and destroy the old one"+orGone, onStore(long, func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("partitions") {
				return errors.New("want --partitions")
			}
			return sharesFault(cmd, partitions)
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := listsOnly(ctx, client, name, "give that one more partitions, and the peers share them out",
				fmt.Sprintf("for other Queues, each of which is a partition, %s; where tasks go by key, let the peers finish them first", beginAnew(name, fmt.Sprintf("--partitions %d", partitions)))); err != nil {
				return err
			}
			if !dry && !gone {
				if err := seen(ctx, client, name); err != nil {
					return err
				}
			}
			far := newFarther(cmd.ErrOrStderr())
			defer far.watch()()
			out, err := redissource.Resize(ctx, client, name, partitions, redissource.ResizeConfig{
				DryRun: dry,
				Idle:   func(ctx context.Context) error { return idle(ctx, client, name, far) },
				Tell:   far.tell,
			})
			if err != nil {
				return err
			}
			if !dry && out.From == out.To { // the tasks were not counted
				fmt.Fprintf(cmd.OutOrStdout(), "%s has %s already: nothing was moved\n", name, partitionmap.Plural(out.To, "partition"))
				return nil
			}
			verb := "moved"
			if dry {
				verb = "would move"
			}
			rest := ""
			if out.Resumed {
				rest = ", not counting what an earlier resize had moved before it was broken off"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d to %s; %s, %d delayed, %d dead; %s %d%s\n",
				name, out.From, partitionmap.Plural(out.To, "partition"), partitionmap.Plural(out.Tasks, "task"), out.Delayed, out.Dead, verb, out.Moving, rest)
			return nil
		})),
	}
	cmd.Flags().IntVar(&partitions, "partitions", 0, "the new number of partitions")
	ledgerGone(cmd, &gone)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only count what would move, and say what would be in the way apart from live peers")
	return cmd
}

// beginAnew says how a name that works queues of asynq gets what stands about it changed: what
// it forgets with destroy is no task.
func beginAnew(name, with string) string {
	return fmt.Sprintf("stop all peers, countoff destroy %s --yes, which leaves queues of asynq and their tasks as they are, countoff init %s %s, and start the peers",
		name, name, with)
}

// idle returns an error while anybody may work under name. After all peers have died as one
// nobody moves the ledger's clock, and no lease ends by itself: where nobody has called for
// longer than a takeover may take, it moves the clock until they are over.
func idle(ctx context.Context, client redis.UniversalClient, name string, far *farther) error {
	census, unknown := status.Place{Client: client}.Census(ctx, name) // there is none while its number of partitions changes
	err := redisledger.Idle(ctx, client, name)
	if unknown != nil {
		return err
	}
	left := time.Duration(0)
	for _, s := range census.Sessions {
		if s.Lease > 0 {
			return err // somebody has been heard of
		}
		left = max(left, s.Lease+census.Silence)
	}
	if !errors.Is(err, redisledger.ErrInUse) {
		return err
	}
	far.begin("no peer of %s has been heard of for %v: waiting until their leases are over", name, census.Silence.Round(time.Second))
	look := time.NewTicker(time.Second / 4)
	defer look.Stop()
	for end := time.Now().Add(left + time.Second); errors.Is(err, redisledger.ErrInUse) && time.Now().Before(end); {
		select {
		case <-look.C:
			err = redisledger.Idle(ctx, client, name)
			far.say("waiting until the leases of the peers of %s are over", name)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// orGone is what to do where the ledger that --ledger names is not there any more.
const orGone = " (if that store is gone for good: leave out --ledger, and say --ledger-gone)"

// ledgerGone is the flag with which nobody is looked for in a ledger that stands elsewhere.
func ledgerGone(cmd *cobra.Command, gone *bool) {
	cmd.Flags().BoolVar(gone, "ledger-gone", false, "all peers are stopped, and the ledger that NAME had in another store is gone for good")
}

// seen returns an error if peers of name may be alive that idle does not see, since their ledger is not in this Redis.
func seen(ctx context.Context, client redis.UniversalClient, name string) error {
	elsewhere, err := status.LedgerElsewhere(ctx, client, name)
	if err != nil { // what cannot be read the command itself tells, if it is in its way
		return ctx.Err()
	}
	if elsewhere {
		return exit.With(exit.InUse, fmt.Errorf("%s was worked on, and not by peers whose ledger is in this Redis, so it is not seen here whether one is alive: "+
			"give --ledger URL, which says what to do there; if that ledger is gone for good, or this Redis has lost it, stop all peers and say --ledger-gone", name))
	}
	return nil
}

func destroyCommand() *cobra.Command {
	var yes, gone bool
	cmd := &cobra.Command{
		Use:     "destroy NAME --yes",
		Example: `  countoff destroy mail-sender --yes`,
		Short:   "remove NAME with all its tasks; refused while peers are alive under it, or may be",
		Long: `Removes the ledger of NAME, its configuration and all its tasks: pending, delayed and dead. Ingress lists
and lists of units stay, since they belong to their producers. Queues of asynq stay with all their tasks:
asynq queue rm --force QUEUE removes one. It looks at every key of the store.`,
		Args: cobra.ExactArgs(1),
		RunE: onlyInRedis("stop all peers, remove the keys of the name in the store of the ledger (etcdctl del --prefix PREFIX/NAME/), and then destroy NAME with --redis and --ledger-gone", onStore(long, func(*cobra.Command, []string) error {
			if !yes {
				return errors.New("this removes tasks for good: say --yes")
			}
			return nil
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			if !gone {
				if err := seen(ctx, client, args[0]); err != nil {
					return err
				}
			}
			if err := idle(ctx, client, args[0], newFarther(cmd.ErrOrStderr())); err != nil {
				return err
			}
			queues, ofAsynq, _ := queuestat.Read(ctx, client, args[0]) // what cannot be read is no reason to keep the rest
			cfg, unknown := redisconfig.Read(ctx, client, args[0])
			done := meanwhile(cmd.ErrOrStderr(), "looking through all keys of the store for those of "+args[0])
			n, err := redissource.Destroy(ctx, client, args[0])
			done()
			if err != nil {
				return err
			}
			if err := redisledger.Destroy(ctx, client, args[0]); err != nil {
				return err
			}
			if err := client.Del(ctx, redisledger.TableKey(args[0])).Err(); err != nil {
				return err
			}
			if n == 0 && errors.Is(unknown, redisconfig.ErrNone) {
				fmt.Fprintf(cmd.OutOrStdout(), "there is nothing of %s\n", args[0])
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is gone, with %s of its partitions\n", args[0], partitionmap.Plural(n, "key"))
			if ofAsynq {
				fmt.Fprintf(cmd.OutOrStdout(), "its queues of asynq keep their tasks, %s; to remove one with its tasks: asynq queue rm --force QUEUE\n", kept(queues, cfg))
			}
			return nil
		})),
	}
	ledgerGone(cmd, &gone)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm the removal")
	return cmd
}

// kept are the queues of asynq of a name and of its ingresses.
func kept(queues queuestat.Queues, cfg partition.Config) string {
	names := queues.Names(cfg.Total)
	if !queues.Named() && len(names) > 1 {
		names = []string{names[0] + " .. " + names[len(names)-1]}
	}
	return partitionmap.Printable(strings.Join(append(names, cfg.Units...), ", "))
}

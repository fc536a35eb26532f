package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

func resizeCommand() *cobra.Command {
	var partitions int
	var dry bool
	cmd := &cobra.Command{
		Use:   "resize NAME --partitions N",
		Short: "move the tasks of NAME to another number of partitions, those of a key in order",
		Long: `Moves waiting, delayed and dead tasks to the partitions where their keys belong then. Stop
all peers first: it is refused while any live. From its begin to its end nobody can
work under the name; broken off, it goes on where it was when it is called again.`,
		Args: cobra.ExactArgs(1),
		RunE: onlyInRedis("stop all peers, move the tasks to a name with another number of partitions by a consumer that enqueues them there, and destroy the old one", onStore(long, func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("partitions") {
				return errors.New("want --partitions")
			}
			return sharesFault(cmd, partitions)
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := listsOnly(ctx, client, name, "give that one more partitions, and the peers share them out",
				"let the peers finish them, and take another name for another number"); err != nil {
				return err
			}
			out, err := redissource.Resize(ctx, client, name, partitions, redissource.ResizeConfig{
				DryRun: dry,
				Idle:   func(ctx context.Context) error { return redisledger.Idle(ctx, client, name) },
			})
			if errors.Is(err, context.Canceled) && out.From > 0 && !dry {
				return fmt.Errorf("nobody can work under %s until this was called again and has ended: %w", name, err)
			}
			if err != nil {
				return err
			}
			verb := "moved"
			if dry {
				verb = "would move"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d to %d partitions; %d tasks, %d delayed, %d dead; %s %d\n",
				name, out.From, out.To, out.Tasks, out.Delayed, out.Dead, verb, out.Moving)
			return nil
		})),
	}
	cmd.Flags().IntVar(&partitions, "partitions", 0, "how many there are to be")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only count what would move")
	return cmd
}

func destroyCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "destroy NAME --yes",
		Short: "remove NAME with all its tasks; refused while peers live under it",
		Long: `Removes the ledger of NAME, its configuration and all its tasks, waiting, delayed and
dead. Ingress lists and lists of units stay: they are their producers'. It looks at every
key of the store.`,
		Args: cobra.ExactArgs(1),
		RunE: onlyInRedis("stop all peers, remove the keys of the name in the store of the ledger (etcdctl del --prefix PREFIX/NAME/), and then destroy NAME with --redis alone", onStore(long, func(*cobra.Command, []string) error {
			if !yes {
				return errors.New("this removes tasks for good: say --yes")
			}
			return nil
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			if err := redisledger.Idle(ctx, client, args[0]); err != nil {
				return err
			}
			_, unknown := redisconfig.Read(ctx, client, args[0])
			n, err := redissource.Destroy(ctx, client, args[0])
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
			fmt.Fprintf(cmd.OutOrStdout(), "%s is gone, with %d keys of its partitions\n", args[0], n)
			return nil
		})),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, remove it")
	return cmd
}

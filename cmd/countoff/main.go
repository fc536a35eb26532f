// Command countoff shows and tends the names of task processings in Redis: who takes
// part, who owns which partition, what waits, what died. `countoff --help` lists its
// commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/cmd/countoff/seat"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		os.Exit(seat.Guard(os.Args[2:]))
	}
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exit.Main(ctx, root())
	stop()
	os.Exit(code)
}

// quiet drops what the client would log: its calls return the same as errors.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// sharesFault says what is wrong with --partitions, if it was given.
func sharesFault(cmd *cobra.Command, partitions int) error {
	if f := cmd.Flags().Lookup("partitions"); !f.Changed {
		return nil
	}
	if err := (partition.Config{Total: partitions, Hash: partition.XXHash64}).Validate(); err != nil {
		return fmt.Errorf("--partitions %d: want 1 to %d", partitions, partition.MaxTotal)
	}
	return nil
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "countoff",
		Short: "who takes part in a task processing, who owns what, what waits",
		Long: `countoff shows and tends the names of task processings in Redis.

  countoff status mail-sender          peers, partitions and what they hold
  countoff watch mail-sender           the same, live
  countoff dead list mail-sender       what could not be done, and why

` + exit.Help,
		// Sub-commands inherit it: variables count before anything runs.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return flagenv.Apply(cmd) },
	}
	cmd.PersistentFlags().String("redis", "redis://127.0.0.1:6379", "the store, as redis://[user:password@]host[:port][/db], rediss:// for TLS, several hosts for a cluster")
	cmd.PersistentFlags().Duration("timeout", 10*time.Second, "how long the store may take to answer")
	cmd.AddCommand(statusCommand(), watchCommand(), indexCommand(), initCommand(), resizeCommand(), destroyCommand(),
		enqueueCommand(), deadCommand(), versionCommand())
	cmd.AddCommand(historyCommand(), explainCommand(), doctorCommand(), epochsCommand(), runCommand(), requireCommand(), jobsCommand())
	flagenv.Bind(cmd.PersistentFlags(), "COUNTOFF_", map[string][]string{"redis": {redisurl.EnvName}})
	return cmd
}

// A faultFinder says all that is wrong with a command's flags and arguments.
type faultFinder func(cmd *cobra.Command, args []string) error

// onStore runs do with a client of the store that --redis names, within --timeout
// unless the command runs until it is told to stop. The first argument is a name.
// What is wrong with the command line, of which faults knows what only this command
// does, is said at once, and the store is left alone. faults may be nil.
func onStore(endless bool, faults faultFinder, do func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return exit.Run(func(cmd *cobra.Command, args []string) error {
		raw, err := cmd.Flags().GetString("redis")
		if err != nil {
			return err
		}
		timeout, err := cmd.Flags().GetDuration("timeout")
		if err != nil {
			return err
		}
		errs := []error{partition.CheckName(args[0])}
		if timeout <= 0 {
			errs = append(errs, fmt.Errorf("--timeout %v: want more than 0", timeout))
		}
		if faults != nil {
			errs = append(errs, faults(cmd, args))
		}
		client, err := redisurl.Open(raw)
		if err := errors.Join(append(errs, err)...); err != nil {
			if client != nil {
				err = errors.Join(err, client.Close())
			}
			return exit.With(exit.Usage, err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		if err := redisurl.Reach(ctx, client, raw); err != nil {
			return exit.With(exit.Unreachable, err)
		}
		if endless {
			ctx = cmd.Context()
		}
		err = do(ctx, client, cmd, args)
		if endless && errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return nil // told to stop
		}
		return err
	})
}

// Package command is the program countoff. It is apart from its main package so that a
// module with another store can build one that reads ledgers there too.
package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
	_ "time/tzdata" // jobs reads schedules of zones that this machine may not have

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/cmd/countoff/seat"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
)

// Main runs the program and returns the code to exit with. Ledgers may stand in stores.
func Main(stores Stores) int {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		return seat.Guard(os.Args[2:])
	}
	redisurl.Quiet()
	ctx, stop := signals.Context(context.Background())
	defer stop()
	root := Root(stores)
	if cmd, _, err := root.Find(os.Args[1:]); err == nil && !ofItself(cmd) {
		// What is set for peers is not for all of their hosts' commands, but somebody reads it.
		others := append([]string{framework.GraceVariable, frameworkfx.DeploymentVariable}, seat.Variables...)
		for _, says := range flagenv.Unknown(cmd, variables, others...) {
			fmt.Fprintf(os.Stderr, "%s: %s\n", cmd.CommandPath(), says)
		}
	}
	return exit.Main(ctx, root)
}

// variables is how those begin that stand for flags.
const variables = "COUNTOFF_"

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

// peerFault says what is wrong with --id, if it was given.
func peerFault(id string) error {
	if id == "" {
		return nil
	}
	if err := partition.CheckPeer(id); err != nil {
		return fmt.Errorf("--id: %w", err)
	}
	return nil
}

// Root returns the command countoff, with all of its commands.
func Root(stores Stores) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "countoff",
		Short: "shows and controls the services that share work through countoff",
		Long: `countoff shows and controls the services that share work through countoff. A NAME is that of one service,
under which its peers and producers meet in Redis.

  countoff names                       which names there are
  countoff status mail-sender          peers, partitions and what they hold
  countoff doctor mail-sender          what is at risk, and what to do
  countoff dead list mail-sender       tasks that failed for good, and why

` + exit.Help,
	}
	cmd.SetUsageTemplate(cmd.UsageTemplate() + "{{if .HasParent}}\nExit codes: see {{.Root.Name}} --help\n{{end}}")
	cmd.PersistentFlags().String("redis", "redis://127.0.0.1:6379", "the store, as redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path for a socket, several hosts for a cluster")
	cmd.PersistentFlags().String("ledger", besideTasks, "where the ledger is, the record of who holds what: redis, beside the tasks, or a URL as etcd://host:port/prefix, if the program was built with it; then without --redis only the ledger is looked at")
	cmd.PersistentFlags().Duration("timeout", 10*time.Second, "how long the store may take to answer")
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Look:", []*cobra.Command{
			namesCommand(stores), statusCommand(stores), watchCommand(stores), dashboardCommand(stores), explainCommand(stores),
			historyCommand(stores), planCommand(stores), jobsCommand(), doctorCommand(stores),
		}},
		{"Tasks:", []*cobra.Command{enqueueCommand(), tasksCommand(), cancelCommand(), deadCommand(), delayedCommand()}},
		{"Control who works:", []*cobra.Command{pauseCommand(stores), resumeCommand(stores), drainCommand(stores), recallCommand(stores), requireCommand(stores)}},
		{"Set up and change a name:", []*cobra.Command{initCommand(stores), ingressCommand(), resizeCommand(), destroyCommand(), epochsCommand()}},
		{"Take part:", []*cobra.Command{runCommand(), indexCommand(stores)}},
	} {
		cmd.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.title
			cmd.AddCommand(c)
		}
	}
	cmd.AddCommand(versionCommand())
	flagenv.Bind(cmd.PersistentFlags(), variables, map[string][]string{"redis": {redisurl.Variable}})
	return cmd
}

// ofItself reports whether cmd tells of the program alone. No flag is anything to it, and so no variable that
// cannot be read: whoever was told of one may ask for help, and complete a line that says it otherwise.
func ofItself(cmd *cobra.Command) bool {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		switch cmd.Name() {
		case "version", "help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			return true
		}
	}
	return false
}

// A faultFinder says all that is wrong with a command's flags and arguments.
type faultFinder func(cmd *cobra.Command, args []string) error

// A span is how long a command may run.
type span int

const (
	brief   span = iota // within --timeout
	long                // for as long as it takes: who tells it to stop is told that not all is done
	endless             // until it is told to stop
)

// stopped is what a command ends with that was told to stop, and so did with err.
func (s span) stopped(err error) error {
	switch s {
	case endless:
		return nil
	case long:
		return exit.With(exit.Hard, fmt.Errorf("interrupted: %w", err))
	}
	return exit.With(exit.Failed, fmt.Errorf("interrupted: %w", err))
}

// onStore runs do with a client of the store that --redis names. The first argument, if there is one,
// is a name. What is wrong with the command line, of which faults knows what only this command
// does, is said at once, and the store is left alone. faults may be nil. It is for
// commands on tasks: where the ledger stands is nothing to them.
func onStore(runs span, faults faultFinder, do func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return run(runs, faults, func(string) (*stand, error) { return &stand{}, nil },
		func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			return do(ctx, at.client, cmd, args)
		})
}

// onLedger is onStore for commands that look at the ledger, which may stand in stores.
func onLedger(stores Stores, runs span, faults faultFinder, do func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return run(runs, faults, stores.open, do)
}

func run(runs span, faults faultFinder, open func(ledger string) (*stand, error),
	do func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return exit.Run(func(cmd *cobra.Command, args []string) error {
		unread := flagenv.Apply(cmd)
		timeout, err := cmd.Flags().GetDuration("timeout")
		if err != nil {
			return err
		}
		at, err := prepare(cmd, args, timeout, faults, open)
		err = errors.Join(unread, err)
		defer at.close()
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		// A client waits for an answer whatever its context says, and who is told to stop does not wait for
		// a store that stands still. Longer commands have something to bring to its end.
		wait := context.AfterFunc(cmd.Context(), at.close)
		defer wait()
		if err := at.reach(ctx); err != nil {
			if cmd.Context().Err() != nil {
				return runs.stopped(errors.New("the store has not answered yet"))
			}
			return exit.With(exit.Unreachable, err)
		}
		if runs != brief {
			wait()
			ctx = cmd.Context()
		}
		out := printing(cmd)
		err = do(ctx, at, cmd, args)
		if cmd.Context().Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) || errors.Is(err, net.ErrClosed)) {
			err = runs.stopped(err)
		}
		// The time of a connection may be over a moment before that of ctx, and is not told as that.
		if runs == brief && (errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded)) {
			part, because := "", "there is much to look through, or the store is slow"
			if end, ok := ctx.Deadline(); ok && time.Until(end) > timeout/10 { // what is left was for what the other nodes say
				part, because = "half of ", "a node of the store stands still, or is slow"
			}
			err = fmt.Errorf("%w: there was no full answer within %s--timeout %v (%s: give it more; what was to change may have changed)", err, part, timeout, because)
		}
		return out.end(err)
	})
}

// prepare opens what the command line names, and says all that is wrong with it at once.
func prepare(cmd *cobra.Command, args []string, timeout time.Duration, faults faultFinder, open func(ledger string) (*stand, error)) (*stand, error) {
	raw, errRaw := cmd.Flags().GetString("redis")
	ledger, errLedger := cmd.Flags().GetString("ledger")
	errs := []error{errRaw, errLedger}
	if len(args) > 0 {
		errs = append(errs, partition.CheckName(args[0]))
	}
	if timeout <= 0 {
		errs = append(errs, fmt.Errorf("%s %v: want more than 0", flagenv.Where(cmd, "timeout"), timeout))
	}
	if faults != nil {
		errs = append(errs, faults(cmd, args))
	}
	at, err := open(ledger)
	errs = append(errs, flagenv.Wrong(cmd, "ledger", err))
	if at == nil {
		at = &stand{}
	}
	if at.store == nil || cmd.Flags().Changed("redis") {
		at.url = raw
		at.client, err = redisurl.OpenTasks(raw)
		errs = append(errs, flagenv.Wrong(cmd, "redis", err))
	}
	return at, errors.Join(errs...)
}

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/countoff/countoff/cmd/countoff/seat"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/unitfx"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/unitsource"
	"github.com/countoff/countoff/transition"
)

// guardCommand is the word that makes this program a guard; see package seat.
const guardCommand = "run-guard"

// ending is what the end of a command may take that has not released a unit in time: what it
// has is handed over after that.
const ending = 2 * time.Second

// notices are the signals that may tell a command that something has changed.
var notices = map[string]os.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "QUIT": syscall.SIGQUIT,
}

func runCommand() *cobra.Command {
	var run runFlags
	cmd := &cobra.Command{
		Use:                   "run --name NAME [flags] -- COMMAND [ARGUMENT...]", // behind the dashes all is the command's
		DisableFlagsInUseLine: true,
		Short:                 "take part under NAME for a command in any language, and hand it the units that this peer owns",
		Long: `Takes part under NAME and runs COMMAND with the units that this peer owns. The units are the entries of the
set or list {NAME}:units, each owned by one peer. COMMAND is started with the first unit. Changes are written
to its input:

  place INDEX REPLICAS      where this peer stands
  added TOKEN UNIT          the unit is the command's
  moved TOKEN UNIT          another peer is to own it
  removed TOKEN UNIT        it is not in the list any more

When a unit leaves, the command also gets --signal. No other peer begins with the unit before the command
has ended, or has answered on file descriptor 3 with the line

  released TOKEN UNIT

A command that has not answered within --drain is terminated. A command that ends because of the signal, or
is terminated, is started again with what is left.

COUNTOFF_UNITS and COUNTOFF_TOKENS list what the command has at its start, one a line; COUNTOFF_INDEX and
COUNTOFF_REPLICAS say where the peer stands. So a command that reads nothing but COUNTOFF_UNITS works as
well, best with --notify change.

With --health this peer is well as long as CMD ends with 0. A new peer takes nothing before the first 0. An
unwell peer keeps its seat and hands its units to peers that are well.

If the ownership may be over, the command and all that it has started get SIGTERM and soon after SIGKILL,
also if this program is killed or suspended.`,
		Example: `  countoff run --name crawler --notify change -- sh -c 'for u in $COUNTOFF_UNITS; do watch-site "$u" & done; wait'`,
		Args:    cobra.MinimumNArgs(1),
		RunE:    onlyInRedis("units are shared out beside their list", run.run),
	}
	run.add(cmd.Flags())
	_ = cmd.MarkFlagRequired("name")
	return cmd
}

// runFlags are what countoff run was told.
type runFlags struct {
	name, id, signal, list, notify string
	lease, drain                   time.Duration
	health                         seat.Health
	partitions, weight             int
	tags                           []string
	even                           bool
}

func (r *runFlags) add(f *pflag.FlagSet) {
	f.StringVar(&r.name, "name", "", "the name that the peers share")
	f.StringVar(&r.id, "id", "", "peer id: a peer with the same id gets the same units again (default the host's name, with the process id or the beginning of the session if that is taken)")
	f.StringVar(&r.list, "units", "", "key of the list of units (default {NAME}:units)")
	f.StringVar(&r.signal, "signal", "HUP", "signal to the command when a unit leaves: HUP, INT, TERM, QUIT or none")
	f.StringVar(&r.notify, "notify", "leave", "leave: signal when a unit leaves; change: also when one has come")
	f.DurationVar(&r.drain, "drain", 25*time.Second, "how long the command may take to release a unit, and to stop as a whole, before it is terminated")
	f.DurationVar(&r.lease, "lease", 10*time.Second, "how long others wait for a silent peer; the same for all peers of NAME")
	f.IntVar(&r.partitions, "partitions", 0, "number of partitions in which units are granted; the same for all peers of NAME (default what NAME has, else 256)")
	f.IntVar(&r.weight, "weight", 1, "share of the units relative to the other peers")
	f.StringSliceVar(&r.tags, "tags", nil, "tags of this peer, as in gpu,eu: units that require tags go to peers that have them (countoff require)")
	f.BoolVar(&r.even, "even", false, "shares differ by one unit at most, but a unit that comes or goes may move another; the same for all peers of NAME")
	f.StringVar(&r.health.Command, "health", "", "shell command that ends with 0 while this peer is well, as in 'test -w /data'; an unwell peer gives its units away and keeps its seat")
	f.DurationVar(&r.health.Every, "health-interval", 0, "pause between two health checks (default a fifth of the lease)")
	f.DurationVar(&r.health.Timeout, "health-timeout", 5*time.Second, "how long a health check may take; longer is a failure")
}

// timing is that of the peer: in a stop the command may take as long as to release a unit, and be ended then.
func (r *runFlags) timing() transition.Timing {
	t := transition.Timing{Lease: r.lease, Drain: r.drain}.WithDefaults()
	t.Shutdown = t.Drain + ending
	return t
}

// notice is the signal that says that a unit leaves; nil: none. Not ok: there is no such signal.
func (r *runFlags) notice() (number os.Signal, ok bool) {
	if strings.EqualFold(r.signal, "none") {
		return nil, true
	}
	number, ok = notices[strings.TrimPrefix(strings.ToUpper(r.signal), "SIG")]
	return number, ok
}

// has is what --tags says that this peer has.
func (r *runFlags) has() (partition.Tags, error) {
	return partition.ParseTags(strings.Join(r.tags, ","))
}

// fault says all that is wrong with the flags, and with the command. It fills in what was not said of health.
func (r *runFlags) fault(cmd *cobra.Command, args []string) error {
	errs := []error{partition.CheckName(r.name), peerFault(r.id), sharesFault(cmd, r.partitions)}
	if _, ok := r.notice(); !ok {
		errs = append(errs, fmt.Errorf("--signal %q: want HUP, INT, TERM, QUIT or none", r.signal))
	}
	if r.notify != "leave" && r.notify != "change" {
		errs = append(errs, fmt.Errorf("--notify %q: want leave or change", r.notify))
	}
	if r.lease <= 0 || r.drain <= 0 {
		errs = append(errs, fmt.Errorf("--lease %v, --drain %v: want more than 0", r.lease, r.drain))
	} else {
		errs = append(errs, r.timing().Validate())
	}
	if r.weight < 1 {
		errs = append(errs, fmt.Errorf("--weight %d: want at least 1", r.weight))
	}
	if err := redisconfig.CheckLists(r.name, r.list); err != nil {
		errs = append(errs, fmt.Errorf("--units: %w", err))
	}
	_, badTag := r.has()
	_, noCommand := exec.LookPath(args[0])
	return errors.Join(append(errs, healthFault(cmd, &r.health, r.timing()), badTag, noCommand)...)
}

func (r *runFlags) run(cmd *cobra.Command, args []string) error {
	unread := flagenv.Apply(cmd)
	fault := r.fault(cmd, args)
	raw, err := cmd.Flags().GetString("redis")
	timeout, errTimeout := cmd.Flags().GetDuration("timeout")
	if errTimeout == nil && timeout <= 0 {
		errTimeout = fmt.Errorf("%s %v: want more than 0", flagenv.Where(cmd, "timeout"), timeout)
	}
	client, errOpen := redisurl.Open(raw)
	if err := errors.Join(unread, fault, err, errTimeout, flagenv.Wrong(cmd, "redis", errOpen)); err != nil {
		if client != nil {
			err = errors.Join(err, client.Close())
		}
		return exit.With(exit.Usage, err)
	}
	defer client.Close()
	reach, done := context.WithTimeout(cmd.Context(), timeout)
	defer done()
	stop := context.AfterFunc(cmd.Context(), func() { _ = client.Close() }) // it waits for an answer whatever its context says
	err = redisurl.Reach(reach, client, raw)
	stop()
	if err != nil {
		if cmd.Context().Err() != nil { // told to end before it had anything
			return nil
		}
		return exit.With(exit.Unreachable, err)
	}
	number, _ := r.notice()
	tags, _ := r.has()
	return holdSeat(cmd, client, unitfx.Config{
		Source: unitsource.Config{Key: r.list, Partitions: r.partitions},
		Units:  framework.UnitsConfig{Timing: r.timing(), Peer: r.id, Weight: r.weight, Tags: tags, Even: r.even},
	}, seat.Config{Name: r.name, Command: args, Signal: number, OnChange: r.notify == "change", Drain: r.drain, Health: r.health})
}

// healthFault says what is wrong with the flags of the health command, and fills in what
// was not said.
func healthFault(cmd *cobra.Command, health *seat.Health, timing transition.Timing) error {
	f := cmd.Flags()
	switch {
	case health.Command == "" && (f.Changed("health-interval") || f.Changed("health-timeout")):
		return errors.New("--health-interval, --health-timeout: there is no --health")
	case f.Changed("health-interval") && health.Every <= 0 || health.Timeout <= 0:
		return fmt.Errorf("--health-interval %v, --health-timeout %v: want more than 0", health.Every, health.Timeout)
	case health.Every == 0:
		health.Every = timing.Beat()
	}
	return nil
}

// holdSeat runs until it is told to stop, or the command ends.
func holdSeat(cmd *cobra.Command, client redis.UniversalClient, units unitfx.Config, cfg seat.Config) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg.Out, cfg.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
	cfg.Guard = []string{self, guardCommand}
	units.Units.Observer = framework.ObserverFunc(func(e framework.Event) { tellTrouble(cfg.Err, e) })
	if cfg.Units, err = unitfx.Bind(client, cfg.Name, units); err != nil {
		return exit.With(exit.Usage, err)
	}
	// The first signal ends the context of the command; another one ends everything at once.
	now, cut := context.WithCancel(context.Background())
	defer cut()
	again := signals.Listen(now, 2, signals.Hangup()...)
	go func() {
		for range 2 {
			select {
			case <-again:
			case <-now.Done():
				return
			}
		}
		cut()
	}()
	err = seat.Run(cmd.Context(), now, cfg)
	_, stuck := errors.AsType[*transition.StuckError](err)
	_, unheard := errors.AsType[*transition.UnheardError](err)
	switch {
	case errors.Is(err, framework.ErrStopped), stuck, unheard:
		return exit.With(exit.Hard, err)
	case errors.Is(err, seat.ErrStart), errors.Is(err, seat.ErrWrong):
		return exit.With(exit.Usage, err)
	}
	return err
}

// tellTrouble says what keeps a peer from working.
func tellTrouble(out io.Writer, e framework.Event) {
	say := func(format string, args ...any) {
		fmt.Fprintln(out, partitionmap.Printable("countoff run: "+fmt.Sprintf(format, args...)))
	}
	switch e := e.(type) {
	case framework.StartFailed:
		say("not started yet: %v", e.Err)
	case framework.Uncovered:
		say("%v", e.Finding)
	case framework.UnitsTroubled:
		say("%v", e.Err)
	case framework.Checked:
		if e.Err != nil {
			say("not well, and if that lasts its units go to others: %v", e.Err)
		} else {
			say("well")
		}
	case framework.Coordinated:
		switch e := e.Event.(type) {
		case transition.Lapsed:
			if e.Grants > 0 {
				say("the lease may have run out: the store did not answer in time")
			}
		case transition.Paused:
			say("paused: what runs is ended, and nothing begins until it is resumed (countoff resume)")
		case transition.Resumed:
			say("resumed")
		case transition.Dismissed:
			say("drained: its units go to others until it is recalled (countoff recall)")
		case transition.Recalled:
			say("recalled")
		case transition.GraceOpened:
			say("the store is new, restarted or forgot: nobody gains a unit for %v", e.Left.Round(time.Millisecond))
		}
	}
}

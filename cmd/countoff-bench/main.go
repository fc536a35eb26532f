// Countoff-bench measures countoff beside its peers: on one redis-server of its own,
// round after round, each in a process of its own, with the same payloads and the same
// check that every task was handled exactly once.
//
//	go -C cmd/countoff-bench run . --quick
//	go -C cmd/countoff-bench run . --rounds 8 --json bench.json
//	go -C cmd/countoff-bench run . --only 'countoff-c10$|asynq-c10$' --profile profiles
//	go -C cmd/countoff-bench run . --transition --kafka host:port
//	go -C cmd/countoff-bench run . --scale
//
// With --transition it compares what partitions of a topic go through when peers come, leave
// and die, beside consumer groups of franz-go; see package transition.
//
// It ends with 0 if everything was measured, whatever the goals say; with 1 if a task
// was lost or handled twice or something else went wrong; with 2 for wrong flags.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/countoff/countoff/cmd/countoff-bench/contest"
	"github.com/countoff/countoff/cmd/countoff-bench/play"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/cmd/countoff-bench/scale"
	"github.com/countoff/countoff/cmd/countoff-bench/transition"
)

// quickBudget leaves a margin of the two minutes that a quick run may take.
const quickBudget = 105 * time.Second

func main() {
	if len(os.Args) > 1 && os.Args[1] == transition.Command {
		if err := transition.Peer(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if done, err := play.Part(os.Args, os.Stdin, os.Stdout); done {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags.
type options struct {
	play.Config
	only string
	json string
	list bool

	scale      bool
	transition bool
	kafka      string
	match      *regexp.Regexp // only, compiled
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("countoff-bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.IntVar(&o.Rounds, "rounds", 0, "how many `rounds` (default 8, with --transition 3, with --quick as many of 3 as there is time for)")
	flags.BoolVar(&o.Quick, "quick", false, "fewer tasks, in less than two minutes")
	flags.IntVar(&o.Tasks, "tasks", 0, "how many `tasks` each run has (default what each contestant says)")
	flags.StringVar(&o.only, "only", "", "only contestants that match this `regexp`; see --list")
	flags.StringVar(&o.json, "json", "", "write all figures to this `file`")
	flags.StringVar(&o.Profile, "profile", "", "write profiles of each contestant's last run to this `folder`")
	flags.BoolVar(&o.list, "list", false, "list the contestants")
	flags.BoolVar(&o.scale, "scale", false, "measure what names of up to 10,000 peers cost, and what idle peers take")
	flags.BoolVar(&o.transition, "transition", false, "compare joins, leaves and crashes of peers on a topic of Kafka")
	flags.StringVar(&o.kafka, "kafka", os.Getenv("COUNTOFF_KAFKA"), "brokers for --transition, as `host:port,…` (default the variable COUNTOFF_KAFKA, else a kfake)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var wrong []error
	only, err := regexp.Compile(o.only)
	if err != nil {
		wrong = append(wrong, fmt.Errorf("--only: %w", err))
	}
	if o.Rounds < 0 || o.Tasks < 0 {
		wrong = append(wrong, fmt.Errorf("--rounds %d, --tasks %d: must not be negative", o.Rounds, o.Tasks))
	}
	if err := errors.Join(wrong...); err != nil {
		return o, err
	}
	o.match = only
	if o.transition {
		if o.Rounds == 0 {
			o.Rounds = 3
		}
		return o, nil
	}
	for _, c := range contest.All() {
		if only.MatchString(c.Tag) {
			o.Contestants = append(o.Contestants, c)
		}
	}
	if len(o.Contestants) == 0 {
		return o, fmt.Errorf("--only %q: no contestant is called so; see --list", o.only)
	}
	if o.Rounds == 0 {
		o.Rounds = 8
		if o.Quick {
			o.Rounds, o.Budget = 3, quickBudget
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	o, err := parse(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(errs, "countoff-bench:", err)
		return 2
	}
	if o.list {
		for _, c := range o.Contestants {
			fmt.Fprintf(out, "%-24s %s\n", c.Tag, c.What)
		}
		return 0
	}
	if o.scale {
		if err := scale.Run(ctx, scale.Sizes(), []int{16, 256, 2048}, out, errs); err != nil {
			fmt.Fprintln(errs, "countoff-bench:", err)
			return 1
		}
		return 0
	}
	o.Log = errs
	if o.Self, err = os.Executable(); err == nil {
		if o.transition {
			err = compare(ctx, o, out)
		} else {
			err = measure(ctx, o, out)
		}
	}
	if err != nil {
		fmt.Fprintln(errs, "countoff-bench:", err)
		return 1
	}
	return 0
}

// measure runs everything and writes the tables. What was measured before something
// went wrong is written too.
func measure(ctx context.Context, o options, out io.Writer) error {
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o755); err != nil {
			return err
		}
	}
	samples, err := play.Run(ctx, o.Config)
	tags := make([]string, len(o.Contestants))
	for i, c := range o.Contestants {
		tags[i] = c.Tag
	}
	verdicts := report.Judge(report.Goals(), samples)
	report.Medians(out, tags, samples)
	report.Verdicts(out, verdicts)
	if o.json != "" {
		err = errors.Join(err, write(o.json, samples, verdicts))
	}
	return err
}

// compare plays all transitions and writes the table. What was played before something
// went wrong is written too.
func compare(ctx context.Context, o options, out io.Writer) error {
	brokers := o.kafka
	if brokers == "" {
		fmt.Fprintln(o.Log, "no --kafka: on a kfake")
		addr, stop, err := contest.StartBroker(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = stop() }() // it was used for all that is told
		brokers = addr
	}
	results, err := transition.Run(ctx, transition.Config{
		Self: o.Self, Brokers: strings.Split(brokers, ","), Only: o.match, Rounds: o.Rounds, Log: o.Log,
	})
	transition.Write(out, results)
	return err
}

func write(file string, samples report.Samples, verdicts []report.Verdict) error {
	b, err := json.MarshalIndent(struct {
		Samples  report.Samples   `json:"samples"`
		Verdicts []report.Verdict `json:"verdicts"`
	}{samples, verdicts}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

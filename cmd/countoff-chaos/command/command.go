// Package command is the program countoff-chaos. It is apart from its main package so that
// a module with another store for the ledger can build one that breaks that too.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/cmd/countoff-chaos/play"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/redisurl"
)

// The words with which the program runs itself again.
const (
	peerCommand = "_peer"
	busyCommand = "_busy"
)

// A Ledger lets the record of who holds what stand elsewhere than in the Redis of the
// tasks.
type Ledger struct {
	// Start starts a server that keeps its files in dir.
	Start func(ctx context.Context, dir string) (play.LedgerServer, error)
	// Open opens the ledger at a URL, for a peer.
	Open peer.Open
}

// Main runs the program and returns the code to exit with. A nil ledger: it stands beside
// the tasks.
func Main(ledger *Ledger) int {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case peerCommand:
			var open peer.Open
			if ledger != nil {
				open = ledger.Open
			}
			if err := peer.Run(os.Args[2:], open); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return 0
		case busyCommand:
			for i := 0; ; i++ {
				runtime.KeepAlive(i)
			}
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, ledger, os.Args[1:], os.Stdout, os.Stderr)
}

// options are the flags.
type options struct {
	play.Config
	only    string
	json    bool
	keep    bool
	report  string
	indexer string
}

func parse(elsewhere bool, args []string, errs io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("countoff-chaos", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.IntVar(&o.Faults, "faults", 60, "how many faults")
	flags.DurationVar(&o.Duration, "duration", 0, "no fault begins later; 0: as long as it takes")
	flags.Uint64Var(&o.Seed, "seed", 0, "decides the order of everything; 0: a random one, which is printed")
	flags.StringVar(&o.only, "only", "", "kinds of faults, with commas: "+strings.Join(play.KindsOf(elsewhere), ","))
	flags.IntVar(&o.Peers, "peers", 8, "how many peers")
	flags.IntVar(&o.Partitions, "partitions", 32, "how many partitions")
	flags.IntVar(&o.Concurrency, "concurrency", 8, "handlers of a peer at once")
	flags.IntVar(&o.Rate, "rate", 160, "tasks a second")
	flags.DurationVar(&o.Long, "long", 0, "what one task in forty takes at most: longer than a lease shows whether a peer that lost it ends its handlers; 0: none takes long")
	flags.DurationVar(&o.Lease, "lease", 3*time.Second, "of the peers")
	flags.StringVar(&o.indexer, "indexer", "roster", "who says which partitions a peer should have: roster (the ledger's rolls), or interval (counting off)")
	flags.DurationVar(&o.Interval, "interval", time.Second, "of the indexer interval")
	flags.BoolVar(&o.Barrier, "barrier", false, "every change of the peers stops them all (the eager barrier)")
	flags.BoolVar(&o.json, "json", false, "print only the summary, as one line of JSON")
	flags.BoolVar(&o.keep, "keep", false, "keep the journals of a run that did not fail")
	flags.StringVar(&o.report, "report", "", "also write the tables to this file, as Markdown")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	o.Kinds = play.KindsOf(elsewhere)
	if o.only != "" {
		o.Kinds = strings.Split(o.only, ",")
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1e9) + 1
	}
	errs2 := []error{play.CheckKinds(elsewhere, o.Kinds), peer.Timing(o.Lease).Validate()}
	switch o.indexer {
	case "roster":
		o.Interval = 0
	case "interval":
		if elsewhere {
			errs2 = append(errs2, errors.New("--indexer interval: this program is for the ledger"))
		}
		errs2 = append(errs2, intervalindexer.Config{Interval: o.Interval}.Validate())
		if o.Barrier {
			errs2 = append(errs2, errors.New("--barrier: the indexer interval has no rolls before which one could be closed"))
		}
	default:
		errs2 = append(errs2, fmt.Errorf("--indexer %s: want roster or interval", o.indexer))
	}
	for name, d := range map[string]time.Duration{"long": o.Long, "duration": o.Duration} {
		if d < 0 {
			errs2 = append(errs2, fmt.Errorf("--%s %v: must not be negative", name, d))
		}
	}
	for name, n := range map[string]int{"faults": o.Faults, "peers": o.Peers, "partitions": o.Partitions, "concurrency": o.Concurrency, "rate": o.Rate} {
		if n < 1 {
			errs2 = append(errs2, fmt.Errorf("--%s %d: want at least 1", name, n))
		}
	}
	return o, errors.Join(errs2...)
}

func run(ctx context.Context, ledger *Ledger, args []string, out, errs io.Writer) int {
	o, err := parse(ledger != nil, args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		o.Self, err = os.Executable()
	}
	if err == nil && o.report != "" {
		err = writable(o.report)
	}
	if err == nil {
		o.Dir, err = os.MkdirTemp("", "countoff-chaos-")
	}
	if err == nil {
		o.StoreDir, err = storeDir()
	}
	if err != nil {
		fmt.Fprintln(errs, "countoff-chaos:", err)
		return 2
	}
	defer func() { _ = os.RemoveAll(o.StoreDir) }()
	if ledger != nil {
		if o.Ledger, err = ledger.Start(ctx, o.StoreDir); err != nil {
			fmt.Fprintln(errs, "countoff-chaos:", err)
			return 2
		}
		defer o.Ledger.Kill()
	}
	o.PeerCommand, o.BusyCommand, o.Log = peerCommand, busyCommand, out
	if o.json {
		o.Log = io.Discard
	}
	redisurl.Quiet() // a store that is away is what we are here for
	began := time.Now()
	results, err := stages(ctx, o.Config)
	if err != nil {
		fmt.Fprintf(errs, "countoff-chaos: seed %d: %v\njournals and logs: %s\n", o.Seed, err, o.Dir)
		return 2
	}
	sum := play.Summarise(o.Config, time.Since(began), results)
	for _, r := range results {
		play.Evidence(errs, r.Report)
	}
	if !o.json {
		fmt.Fprintln(out)
		sum.Table(out)
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, sum.JSON())
	if o.report != "" {
		var b strings.Builder
		sum.Table(&b)
		if err := os.WriteFile(o.report, []byte(b.String()), 0o644); err != nil {
			fmt.Fprintln(errs, "countoff-chaos:", err)
			return 2
		}
	}
	if sum.OK && !o.keep {
		if err := os.RemoveAll(o.Dir); err != nil {
			fmt.Fprintln(errs, "countoff-chaos:", err)
		}
	} else {
		fmt.Fprintln(errs, "journals and logs:", o.Dir)
	}
	if !sum.OK {
		return 1
	}
	return 0
}

// writable says why a file cannot be written, before there is anything to lose.
func writable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// storeDir makes a folder for the stores' files, in memory if that can be: what a killed
// process had written is there either way, and a disk that is busy with other things
// does not stand in for a fault.
func storeDir() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "countoff-chaos-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "countoff-chaos-store-")
}

// stages plays what can be done with one server, then what takes a replica.
func stages(ctx context.Context, cfg play.Config) ([]play.Result, error) {
	single := slices.DeleteFunc(slices.Clone(cfg.Kinds), func(k string) bool { return k == play.Failover })
	var results []play.Result
	trio := cfg
	trio.Faults = 0
	if len(single) < len(cfg.Kinds) {
		trio.Kinds = []string{play.Failover}
		if slices.Contains(cfg.Kinds, play.Kill) {
			trio.Kinds = append(trio.Kinds, play.Kill)
		}
		trio.Faults = cfg.Faults
		if len(single) > 0 {
			trio.Faults = max(1, cfg.Faults/12)
		}
	}
	if len(single) > 0 {
		cfg.Faults -= trio.Faults
		cfg.Kinds = single
		r, err := play.Run(ctx, cfg, false)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	if trio.Faults > 0 {
		r, err := play.Run(ctx, trio, true)
		if err != nil {
			return nil, fmt.Errorf("with Sentinels: %w", err)
		}
		results = append(results, r)
	}
	return results, nil
}

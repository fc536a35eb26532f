package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/transition"
)

// A Store is where the record of who holds what stands, if not in the Redis of the mails.
type Store interface {
	// Ledger returns the ledger of a peer.
	Ledger(layout partition.Config, timing transition.Timing, deployment string) (transition.Ledger, error)
	// Reach returns nil once the store answers.
	Reach(ctx context.Context) error
	Close() error
}

// A Counter is where peers count themselves, if not in the Redis of the mails.
type Counter interface {
	intervalindexer.Counter
	// Reach returns nil once the store answers.
	Reach(ctx context.Context) error
	Close() error
}

// Stores are those that a program was built with besides Redis, by the scheme of their URLs:
// each opens the one at a URL for the mails of name.
type Stores struct {
	Ledgers  map[string]func(url, name string) (Store, error)
	Counters map[string]func(url, name string) (Counter, error)
}

// open opens what flag says with that of known which knows the URL.
func open[S any](flag, url, name string, known map[string]func(url, name string) (S, error), elsewhere string) (S, error) {
	scheme, _, _ := strings.Cut(url, "://") // the rest may have a password in it
	open := known[scheme]
	if open == nil {
		var none S
		all := append([]string{"redis"}, slices.Sorted(maps.Keys(known))...)
		return none, fmt.Errorf("--%s %s: this program knows %s (%s)", flag, scheme, strings.Join(all, ", "), elsewhere)
	}
	return open(url, name)
}

// Prefix begins the names of the variables that stand for flags.
const Prefix = "MAIL_SENDER_"

// Bind gives each flag of a command that uses the store its variable.
func Bind(cmd *cobra.Command) {
	flagenv.Bind(cmd.Flags(), Prefix, map[string][]string{"redis": {Prefix + "REDIS", redisurl.Variable}})
}

// Apply sets the flags of cmd from their variables, and says which variables nothing reads. Its error is what cannot
// be read, to be told beside what else is wrong.
func Apply(cmd *cobra.Command) error {
	for _, says := range flagenv.Unknown(cmd, Prefix) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), says)
	}
	return flagenv.Apply(cmd)
}

// Main runs a program that has no command but work, built with stores, and returns the code to exit with.
func Main(short string, stores Stores) int {
	redisurl.Quiet()
	root := &cobra.Command{
		Use:   "mail-sender",
		Short: short,
		Args:  cobra.NoArgs,
	}
	root.AddCommand(Command(stores))
	return exit.Main(context.Background(), root)
}

// Command returns the command work, whose peers may keep their record, and be counted, in one
// of stores.
func Command(stores Stores) *cobra.Command {
	var cfg Config
	var store, record, count, level, oldest string
	var patience time.Duration
	var withStdin bool
	cmd := &cobra.Command{
		Use:   "work",
		Short: "one peer: sends the mails of its share, until told to stop",
		Long: `Runs one peer as a service: JSON logs on stderr, /healthz, /readyz and /metrics over
HTTP. PUT /weight changes its share of the work (curl -X PUT -d 2 …), and PUT /maintenance
(on, off) gives its partitions to others while it keeps its place. SIGTERM or SIGINT drains and leaves; a second one stops at once.

Mails that the SMTP server refuses for now (4xx) are tried again, those it refuses
for good (5xx) and payloads that are no mails become dead letters: see countoff dead.

` + exit.Help,
		Args: cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			errs := []error{Apply(cmd)}
			errs = append(errs, tooSmall(cmd, "concurrency", "lease", "shutdown", "weight", "tries", "backoff", "backoff-max", "wait")...)
			if cmd.Flags().Changed("partitions") {
				errs = append(errs, tooSmall(cmd, "partitions")...)
			}
			if cmd.Flags().Changed("interval") && cfg.Indexer != redisfx.Interval {
				errs = append(errs, fmt.Errorf("--interval is for --indexer %s", redisfx.Interval))
			}
			switch oldest {
			case "left", "right":
				cfg.InboxLeft = oldest == "left"
			default:
				errs = append(errs, fmt.Errorf("--inbox-oldest %s: want right (producers LPUSH) or left (they RPUSH)", oldest))
			}
			if !cmd.Flags().Changed("inbox") && partition.CheckName(cfg.Name) == nil {
				cfg.Inbox = cfg.Name + ":inbox"
			}
			var others []func(context.Context) error // that are to be reached
			if record != "redis" {
				opened, err := open("ledger", record, cfg.Name, stores.Ledgers, "etcd: build transition/etcdledger/mail-sender")
				if err == nil {
					defer opened.Close()
					others, cfg.Ledger = append(others, opened.Reach), opened.Ledger
				}
				errs = append(errs, err)
			}
			if count != "redis" {
				opened, err := open("counter", count, cfg.Name, stores.Counters, "nats: build partition/intervalindexer/natscounter/mail-sender; etcd: build transition/etcdledger/mail-sender")
				if err == nil {
					defer opened.Close()
					others, cfg.Counter = append(others, opened.Reach), opened
				}
				errs = append(errs, err)
			}
			log, err := newLogger(level)
			client, badURL := redisurl.OpenTasks(store)
			if err := errors.Join(append(errs, err, flagenv.Wrong(cmd, "redis", badURL), cfg.Validate())...); err != nil {
				return exit.With(exit.Usage, err)
			}
			defer client.Close()
			if cfg.Control, err = redisurl.OpenControl(store); err != nil {
				return exit.With(exit.Usage, flagenv.Wrong(cmd, "redis", err))
			}
			defer cfg.Control.Close()
			if withStdin {
				go cast.EndWith(cmd.InOrStdin())
			}
			return work(cmd.Context(), cfg, client, store, others, patience, log)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&store, "redis", "redis://127.0.0.1:6379", "the store, as redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path for a socket, several hosts for a cluster")
	f.StringVar(&record, "ledger", "redis", "where the ledger is, the record of who holds what: redis, beside the mails, or a URL as etcd://host:port/prefix, if the program was built with it")
	f.StringSliceVar(&cfg.Masters, "masters", nil, "URLs of three or five Redis masters, independent of each other, that witness the epochs, separated by commas: epochs then rise even if the store forgets; the same for all peers (countoff epochs sets them up)")
	f.DurationVar(&patience, "wait", 10*time.Second, "how long to wait for the store at the start")
	f.StringVar(&cfg.Sender.URL, "smtp", "smtp://127.0.0.1:25", "the SMTP server, as smtp://[user:password@]host[:port][?starttls=off|try|must] or smtps://")
	f.StringVar(&cfg.Sender.From, "from", "mail-sender@localhost", "sender of mails that name none")
	f.StringVar(&cfg.Name, "name", "mail-sender", "name of the task processing; all its peers and producers share it")
	f.IntVar(&cfg.Partitions, "partitions", 0, "number of partitions of a new name (default 256); must be the same if the name exists")
	f.IntVar(&cfg.Concurrency, "concurrency", 16, "mails being sent at once")
	f.TextVar(&cfg.Rate, "rate", framework.Rate{}, "highest `rate` at which all peers together start to send mails, as in 50/s, 500/h or 100/15m; the same for all peers (default no limit)")
	f.DurationVar(&cfg.Lease, "lease", 10*time.Second, "how long others wait for a silent peer; the same for all peers")
	f.DurationVar(&cfg.Shutdown, "shutdown", 25*time.Second, "how long mails being sent may take when the peer is told to stop")
	f.StringVar(&cfg.Peer, "id", "", "peer id (default the host's name, with the process id or the beginning of the session where that is taken)")
	f.IntVar(&cfg.Weight, "weight", 1, "share of the work relative to other peers; PUT /weight changes it")
	f.StringVar(&cfg.Strategy, "strategy", "", "how partitions are shared out: sticky, jump, ring, rendezvous or modulo; the same for all peers (default sticky, with a barrier or the indexer interval modulo)")
	f.BoolVar(&cfg.Barrier, "barrier", false, "every change of the peers stops them all, and they go on together under the new table; the same for all peers")
	f.StringVar((*string)(&cfg.Indexer), "indexer", "roster", "what decides which partitions a peer should have: roster (the ledger's rolls), or interval (counting off, without weights, tags and maintenance)")
	f.DurationVar(&cfg.Interval, "interval", 2*time.Second, "with --indexer interval: how often a peer is counted")
	f.StringVar(&count, "counter", "redis", "with --indexer interval: where peers are counted: redis, beside the mails, or a URL as nats://host:port/bucket or etcd://host:port/prefix, if the program was built with it")
	f.StringSliceVar(&cfg.Tags, "tags", nil, "tags of the peer, as in gpu,eu: partitions that require tags go to peers that have them (countoff require)")
	f.IntVar(&cfg.Retry.Tries, "tries", 20, "how often a mail that is refused for now is tried before it becomes a dead letter")
	f.DurationVar(&cfg.Retry.First, "backoff", time.Second, "pause before the second try; doubled each time")
	f.DurationVar(&cfg.Retry.Max, "backoff-max", time.Minute, "the longest time between two tries")
	f.StringVar(&cfg.Inbox, "inbox", "", "plain list of mails in JSON that any program fills (default NAME:inbox); given empty: none")
	f.StringVar(&oldest, "inbox-oldest", "right", "end where its oldest mail is: right (producers LPUSH) or left (they RPUSH)")
	f.StringVar(&cfg.HTTP, "http", ":8080", "address of /healthz, /readyz and /metrics, and of PUT /weight and /maintenance; empty: none")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&withStdin, "exit-with-stdin", false, "stop at once when stdin ends")
	_ = f.MarkHidden("exit-with-stdin") // for the demo, whose peers must not outlive it
	Bind(cmd)
	return cmd
}

// tooSmall says which flags were given as 0, which would be taken for the default, or as less. They become 0, so
// that Validate does not say it again.
func tooSmall(cmd *cobra.Command, names ...string) []error {
	var errs []error
	for _, name := range names {
		v := cmd.Flags().Lookup(name).Value
		if text := v.String(); text == "0" || text == "0s" || strings.HasPrefix(text, "-") {
			errs = append(errs, fmt.Errorf("%s %s: want more than 0", flagenv.Where(cmd, name), text), v.Set("0"))
		}
	}
	return errs
}

// work runs a peer on the store.
func work(ctx context.Context, cfg Config, client redis.UniversalClient, store string, others []func(context.Context) error, patience time.Duration, log *zap.Logger) error {
	defer log.Sync() //nolint:errcheck // a terminal cannot be synced
	waiting, stop := signals.Context(ctx)
	defer stop()
	all := append([]func(context.Context) error{func(ctx context.Context) error { return redisurl.Reach(ctx, client, store) }}, others...)
	for _, ask := range all {
		err := Reach(waiting, ask, patience, log)
		if waiting.Err() != nil {
			log.Info("stopped before the store was reached", zap.NamedError("cause", context.Cause(waiting)))
			return nil // it had nothing to hand over
		}
		if err != nil {
			return exit.With(exit.Unreachable, err)
		}
	}
	stop() // what runs has signals of its own
	code, err := Run(cfg, client, log)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	return exit.Coded(code)
}

func newLogger(level string) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(l)
	cfg.Sampling = nil // each line tells of another mail or partition
	cfg.DisableStacktrace = true
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	return cfg.Build()
}

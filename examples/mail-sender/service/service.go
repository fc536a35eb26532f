// Package service is one peer of mail-sender: what `mail-sender work` runs. It wires
// the queue, the sender, the logs and the probes; the decisions are elsewhere.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/countoff/countoff/examples/mail-sender/mail"
	"github.com/countoff/countoff/examples/mail-sender/sender"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/quorum"
	"github.com/countoff/countoff/transition/quorum/redisquorum"
)

// Config of a peer. Zero fields get the defaults of what they are for.
type Config struct {
	Name        string
	Partitions  int            // written under a new name, compared otherwise; 0: what stands
	Concurrency int            // mails being sent at once
	Rate        framework.Rate // of mails, over all peers
	Lease       time.Duration
	Peer        string                  // peer id
	Weight      int                     // share of the work relative to other peers
	Strategy    string                  // how partitions are shared out; see partition.StrategyByName
	Indexer     redisfx.Indexer         // who says which partitions a peer should have
	Interval    time.Duration           // of redisfx.Interval
	Counter     intervalindexer.Counter // of redisfx.Interval, if not in the Redis of the mails
	Barrier     bool                    // every change of the peers stops them all; see framework.WithBarrier
	Tags        []string                // what the peer has, for partitions that ask for some
	Retry       framework.RetryPolicy   // of mails that fail for now
	Shutdown    time.Duration           // for mails being sent when told to stop
	// Inbox is a plain list of mails in JSON that any program fills. Empty: none.
	Inbox string
	// InboxLeft says that its oldest mail is at the left end: producers RPUSH.
	InboxLeft bool
	HTTP      string // address of the probes; empty: none
	Sender    sender.Config
	// Masters are the URLs of three or five masters that witness the epochs. Empty: none do.
	Masters []string
	// Control is the client of the ledger and the counter, whose calls wait for no connection that mails
	// hold; see redisurl.OpenControl. Nil: that of the mails.
	Control redis.UniversalClient
	// Ledger makes the ledger if it is to stand elsewhere than in the Redis of the mails.
	Ledger func(layout partition.Config, timing transition.Timing, deployment string) (transition.Ledger, error)
}

// numbers are those of the consumer.
func (cfg Config) numbers(timeout time.Duration) framework.Config {
	return framework.Config{
		Concurrency: cfg.Concurrency,
		Rate:        cfg.Rate,
		// The sender keeps to its timeout by itself; this holds it to it.
		HandlerTimeout: timeout + time.Second,
		Retry:          cfg.Retry,
		Timing:         transition.Timing{Lease: cfg.Lease, Shutdown: cfg.Shutdown},
	}
}

// Validate says all that is wrong with cfg.
func (cfg Config) Validate() error {
	timeout := sender.DefaultTimeout
	s, err := sender.New(cfg.Sender)
	if err == nil {
		timeout = s.Timeout()
	}
	_, badStrategy := partition.StrategyByName(cfg.Strategy)
	_, badTag := partition.ParseTags(strings.Join(cfg.Tags, ","))
	errs := []error{partition.CheckName(cfg.Name), err, badTag, badStrategy, cfg.numbers(timeout).Validate()}
	if cfg.Inbox != "" {
		errs = append(errs, named("inbox", redissource.CheckIngress(cfg.Name, []string{cfg.Inbox})))
	}
	if len(cfg.Masters) > 0 {
		masters, err := redisquorum.Open(anyName, cfg.Masters, quorum.Config{})
		if err == nil {
			err = masters.Close()
		}
		errs = append(errs, named("masters", err))
	}
	if cfg.Peer != "" {
		errs = append(errs, partition.CheckPeer(cfg.Peer))
	}
	switch cfg.Indexer {
	case redisfx.Roster, "": // the default
	case redisfx.Interval:
		errs = append(errs, intervalindexer.Config{Interval: cfg.Interval}.Validate())
		if cfg.Weight > 1 || len(cfg.Tags) > 0 || cfg.Strategy == (partition.Sticky{}).Name() {
			errs = append(errs, errors.New("the indexer interval knows no weights, tags and tables that were in force: choose another strategy, as in jump, or leave them out"))
		}
		if cfg.Barrier {
			errs = append(errs, errors.New("the indexer interval has no rolls before which a barrier could be closed: leave one of the two out"))
		}
	default:
		errs = append(errs, fmt.Errorf("--indexer %s: want %s or %s", cfg.Indexer, redisfx.Roster, redisfx.Interval))
	}
	if cfg.Counter != nil && cfg.Indexer != redisfx.Interval {
		errs = append(errs, fmt.Errorf("--counter is for --indexer %s", redisfx.Interval))
	}
	if cfg.Weight < 0 {
		errs = append(errs, fmt.Errorf("--weight %d: want at least 1", cfg.Weight))
	}
	if cfg.Partitions < 0 || cfg.Partitions > partition.MaxTotal {
		errs = append(errs, fmt.Errorf("--partitions %d: want 1 to %d", cfg.Partitions, partition.MaxTotal))
	}
	return errors.Join(append(errs, CheckAddress("--http", cfg.HTTP))...)
}

// anyName is one that is right: what is wrong with that of the mails is said once.
const anyName = "mails"

// named is err, which says what is wrong with what option gives.
func named(option string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s: %w", option, err)
}

// CheckAddress says what is wrong with an address to listen on, which option gives; none is right.
func CheckAddress(option, address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%s %s: want [host]:port: %w", option, address, err)
	}
	return nil
}

// Run works until it is told to stop, hands over and leaves. It owns the signals
// and returns the code to exit with; see frameworkfx.Run.
func Run(cfg Config, client redis.UniversalClient, log *zap.Logger) (int, error) {
	cfg.Sender.Idle = cfg.Concurrency
	mails, err := sender.New(cfg.Sender)
	if err != nil {
		return 0, err
	}
	defer mails.Close()
	strategy, err := partition.StrategyByName(cfg.Strategy)
	if err != nil {
		return 0, err
	}
	counted := redisfx.Config{Ledger: cfg.Ledger, Epochs: cfg.Masters, Source: redissource.Config{Partitions: cfg.Partitions, Ingress: cfg.ingress()}}
	healthy := frameworkfx.Healthy(cfg.Name, (*probes).health)
	if cfg.Indexer == redisfx.Interval {
		if cfg.Strategy == "" {
			strategy = partition.Modulo{}
		}
		counted.Indexer, counted.Interval, counted.Counter, counted.Strategy = cfg.Indexer, cfg.Interval, cfg.Counter, strategy
		healthy = fx.Options() // an interval does not ask who is well
	}
	tags, err := partition.ParseTags(strings.Join(cfg.Tags, ","))
	if err != nil {
		return 0, err
	}
	options := []framework.Option{framework.WithPeer(cfg.Peer, cmp.Or(cfg.Weight, 1)), framework.WithTags(strings.Fields(string(tags))...)}
	if cfg.Barrier {
		options = append(options, framework.WithBarrier())
	}
	if cfg.Strategy != "" || cfg.Indexer == redisfx.Interval { // else the barrier has one of its own
		options = append(options, framework.WithStrategy(strategy))
	}
	return frameworkfx.Run(
		fx.Supply(cfg, log),
		fx.Supply(fx.Annotate(client, fx.As(new(redis.UniversalClient)))),
		fx.Supply(fx.Annotate(cmp.Or(cfg.Control, client), fx.As(new(redis.UniversalClient)), fx.ResultTags(redisfx.ControlClient))),
		fx.Provide(newProbes),
		redisfx.Source(cfg.Name, counted),
		frameworkfx.Otherwise(cfg.Name, &handler{mails}),
		frameworkfx.Configure(cfg.Name, cfg.numbers(mails.Timeout()), options...),
		frameworkfx.Observe((*probes).observer),
		healthy,
		fx.Invoke((*probes).watch),
	), nil
}

// ingress is the plain list, if there is one. A line that is no mail is routed all
// the same: the handler makes a dead letter of it that says what is wrong.
func (cfg Config) ingress() []redissource.Ingress {
	if cfg.Inbox == "" {
		return nil
	}
	in := redissource.Ingress{
		List: cfg.Inbox,
		Key:  func(line []byte) (string, error) { return mail.KeyOf(line), nil },
		Type: mail.Type,
	}
	if cfg.InboxLeft {
		in.Oldest = redissource.Left
	}
	return []redissource.Ingress{in}
}

// Reach asks until there is an answer, for at most patience: a peer that starts
// beside its store should not end because it was faster.
func Reach(ctx context.Context, ask func(context.Context) error, patience time.Duration, log *zap.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // that our patience ended is no reason
			last = err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			log.Warn("not reached yet", zap.Error(err))
		case <-ctx.Done():
			timer.Stop()
			return last
		}
	}
}

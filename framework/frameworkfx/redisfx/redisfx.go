// Package redisfx gives consumers of an fx application Redis as their source and
// their ledger.
package redisfx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/internal/endings"
	"github.com/countoff/countoff/framework/frameworkfx/internal/fences"
	"github.com/countoff/countoff/framework/frameworkfx/internal/late"
	"github.com/countoff/countoff/framework/frameworkfx/internal/redisclient"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/intervalindexer/rediscounter"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/quorum"
	"github.com/countoff/countoff/transition/quorum/redisquorum"
	"github.com/countoff/countoff/transition/redisledger"
)

// An Indexer says who tells a peer which partitions it should have.
type Indexer string

// The indexers.
const (
	Roster   Indexer = "roster"   // the ledger's sealed rolls; the default
	Interval Indexer = "interval" // counting off once in each interval, see package intervalindexer
)

// A Config says where a consumer's tasks are. The zero value is ready if the
// application provides a redis.UniversalClient.
type Config struct {
	// URL of the server or cluster; see package redisurl. A client for tasks and one for the
	// ledger are opened for this consumer and closed after it. Default: the
	// redis.UniversalClient that the application provides, and closes; see ControlClient.
	URL string
	// Source is what the source is told: partitions, ingress lists, limits. Its
	// Stuck, Ticked, Buried and Warn need not be set: events tell of it. One that is set is
	// called instead, and no event, line or metric tells of that. Jobs adds to its Jobs.
	Source redissource.Config
	// Indexer says who tells a peer which partitions it should have. Default Roster.
	Indexer Indexer
	// Interval, Strategy and Counter are for the indexer Interval alone. Interval is how often a
	// peer is counted, default 5 s; Strategy turns its index into partitions, default
	// partition.Modulo (with the rolls, framework.WithStrategy sets it); Counter is where peers
	// count themselves, as in etcd (module transition/etcdledger) or NATS (module
	// partition/intervalindexer/natscounter), default beside the tasks.
	Interval time.Duration
	Strategy partition.Strategy
	Counter  intervalindexer.Counter
	// Deployment says what the consumer belongs to, so that two deployments which were
	// given one name by mistake are noticed. It must be the same for all versions of
	// one. Default: the environment variable COUNTOFF_DEPLOYMENT, else the path of the
	// program's main package.
	Deployment string
	// WaitReplicas is how many replicas must have what the ledger changed before it
	// counts; see redisledger.Config. Default 0.
	WaitReplicas int
	// Epochs are the URLs of three or five masters, independent of each other, that witness
	// the epochs: these rise then even if the ledger's own store is lost. See package quorum;
	// "countoff epochs" sets them up. Default: the ledger's store alone.
	Epochs []string
	// Ledger makes the ledger where the record of who holds what is to stand in another
	// store than the tasks, as in etcd: etcdledger.Make (module transition/etcdledger). What
	// it is given is what the ledger is to be made with; WaitReplicas is not for it.
	// Default: beside the tasks.
	Ledger func(layout partition.Config, timing transition.Timing, deployment string) (transition.Ledger, error)
}

// Source makes Redis the source and the ledger of consumer.
func Source(consumer string, cfg Config) fx.Option {
	return fx.Provide(fx.Annotate(
		func(l fx.Lifecycle, provided given) frameworkfx.Source {
			cfg := cfg // the option may be of several applications
			cfg.Source.Jobs = provided.jobsOf(consumer, cfg.Source.Jobs)
			opened := endings.Of(l)
			s, err := cfg.source(consumer, opened, provided.Given)
			if err != nil {
				s = frameworkfx.Source{Consumer: consumer, Err: err}
			}
			s.Close = opened.End
			return s
		},
		fx.ResultTags(frameworkfx.SourceGroup)))
}

// ControlClient is the fx tag under which an application that provides a redis.UniversalClient of its
// own may provide another, for the ledgers and counters of all its consumers without a URL: see
// redisurl.OpenControl. Without it they share the connections of the tasks, and a lease may be lost
// where tasks hold all of them.
const ControlClient = `name:"countoff.control"`

// Client provides the application with a redis.UniversalClient for url (see package
// redisurl) and closes it at the end: for all consumers without a URL of their own,
// and whatever else needs it. The ledgers of the consumers have another, as with a [ControlClient], unless
// the application replaces or decorates the first with a client of its own.
//
// What go-redis itself logs, for the whole process, is switched off with the first client that
// is made from a URL: observers are told why it cannot be reached. To have it, call
// redis.SetLogger after that, as in an fx.Invoke, or provide a client of your own.
func Client(url string) fx.Option {
	return fx.Provide(
		func(l fx.Lifecycle) (*redisclient.Clients, error) {
			c, err := redisclient.Open(endings.Of(l), url)
			if err != nil {
				return nil, &frameworkfx.StartError{Faults: []error{err}}
			}
			return &c, nil
		},
		func(c *redisclient.Clients) redis.UniversalClient { return c.Tasks })
}

type given struct {
	fx.In
	redisclient.Given
	Jobs []jobList `group:"countoff.redisfx.jobs"`
}

func (cfg Config) source(name string, l fx.Lifecycle, provided redisclient.Given) (frameworkfx.Source, error) {
	clients, err := redisclient.Of(l, "redisfx", cfg.URL, provided)
	errs := []error{err}
	switch cfg.Indexer {
	case "", Roster:
	case Interval:
		errs = append(errs, intervalindexer.Config{Interval: cfg.Interval}.Validate())
	default:
		errs = append(errs, fmt.Errorf("redisfx: indexer %q: want %q or %q", cfg.Indexer, Roster, Interval))
	}
	if cfg.Indexer != Interval {
		if cfg.Counter != nil {
			errs = append(errs, fmt.Errorf("redisfx: Counter is for the indexer %q", Interval))
		}
		if cfg.Interval != 0 {
			errs = append(errs, fmt.Errorf("redisfx: Interval is for the indexer %q", Interval))
		}
		if cfg.Strategy != nil {
			errs = append(errs, fmt.Errorf("redisfx: Strategy is for the indexer %q; with the rolls give the consumer framework.WithStrategy", Interval))
		}
	}
	var witness *redisquorum.Quorum
	if len(cfg.Epochs) > 0 {
		opened, err := redisquorum.Open(name, cfg.Epochs, quorum.Config{})
		if err != nil {
			errs = append(errs, err)
		} else {
			witness = opened
			l.Append(fx.StopHook(func(context.Context) error { return opened.Close() }))
		}
	}
	errs = append(errs, redisclient.CheckReplicas("redisfx", cfg.WaitReplicas))
	if cfg.WaitReplicas > 0 && cfg.Ledger != nil {
		errs = append(errs, errors.New("redisfx: WaitReplicas is for a ledger in Redis, and Ledger makes another"))
	}
	observer := new(late.Observer)
	listen(&cfg.Source, name, observer)
	source, err := redissource.New(clients.Tasks, name, cfg.Source)
	if err := redisclient.Faults(append(errs, err)...); err != nil {
		return frameworkfx.Source{}, err
	}
	return frameworkfx.Source{
		Consumer: name,
		Source:   source,
		Survey:   fences.Survey(clients.Tasks, place(name)),
		Control: func(t transition.Timing) framework.Control {
			return cfg.control(name, clients.Control, t, witness, observer)
		},
		Listen: observer.Listen,
	}, nil
}

func (cfg Config) control(name string, client redis.UniversalClient, timing transition.Timing, witness *redisquorum.Quorum,
	observer *late.Observer) framework.Control {
	return func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
		ledger, err := cfg.ledger(name, client, layout, timing)
		if err != nil {
			return nil, nil, err
		}
		if witness != nil {
			ledger = quorum.Witness(ledger, witness.Counter, func(err error) {
				if err != nil {
					observer.Observe(framework.MajorityMissed{Consumer: name, Err: err})
				} else {
					observer.Observe(framework.MajorityBack{Consumer: name})
				}
			})
		}
		if cfg.Indexer != Interval {
			return ledger, nil, nil
		}
		counter := cfg.Counter
		if counter == nil {
			counter = rediscounter.New(client)
		}
		indexer, err := intervalindexer.New(counter, name,
			intervalindexer.Config{Interval: cfg.Interval, Partitions: layout, Strategy: cfg.Strategy},
			intervalindexer.WithMissed(func(number uint64, err error) {
				observer.Observe(framework.Miscounted{Consumer: name, Interval: number, Err: err})
			}))
		if err != nil {
			return nil, nil, err
		}
		return ledger, indexer, nil
	}
}

func (cfg Config) ledger(name string, client redis.UniversalClient, layout partition.Config, timing transition.Timing) (transition.Ledger, error) {
	if cfg.Ledger != nil {
		return cfg.Ledger(layout, timing, frameworkfx.Deployment(cfg.Deployment))
	}
	return redisledger.New(client, name, redisledger.Config{
		Config: layout, Timing: timing, Deployment: frameworkfx.Deployment(cfg.Deployment), WaitReplicas: cfg.WaitReplicas,
	})
}

// place is where the fence and the log of a partition are; ingress lists have none.
func place(name string) func(partition.ID) (fence, log string) {
	return func(id partition.ID) (fence, log string) {
		if id >= partition.FirstUnit {
			return "", ""
		}
		k := redissource.KeysOf(name, id)
		return k.Fence, k.Pending
	}
}

// listen fills in who is told: the observer.
func listen(cfg *redissource.Config, name string, observer *late.Observer) {
	if cfg.Stuck == nil {
		cfg.Stuck = func(s redissource.Stuck) { observer.Observe(stuck(name, s)) }
	}
	if cfg.Ticked == nil {
		cfg.Ticked = func(e redissource.Ticked) { observer.Observe(ticked(name, e)) }
	}
	if cfg.Buried == nil {
		cfg.Buried = func(b sources.Buried) { observer.Observe(framework.Buried{Consumer: name, Buried: b}) }
	}
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { observer.Observe(framework.Warned{Consumer: name, Warning: err.Error()}) }
	}
}

// stuck is the event of what the source says.
func stuck(name string, s redissource.Stuck) framework.Event {
	w := framework.Where{Consumer: name, Grant: s.Grant}
	if s.Over {
		return framework.Unblocked{Where: w}
	}
	return framework.Blocked{Where: w, Key: s.Key}
}

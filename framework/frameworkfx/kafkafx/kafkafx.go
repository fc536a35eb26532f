// Package kafkafx gives consumers of an fx application a Kafka topic as their source, and
// Redis as their ledger. What of the topic is done is kept in Redis as well, or in Kafka.
// It is the only package of frameworkfx that links the Kafka client.
package kafkafx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkaprogress"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/redisledger"
)

// A Progress says where it is kept what of a topic is done. All peers of a name must say
// the same.
type Progress string

// The places of progress.
const (
	// InRedis keeps it beside the ledger.
	InRedis Progress = "redis"
	// InKafka keeps it in the Kafka group, whose offsets are then fenced by a
	// transactional id for each partition; see package kafkaprogress.
	InKafka Progress = "kafka"
)

// A Config says where a consumer's tasks are. Source.Topic must be given, and URL or
// Source.Options.
type Config struct {
	// URL of the brokers; see kafkasource.Options.
	URL string
	// Redis is the URL of the server or cluster of the ledger; see package redisurl.
	// A client for the ledger and one for the rest are opened for this consumer and closed
	// after it. Default: the redis.UniversalClient that the application provides, and closes;
	// see redisfx.ControlClient.
	Redis string
	// Source is what the source is told. Grown, Stuck, Buried and Warn need not be set:
	// the ledger and the observers are told. One that is set is called instead: then the ledger
	// is not told, or no event, line or metric tells of that. Check follows the lease.
	Source kafkasource.Config
	// Progress is where it is kept what is done. Default InRedis.
	Progress Progress
	// Deployment says what the consumer belongs to, so that two deployments which were
	// given one name by mistake are noticed. Default: the environment variable
	// COUNTOFF_DEPLOYMENT, else the path of the program's main package.
	Deployment string
	// WaitReplicas is how many replicas must have what the ledger changed before it
	// counts; see redisledger.Config. Default 0.
	WaitReplicas int
}

// Source makes a topic the source of consumer, and Redis its ledger.
func Source(consumer string, cfg Config) fx.Option {
	return fx.Provide(fx.Annotate(
		func(l fx.Lifecycle, provided given) frameworkfx.Source {
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

type given struct {
	fx.In
	redisclient.Given
}

// told is who hears what the source has to tell; both come after it.
type told struct {
	late.Observer
	name   string
	ledger atomic.Pointer[redisledger.Ledger]
}

func (cfg Config) source(name string, l fx.Lifecycle, provided redisclient.Given) (frameworkfx.Source, error) {
	clients, err := redisclient.Of(l, "kafkafx", cfg.Redis, provided)
	errs := []error{err, redisclient.CheckReplicas("kafkafx", cfg.WaitReplicas)}
	if cfg.URL != "" {
		opts, err := kafkasource.Options(cfg.URL)
		errs = append(errs, err)
		cfg.Source.Options = append(opts, cfg.Source.Options...)
	} else if len(cfg.Source.Options) == 0 {
		errs = append(errs, errors.New("kafkafx: no URL of the brokers: give one, as kafka://host:9092"))
	}
	if len(cfg.Source.Options) == 0 {
		cfg.Source.Options, _ = kafkasource.Options("kafka://none") // that there are none is said already
	}
	t := &told{name: name}
	t.listen(&cfg.Source)
	kept, err := cfg.keep(name, clients.Tasks)
	if err := redisclient.Faults(append(errs, cfg.Source.Validate(name), err)...); err != nil {
		return frameworkfx.Source{}, err
	}
	l.Append(fx.StopHook(kept.disconnect))
	source, err := kafkasource.New(name, kept.store, cfg.Source)
	if err != nil {
		return frameworkfx.Source{}, err
	}
	l.Append(fx.StopHook(source.Close))
	return frameworkfx.Source{
		Consumer: name,
		Source:   named{source, clients.Tasks, name, cfg, new(atomic.Pointer[time.Time])},
		Survey:   kept.survey,
		Control: func(timing transition.Timing) framework.Control {
			if cfg.Source.Check == 0 {
				source.CheckEvery(timing.WithDefaults().Lease / 2)
			}
			return cfg.control(t, clients.Control, timing)
		},
		Listen: t.Listen,
	}, nil
}

// A named source has its kind, its topic and where its progress is agreed on beside the ledger, which
// compares all else.
type named struct {
	*kafkasource.Source
	client redis.UniversalClient
	name   string
	cfg    Config
	noted  *atomic.Pointer[time.Time] // when it was last noted that a partition is not opened; nil: never
}

// noteEvery is how often this peer may note that it does not open a partition: for people to see as long as it lasts. Of
// all peers one may in half of that.
const noteEvery = 5 * time.Minute

// Open opens a partition. That the topic has lost its position is noted beside the ledger, which shows it as granted.
func (s named) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	st, err := s.Source.Open(ctx, g, tok)
	var lost *kafkasource.OutOfRangeError
	if !errors.As(err, &lost) {
		return st, err
	}
	now := time.Now()
	if last := s.noted.Load(); (last == nil || now.Sub(*last) >= noteEvery) && s.noted.CompareAndSwap(last, &now) {
		if redisconfig.NoteRefusedOnce(ctx, s.client, s.name, s.cfg.Source.Topic+"/", noteEvery/2, fmt.Errorf("%w: %w", lost, partition.ErrConfig)) != nil {
			s.noted.Store(last) // the next attempt notes it
		}
	}
	return nil, err
}

// Layout is that of the topic. It fails with an error that wraps partition.ErrConfig if the name
// is that of another kind of work, of another topic, or has its progress elsewhere, or in another group.
func (s named) Layout(ctx context.Context) (partition.Config, error) {
	layout, err := s.Source.Layout(ctx)
	if err != nil {
		return layout, err
	}
	work := redisconfig.Work{Topic: s.cfg.Source.Topic, Progress: string(cmp.Or(s.cfg.Progress, InRedis))}
	if s.cfg.Progress == InKafka {
		work.Group = cmp.Or(s.cfg.Source.Group, s.name)
	}
	return layout, redisconfig.ClaimTopic(ctx, s.client, s.name, layout, work)
}

// kept is where it is kept what is done.
type kept struct {
	store kafkasource.Store
	// survey takes each partition for one with tasks: what it holds is not known there, and who does not open it
	// is refused, as by kafkasource.Fail.
	survey     framework.Survey
	disconnect func() error
}

func (cfg Config) keep(name string, client redis.UniversalClient) (kept, error) {
	switch cfg.Progress {
	case "", InRedis:
		store, err := redisprogress.NewStore(client, name)
		look := fences.Survey(client, func(id partition.ID) (fence, log string) { return redisprogress.Elsewhere(name, id).Fence, "" })
		return kept{store: store, disconnect: func() error { return nil }, survey: func(ctx context.Context, ids []partition.ID) ([]coverage.Datum, error) {
			data, err := look(ctx, ids)
			for i := range data {
				data[i].Waiting = true
			}
			return data, err
		}}, err
	case InKafka:
		store, err := kafkaprogress.NewStore(name, kafkaprogress.Config{
			Topic: cmp.Or(cfg.Source.Topic, "none"), // that there is none is said of the source
			Group: cfg.Source.Group, Options: cfg.Source.Options, Warn: cfg.Source.Warn,
		})
		if err != nil {
			return kept{}, err
		}
		return kept{store: store, disconnect: store.Disconnect, survey: func(ctx context.Context, ids []partition.ID) ([]coverage.Datum, error) {
			found, err := store.Fences(ctx, ids)
			if err != nil {
				return nil, err
			}
			data := make([]coverage.Datum, len(ids))
			for i, id := range ids {
				data[i] = coverage.Datum{ID: id, Fence: found[id], Waiting: true}
			}
			return data, nil
		}}, nil
	}
	return kept{}, fmt.Errorf("kafkafx: Progress %q: want %q or %q", cfg.Progress, InRedis, InKafka)
}

func (cfg Config) control(t *told, client redis.UniversalClient, timing transition.Timing) framework.Control {
	return func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
		ledger, err := redisledger.New(client, t.name, redisledger.Config{
			Config: layout, Timing: timing, Deployment: frameworkfx.Deployment(cfg.Deployment), WaitReplicas: cfg.WaitReplicas, Grows: true,
		})
		if err == nil {
			t.ledger.Store(ledger)
		}
		return ledger, nil, err
	}
}

// listen fills in who is told.
func (t *told) listen(cfg *kafkasource.Config) {
	if cfg.Grown == nil {
		cfg.Grown = func(ctx context.Context, total int) error {
			l := t.ledger.Load()
			if l == nil { // a partition was opened, so there is one
				return fmt.Errorf("kafkafx: the topic has %d partitions now, and the ledger of %s is the application's own: set Source.Grown, or start all peers again", total, t.name)
			}
			return l.Grow(ctx, total)
		}
	}
	if cfg.Stuck == nil {
		cfg.Stuck = func(s kafkasource.Stuck) {
			w := framework.Where{Consumer: t.name, Grant: s.Grant}
			if s.Over {
				t.Observe(framework.Unblocked{Where: w})
			} else {
				t.Observe(framework.Blocked{Where: w, Key: s.Key})
			}
		}
	}
	if cfg.Buried == nil {
		cfg.Buried = func(b sources.Buried) { t.Observe(framework.Buried{Consumer: t.name, Buried: b}) }
	}
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { t.Observe(framework.Warned{Consumer: t.name, Warning: err.Error()}) }
	}
}

// Package asynqfx gives consumers of an fx application queues of asynq as their source,
// handlers of asynq as theirs, and Redis as their ledger. It is the only package of
// frameworkfx that links asynq.
package asynqfx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/internal/endings"
	"github.com/countoff/countoff/framework/frameworkfx/internal/fences"
	"github.com/countoff/countoff/framework/frameworkfx/internal/late"
	"github.com/countoff/countoff/framework/frameworkfx/internal/redisclient"
	"github.com/countoff/countoff/framework/frameworkfx/internal/shape"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// A Config says where a consumer's tasks are. The zero value is ready if the application
// provides a redis.UniversalClient.
type Config struct {
	// URL of the server or cluster; see package redisurl. A client for tasks and one for the
	// ledger are opened for this consumer and closed after it. Default: the
	// redis.UniversalClient that the application provides, and closes; see redisfx.ControlClient.
	URL string
	// Source is what the source is told: queues, partitions, limits. Its Found and Buried need
	// not be set: events tell of it. One that is set is called instead, and no event, line or
	// metric tells of that.
	Source asynqsource.Config
	// Server is what a plain asynq.Server would be made with, for Mux; see
	// asynqsource.Source.Handler. Its Concurrency counts where the consumer's
	// configuration does not say how many handlers run at once.
	Server asynq.Config
	// Deployment says what the consumer belongs to, so that two deployments which were
	// given one name by mistake are noticed. Default: the environment variable
	// COUNTOFF_DEPLOYMENT, else the path of the program's main package.
	Deployment string
	// WaitReplicas is how many replicas must have what the ledger changed before it
	// counts; see redisledger.Config. Default 0.
	WaitReplicas int
}

// Source makes queues of asynq the source of consumer, and Redis its ledger. Its handlers
// are those of the framework: see frameworkfx.Handle.
func Source(consumer string, cfg Config) fx.Option {
	return fx.Provide(fx.Annotate(
		func(l fx.Lifecycle, provided given) frameworkfx.Source {
			_, s := cfg.opened(consumer, l, provided.Given)
			return s
		},
		fx.ResultTags(frameworkfx.SourceGroup)))
}

// Mux is Source for handlers of asynq: every task goes to h, which is an asynq.Handler
// (a *asynq.ServeMux as a rule) or a constructor of one with whatever the application
// provides as its parameters.
func Mux(consumer string, cfg Config, h any) fx.Option {
	var fault error
	both := func(l fx.Lifecycle, provided given, h asynq.Handler) result {
		src, s := cfg.opened(consumer, l, provided.Given)
		s.Concurrency = cfg.Server.Concurrency
		r := result{Source: s, Route: frameworkfx.Route{Consumer: consumer, Route: framework.Route{Any: true, Handler: stopped{}}}}
		engine, err := cfg.engine(consumer, src, h)
		if r.Source.Err = errors.Join(s.Err, fault, err); r.Source.Err == nil {
			r.Route.Handler = engine
		}
		return r
	}
	if f, ok := h.(func(context.Context, *asynq.Task) error); ok {
		h = asynq.HandlerFunc(f)
	}
	handler, ok := h.(asynq.Handler)
	switch {
	case ok, shape.None(h):
	case !shape.Makes[asynq.Handler](h):
		fault = fmt.Errorf("asynqfx: %T is neither a handler of asynq, func(context.Context, *asynq.Task) error, nor a constructor of one", h)
		handler = asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return fault })
	default:
		// What the constructor makes stays in a module of its own: two consumers may have
		// handlers of one type.
		return fx.Module(fmt.Sprintf("countoff.mux %s", consumer),
			fx.Provide(fx.Annotate(h, fx.As(new(asynq.Handler))), fx.Private),
			fx.Provide(both),
		)
	}
	return fx.Provide(func(l fx.Lifecycle, provided given) result { return both(l, provided, handler) })
}

// engine makes the engine of src, or says what is wrong with it even where there is no
// source, because of what is wrong with that: then its queues are not known.
func (cfg Config) engine(consumer string, src *asynqsource.Source, h asynq.Handler) (*asynqsource.Engine, error) {
	if src == nil {
		nobody := redis.NewClient(&redis.Options{}) // it is never asked
		nobody.Close()
		if src, _ = asynqsource.New(nobody, consumer, asynqsource.Config{}); src == nil {
			return nil, nil // because of the name: that is said already
		}
		cfg.Server.Queues = nil
	}
	return src.Handler(h, cfg.Server)
}

type result struct {
	fx.Out
	Source frameworkfx.Source `group:"countoff.sources"`
	Route  frameworkfx.Route  `group:"countoff.handlers"`
}

// stopped stands for an engine that could not be made. The error of the source keeps the
// application from starting.
type stopped struct{}

func (stopped) Handle(context.Context, *framework.Task) error {
	return errors.New("asynqfx: there is no engine")
}

type given struct {
	fx.In
	redisclient.Given
}

// opened is source, and says how to free what that has opened.
func (cfg Config) opened(name string, l fx.Lifecycle, provided redisclient.Given) (*asynqsource.Source, frameworkfx.Source) {
	opened := endings.Of(l)
	src, s := cfg.source(name, opened, provided)
	s.Close = opened.End
	return src, s
}

func (cfg Config) source(name string, l fx.Lifecycle, provided redisclient.Given) (*asynqsource.Source, frameworkfx.Source) {
	clients, err := redisclient.Of(l, "asynqfx", cfg.URL, provided)
	observer := new(late.Observer)
	listen(&cfg.Source, name, observer)
	src, wrong := asynqsource.New(clients.Tasks, name, cfg.Source)
	if err := redisclient.Faults(err, redisclient.CheckReplicas("asynqfx", cfg.WaitReplicas), wrong); err != nil {
		return src, frameworkfx.Source{Consumer: name, Err: err}
	}
	return src, frameworkfx.Source{
		Consumer: name,
		Source:   src,
		Survey:   fences.Survey(clients.Tasks, src.Place),
		Listen:   observer.Listen,
		Control:  func(t transition.Timing) framework.Control { return cfg.control(name, clients.Control, t) },
	}
}

// listen fills in who is told: the observer, once there is one.
func listen(cfg *asynqsource.Config, name string, observer *late.Observer) {
	if cfg.Found == nil {
		var told plains
		cfg.Found = func(p asynqsource.Plain) {
			if told.news(p) {
				observer.Observe(framework.Warned{Consumer: name, Warning: (&asynqsource.PlainError{Plain: p}).Error()})
			}
		}
	}
	if cfg.Buried == nil {
		cfg.Buried = func(b sources.Buried) { observer.Observe(framework.Buried{Consumer: name, Buried: b}) }
	}
}

// plains are the plain servers that were told of. A start that is refused because of one is
// tried again after milliseconds, and says why itself; the source looks again once a minute.
type plains struct {
	mu   sync.Mutex
	last map[string]time.Time // by the server's id
}

// news reports whether nobody was told of p lately.
func (t *plains) news(p asynqsource.Plain) bool {
	const again = 30 * time.Second
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(t.last, func(_ string, at time.Time) bool { return now.Sub(at) >= again })
	if _, known := t.last[p.ID]; known {
		return false
	}
	if t.last == nil {
		t.last = make(map[string]time.Time)
	}
	t.last[p.ID] = now
	return true
}

func (cfg Config) control(name string, client redis.UniversalClient, timing transition.Timing) framework.Control {
	return func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
		ledger, err := redisledger.New(client, name, redisledger.Config{
			Config: layout, Timing: timing, Deployment: frameworkfx.Deployment(cfg.Deployment), WaitReplicas: cfg.WaitReplicas,
		})
		return ledger, nil, err
	}
}

// Package unitfx gives an fx application peers that share units in Redis: pieces of
// long-running work, each of which one of them owns. See docs/units.md.
package unitfx

import (
	"context"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/internal/endings"
	"github.com/countoff/countoff/framework/frameworkfx/internal/redisclient"
	"github.com/countoff/countoff/framework/frameworkfx/internal/shape"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/unitsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// A Config says where the units are. The zero value is ready if the application provides a
// redis.UniversalClient.
type Config struct {
	// URL of the server or cluster; see package redisurl. A client for the ledger and one for
	// the rest are opened for these units and closed after them. Default: the
	// redis.UniversalClient that the application provides, and closes; see redisfx.ControlClient.
	URL string
	// Source is what the list is told: its key, and in how many shares it is granted.
	Source unitsource.Config
	// Units holds the times, the peer's id and what else all peers of a name agree on.
	// Its Source, Control, Handler and Publish are set here; its Observer is added to
	// those of the application.
	Units framework.UnitsConfig
	// Deployment says what the peers belong to, so that two deployments which were given one
	// name by mistake are noticed. Default: the environment variable COUNTOFF_DEPLOYMENT, else
	// the path of the program's main package; of Bind, none.
	Deployment string
	// WaitReplicas is how many replicas must have what the ledger changed before it counts;
	// see redisledger.Config. Default 0.
	WaitReplicas int
}

// Units makes this process a peer of name: h runs for each unit that it owns. h is a
// framework.UnitHandler, a func(context.Context, framework.Unit) error, or a constructor of one of
// them with whatever the application provides as its parameters.
func Units(name string, cfg Config, h any) fx.Option {
	type bare = func(context.Context, framework.Unit) error
	if shape.None(h) {
		h = nil
	}
	switch f := h.(type) {
	case nil:
		h = func() framework.UnitHandler { return nil } // which is listed
	case framework.UnitHandler:
		h = func() framework.UnitHandler { return f }
	case bare:
		h = func() framework.UnitHandler { return f }
	}
	var fault error
	named := fx.Options()
	switch {
	case makes[framework.UnitHandler](h):
	case makes[bare](h):
		named = fx.Provide(func(f bare) framework.UnitHandler { return f }, fx.Private)
	default: // fx would tell of its own workings
		fault = fmt.Errorf("unitfx: %T is neither a handler, func(context.Context, framework.Unit) error, nor a constructor of one", h)
		h = func() framework.UnitHandler { return func(context.Context, framework.Unit) error { return fault } }
	}
	return fx.Module("countoff.units "+name,
		fx.Provide(h, fx.Private),
		named,
		fx.Provide(fx.Annotate(
			func(l fx.Lifecycle, p given, h framework.UnitHandler) frameworkfx.Units {
				return cfg.units(name, l, p.Given, h, fault)
			},
			fx.ResultTags(frameworkfx.UnitsGroup))),
	)
}

// makes reports whether f is a function that returns a T.
func makes[T any](f any) bool {
	t := reflect.TypeOf(f)
	return t.Kind() == reflect.Func && t.NumOut() > 0 && t.Out(0) == reflect.TypeFor[T]()
}

type given struct {
	fx.In
	redisclient.Given
}

func (cfg Config) units(name string, l fx.Lifecycle, provided redisclient.Given, h framework.UnitHandler, fault error) frameworkfx.Units {
	opened := endings.Of(l)
	units := frameworkfx.Units{Name: name, Config: cfg.Units, Close: opened.End}
	clients, errClient := redisclient.Of(opened, "unitfx", cfg.URL, provided)
	cfg.Deployment = frameworkfx.Deployment(cfg.Deployment)
	bound, errSource := cfg.bind(clients, name)
	if units.Err = redisclient.Faults(errClient, errSource, redisclient.CheckReplicas("unitfx", cfg.WaitReplicas), fault); units.Err == nil {
		units.Config = bound
	}
	units.Config.Handler = h
	return units
}

// Bind returns cfg.Units with the list, the ledger and the table of name in the store of
// client: for programs without fx, which add a Handler and call framework.NewUnits.
func Bind(client redis.UniversalClient, name string, cfg Config) (framework.UnitsConfig, error) {
	return cfg.bind(redisclient.Clients{Tasks: client, Control: client}, name)
}

func (cfg Config) bind(clients redisclient.Clients, name string) (framework.UnitsConfig, error) {
	source, err := unitsource.New(clients.Tasks, name, cfg.Source)
	if err != nil {
		return framework.UnitsConfig{}, err
	}
	units := cfg.Units
	units.Source = source
	units.Control = func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
		ledger, err := redisledger.New(clients.Control, name, redisledger.Config{
			Config: layout, Timing: units.Timing, Deployment: cfg.Deployment, WaitReplicas: cfg.WaitReplicas,
		})
		return ledger, nil, err
	}
	units.Publish = func(ctx context.Context, all []string) error {
		layout, err := source.Layout(ctx)
		if err != nil {
			return err
		}
		// If the list has changed again the next look writes the table.
		_, err = redisledger.WriteTable(ctx, clients.Tasks, name, source.Key(), layout, all)
		return err
	}
	return units, nil
}

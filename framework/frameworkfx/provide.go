package frameworkfx

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/internal/shape"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
)

// Handle gives the tasks of type typ to a handler. h is a framework.Handler, a
// func(context.Context, *framework.Task) error, or a constructor of a Handler with
// whatever the application provides as its parameters.
func Handle(consumer, typ string, h any) fx.Option {
	return route(consumer, framework.Route{Type: typ}, h)
}

// Otherwise gives the tasks of all types that have no handler of their own to h, which may be
// what it may be in [Handle].
func Otherwise(consumer string, h any) fx.Option {
	return route(consumer, framework.Route{Any: true}, h)
}

func route(consumer string, r framework.Route, h any) fx.Option {
	put := func(h framework.Handler) Route {
		r.Handler = h
		return Route{Consumer: consumer, Route: r}
	}
	provide := func(r Route) fx.Option {
		return fx.Provide(fx.Annotate(func() Route { return r }, fx.ResultTags(HandlerGroup)))
	}
	switch v := h.(type) {
	case framework.Handler:
		return provide(put(v))
	case func(context.Context, *framework.Task) error:
		return provide(put(framework.HandlerFunc(v)))
	}
	if shape.None(h) {
		return provide(put(nil))
	}
	if err := constructs(h); err != nil {
		what := "the default handler"
		if !r.Any {
			what = fmt.Sprintf("the handler for type %q", r.Type)
		}
		return provide(Route{Consumer: consumer, Route: r, Err: fmt.Errorf("%s: %w", what, err)})
	}
	// What the constructor makes stays in a module of its own: two handlers of one
	// Go type must not collide, and two for one task type are to be listed, not to
	// stop fx at the second.
	return fx.Module(fmt.Sprintf("countoff.handler %s/%s", consumer, r.Type),
		fx.Provide(fx.Annotate(h, fx.As(new(framework.Handler))), fx.Private),
		fx.Provide(fx.Annotate(put, fx.ResultTags(HandlerGroup))),
	)
}

// constructs says why h makes no handler.
func constructs(h any) error {
	t := reflect.TypeOf(h)
	if t.Kind() != reflect.Func {
		return fmt.Errorf("%v is no handler: it lacks Handle(context.Context, *framework.Task) error", t)
	}
	if shape.Makes[framework.Handler](h) {
		return nil
	}
	return fmt.Errorf("%v is neither a handler, func(context.Context, *framework.Task) error, nor a constructor of one "+
		"(framework.JSON makes a handler of a func(context.Context, T, *framework.Task) error)", t)
}

// Use wraps the handlers of consumer, or of all if it is empty, in m. The
// middleware of the least order is the outermost.
func Use(consumer string, order int, m framework.Middleware) fx.Option {
	return fx.Provide(fx.Annotate(
		func() Middleware { return Middleware{Consumer: consumer, Order: order, Wrap: m} },
		fx.ResultTags(MiddlewareGroup)))
}

// Configure sets the numbers of consumer, and replaces collaborators of it. A consumer is
// configured once at most. A framework.WithConfig among opts would replace all of cfg, and the
// ledger would still have cfg.Timing: leave it out.
func Configure(consumer string, cfg framework.Config, opts ...framework.Option) fx.Option {
	return fx.Provide(fx.Annotate(
		func() Setting {
			return Setting{Consumer: consumer, Config: cfg, Options: opts}
		},
		fx.ResultTags(SettingGroup)))
}

// From makes s the source of consumer, and l the ledger it counts off with. Packages
// of concrete sources, such as redisfx, have functions of their own.
func From(consumer string, s sources.Source, l transition.Ledger) fx.Option {
	return fx.Provide(fx.Annotate(
		func() Source { return Source{Consumer: consumer, Source: s, Ledger: l} },
		fx.ResultTags(SourceGroup)))
}

// Observe adds an observer of all consumers and units. constructor is one, a
// func(framework.Event), or a function that returns one, or one and an error, with whatever the
// application provides as its parameters.
func Observe(constructor any) fx.Option {
	switch o := constructor.(type) {
	case framework.Observer:
		constructor = func() framework.Observer { return o }
	case func(framework.Event):
		if o == nil {
			return Observe(nil)
		}
		constructor = func() framework.ObserverFunc { return o }
	default:
		switch {
		case shape.None(o):
			constructor = func() framework.Observer { return nil } // which is listed
		case !shape.Makes[framework.Observer](o):
			constructor = func() framework.Observer { return misfit{fmt.Sprintf("%T", o)} }
		}
	}
	return fx.Provide(fx.Annotate(constructor, fx.As(new(framework.Observer)), fx.ResultTags(ObserverGroup)))
}

// Healthy lets the peer of consumer, which may also be a name of units, or every peer if it is
// empty, say whether it is well; see framework.WithHealth. constructor is the check, a
// func(context.Context) error, or a function that returns one, with whatever the application
// provides as its parameters.
func Healthy(consumer string, constructor any) fx.Option {
	switch c := constructor.(type) {
	case func(context.Context) error:
		constructor = func() func(context.Context) error { return c }
	default:
		if shape.None(c) {
			return Healthy(consumer, (func(context.Context) error)(nil)) // which is listed
		}
		if !shape.Makes[func(context.Context) error](c) {
			err := fmt.Errorf("%T is neither a health check, func(context.Context) error, nor a constructor of one", c)
			return fx.Provide(fx.Annotate(func() Health { return Health{Consumer: consumer, Err: err} }, fx.ResultTags(HealthGroup)))
		}
	}
	// What it makes stays in a module of its own, so that there may be several.
	return fx.Module("countoff.health "+consumer,
		fx.Provide(constructor, fx.Private),
		fx.Provide(fx.Annotate(
			func(check func(context.Context) error) Health { return Health{Consumer: consumer, Check: check} },
			fx.ResultTags(HealthGroup))),
	)
}

// A misfit stands for what was given as an observer and is none, which is listed.
type misfit struct{ what string }

func (misfit) Observe(framework.Event) {}

// A placeholder stands for what is missing, so that the rest can be checked. It is
// never run.
type placeholder struct{}

var errPlaceholder = errors.New("frameworkfx: a placeholder was run")

func (placeholder) Handle(context.Context, *framework.Task) error { return errPlaceholder }

func (placeholder) Layout(context.Context) (partition.Config, error) {
	return partition.Config{}, errPlaceholder
}

func (placeholder) Units(context.Context) ([]string, error) { return nil, errPlaceholder }

func (placeholder) Open(context.Context, partition.Grant, partition.Token) (sources.Stream, error) {
	return nil, errPlaceholder
}

func (placeholder) control(transition.Timing) framework.Control {
	return func(partition.Config) (transition.Ledger, partition.Indexer, error) { return nil, nil, errPlaceholder }
}

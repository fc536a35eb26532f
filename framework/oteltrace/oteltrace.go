package oteltrace

import (
	"context"
	"errors"
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/sources"
)

// scope names this package as what made a span.
const scope = "github.com/countoff/countoff/framework/oteltrace"

// Config replaces what is taken from the globals of OpenTelemetry. The zero value is ready.
type Config struct {
	// Provider makes the spans. Default: otel.GetTracerProvider, asked at each run.
	Provider trace.TracerProvider
	// Propagator reads and writes headers. Default: otel.GetTextMapPropagator, asked each time: as
	// long as the program has set none, nothing travels.
	Propagator propagation.TextMapPropagator
}

func (c Config) tracer() trace.Tracer {
	if c.Provider == nil {
		return otel.GetTracerProvider().Tracer(scope)
	}
	return c.Provider.Tracer(scope)
}

func (c Config) propagator() propagation.TextMapPropagator {
	if c.Propagator == nil {
		return otel.GetTextMapPropagator()
	}
	return c.Propagator
}

// Inject returns headers with what ctx belongs to, for a task that is enqueued now. If they are those of
// another task, as where a handler passes on its own, what that one belonged to is left out, also where ctx has
// nothing of the kind: a trace state is of one trace, and what was taken out of the baggage is not to travel
// on. It changes nothing: where there is something to add or to leave out it returns a copy. headers may be nil.
func Inject(ctx context.Context, headers map[string]string, cfg Config) map[string]string {
	p := cfg.propagator()
	all := propagation.MapCarrier(maps.Clone(headers))
	if all == nil {
		all = propagation.MapCarrier{}
	}
	for _, field := range p.Fields() {
		delete(all, field)
	}
	p.Inject(ctx, all)
	if maps.Equal(all, headers) {
		return headers
	}
	return all
}

// Middleware returns one that has a span for each run of a handler of the consumer name, in the context
// that the handler gets. Give it first, so that all others are within the span.
//
// Each try is a span of its own, a child of what [Inject] wrote. An error that the handler returns, and a
// panic, make its status an error; that the run was interrupted, because its partition was handed over or lost
// or its peer stops, does not: the task runs again.
func Middleware(name string, cfg Config) framework.Middleware {
	of := trace.WithAttributes(
		attribute.String("messaging.system", "countoff"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", name),
		attribute.String("messaging.consumer.group.name", name),
	)
	return func(h framework.Handler) framework.Handler {
		return framework.HandlerFunc(func(ctx context.Context, t *framework.Task) error {
			ctx = cfg.propagator().Extract(ctx, propagation.MapCarrier(t.Headers))
			ctx, span := cfg.tracer().Start(ctx, "process "+name, trace.WithSpanKind(trace.SpanKindConsumer), of, trace.WithAttributes(
				attribute.String("messaging.message.id", t.ID),
				attribute.String("messaging.destination.partition.id", t.Grant.ID.String()),
				attribute.String("countoff.task.type", t.Type),
				attribute.Int("countoff.task.attempt", t.Attempt),
				attribute.Int64("countoff.epoch", int64(t.Grant.Epoch)),
			))
			returned := false
			defer func() {
				if !returned { // it panicked, or ended its goroutine: what caught it tells more
					span.SetStatus(codes.Error, "the handler did not return")
				}
				span.End()
			}()
			err := h.Handle(ctx, t)
			returned = true
			if err == nil {
				return nil
			}
			if cause := interrupted(ctx, err); cause != nil {
				span.AddEvent("interrupted", trace.WithAttributes(attribute.String("cause", cause.Error())))
			} else {
				span.RecordError(err)
				span.SetStatus(codes.Error, err.Error())
			}
			return err
		})
	}
}

// interrupted returns why a task whose handler has returned err runs again without counting as a failure: nil if
// it counts.
func interrupted(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, framework.ErrLost), errors.Is(cause, framework.ErrStopped):
		return cause
	case errors.Is(cause, framework.ErrDrainOver):
		if asked, _ := sources.Asked(err); asked != sources.Dead || ended(err) {
			return cause
		}
		return nil // a dead letter
	}
	select {
	case <-framework.HandOver(ctx):
		if errors.Is(err, framework.ErrHandedOver) && !errors.Is(cause, framework.ErrCancelled) {
			return err
		}
	default:
	}
	return nil
}

// ended reports whether err is, or wraps, that of a context that has ended: what is dead for that reason alone is
// for the next owner.
func ended(err error) bool {
	return errors.Is(err, framework.ErrHandedOver) || errors.Is(err, framework.ErrDrainOver) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

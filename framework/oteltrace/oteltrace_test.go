package oteltrace_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	span "go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworktest"
	"github.com/countoff/countoff/framework/oteltrace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recorded() (*tracetest.SpanRecorder, oteltrace.Config) {
	spans := tracetest.NewSpanRecorder()
	return spans, oteltrace.Config{
		Provider:   trace.NewTracerProvider(trace.WithSpanProcessor(spans)),
		Propagator: propagation.TraceContext{},
	}
}

// Each run of a task is a span, a child of what enqueued it.
func TestRunsAreSpansOfWhoEnqueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, cfg := recorded()
		ctx, producer := cfg.Provider.Tracer("test").Start(t.Context(), "enqueue")
		own := map[string]string{"tenant": "7"}
		headers := oteltrace.Inject(ctx, own, cfg)
		if headers["tenant"] != "7" || headers["traceparent"] == "" || len(own) != 1 {
			t.Errorf("the headers are %v, of %v", headers, own)
		}
		f := frameworktest.New(t, frameworktest.Config{})
		h := framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
			_, inner := cfg.Provider.Tracer("test").Start(ctx, "send")
			inner.End()
			if task.Attempt == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		f.Start("ann", framework.Chain(h, oteltrace.Middleware("mails", cfg)))
		f.Push(framework.Task{ID: "a", Type: "mail", Key: "k", Delivery: &framework.Delivery{Headers: headers}})
		f.Wait(time.Minute)
		producer.End()
		var got []string
		for _, s := range spans.Ended() {
			if s.SpanContext().TraceID() != producer.SpanContext().TraceID() {
				t.Errorf("%s is of another trace", s.Name())
			}
			if s.Name() != "process mails" {
				continue
			}
			if s.Parent().SpanID() != producer.SpanContext().SpanID() {
				t.Errorf("a run is no child of what enqueued its task")
			}
			of := attribute.NewSet(s.Attributes()...)
			value := func(key attribute.Key) string { v, _ := of.Value(key); return v.String() }
			got = append(got, fmt.Sprint(s.Status().Code, s.Status().Description, value("countoff.task.attempt"), value("messaging.message.id"),
				value("messaging.destination.name"), value("countoff.task.type"), value("messaging.destination.partition.id") != ""))
		}
		want := []string{
			fmt.Sprint(codes.Error, "not yet", "1", "a", "mails", "mail", true),
			fmt.Sprint(codes.Unset, "", "2", "a", "mails", "mail", true),
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the runs are %v, want %v", got, want)
		}
	})
}

// A handler that enqueues with its own headers passes on what its context belongs to, and nothing of what they say
// beside that.
func TestNothingStaleTravels(t *testing.T) {
	cfg := oteltrace.Config{Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})}
	received := map[string]string{"tenant": "7", "baggage": "card=4711", "tracestate": "vendor=1",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	fresh := span.ContextWithSpanContext(t.Context(), span.NewSpanContext(span.SpanContextConfig{TraceID: span.TraceID{1}, SpanID: span.SpanID{2}}))
	for what, c := range map[string]struct {
		ctx  context.Context
		want map[string]string
	}{
		"a trace of its own": {fresh, map[string]string{"tenant": "7", "traceparent": "00-01000000000000000000000000000000-0200000000000000-00"}},
		"nothing":            {t.Context(), map[string]string{"tenant": "7"}},
		"the same":           {cfg.Propagator.Extract(t.Context(), propagation.MapCarrier(received)), received},
		"without its baggage": {baggage.ContextWithoutBaggage(cfg.Propagator.Extract(t.Context(), propagation.MapCarrier(received))),
			map[string]string{"tenant": "7", "tracestate": "vendor=1", "traceparent": received["traceparent"]}},
	} {
		if got := oteltrace.Inject(c.ctx, received, cfg); !maps.Equal(got, c.want) {
			t.Errorf("%s: the headers are %v, want %v", what, got, c.want)
		}
	}
	if len(received) != 4 {
		t.Errorf("what was received is %v", received)
	}
}

// What becomes of the run is in its status.
func TestStatus(t *testing.T) {
	for what, c := range map[string]struct {
		ends func(context.Context, *framework.Task) error
		want codes.Code
	}{
		"done":                        {func(context.Context, *framework.Task) error { return nil }, codes.Unset},
		"dead":                        {func(context.Context, *framework.Task) error { return framework.Dead(errors.New("no")) }, codes.Error},
		"drain over":                  {func(ctx context.Context, _ *framework.Task) error { return ctx.Err() }, codes.Unset},
		"drain over, dead by itself":  {func(context.Context, *framework.Task) error { return framework.Dead(errors.New("no")) }, codes.Error},
		"drain over, dead of its end": {func(ctx context.Context, _ *framework.Task) error { return framework.Dead(ctx.Err()) }, codes.Unset},
		"stopped":                     {func(ctx context.Context, _ *framework.Task) error { return ctx.Err() }, codes.Unset},
		"lost":                        {func(ctx context.Context, _ *framework.Task) error { return ctx.Err() }, codes.Unset},
		"timed out":                   {func(ctx context.Context, _ *framework.Task) error { return ctx.Err() }, codes.Error},
		"panics":                      {func(context.Context, *framework.Task) error { panic("no") }, codes.Error},
		"lost, dead by itself":        {func(context.Context, *framework.Task) error { return framework.Dead(errors.New("no")) }, codes.Unset},
	} {
		t.Run(what, func(t *testing.T) {
			spans, cfg := recorded()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			why, _, _ := strings.Cut(what, ",")
			if cause := map[string]error{
				"drain over": framework.ErrDrainOver, "stopped": framework.ErrStopped, "lost": framework.ErrLost, "timed out": framework.ErrTimeout,
			}[why]; cause != nil {
				cancel(fmt.Errorf("it ends: %w", cause))
			}
			h := framework.Chain(framework.HandlerFunc(c.ends), framework.Recover(), oteltrace.Middleware("n", cfg))
			_ = h.Handle(ctx, &framework.Task{ID: "a", Delivery: &framework.Delivery{}})
			ended := spans.Ended()
			if len(ended) != 1 || ended[0].Status().Code != c.want || ended[0].Parent().IsValid() {
				t.Errorf("%+v", ended)
			}
		})
	}
}

// A run that is cut short by a hand-over is no error, and the next owner's is the one that counts.
func TestAHandOverIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, cfg := recorded()
		f := frameworktest.New(t, frameworktest.Config{})
		slow := framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
			if task.ID == "a" {
				<-ctx.Done()
				return ctx.Err()
			}
			<-framework.HandOver(ctx)
			return fmt.Errorf("at row 7: %w", framework.ErrHandedOver)
		})
		ann := f.Start("ann", framework.Chain(slow, oteltrace.Middleware("mails", cfg)))
		f.WaitReady(time.Minute)
		f.Push(framework.Task{ID: "a", Key: "k"}, framework.Task{ID: "b", Key: "l"})
		time.Sleep(time.Second)
		f.Start("ben", framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil }))
		ann.Stop()
		f.Wait(time.Hour)
		ended := spans.Ended()
		if len(ended) != 2 {
			t.Fatalf("%+v", ended)
		}
		for _, s := range ended {
			if s.Status().Code != codes.Unset || len(s.Events()) != 1 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// A task that is cancelled while its partition is handed over is a dead letter, whatever its handler returns.
func TestWhatIsCancelledInAHandOverIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, cfg := recorded()
		f := frameworktest.New(t, frameworktest.Config{})
		traced := framework.Chain(framework.HandlerFunc(func(context.Context, *framework.Task) error {
			return framework.ErrHandedOver
		}), oteltrace.Middleware("mails", cfg))
		ann := f.Start("ann", framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
			<-framework.HandOver(ctx)
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(fmt.Errorf("%w: a test", framework.ErrCancelled))
			return traced.Handle(ctx, task)
		}))
		f.WaitReady(time.Minute)
		f.Push(framework.Task{ID: "a", Key: "k"})
		time.Sleep(time.Second)
		f.Start("ben", framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil }))
		ann.Stop()
		f.Wait(time.Hour)
		if ended := spans.Ended(); len(ended) != 1 || ended[0].Status().Code != codes.Error {
			t.Errorf("%+v", ended)
		}
	})
}

// Without anything set up nothing travels and nothing is added.
func TestWithoutAProvider(t *testing.T) {
	if got := oteltrace.Inject(t.Context(), nil, oteltrace.Config{}); got != nil {
		t.Errorf("headers %v", got)
	}
	ran := false
	h := framework.Chain(framework.HandlerFunc(func(context.Context, *framework.Task) error { ran = true; return nil }), oteltrace.Middleware("n", oteltrace.Config{}))
	if _, _, err := frameworktest.Handle(t, h, framework.Task{ID: "a"}); err != nil || !ran {
		t.Error(ran, err)
	}
}

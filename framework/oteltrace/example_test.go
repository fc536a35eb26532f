package oteltrace_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	span "go.opentelemetry.io/otel/trace"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/oteltrace"
)

// What a service does once, and what its handler then has.
func Example() {
	provider := trace.NewTracerProvider() // with an exporter of yours
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	defer func() {
		otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator())
		_ = provider.Shutdown(context.Background())
	}()

	ctx, enqueue := otel.Tracer("shop").Start(context.Background(), "checkout")
	headers := oteltrace.Inject(ctx, nil, oteltrace.Config{})
	enqueue.End()

	charge := framework.HandlerFunc(func(ctx context.Context, _ *framework.Task) error {
		fmt.Println("one trace:", span.SpanContextFromContext(ctx).TraceID() == enqueue.SpanContext().TraceID())
		return nil
	})
	h := framework.Chain(charge, oteltrace.Middleware("billing", oteltrace.Config{}))
	if err := h.Handle(context.Background(), &framework.Task{ID: "1", Delivery: &framework.Delivery{Headers: headers}}); err != nil {
		fmt.Println(err)
	}
	// Output: one trace: true
}

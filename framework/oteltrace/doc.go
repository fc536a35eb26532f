// Package oteltrace traces handlers with OpenTelemetry: a span for each run of a handler, as a child of
// the span that enqueued its task. It is a module of its own, so that programs that do not trace do not
// depend on OpenTelemetry.
//
// A producer puts its context into the headers of the task, and the consumer takes it out of them:
//
//	message.Headers = oteltrace.Inject(ctx, message.Headers, oteltrace.Config{})
//
//	h = framework.Chain(h, oteltrace.Middleware("billing", oteltrace.Config{}))
//
// or with fx
//
//	frameworkfx.Use("billing", -1, oteltrace.Middleware("billing", oteltrace.Config{}))
//
// Headers travel with countoff's lists and with the records of Kafka. A plain line of an ingress list has
// none, and its run begins a trace. Handlers of asynq have asynq's own tasks, with their own headers.
//
// The names are those of the semantic conventions for messaging
// (https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/). Keys and payloads are in no
// span, since they may be personal data.
package oteltrace

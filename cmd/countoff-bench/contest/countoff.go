package contest

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/zapobserver"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/redisledger"
)

// countoffName is the task processing of the benchmark, taskType what its tasks are, inboxList
// the plain list that some of them come by.
const (
	countoffName = "bench"
	taskType     = "mark"
	inboxList    = "bench:inbox"
)

// countoffConfig says how a consumer of countoff differs from the usual one, whose
// tasks have 10,000 keys and whose events are listened to.
type countoffConfig struct {
	concurrency int
	partitions  int // default 16
	window      int // default that of the source
	work        time.Duration
	keyless     bool // no task has a key
	silent      bool // nobody listens to the events
	inbox       bool // tasks come by a plain list
}

func (c countoffConfig) withDefaults() countoffConfig {
	if c.partitions == 0 {
		c.partitions = 16
	}
	return c
}

func countoff(tag string, c countoffConfig) Contestant {
	c = c.withDefaults()
	what := fmt.Sprintf("countoff, c = %d, %d partitions", c.concurrency, c.partitions)
	if c.window > 0 {
		what += fmt.Sprintf(", window %d", c.window)
	}
	if c.work > 0 {
		what += fmt.Sprintf(", handler of %v", c.work)
	}
	if c.keyless {
		what += ", no keys"
	}
	if c.silent {
		what += ", nobody listens to events"
	}
	d := Contestant{Tag: tag, What: what, Tasks: 1_000_000, Quick: 200_000, Preload: c.preload, Run: c.drain, Check: settled(c.partitions)}
	if c.work > 0 {
		d.Tasks, d.Quick = 200_000, 50_000
	}
	return d
}

// preload makes the name, so that its first peer begins at once, and fills it.
func (c countoffConfig) preload(ctx context.Context, client *redis.Client, n int) error {
	if err := initName(ctx, client, c.partitions); err != nil {
		return err
	}
	p, err := redissource.NewProducer(ctx, client, countoffName, redissource.ProducerConfig{})
	if err != nil {
		return err
	}
	defer p.Close(ctx)
	return inBatches(n, 1000, func(from, to int) error {
		_, err := p.Enqueue(ctx, messages(from, to, !c.keyless)...)
		return err
	})
}

func initName(ctx context.Context, client *redis.Client, partitions int, inboxes ...string) error {
	_, err := redisledger.Init(ctx, client, countoffName, partition.Config{Total: partitions, Units: inboxes})
	return err
}

func messages(from, to int, keys bool) []redissource.Message {
	batch := make([]redissource.Message, to-from)
	for i := range batch {
		batch[i].Type, batch[i].Payload = taskType, meter.Payload(from+i)
		if keys {
			batch[i].Key = meter.Key(from + i)
		}
	}
	return batch
}

// inBatches calls do for 0..n in steps of size.
func inBatches(n, size int, do func(from, to int) error) error {
	for from := 0; from < n; from += size {
		if err := do(from, min(from+size, n)); err != nil {
			return err
		}
	}
	return nil
}

func (c countoffConfig) drain(ctx context.Context, r *Run) (report.Measures, error) {
	client := r.Client()
	defer client.Close()
	handler := func(_ context.Context, t *framework.Task) error {
		work(c.work)
		r.Meter.Saw(t.Payload)
		return nil
	}
	return nil, c.serve(ctx, client, handler, func() error { return r.Wait(ctx) })
}

// serve runs one peer on lists of Redis, as an application would, until until returns.
func (c countoffConfig) serve(ctx context.Context, client *redis.Client, h framework.HandlerFunc, until func() error) error {
	mux, err := framework.NewMux(framework.Route{Type: taskType, Handler: h})
	if err != nil {
		return err
	}
	cfg := redissource.Config{Window: c.window}
	if c.inbox {
		cfg.Ingress = []redissource.Ingress{{List: inboxList, KeyField: "n", Type: taskType}}
	}
	source, err := redissource.New(client, countoffName, cfg)
	if err != nil {
		return err
	}
	return c.serveSource(ctx, client, source, mux, until, framework.WithSurvey(survey(client)))
}

// serveSource is serve for any source. All guards are on: leases, fences, key order,
// recovery from panics, the watch over the coverage. Only the time in which peers that
// start together gather is cut, so that a run begins at once.
func (c countoffConfig) serveSource(ctx context.Context, client *redis.Client, source sources.Source, h framework.Handler,
	until func() error, options ...framework.Option,
) error {
	cfg := framework.Config{
		Concurrency: c.concurrency,
		Timing:      transition.Timing{Settle: 50 * time.Millisecond},
		PodGrace:    time.Minute,
	}
	control := func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
		ledger, err := redisledger.New(client, countoffName, redisledger.Config{Config: layout, Timing: cfg.Timing})
		return ledger, nil, err
	}
	options = append(options, framework.WithConfig(cfg), framework.WithControl(control), framework.WithPeer("bench", 1))
	var listener listener
	if !c.silent {
		options = append(options, framework.WithObserver(framework.Observers{&listener, zapobserver.New(quietLogger())}))
	}
	consumer, err := framework.New(countoffName, source, h, options...)
	if err != nil {
		return err
	}
	if err := consumer.Start(ctx); err != nil {
		return err
	}
	err = until()
	if stopped := consumer.Stop(context.WithoutCancel(ctx)); err == nil {
		err = stopped
	}
	if n := listener.failures.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%d runs failed or were for nothing", n)
	}
	return err
}

// quietLogger logs as an application does, to nobody.
func quietLogger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zap.InfoLevel))
}

// A listener does with events what an exporter of metrics would: it counts.
type listener struct {
	handled, settled, failures atomic.Int64
}

func (l *listener) Observe(e framework.Event) {
	if e, ok := e.(framework.Settled); ok {
		l.settled.Add(int64(e.Done))
	}
}

func (l *listener) ObserveHandled(e framework.Handled) {
	l.handled.Add(1)
	if e.Err != nil || e.Outcome == 0 {
		l.failures.Add(1)
	}
}

// survey reads the fences, as package redisfx does.
func survey(client *redis.Client) framework.Survey {
	fences := redisprogress.NewSurvey(client, func(id partition.ID) (fence, log string) {
		k := redissource.KeysOf(countoffName, id)
		return k.Fence, k.Pending
	})
	return func(ctx context.Context, ids []partition.ID) ([]coverage.Datum, error) {
		found, err := fences.Look(ctx, ids)
		data := make([]coverage.Datum, len(found))
		for i, f := range found {
			data[i] = coverage.Datum{ID: f.ID, Fence: f.Fence, Waiting: f.Log}
		}
		return data, err
	}
}

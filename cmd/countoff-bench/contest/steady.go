package contest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/sources/redissource"
)

// steadyEvery is how far apart tasks are pushed: 1,000 a second.
const steadyEvery = time.Millisecond

// A stopwatch notes what each task takes from before its push to its handler.
type stopwatch struct {
	start time.Time
	began []atomic.Int64 // after start
	took  []time.Duration
}

func newStopwatch(tasks int) *stopwatch {
	return &stopwatch{time.Now(), make([]atomic.Int64, tasks), make([]time.Duration, tasks)}
}

// saw is called by the handler of a task, before the meter is told.
func (s *stopwatch) saw(payload []byte) {
	if i, err := meter.Number(payload); err == nil && i < len(s.took) {
		s.took[i] = time.Since(s.start) - time.Duration(s.began[i].Load())
	}
}

// pushes pushes a task every steadyEvery, whether those before were handled or not, waits for
// the last one, and returns what they took.
func (s *stopwatch) pushes(ctx context.Context, r *Run, push func(i int) error) (report.Measures, error) {
	first := time.Now()
	for i := range s.began {
		time.Sleep(time.Until(first.Add(time.Duration(i) * steadyEvery)))
		s.began[i].Store(int64(time.Since(s.start)))
		if err := push(i); err != nil {
			return nil, err
		}
	}
	if err := r.Wait(ctx); err != nil {
		return nil, err
	}
	return percentiles(s.took), nil
}

// countoffSteady is what tasks take that come one by one to a peer with enough to do.
func countoffSteady() Contestant {
	c := countoffConfig{concurrency: 10}.withDefaults()
	return Contestant{
		Tag: "countoff-steady", What: "countoff, 1,000 tasks/s, one by one: push to handler", Kind: Latency, Tasks: 5000, Quick: 1000,
		Check: settled(c.partitions),
		Run: func(ctx context.Context, r *Run) (measures report.Measures, err error) {
			client := r.Client()
			defer client.Close()
			if err := initName(ctx, client, c.partitions); err != nil {
				return nil, err
			}
			p, err := redissource.NewProducer(ctx, client, countoffName, redissource.ProducerConfig{})
			if err != nil {
				return nil, err
			}
			defer p.Close(ctx)
			watch := newStopwatch(r.Meter.Tasks())
			handler := func(_ context.Context, t *framework.Task) error {
				watch.saw(t.Payload)
				r.Meter.Saw(t.Payload)
				return nil
			}
			err = c.serve(ctx, client, handler, func() (err error) {
				time.Sleep(time.Second) // until all partitions are served
				measures, err = watch.pushes(ctx, r, func(i int) error {
					_, err := p.Enqueue(ctx, messages(i, i+1, true)...)
					return err
				})
				return err
			})
			return measures, err
		},
	}
}

func asynqSteady() Contestant {
	return Contestant{
		Tag: "asynq-steady", What: "asynq v0.26, the same", Kind: Latency, Tasks: 5000, Quick: 1000,
		Check: settledQueues(asynqQueue),
		Run: func(ctx context.Context, r *Run) (measures report.Measures, err error) {
			opt := asynq.RedisClientOpt{Addr: r.Addr}
			client := asynq.NewClient(opt)
			defer client.Close()
			watch := newStopwatch(r.Meter.Tasks())
			handler := func(_ context.Context, t *asynq.Task) error {
				watch.saw(t.Payload())
				r.Meter.Saw(t.Payload())
				return nil
			}
			err = asynqServe(ctx, opt, 10, handler, func() (err error) {
				measures, err = watch.pushes(ctx, r, func(i int) error {
					_, err := client.EnqueueContext(ctx, asynq.NewTask(asynqType, meter.Payload(i)))
					return err
				})
				return err
			})
			return measures, err
		},
	}
}

package contest

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redissource"
)

const enqueuePartitions = 16

func countoffBatches() Contestant {
	return enqueue("countoff-enqueue-batch", "Producer, one goroutine, batches of 1,000", 500_000, 100_000,
		func(ctx context.Context, p *redissource.Producer, m *meter.Meter) error {
			return inBatches(m.Tasks(), 1000, func(from, to int) error {
				_, err := p.Enqueue(ctx, messages(from, to, true)...)
				m.Count(to - from)
				return err
			})
		})
}

func countoffSingles() Contestant {
	return enqueue("countoff-enqueue-c50", "Producer, 50 goroutines, one by one", 200_000, 50_000,
		func(ctx context.Context, p *redissource.Producer, m *meter.Meter) error {
			return together(50, m.Tasks(), func(i int) error {
				_, err := p.Enqueue(ctx, messages(i, i+1, true)...)
				m.Count(1)
				return err
			})
		})
}

func enqueue(tag, what string, tasks, quick int, push func(context.Context, *redissource.Producer, *meter.Meter) error) Contestant {
	lists := make([]string, enqueuePartitions)
	for i := range lists {
		lists[i] = redissource.KeysOf(countoffName, partition.ID(i)).Pending
	}
	return Contestant{
		Tag: tag, What: what, Kind: Enqueue, Tasks: tasks, Quick: quick, Check: stored(lists...),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			client := r.Client()
			defer client.Close()
			if err := initName(ctx, client, enqueuePartitions); err != nil {
				return nil, err
			}
			p, err := redissource.NewProducer(ctx, client, countoffName, redissource.ProducerConfig{})
			if err != nil {
				return nil, err
			}
			defer p.Close(ctx)
			r.Meter.Start()
			if err := push(ctx, p, r.Meter); err != nil {
				return nil, err
			}
			return nil, r.Wait(ctx)
		},
	}
}

func asynqEnqueue() Contestant {
	return Contestant{
		Tag: "asynq-enqueue-c50", What: "asynq v0.26 client, 50 goroutines", Kind: Enqueue, Tasks: 50_000, Quick: 15_000,
		Check: stored("asynq:{" + asynqQueue + "}:pending"),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			client := asynq.NewClient(asynq.RedisClientOpt{Addr: r.Addr})
			defer client.Close()
			r.Meter.Start()
			err := together(50, r.Meter.Tasks(), func(i int) error {
				_, err := client.EnqueueContext(ctx, asynq.NewTask(asynqType, meter.Payload(i)))
				r.Meter.Count(1)
				return err
			})
			if err != nil {
				return nil, err
			}
			return nil, r.Wait(ctx)
		},
	}
}

package contest

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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
	return Contestant{
		Tag: tag, What: what, Kind: Enqueue, Tasks: tasks, Quick: quick,
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
			if err := r.Wait(ctx); err != nil {
				return nil, err
			}
			keys := make([]string, enqueuePartitions)
			for i := range keys {
				keys[i] = redissource.KeysOf(countoffName, partition.ID(i)).Pending
			}
			return nil, stored(ctx, client, r.Meter.Tasks(), keys...)
		},
	}
}

func asynqEnqueue() Contestant {
	return Contestant{
		Tag: "asynq-enqueue-c50", What: "asynq v0.26 client, 50 goroutines", Kind: Enqueue, Tasks: 50_000, Quick: 15_000,
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
			if err := r.Wait(ctx); err != nil {
				return nil, err
			}
			raw := r.Client()
			defer raw.Close()
			return nil, stored(ctx, raw, r.Meter.Tasks(), "asynq:{default}:pending")
		},
	}
}

// stored returns an error unless the lists together have n elements.
func stored(ctx context.Context, client *redis.Client, n int, lists ...string) error {
	total := int64(0)
	for _, key := range lists {
		have, err := client.LLen(ctx, key).Result()
		if err != nil {
			return err
		}
		total += have
	}
	if total != int64(n) {
		return fmt.Errorf("%d tasks were enqueued, %d are there", n, total)
	}
	return nil
}

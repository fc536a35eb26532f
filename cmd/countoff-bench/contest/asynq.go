package contest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
)

const (
	asynqType  = "bench"
	asynqQueue = "default" // of whoever names none
)

func asynqDrain(tag string, concurrency int, d time.Duration) Contestant {
	what := fmt.Sprintf("asynq v0.26, c = %d", concurrency)
	if d > 0 {
		what += fmt.Sprintf(", handler of %v", d)
	}
	return Contestant{
		Tag: tag, What: what, Tasks: 20_000, Quick: 5_000, Check: settledQueues(asynqQueue),
		Preload: func(ctx context.Context, client *redis.Client, n int) error {
			a := asynq.NewClientFromRedisClient(client)
			return together(50, n, func(i int) error {
				_, err := a.EnqueueContext(ctx, asynq.NewTask(asynqType, meter.Payload(i)))
				return err
			})
		},
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			return nil, asynqServe(ctx, asynq.RedisClientOpt{Addr: r.Addr}, concurrency, func(_ context.Context, t *asynq.Task) error {
				work(d)
				r.Meter.Saw(t.Payload())
				return nil
			}, func() error { return r.Wait(ctx) })
		},
	}
}

// asynqServe runs a server with one queue until until returns.
func asynqServe(ctx context.Context, opt asynq.RedisConnOpt, concurrency int, h asynq.HandlerFunc, until func() error) error {
	server := asynq.NewServer(opt, asynq.Config{
		Concurrency: concurrency, LogLevel: asynq.FatalLevel,
		BaseContext: func() context.Context { return ctx },
	})
	if err := server.Start(h); err != nil {
		return err
	}
	defer server.Shutdown()
	return until()
}

// together calls do for 0..n from several goroutines.
func together(goroutines, n int, do func(i int) error) error {
	var next atomic.Int64
	failed := make(chan error, goroutines)
	for range goroutines {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					failed <- nil
					return
				}
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	var first error
	for range goroutines {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	return first
}

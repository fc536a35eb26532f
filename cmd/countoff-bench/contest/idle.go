package contest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/framework"
)

// idleFor is how long nothing happens. A peer's beat is two seconds, its slowest timer
// some seconds more.
func idleFor(quick bool) time.Duration {
	if quick {
		return 6 * time.Second
	}
	return 20 * time.Second
}

// A requests hook counts what a client sends: a pipeline of n as n.
type requests struct{ n atomic.Int64 }

func (h *requests) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *requests) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func (h *requests) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// idle lets whatever runs with client come to rest, then measures a span of nothing.
func idle(ctx context.Context, r *Run, h *requests) (report.Measures, error) {
	if err := pause(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	before := h.n.Load()
	span := idleFor(r.Quick)
	r.Meter.Start()
	if err := pause(ctx, span); err != nil {
		return nil, err
	}
	sent := h.n.Load() - before
	r.Meter.Count(1)
	return report.Measures{report.RequestsPerSec: float64(sent) / span.Seconds()}, r.Wait(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func countoffIdle(tag string, partitions int) Contestant {
	c := countoffConfig{concurrency: 10, partitions: partitions}
	return Contestant{
		Tag: tag, What: fmt.Sprintf("countoff, a whole peer with %d partitions and nothing to do", partitions), Kind: Idle, Tasks: 1, Quick: 1,
		Preload: func(ctx context.Context, client *redis.Client, _ int) error { return initName(ctx, client, partitions) },
		Run: func(ctx context.Context, r *Run) (measures report.Measures, err error) {
			client := r.Client()
			defer client.Close()
			var h requests
			client.AddHook(&h)
			nothing := func(context.Context, *framework.Task) error { return nil }
			err = c.serve(ctx, client, nothing, func() (err error) {
				measures, err = idle(ctx, r, &h)
				return err
			})
			return measures, err
		},
	}
}

// hooked gives asynq a client that counts.
type hooked struct{ client *redis.Client }

func (h hooked) MakeRedisClient() any { return h.client }

func asynqIdle() Contestant {
	return Contestant{
		Tag: "asynq-idle", What: "asynq v0.26, a server with one queue and nothing to do", Kind: Idle, Tasks: 1, Quick: 1,
		Run: func(ctx context.Context, r *Run) (measures report.Measures, err error) {
			client := r.Client()
			var h requests
			client.AddHook(&h)
			nothing := func(context.Context, *asynq.Task) error { return nil }
			err = asynqServe(ctx, hooked{client}, 10, nothing, func() (err error) {
				measures, err = idle(ctx, r, &h)
				return err
			})
			return measures, err
		},
	}
}

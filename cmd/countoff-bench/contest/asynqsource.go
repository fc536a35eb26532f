package contest

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/asynqsource"
)

// asynqQueues is how many queues both sides listen to.
const asynqQueues = 16

// asynqQueueNames are their names.
func asynqQueueNames() []string {
	names := make([]string, asynqQueues)
	for id := range names {
		names[id] = asynqsource.QueueOf(countoffName, partition.ID(id))
	}
	return names
}

// fillQueues enqueues with asynq's client to the first hot queues in turn.
func fillQueues(hot int) func(ctx context.Context, client *redis.Client, n int) error {
	return func(ctx context.Context, client *redis.Client, n int) error {
		a := asynq.NewClientFromRedisClient(client)
		queues := asynqQueueNames()
		return together(50, n, func(i int) error {
			_, err := a.EnqueueContext(ctx, asynq.NewTask(asynqType, meter.Payload(i)), asynq.Queue(queues[i%hot]))
			return err
		})
	}
}

func queuesWhat(hot int) string {
	if hot < asynqQueues {
		return fmt.Sprintf("c = 10, %d queues, all tasks in %d", asynqQueues, hot)
	}
	return fmt.Sprintf("c = 10, %d queues", asynqQueues)
}

// plainQueues is an asynq server as its documentation has it.
func plainQueues(tag string, hot int) Contestant {
	return Contestant{
		Tag: tag, What: "asynq v0.26, " + queuesWhat(hot), Tasks: 10_000, Quick: 3_000, Preload: fillQueues(hot),
		Check: settledQueues(asynqQueueNames()...),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			queues := make(map[string]int)
			for _, name := range asynqQueueNames() {
				queues[name] = 1
			}
			server := asynq.NewServer(asynq.RedisClientOpt{Addr: r.Addr}, asynq.Config{
				Concurrency: 10, Queues: queues, LogLevel: asynq.FatalLevel,
			})
			err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
				r.Meter.Saw(t.Payload())
				return nil
			}))
			if err != nil {
				return nil, err
			}
			defer server.Shutdown()
			return nil, r.Wait(ctx)
		},
	}
}

// countoffQueues is the same handler on the same queues with countoff.
func countoffQueues(tag string, hot int) Contestant {
	return Contestant{
		Tag: tag, What: "countoff's asynqsource, " + queuesWhat(hot), Tasks: 60_000, Quick: 15_000, Preload: fillQueues(hot),
		Check: settledQueues(asynqQueueNames()...),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			client := r.Client()
			defer client.Close()
			if err := initName(ctx, client, asynqQueues); err != nil {
				return nil, err
			}
			source, err := asynqsource.New(client, countoffName, asynqsource.Config{})
			if err != nil {
				return nil, err
			}
			handler := asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
				r.Meter.Saw(t.Payload())
				return nil
			})
			engine, err := source.Handler(handler, asynq.Config{Logger: asynqSilence{log.New(io.Discard, "", 0)}})
			if err != nil {
				return nil, err
			}
			c := countoffConfig{concurrency: 10}
			return nil, c.serveSource(ctx, client, source, engine, func() error { return r.Wait(ctx) })
		},
	}
}

// asynqSilence is a log of asynq that nobody reads.
type asynqSilence struct{ *log.Logger }

func (s asynqSilence) Debug(args ...any) { s.Print(args...) }
func (s asynqSilence) Info(args ...any)  { s.Print(args...) }
func (s asynqSilence) Warn(args ...any)  { s.Print(args...) }
func (s asynqSilence) Error(args ...any) { s.Print(args...) }

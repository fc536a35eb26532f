package contest

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
)

const (
	rawList    = "list"
	rawRunning = "running"
)

// fillList puts bare payloads in one list.
func fillList(ctx context.Context, client *redis.Client, n int) error {
	return inBatches(n, 1000, func(from, to int) error {
		batch := make([]any, to-from)
		for i := range batch {
			batch[i] = meter.Payload(from + i)
		}
		return client.RPush(ctx, rawList, batch...).Err()
	})
}

// rawDrain takes from the list with ten goroutines until it is empty.
func rawDrain(tag, what string, tasks, quick int, take func(ctx context.Context, client *redis.Client, m *meter.Meter) error) Contestant {
	const goroutines = 10
	return Contestant{
		Tag: tag, What: what, Tasks: tasks, Quick: quick, Preload: fillList, Check: emptied(rawList, rawRunning),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			client := r.Client()
			defer client.Close()
			failed := make(chan error, goroutines)
			for range goroutines {
				go func() {
					for {
						if err := take(ctx, client, r.Meter); err != nil {
							failed <- err
							return
						}
					}
				}()
			}
			for range goroutines {
				if err := <-failed; !errors.Is(err, redis.Nil) {
					return nil, err
				}
			}
			return nil, r.Wait(ctx)
		},
	}
}

func lpop() Contestant {
	return rawDrain("lpop-c10", "go-redis, LPOP one by one, c = 10: no safety", 100_000, 30_000,
		func(ctx context.Context, client *redis.Client, m *meter.Meter) error {
			s, err := client.LPop(ctx, rawList).Result()
			if err == nil {
				m.SawString(s)
			}
			return err
		})
}

func lpopCount() Contestant {
	return rawDrain("lpop100-c10", "go-redis, LPOP COUNT 100, c = 10: no safety", 1_000_000, 300_000,
		func(ctx context.Context, client *redis.Client, m *meter.Meter) error {
			all, err := client.LPopCount(ctx, rawList, 100).Result()
			for _, s := range all {
				m.SawString(s)
			}
			return err
		})
}

func lmoveLrem() Contestant {
	return rawDrain("lmove+lrem-c10", "go-redis, LMOVE, then LREM, c = 10: the usual reliable queue", 50_000, 15_000,
		func(ctx context.Context, client *redis.Client, m *meter.Meter) error {
			s, err := client.LMove(ctx, rawList, rawRunning, "LEFT", "RIGHT").Result()
			if err != nil {
				return err
			}
			m.SawString(s)
			return client.LRem(ctx, rawRunning, 1, s).Err()
		})
}

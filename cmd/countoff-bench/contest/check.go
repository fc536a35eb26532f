package contest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/sources/redissource"
)

// A Check says what is wrong with what the store holds when a contestant has ended, which
// had n tasks: the store's view of what the meter has counted.
type Check func(ctx context.Context, client *redis.Client, n int) error

// settled is the Check of the lists of a name with so many partitions.
func settled(partitions int) Check {
	return settledLogs(partitions, func(id partition.ID) redisprogress.Keys { return redissource.KeysOf(countoffName, id).Keys })
}

// settledLogs wants n positions below the bases of all logs, each once in one of them, and
// nothing of a task beside them: waiting, lifted, tried, delayed or dead.
func settledLogs(partitions int, keys func(partition.ID) redisprogress.Keys) Check {
	return func(ctx context.Context, client *redis.Client, n int) error {
		total := 0
		for id := range partition.ID(partitions) {
			k := keys(id)
			fence, err := client.HMGet(ctx, k.Fence, "t", "b").Result()
			if err != nil {
				return err
			}
			if token, _ := fence[0].(string); token != "" {
				return fmt.Errorf("partition %v was not given back by %s", id, token)
			}
			if base, _ := fence[1].(string); base != "" {
				done, err := strconv.Atoi(base)
				if err != nil {
					return err
				}
				total += done
			}
			rest := []string{k.Done, k.Lifted, k.Tries, k.Delayed, k.Dead}
			if k.Pending != "" {
				rest = append(rest, k.Pending)
			}
			if err := gone(ctx, client, rest...); err != nil {
				return err
			}
		}
		if total != n {
			return fmt.Errorf("of %d tasks %d are settled", n, total)
		}
		return nil
	}
}

// settledQueues is the Check of queues of asynq, whoever worked them: no task is in any
// state, each was counted as processed once, and none as failed.
func settledQueues(queues ...string) Check {
	return func(ctx context.Context, client *redis.Client, n int) error {
		total := 0
		for _, q := range queues {
			prefix := "asynq:{" + q + "}:"
			var rest []string
			for _, state := range []string{"pending", "active", "lease", "scheduled", "retry", "archived", "completed", "failed"} {
				rest = append(rest, prefix+state)
			}
			if err := gone(ctx, client, rest...); err != nil {
				return err
			}
			for tasks := client.Scan(ctx, 0, prefix+"t:*", 1000).Iterator(); tasks.Next(ctx); {
				return fmt.Errorf("%s is left", tasks.Val())
			}
			done, err := client.Get(ctx, prefix+"processed").Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			total += done
		}
		if total != n {
			return fmt.Errorf("of %d tasks %d are processed", n, total)
		}
		return nil
	}
}

// acknowledged is the Check of a stream with one group, which has got the last entry too.
func acknowledged(stream string) Check {
	return func(ctx context.Context, client *redis.Client, n int) error {
		length, err := client.XLen(ctx, stream).Result()
		if err != nil {
			return err
		}
		last, err := client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
		if err != nil {
			return err
		}
		groups, err := client.XInfoGroups(ctx, stream).Result()
		if err != nil {
			return err
		}
		if length != int64(n) || len(groups) != 1 || groups[0].LastDeliveredID != last[0].ID || groups[0].Pending != 0 {
			return fmt.Errorf("of %d tasks %d are in the stream up to %v, its groups are %+v", n, length, last, groups)
		}
		return nil
	}
}

// emptied is the Check of lists.
func emptied(lists ...string) Check {
	return func(ctx context.Context, client *redis.Client, _ int) error { return gone(ctx, client, lists...) }
}

// stored is the Check of lists that together have all tasks.
func stored(lists ...string) Check {
	return func(ctx context.Context, client *redis.Client, n int) error {
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
}

// gone returns an error unless none of the keys is there.
func gone(ctx context.Context, client *redis.Client, keys ...string) error {
	for _, key := range keys {
		kind, err := client.Type(ctx, key).Result()
		if err != nil {
			return err
		}
		if kind != "none" {
			return fmt.Errorf("the %s %s is left", kind, key)
		}
	}
	return nil
}

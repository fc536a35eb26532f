package rediscounter

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/redisconfig"
)

// A Counter increments keys of Redis. It may be used concurrently.
type Counter struct {
	client redis.UniversalClient
}

var _ intervalindexer.Counter = Counter{}

// New returns a Counter on client, which it does not close.
func New(client redis.UniversalClient) Counter { return Counter{client} }

// Incr implements intervalindexer.Counter. The expiry rides in the same transaction:
// a key without one would stay for ever.
func (c Counter) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	var n *redis.IntCmd
	cmds, err := c.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		n = p.Incr(ctx, key)
		p.PExpire(ctx, key, expiry)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("rediscounter: incr %s: %w", key, redisconfig.Explain(redisconfig.Why(cmds, err)))
	}
	return n.Val(), nil
}

// Get implements intervalindexer.Counter. It asks the master: a replica that lags has not heard
// of who was counted just now.
func (c Counter) Get(ctx context.Context, keys ...string) ([]int64, error) {
	var got *redis.SliceCmd
	err := redisconfig.FromMaster(ctx, c.client, func(r redis.Cmdable) { got = r.MGet(ctx, keys...) })
	if err == nil {
		err = got.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("rediscounter: get %s and %d more: %w", keys[0], len(keys)-1, redisconfig.Explain(err))
	}
	values := make([]int64, len(keys))
	for i, a := range got.Val() {
		s, ok := a.(string)
		if !ok {
			continue // not there
		}
		if values[i], err = strconv.ParseInt(s, 10, 64); err != nil {
			return nil, fmt.Errorf("rediscounter: %s is no counter: %w", keys[i], err)
		}
	}
	return values, nil
}

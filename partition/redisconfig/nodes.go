package redisconfig

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// EachNode calls ask for each node of a cluster, for all at the same time, with the places of those
// of keys that stand there; with another client once, with all. It is for who looks: a node that
// stands still answers nothing, not even that it does not, and a pipeline that goes to it and to
// others has no answer of those either once its context is over. So that of ask is over when half of
// the time of ctx is, and the other half is for what comes after.
func EachNode(ctx context.Context, client redis.UniversalClient, keys []string, ask func(ctx context.Context, which []int)) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		which := make([]int, len(keys))
		for i := range which {
			which[i] = i
		}
		ask(ctx, which)
		return
	}
	ctx, cancel := Half(ctx, client)
	defer cancel()
	on := make(map[string][]int)
	for i, key := range keys {
		addr := ""
		if node, err := cluster.MasterForKey(ctx, key); err == nil { // else who asks is told the same
			addr = node.Options().Addr
		}
		on[addr] = append(on[addr], i)
	}
	var all sync.WaitGroup
	for _, which := range on {
		all.Go(func() { ask(ctx, which) })
	}
	all.Wait()
}

// Half returns a context that is over when half of the time of ctx is, for a question to a node of a
// cluster without whose answer others can do. With another client it is ctx: there is nobody else to ask.
func Half(ctx context.Context, client redis.UniversalClient) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if _, cluster := client.(*redis.ClusterClient); !ok || !cluster {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

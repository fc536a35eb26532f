package redissource

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
)

// Destroy removes all tasks of name, waiting, delayed and dead, and all that is known of
// them, and returns how many keys that was. The lists of ingresses stay, since they are
// their producers'; their fences go. The caller makes sure that nobody works under the
// name, and removes its ledger and configuration afterwards (redisledger.Destroy). It
// looks at every key of the store, on a cluster twice: so it finds a key of a slot that moves to
// another master meanwhile, unless the slot moves more than once. A master that has no slot yet is not looked at: what
// has come there of its first one, which is on its way, stays, so let that end first.
func Destroy(ctx context.Context, client redis.UniversalClient, name string) (int, error) {
	n, err := destroy(ctx, client, name)
	if err != nil {
		return n, fmt.Errorf("redissource: destroy %s: %w", name, redisconfig.Explain(err))
	}
	return n, nil
}

func destroy(ctx context.Context, client redis.UniversalClient, name string) (int, error) {
	removed := 0
	// No more of the configuration than that: one that cannot be read, or whose resize was broken off, is no
	// reason to keep anything.
	lists, err := redisconfig.UnitNames(ctx, client, name)
	if err != nil {
		return 0, err
	}
	walks := 1
	if _, cluster := client.(*redis.ClusterClient); cluster {
		walks = 2 // what moved during the first, from a master not looked at yet to one that was, stays where it is now
	}
	for range walks {
		var mu sync.Mutex
		err = redisconfig.EachMaster(ctx, client, func(ctx context.Context, node redis.UniversalClient, _ string) error {
			n, err := destroyOn(ctx, client, node, name)
			mu.Lock()
			removed += n
			mu.Unlock()
			return err
		})
		if err != nil {
			return removed, err
		}
	}
	n, err := client.Del(ctx, CancelKey(name)).Result()
	if err != nil {
		return removed, err
	}
	removed += int(n)
	for _, tag := range ingressTags(lists) {
		other, err := client.HExists(ctx, tag+":fence", "n").Result() // a partition of another name, see ingress_open.lua
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return removed, err
		}
		if other {
			continue
		}
		n, err := client.Del(ctx, tag+":fence", tag+":plan").Result()
		if err != nil {
			return removed, err
		}
		removed += int(n)
	}
	return removed, nil
}

// destroyOn removes the keys of the partitions of name that it finds on one node.
func destroyOn(ctx context.Context, client redis.UniversalClient, node redis.Cmdable, name string) (int, error) {
	removed := 0
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, "{"+name+":*", 1000).Result()
		if err != nil {
			return removed, err
		}
		keys = slices.DeleteFunc(keys, func(k string) bool { return !ofPartition(k, name) })
		pipe := node.Pipeline()
		gone := make([]*redis.IntCmd, len(keys))
		for i, k := range keys {
			gone[i] = pipe.Unlink(ctx, k)
		}
		redisconfig.Exec(ctx, pipe)
		for i, one := range gone {
			if slotMoves(one.Err()) {
				one = client.Unlink(ctx, keys[i]) // which follows
			}
			n, err := one.Result()
			if err != nil {
				return removed, err
			}
			removed += int(n)
		}
		if cursor = next; cursor == 0 {
			return removed, nil
		}
	}
}

// ofPartition reports whether key is of a partition of name: {name:17}:anything.
func ofPartition(key, name string) bool {
	rest, ok := strings.CutPrefix(key, "{"+name+":")
	id, _, closed := strings.Cut(rest, "}:")
	_, err := strconv.ParseUint(id, 10, 31)
	return ok && closed && err == nil
}

package redisconfig

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// Names returns the names that have a configuration in the store, ascending; of a cluster, on
// all masters. It walks through all keys of the store, a thousand a call.
func Names(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		names, err := namesOn(ctx, client)
		slices.Sort(names)
		return slices.Compact(names), err
	}
	var mu sync.Mutex
	var all []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		names, err := namesOn(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, names...)
		return err
	})
	slices.Sort(all)
	return slices.Compact(all), err
}

// namesOn are those of one node. A key may be told twice.
func namesOn(ctx context.Context, node redis.Cmdable) ([]string, error) {
	var names []string
	for cursor := uint64(0); ; {
		keys, next, err := node.ScanType(ctx, cursor, Key("*"), 1000, "hash").Result()
		if err != nil {
			return nil, fmt.Errorf("redisconfig: look for names: %w", Explain(err))
		}
		for _, key := range keys {
			name := strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}:config")
			if partition.CheckName(name) != nil || Key(name) != key {
				continue
			}
			// Other programs may call a hash so, too.
			fields, err := node.HMGet(ctx, key, fieldProtocol, fieldTotal).Result()
			if err == nil && !slices.Contains(fields, nil) {
				names = append(names, name)
			}
		}
		if cursor = next; cursor == 0 {
			return names, nil
		}
	}
}

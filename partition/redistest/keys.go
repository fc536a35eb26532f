package redistest

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Keys returns the keys that match pattern, of all nodes, in no order.
func Keys(t testing.TB, client redis.UniversalClient, pattern string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var mu sync.Mutex
	var keys []string
	of := func(ctx context.Context, node redis.Cmdable) error {
		found, err := node.Keys(ctx, pattern).Result()
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, found...)
		return err
	}
	var err error
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return of(ctx, node) })
	} else {
		err = of(ctx, client)
	}
	if err != nil {
		t.Fatalf("redistest: keys like %q: %v", pattern, err)
	}
	return keys
}

// Forget deletes the keys that match pattern, as a store does that has lost its memory.
func Forget(t testing.TB, client redis.UniversalClient, pattern string) {
	t.Helper()
	for _, key := range Keys(t, client, pattern) {
		if err := client.Del(context.Background(), key).Err(); err != nil {
			t.Fatalf("redistest: forget %q: %v", key, err)
		}
	}
}

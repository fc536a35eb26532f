package redissource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
)

// evicting says which servers throw keys away once their memory is full. It is nil if none does, and
// if they do not tell: a user may not be allowed to ask, and a node that is away keeps nobody
// from starting.
func evicting(ctx context.Context, client redis.UniversalClient) error {
	ctx, done := context.WithTimeout(ctx, time.Second)
	defer done()
	var mu sync.Mutex
	var found []string
	look := func(ctx context.Context, node redis.UniversalClient, where string) error {
		info, err := node.InfoMap(ctx, "memory").Result()
		policy := info["Memory"]["maxmemory_policy"]
		if err != nil || policy == "" || policy == "noeviction" || info["Memory"]["maxmemory"] == "0" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		found = append(found, policy+where)
		return nil
	}
	if redisconfig.EachMaster(ctx, client, look) != nil {
		_ = look(ctx, client, "") // of a cluster that is hidden any server is better than none
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	thrown := "what expires, as the locks of unique tasks and the marks by which a push that is repeated is known"
	if slices.ContainsFunc(found, func(f string) bool { return !strings.HasPrefix(f, "volatile-") }) {
		thrown = "tasks, fences and the ledger"
	}
	return fmt.Errorf("redissource: once its memory is full the server throws keys away, %s (maxmemory-policy %s): "+
		"CONFIG SET maxmemory-policy noeviction, and CONFIG REWRITE", thrown, strings.Join(found, ", "))
}

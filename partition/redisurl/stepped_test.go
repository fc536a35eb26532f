package redisurl

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// Which node would be asked is chance, and one that stands still costs the call seconds beyond its context.
func TestClusterIsNotAskedForItsCommands(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	var asked atomic.Int64
	m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if strings.EqualFold(cmd, "command") {
			asked.Add(1)
		}
		return false
	})
	client, err := Open("redis://" + m.Addr() + "?cluster=true")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	if err := client.Set(ctx, "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := redis.NewScript("return redis.call('GET', KEYS[1])").Run(ctx, client, []string{"key"}).Text()
	if err != nil || got != "value" {
		t.Errorf("a script reads %q, %v", got, err)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("it was asked %d times which commands there are", n)
	}
}

package redisurl

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// A node of a cluster dies and another takes its place. Nobody says so, as the dead one does not answer: the client has to
// ask. Each miniredis says that it has all slots.
func TestNodeDiesAndAnotherHasItsSlots(t *testing.T) {
	t.Parallel()
	nodes := []*miniredis.Miniredis{miniredis.RunT(t), miniredis.RunT(t)}
	client, err := Open("redis://" + nodes[0].Addr() + "," + nodes[1].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	if err := client.Set(ctx, "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	dead, other := nodes[0], nodes[1]
	if other.Exists("key") {
		dead, other = other, dead
	}
	dead.Close()
	for end := time.Now().Add(40 * time.Second); !other.Exists("key"); { // go-redis asks once a minute
		if err = client.Set(ctx, "key", "value", 0).Err(); time.Now().After(end) {
			t.Fatalf("40 s later the client asks the dead one still: %v", err)
		}
	}
}

// A node is alone: the others cannot reach it, its replica has taken its place, and the client reaches them all. It refuses what is
// asked of it, and knows of no other that has its slots: the client has to ask. One that answers reads all the same
// refuses what stands behind them in a pipeline.
func TestNodeIsAloneAndAnotherHasItsSlots(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(ctx context.Context, client redis.UniversalClient) error{
		"a call": func(ctx context.Context, client redis.UniversalClient) error {
			return client.Set(ctx, "key", "value", 0).Err()
		},
		"a pipeline": func(ctx context.Context, client redis.UniversalClient) error {
			pipe := client.Pipeline()
			pipe.Get(ctx, "key")
			written := pipe.Set(ctx, "key", "value", 0)
			_, _ = pipe.Exec(ctx)
			return written.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := []*miniredis.Miniredis{miniredis.RunT(t), miniredis.RunT(t)}
			client, err := Open("redis://" + nodes[0].Addr() + "," + nodes[1].Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx := t.Context()
			if err := set(ctx, client); err != nil {
				t.Fatal(err)
			}
			alone, other := nodes[0], nodes[1]
			if other.Exists("key") {
				alone, other = other, alone
			}
			alone.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
				if !strings.EqualFold(cmd, "SET") {
					return false
				}
				peer.WriteError("CLUSTERDOWN The cluster is down")
				return true
			})
			for end := time.Now().Add(40 * time.Second); !other.Exists("key"); { // go-redis asks once a minute
				if err = set(ctx, client); time.Now().After(end) {
					t.Fatalf("40 s later the client asks the one that is alone still: %v", err)
				}
			}
		})
	}
}

package asynqsource

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
)

// half has the slot of a key move to another master of the cluster, with some keys ahead of the others.
func half(t *testing.T, cluster *redis.ClusterClient, key string, ahead ...string) {
	t.Helper()
	ctx := t.Context()
	from, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	to, err := cluster.MasterForKey(ctx, "{other}")
	for i := 0; err == nil && to.Options().Addr == from.Options().Addr; i++ {
		to, err = cluster.MasterForKey(ctx, "{other"+strings.Repeat("r", i)+"}")
	}
	if err != nil {
		t.Fatal(err)
	}
	do := func(c *redis.Client, args ...any) string {
		t.Helper()
		answer, err := c.Do(ctx, args...).Text()
		if err != nil {
			t.Fatal(args, err)
		}
		return answer
	}
	slot, err := from.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(to.Options().Addr)
	t.Cleanup(func() { // another name that falls into the slot would be refused
		for _, c := range []*redis.Client{from, to} {
			if err := c.Do(context.Background(), "cluster", "setslot", slot, "stable").Err(); err != nil {
				t.Error(err)
			}
		}
	})
	do(to, "cluster", "setslot", slot, "importing", do(from, "cluster", "myid"))
	do(from, "cluster", "setslot", slot, "migrating", do(to, "cluster", "myid"))
	for _, key := range ahead {
		do(from, "migrate", host, port, key, 0, 5000)
	}
}

// While a slot of a cluster is moved, tasks that have gone ahead are not taken for deleted ones: no script runs until
// it has moved, also where all other keys are there.
func TestNothingIsLostInASlotThatMoves(t *testing.T) {
	t.Parallel()
	cluster, ok := redistest.Cluster(t).(*redis.ClusterClient)
	if !ok {
		t.Fatal("no cluster")
	}
	refused := func(t *testing.T, err error) {
		t.Helper()
		if !redis.HasErrorPrefix(err, "TRYAGAIN") {
			t.Errorf("the script ran: %v", err)
		}
	}
	t.Run("due", func(t *testing.T) {
		s := &shelf{t, cluster, keysOf(redistest.Name(t))}
		s.put("hset fence t 5:x e 5 n 7", "set paused 1", "sadd groups g")
		for _, list := range []string{"pending", "active"} {
			s.put("lpush " + list + " a")
		}
		for _, set := range []string{"lease", "scheduled", "retry", "completed"} {
			s.put("zadd " + set + " 9999999999 b")
		}
		s.put("hset tries a 1", "hset t:a msg m state active", "zadd scheduled 1 due", "hset t:due msg m state scheduled")
		half(t, cluster, s.k.fence, s.k.task+"due")
		refused(t, fetchScript.Run(t.Context(), cluster, s.keys(fetchNames), "5:x", 7, 1, 1, s.k.task, "1", s.k.group, fetchBytes).Err())
		if err := cluster.ZScore(t.Context(), s.k.scheduled, "due").Err(); err != nil {
			t.Errorf("a task is lost: %v", err)
		}
	})
	t.Run("all", func(t *testing.T) {
		k := keysOf(redistest.Name(t))
		names := []string{k.fence, k.tries, k.suspects}
		for _, key := range names {
			if err := cluster.Set(t.Context(), key, "", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		half(t, cluster, k.fence)
		for name, sc := range map[string]*script{
			"open": openScript, "close": closeScript, "settle": settleScript, "fetch": fetchScript, "plan": planScript, "route": routeScript,
			"regroup": regroupScript, "extend": extendScript, "result": resultScript, "fits": fitsScript, "tried": triedScript,
		} {
			t.Run(name, func(t *testing.T) {
				refused(t, sc.Run(t.Context(), cluster, names).Err())
				refused(t, sc.send(t.Context(), cluster, names, nil, false).Err())
				refused(t, (&native{script: sc, keys: []string{k.fence}}).send(t.Context(), cluster, k, "5:x", "", "", true).Err())
			})
		}
	})
}

// A node of a cluster dies, and another has its slots: cancelled tasks are heard of from that one, although the dead one
// does not say so. Each miniredis says that it has all slots.
func TestCancelledTasksAreHeardOfFromAnotherNode(t *testing.T) {
	t.Parallel()
	nodes := []*miniredis.Miniredis{miniredis.RunT(t), miniredis.RunT(t)}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr(), nodes[1].Addr()}})
	defer client.Close()
	src, err := New(client, "n", Config{})
	if err != nil {
		t.Fatal(err)
	}
	v, free := src.newView(nil)
	defer free()
	const channel = "asynq:cancel"
	heard := v.Subscribe(t.Context(), channel)
	defer heard.Close()
	heard.Channel()
	hears := func(node *miniredis.Miniredis) bool { return node.PubSubNumSub(channel)[channel] > 0 }
	until(t, "somebody is listened to", func() bool { return hears(nodes[0]) || hears(nodes[1]) })
	dead, other := nodes[0], nodes[1]
	if hears(other) {
		dead, other = other, dead
	}
	dead.Close()
	until(t, "the other is listened to", func() bool { return hears(other) })
}

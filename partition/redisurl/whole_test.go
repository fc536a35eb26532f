package redisurl

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// A node was taken out of a cluster and still answers: it knows of no slots, or, when it is put in anew, of some at first.
// What is asked of the client goes to the node that has the keys, and not to one of its choice.
func TestNodeOutOfTheCluster(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]int{"it knows of no slots": 0, "it knows of some": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, other := miniredis.RunT(t), miniredis.RunT(t)
			var slots, astray atomic.Int64
			slots.Store(allSlots)
			other.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
				switch {
				case strings.EqualFold(cmd, "cluster") && strings.EqualFold(args[0], "slots"):
					tellSlots(peer, int(slots.Load()), owner)
				case strings.EqualFold(cmd, "set"):
					astray.Add(1)
					peer.WriteError("MOVED 12539 " + owner.Addr())
				default:
					return false
				}
				return true
			})
			owner.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
				if !strings.EqualFold(cmd, "cluster") || !strings.EqualFold(args[0], "slots") {
					return false
				}
				tellSlots(peer, allSlots, owner, other)
				return true
			})
			client, err := Open("redis://" + owner.Addr() + "," + other.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx := t.Context()
			if err := client.Set(ctx, "key", "value", 0).Err(); err != nil {
				t.Fatal(err)
			}
			slots.Store(int64(told))
			for range 50 { // which node is asked is chance
				err := client.(*redis.ClusterClient).ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				if err := client.Set(ctx, "key", "value", 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if n := astray.Load(); n > 0 {
				t.Errorf("%d of 50 calls went to a node that has no slots", n)
			}
		})
	}
}

// Who is the cause is said: of several nodes that were asked the others may be down.
func TestNodeInNoClusterIsNamed(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
		if !strings.EqualFold(cmd, "cluster") || !strings.EqualFold(args[0], "slots") {
			return false
		}
		tellSlots(peer, 0)
		return true
	})
	client, err := Open("redis://" + m.Addr() + "?cluster=true")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err == nil || !strings.Contains(err.Error(), m.Addr()+" knows of no slots") {
		t.Errorf("it says %v", err)
	}
}

// While no node is believed go-redis asks anew with every call. Each node hears of it as often as if it were believed.
func TestNodesThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	owner, other := miniredis.RunT(t), miniredis.RunT(t)
	var slots, asked atomic.Int64
	slots.Store(allSlots)
	for _, m := range []*miniredis.Miniredis{owner, other} {
		m.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
			if !strings.EqualFold(cmd, "cluster") || !strings.EqualFold(args[0], "slots") {
				return false
			}
			asked.Add(1)
			tellSlots(peer, int(slots.Load()), owner, other)
			return true
		})
	}
	client, err := Open("redis://" + owner.Addr() + "," + other.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	reload := func() {
		err := client.(*redis.ClusterClient).ForEachMaster(t.Context(), func(context.Context, *redis.Client) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	reload()
	slots.Store(allSlots - 1)
	asked.Store(0)
	began := time.Now()
	for range 100 {
		reload()
	}
	if n, most := asked.Load(), 2*(1+int64(time.Since(began)/wholePause)); n > most {
		t.Errorf("two nodes were asked %d times, want %d at most", n, most)
	}
}

// tellSlots answers CLUSTER SLOTS: the first slots are those of the first of nodes, which the others follow.
func tellSlots(peer *server.Peer, slots int, nodes ...*miniredis.Miniredis) {
	if slots == 0 {
		peer.WriteLen(0)
		return
	}
	peer.WriteLen(1)
	peer.WriteLen(2 + len(nodes))
	peer.WriteInt(0)
	peer.WriteInt(slots - 1)
	for _, m := range nodes {
		port, _ := strconv.Atoi(m.Port())
		peer.WriteLen(3)
		peer.WriteBulk(m.Host())
		peer.WriteInt(port)
		peer.WriteBulk("id-" + m.Port())
	}
}

// Slots that nobody serves any more must not keep the client from hearing where the others went.
func TestSlotsThatNobodyServes(t *testing.T) {
	t.Parallel()
	const some = allSlots - 1
	var w whole
	now := time.Now()
	if err := w.believes("h:1", some, now); err != nil {
		t.Errorf("at the start, where nobody is known to know more: %v", err)
	}
	if err := w.believes("h:1", allSlots, now); err != nil {
		t.Errorf("all slots: %v", err)
	}
	if w.believes("h:1", some, now) == nil {
		t.Error("a node that knows less than one before is believed at once")
	}
	if err := w.believes("h:1", some, now.Add(wholePatience)); err != nil {
		t.Errorf("no node has told of all slots for %v: %v", wholePatience, err)
	}
	if w.believes("h:1", 0, now.Add(wholePatience)) == nil {
		t.Error("a node that is in no cluster is believed")
	}
	if err := w.believes("h:1", allSlots, now.Add(wholePatience)); err != nil {
		t.Errorf("all slots again: %v", err)
	}
	if w.believes("h:1", some, now.Add(2*wholePatience)) == nil {
		t.Error("a node that knows less than one before is believed at once, the second time")
	}
}

package redisledger_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// A lease may be so long that half a call takes longer than a connection waits for an answer.
// Who works must hear all the same that its lease is renewed.
func TestWaitEndsBeforeTheConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client, name := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 500 * time.Millisecond}), redistest.Name(t)
	defer client.Close()
	cfg := redisledger.Config{Timing: transition.Timing{Lease: time.Minute}, WaitReplicas: 1}
	makeName(t, client, name, cfg.Config)
	r := transition.Request{Session: "aa", Peer: "a", State: machine.Live, Claim: []partition.ID{0}}
	for _, client := range []redis.UniversalClient{client, redistest.Careful(client)} { // and what embeds one
		if _, err := newLedger(t, client, name, cfg).Sync(t.Context(), r); !errors.Is(err, transition.ErrRenewed) {
			t.Errorf("%T, without a replica: %v", client, err)
		}
	}
}

// A client of a cluster in a struct would say WAIT to any of its servers, and peers go on by what no replica
// has. A Ring would keep the ledger elsewhere while a server is away.
func TestClientsThatDoNotFit(t *testing.T) {
	t.Parallel()
	_, mini := redistest.Mini(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for _, c := range []struct {
		client   redis.UniversalClient
		replicas int
		want     string
	}{
		{redistest.Hidden(mini, 0), 0, ""},
		{redistest.Hidden(mini, 0), 1, "redisledger: wait for 1 replicas: a redistest.hidden does not say which server it asks"},
		{mini, 1, ""},
		{ring, 0, "redisledger: a *redis.Ring sends the keys"},
		{nil, 1, "redisledger: no Redis client"},
	} {
		_, err := redisledger.New(c.client, "mail", redisledger.Config{WaitReplicas: c.replicas})
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%T and %d replicas: %v, want %q", c.client, c.replicas, err, c.want)
		}
	}
}

// A server that refuses the connection on which a script and WAIT would go is told of as one that refuses any other.
func TestWhoWaitsForReplicasIsRefusedItsConnection(t *testing.T) {
	t.Parallel()
	server, name := redistest.Server(t), redistest.Name(t)
	cfg := redisledger.Config{WaitReplicas: 1}
	makeName(t, server.Client(), name, cfg.Config)
	client := redistest.Refusing(t, server, func([]redis.Cmder) bool { return true })
	r := transition.Request{Session: "aa", Peer: "a", State: machine.Live}
	if _, err := newLedger(t, client, name, cfg).Sync(t.Context(), r); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Error(err)
	}
}

// What a Sync grants counts only once the replicas have it. A lease that is only
// renewed does not wait, and is renewed also where they do not have the rest.
func TestWaitReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client, name := server.Client(), redistest.Name(t)
	cfg := redisledger.Config{Config: partition.Config{Total: 4}, Timing: transition.Timing{Lease: 4 * time.Second}, WaitReplicas: 1}
	makeName(t, client, name, cfg.Config)
	l := newLedger(t, client, name, cfg)
	r := transition.Request{Session: "aa", Peer: "a", State: machine.Live, Claim: []partition.ID{0}}
	if _, err := l.Sync(t.Context(), r); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas have it") {
		t.Fatalf("without a replica: %v", err)
	}
	if c, err := l.Census(t.Context()); err != nil || len(c.Sessions) != 1 || c.Sessions[0].Replicas != 1 {
		t.Errorf("who looks is told %+v, %v: want a peer that waits for a replica", c.Sessions, err)
	}
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica := redistest.Server(t, "--replicaof", host+" "+port)
	// A replica on a busy machine may be late: what it was late for is asked again.
	deadline := time.After(30 * time.Second)
	synced := func() transition.Answer {
		for {
			a, err := l.Sync(t.Context(), r)
			if err == nil {
				return a
			}
			select {
			case <-deadline:
				t.Fatalf("with a replica: %v", err)
			default:
			}
		}
	}
	r.Hold, r.Claim = []partition.Grant{synced().Mine[0].Grant}, nil
	synced() // in full, since the one before claimed something
	replica.Pause()
	defer replica.Resume()
	said(t, l, r) // quiet
	census, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := transition.Roll{Membership: census.Membership}
	if err := l.Seal(t.Context(), next); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas have it") {
		t.Errorf("a roll that no replica has: %v", err)
	}
	// The master goes on to another membership, and no quiet Sync will do.
	renewed := func(r transition.Request, want ...partition.Grant) {
		t.Helper()
		a, err := l.Sync(t.Context(), r)
		if !errors.Is(err, transition.ErrRenewed) || !strings.Contains(err.Error(), "0 of 1 replicas have it") {
			t.Fatalf("without a replica: %v", err)
		}
		var mine []machine.Held // by nobody wanted
		for _, g := range want {
			mine = append(mine, machine.Held{Grant: g})
		}
		if !reflect.DeepEqual(a.Mine, mine) || a.Line != nil || a.Sealing || a.Due != 0 || a.Behind == 0 {
			t.Errorf("%s is told %+v, want the grants %v and nothing that no replica has", r.Peer, a, want)
		}
	}
	other := transition.Request{Session: "bb", Peer: "b", State: machine.Live, Claim: []partition.ID{0, 1}}
	renewed(other)
	renewed(r, r.Hold...)
	drained := r
	drained.Hold, drained.Release = nil, r.Hold
	renewed(drained, r.Hold...)
	renewed(r) // the master has given it to the other, who is not told
	renewed(other)
	left := transition.Request{Session: "cc", Peer: "c", State: machine.Gone}
	if _, err := l.Sync(t.Context(), left); err == nil || errors.Is(err, transition.ErrRenewed) {
		t.Errorf("a last word that no replica has: %v", err)
	}
	replica.Resume()
	r = other
	if a := synced(); len(a.Mine) != 2 || a.Line == nil || !a.Sealing {
		t.Errorf("with the replica back the other is told %+v", a)
	}
	if _, err := redisledger.New(client, name, redisledger.Config{WaitReplicas: -1}); err == nil {
		t.Error("-1 replicas are taken")
	}
}

// While the slot of the name moves to another master its keys are there, and the slot is not:
// who works goes on.
func TestWaitReplicasWhileTheSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t).(*redis.ClusterClient)
	name, ctx := redistest.Name(t), t.Context()
	layout := partition.Config{Total: 4}
	makeName(t, cluster, name, layout)
	timing := transition.Timing{Lease: 4 * time.Second}
	r := transition.Request{Session: "aa", Peer: "a", State: machine.Live, Claim: []partition.ID{0}}
	plain := newLedger(t, cluster, name, redisledger.Config{Config: layout, Timing: timing})
	r.Hold, r.Claim = held(mustSync(t, plain, r)), nil
	census, err := plain.Census(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// All keys are there: a slot that moves answers about no other.
	if err := plain.Seal(ctx, transition.Roll{Membership: census.Membership}); err != nil {
		t.Fatal(err)
	}
	l := newLedger(t, cluster, name, redisledger.Config{Config: layout, Timing: timing, WaitReplicas: 1})

	tag := "{" + name + "}"
	slot := redistest.Slot(tag)
	from, err := cluster.MasterForKey(ctx, tag)
	if err != nil {
		t.Fatal(err)
	}
	var to *redis.Client
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Options().Addr != from.Options().Addr {
			to = m
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	do := func(c *redis.Client, args ...any) string {
		t.Helper()
		reply, err := c.Do(ctx, args...).Text()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return reply
	}
	t.Cleanup(func() { // another name that falls into the slot would be refused
		for _, c := range []*redis.Client{from, to} {
			if err := c.Do(context.Background(), "cluster", "setslot", slot, "stable").Err(); err != nil {
				t.Error(err)
			}
		}
	})
	do(to, "cluster", "setslot", slot, "importing", do(from, "cluster", "myid"))
	do(from, "cluster", "setslot", slot, "migrating", do(to, "cluster", "myid"))
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	for _, key := range redistest.Keys(t, cluster, tag+"*") {
		do(from, "migrate", host, port, key, 0, 5000)
	}
	a, err := l.Sync(ctx, r)
	if !errors.Is(err, transition.ErrRenewed) || !slices.Equal(held(a), r.Hold) {
		t.Errorf("while the slot moves %v counts, %v; want %v and ErrRenewed", held(a), err, r.Hold)
	}
}

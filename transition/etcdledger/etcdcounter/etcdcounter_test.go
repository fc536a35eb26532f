package etcdcounter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/indexertest"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/intervalindexer/countertest"
	"github.com/countoff/countoff/transition/etcdledger/etcdcounter"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCounts(t *testing.T) {
	ctx, client := t.Context(), etcdtest.Start(t).Client()
	c := etcdcounter.New(client, "/countoff/")
	a, b, none := "{mail}:7", "{mail}:7:0", "{mail}:8"
	for i := range int64(3) {
		if v, err := c.Incr(ctx, a, 1500*time.Millisecond*time.Duration(i+21)); v != i+1 || err != nil {
			t.Fatalf("incr: %d, %v, want %d", v, err, i+1)
		}
	}
	if _, err := c.Incr(ctx, b, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(ctx, a, none, b); !slices.Equal(got, []int64{3, 0, 1}) || err != nil {
		t.Errorf("get: %v, %v", got, err)
	}
	if n, err := c.Get(ctx); len(n) != 0 || err != nil {
		t.Errorf("get nothing: %v, %v", n, err)
	}
	for key, want := range map[string]int64{a: 35, b: 60} { // whole seconds and no less, the last Incr's
		found, err := client.Get(ctx, "/countoff/"+key)
		if err != nil || len(found.Kvs) != 1 {
			t.Fatalf("%s: %v, %v", key, found, err)
		}
		ttl, err := client.TimeToLive(ctx, clientv3.LeaseID(found.Kvs[0].Lease))
		if err != nil || ttl.GrantedTTL != want {
			t.Errorf("%s lives for %v s, want %d: %v", key, ttl.GrantedTTL, want, err)
		}
	}
	// What has expired is counted from the beginning again.
	found, _ := client.Get(ctx, "/countoff/"+b)
	if _, err := client.Revoke(ctx, clientv3.LeaseID(found.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Incr(ctx, b, time.Minute); v != 1 || err != nil {
		t.Errorf("after its expiry: %d, %v", v, err)
	}
	if _, err := client.Put(ctx, "/countoff/"+a, "seven"); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(ctx, a); err == nil {
		t.Errorf("seven is %v", v)
	}
	if v, err := c.Incr(ctx, a, time.Minute); err == nil {
		t.Errorf("seven and one is %v", v)
	}
}

// Of many that increment at once each gets a number of its own, and none is left out.
func TestManyAtOnce(t *testing.T) {
	c := etcdcounter.New(etcdtest.Start(t).Client(), "")
	const many = 40
	got := make([]int64, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			var err error
			if got[i], err = c.Incr(t.Context(), "k", time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(got)
	for i, n := range got {
		if n != int64(i)+1 {
			t.Fatalf("the numbers are %v", got)
		}
	}
}

// More keys are read than etcd allows in one transaction.
func TestGetMany(t *testing.T) {
	c := etcdcounter.New(etcdtest.Start(t).Client(), "")
	var keys []string
	for i := range 300 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	if _, err := c.Incr(t.Context(), "k299", time.Minute); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(t.Context(), keys...)
	if err != nil || len(got) != 300 || got[299] != 1 || slices.Max(got[:299]) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// A dead client gives errors, not zeros: they would mean that nobody came.
func TestUnreachable(t *testing.T) {
	client, err := etcdtest.Dial("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c := etcdcounter.New(client, "")
	if v, err := c.Incr(ctx, "a", time.Minute); err == nil {
		t.Errorf("incr: %d", v)
	}
	if v, err := c.Get(ctx, "a", "b"); err == nil {
		t.Errorf("get: %v", v)
	}
}

// In real time.
func TestConformance(t *testing.T) {
	server := etcdtest.Start(t)
	var names atomic.Int64
	indexertest.Run(t, indexertest.Harness{New: func(t *testing.T) indexertest.Group {
		config := intervalindexer.Config{Interval: 600 * time.Millisecond, Partitions: partition.Config{Total: 16}}
		g := countertest.Group(t, etcdcounter.New(server.Client(), "/countoff"), fmt.Sprint("name", names.Add(1)), config)
		g.Settle = 8 * config.Interval // five would do on a machine that does nothing else
		return g
	}})
}

package etcdcounter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/partition/intervalindexer"
)

// txnOps is how many operations etcd allows in one transaction.
const txnOps = 128

// A Counter increments keys of etcd. It may be used concurrently.
type Counter struct {
	client *clientv3.Client
	prefix string
}

var _ intervalindexer.Counter = Counter{}

// New returns a Counter on client, which it does not close. Its keys are prefix/key.
func New(client *clientv3.Client, prefix string) Counter {
	return Counter{client, strings.TrimSuffix(prefix, "/") + "/"}
}

// Incr implements intervalindexer.Counter. Leases of etcd last whole seconds, and longer
// after a change of its leader: a key vanishes at expiry or later.
func (c Counter) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	n, err := c.incr(ctx, c.prefix+key, expiry)
	if err != nil {
		return 0, fmt.Errorf("etcdcounter: incr %s: %w", key, err)
	}
	return n, nil
}

func (c Counter) incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	lease, err := c.client.Grant(ctx, int64((expiry+time.Second-1)/time.Second))
	if err != nil {
		return 0, err
	}
	// A lease that no key is attached to runs out like others.
	was, err := c.client.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	stands := was.Kvs
	for try := 0; ; try++ {
		var n, mod int64
		if len(stands) > 0 {
			mod = stands[0].ModRevision
			if n, err = strconv.ParseInt(string(stands[0].Value), 10, 64); err != nil {
				return 0, fmt.Errorf("it is no counter: %w", err)
			}
		}
		n++
		resp, err := c.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
			Then(clientv3.OpPut(key, strconv.FormatInt(n, 10), clientv3.WithLease(lease.ID))).
			Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return n, nil
		}
		stands = resp.Responses[0].GetResponseRange().Kvs
		t := time.NewTimer(rand.N(time.Millisecond << min(try, 6)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return 0, ctx.Err()
		}
	}
}

// Get implements intervalindexer.Counter.
func (c Counter) Get(ctx context.Context, keys ...string) ([]int64, error) {
	values := make([]int64, len(keys))
	for from := 0; from < len(keys); from += txnOps {
		part := keys[from:min(from+txnOps, len(keys))]
		ops := make([]clientv3.Op, len(part))
		for i, key := range part {
			ops[i] = clientv3.OpGet(c.prefix + key)
		}
		resp, err := c.client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, fmt.Errorf("etcdcounter: get %s and %d more: %w", part[0], len(part)-1, err)
		}
		for i, r := range resp.Responses {
			for _, kv := range r.GetResponseRange().Kvs {
				if values[from+i], err = strconv.ParseInt(string(kv.Value), 10, 64); err != nil {
					return nil, fmt.Errorf("etcdcounter: %s is no counter: %w", part[i], err)
				}
			}
		}
	}
	return values, nil
}

package redisledger

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// doubts notices what may mean that the store is another run than the one which
// answered last: a connection that was lost, a call that failed (with READONLY, LOADING
// or MOVED among others), a script that the server no longer knows. Scripts that can
// read the server's run id need none of it; where they cannot, because of an ACL
// without INFO, a doubt opens a grace.
type doubts struct {
	client pooled
	key    string // whose node of a cluster has the ledger

	mu     sync.Mutex
	known  bool // whether last is known
	last   node // which answered last
	failed bool // the last call was not answered
}

// pooled is what of a client tells that it has lost connections.
type pooled interface{ PoolStats() *redis.PoolStats }

// sharded is what of the client of a cluster tells who has a key.
type sharded interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// A node is who has the ledger, as far as its client knows. The connections that all nodes of a cluster
// have lost would not tell: those of a node that is dead are counted no longer once another has its place.
type node struct {
	master *redis.Client // of a cluster
	lost   uint32        // connections to it
}

func newDoubts(client pooled, key string) *doubts {
	d := &doubts{client: client, key: key}
	if _, asks := client.(sharded); !asks { // a cluster who its nodes are
		d.known, d.last = true, d.now(context.Background())
	}
	return d
}

func (d *doubts) now(ctx context.Context) node {
	if c, ok := d.client.(sharded); ok {
		if master, err := c.MasterForKey(ctx, d.key); err == nil {
			return node{master, master.PoolStats().StaleConns}
		}
		return node{} // a call finds none either, and fails
	}
	return node{lost: d.client.PoolStats().StaleConns}
}

func (d *doubts) call(ctx context.Context) *doubt {
	c := &doubt{doubts: d, began: d.now(ctx)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known { // there is none that could have been another
		d.known, d.last = true, c.began
	}
	return c
}

// A doubt is the argument of one call that says what its caller is in doubt about. It is
// evaluated when the call is written to its connection, not before: go-redis may find
// that the connections it had are dead, dial a restarted server, and only then
// send what was put together before.
type doubt struct {
	*doubts
	forgot  bool // the server did not know the script
	began   node // when the call was put together
	seen    node // when it was written
	written int  // how often: go-redis sends a call again itself, also where another node of a cluster has the key now
}

// MarshalBinary implements encoding.BinaryMarshaler, by which go-redis writes it.
func (c *doubt) MarshalBinary() ([]byte, error) {
	c.seen = c.now(context.Background())
	c.written++
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.forgot:
		return []byte("2"), nil
	case c.doubts.failed || c.written > 1 || c.seen != c.last:
		return []byte("1"), nil
	}
	return []byte("0"), nil
}

// answered keeps who has answered. Who that was is not known if another took the place meanwhile.
func (c *doubt) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.doubts.failed = c.seen, c.seen.master != c.began.master
}

func (c *doubt) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubts.failed = true
}

package redisledger

import (
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

	mu     sync.Mutex
	lost   uint32 // connections lost up to the last call that was answered
	failed bool   // the last call was not answered
}

// pooled is what of a client tells that it has lost connections.
type pooled interface{ PoolStats() *redis.PoolStats }

func newDoubts(client pooled) *doubts {
	return &doubts{client: client, lost: client.PoolStats().StaleConns}
}

func (d *doubts) call() *doubt { return &doubt{doubts: d} }

// A doubt is the argument of one call that says what its caller is in doubt about. It is
// evaluated when the call is written to its connection, not before: go-redis may find
// that the connections it had are dead, dial a restarted server, and only then
// send what was put together before.
type doubt struct {
	*doubts
	forgot bool   // the server did not know the script
	seen   uint32 // connections lost when the call was written
}

// MarshalBinary implements encoding.BinaryMarshaler, by which go-redis writes it.
func (c *doubt) MarshalBinary() ([]byte, error) {
	c.seen = c.client.PoolStats().StaleConns
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.forgot:
		return []byte("2"), nil
	case c.doubts.failed || c.seen != c.lost:
		return []byte("1"), nil
	}
	return []byte("0"), nil
}

func (c *doubt) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost, c.doubts.failed = c.seen, false
}

func (c *doubt) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubts.failed = true
}

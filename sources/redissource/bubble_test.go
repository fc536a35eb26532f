package redissource

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/countoff/countoff/partition/redistest"
)

// bubble returns a client of a Redis in the synctest bubble it is called in: a plain
// one, or one that hides that there is one server.
func bubble(t *testing.T, one bool) redis.UniversalClient {
	client := bubbleOver(t, func(c net.Conn) net.Conn { return c })
	if one {
		return client
	}
	return redistest.Careful(client)
}

// bubbleOver returns a plain client of a Redis in the bubble, each of whose connections is
// what wire makes of it.
func bubbleOver(t *testing.T, wire func(net.Conn) net.Conn) *redis.Client {
	m, _ := redistest.Bubble(t)
	client := redis.NewClient(&redis.Options{
		Addr: "bubble",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := m.Dial()
			if err != nil {
				return nil, err
			}
			return wire(redistest.Pump(c)), nil
		},
		PoolSize:                 1000, // nobody waits for a connection: see redistest.Bubble
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { client.Close() })
	return client
}

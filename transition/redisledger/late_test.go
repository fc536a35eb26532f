package redisledger_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// A peer that starts while all answers are late joins. The greeting of a new connection and a Sync on it
// take longer than a Sync may: one whose connections all ended with their first call never did.
func TestJoinsWhereAnswersAreLate(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"tries again": 0, "tries once": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			joinsWhereAnswersAreLate(t, retries)
		})
	}
}

func joinsWhereAnswersAreLate(t *testing.T, retries int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, prompt := redistest.Bubble(t)
		late := redis.NewClient(&redis.Options{
			Addr: "bubble", ContextTimeoutEnabled: true, PoolSize: 1000, MaxRetries: retries,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				c, err := m.Dial()
				if err != nil {
					return nil, err
				}
				return redistest.Pump(lateConn{c}), nil
			},
		})
		defer func() {
			late.Close()
			time.Sleep(time.Minute) // what is under way ends
		}()
		const name = "late"
		makeName(t, prompt, name, partition.Config{})
		l := newLedger(t, late, name, redisledger.Config{})
		limit := transition.Timing{}.WithDefaults().CallTimeout()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, err := l.Sync(ctx, transition.Request{Session: "a", Peer: "a", Weight: 1})
			cancel()
			if err == nil {
				return
			}
			time.Sleep(time.Second)
		}
		t.Error("ten Syncs were in vain")
	})
}

// A lateConn is one whose answers come half a second late.
type lateConn struct{ net.Conn }

func (c lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(500 * time.Millisecond)
	return n, err
}

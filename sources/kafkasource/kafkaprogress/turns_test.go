package kafkaprogress

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// Who opens, or regains, asks the brokers only when it has its turn, and gives that back. Who is sure of its producer
// does not wait.
func TestOpenersTakeTurns(t *testing.T) {
	t.Parallel()
	g, tok := owns(1)
	settle := func(ctx context.Context, st *Store) error {
		_, err := st.Settle(ctx, g, tok, &progress.Request{Base: 1, Read: 1, Alone: progress.None}, nil)
		return err
	}
	for _, c := range []struct {
		what         string
		call         func(ctx context.Context, st *Store) error
		unsure, asks bool
	}{
		{what: "Stands", call: func(ctx context.Context, st *Store) error {
			_, _, err := st.Stands(ctx, g.ID)
			return err
		}},
		{what: "Open", call: func(ctx context.Context, st *Store) error {
			_, err := st.Open(ctx, g, tok, 0)
			return err
		}},
		{what: "Settle of who is unsure", call: settle, unsure: true},
		{what: "Settle of who is sure", call: settle, asks: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Bool
				away := errors.New("no broker")
				st, err := NewStore("turns", Config{Topic: "turns", Options: []kgo.Opt{
					kgo.SeedBrokers("127.0.0.1:1"),
					kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
						asked.Store(true)
						return nil, away
					}),
				}})
				if err != nil {
					t.Fatal(err)
				}
				st.owners = map[partition.ID]*owner{g.ID: {grant: g, token: tok, table: newTable(0), unsure: c.unsure}}
				for range cap(st.turns) {
					st.turns <- struct{}{}
				}
				ended := make(chan error, 1)
				go func() { ended <- c.call(t.Context(), st) }()
				synctest.Wait()
				if asked.Load() != c.asks {
					t.Errorf("asked the brokers while so many are at it: %v", !c.asks)
				}
				<-st.turns
				if err := <-ended; !errors.Is(err, away) {
					t.Errorf("when it was its turn: %v, want %v", err, away)
				}
				if n := len(st.turns); n != cap(st.turns)-1 {
					t.Errorf("%d are at it, want %d", n, cap(st.turns)-1)
				}
				late, cancel := context.WithCancel(t.Context())
				cancel()
				st.turns <- struct{}{}
				if err := c.call(late, st); !c.asks && !errors.Is(err, context.Canceled) {
					t.Errorf("when its time was up: %v", err)
				}
			})
		})
	}
}

// Who waits for a broker that hangs has its turn for a while only, and gives it back once.
func TestAHangingOpenerHoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, err := NewStore("turns", Config{Topic: "turns", Options: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}})
		if err != nil {
			t.Fatal(err)
		}
		var ends []func()
		took := func() time.Duration {
			began := time.Now()
			end, err := st.turn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
			return time.Since(began)
		}
		for range 2 * turns {
			took()
		}
		if d := took(); d != turnFor {
			t.Errorf("after those that hang it took %v, want %v", d, turnFor)
		}
		for _, end := range ends {
			end()
		}
		if n := len(st.turns); n != 0 {
			t.Errorf("%d are at it, and none is", n)
		}
	})
}

// A broker that takes a connection and never answers is named as what is wrong.
func TestABrokerThatHangsIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		st, err := NewStore("turns", Config{Topic: "turns", Options: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1"), hangs}})
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Ready(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "group turns") ||
			!strings.Contains(err.Error(), "no broker has answered in time") {
			t.Errorf("it says %v", err)
		}
		if err := st.Disconnect(); err != nil {
			t.Error(err)
		}
	})
}

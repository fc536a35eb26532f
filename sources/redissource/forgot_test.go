package redissource

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// A store that was emptied under living peers whose ledger is elsewhere has nobody else to say again what the name is:
// whoever comes next would write another number of partitions, or that it is of another kind.
func TestWhatStandsIsSaidAgainWhereItWasForgotten(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		meanwhile redisconfig.Kind // somebody else was faster
		total     int
		want      redisconfig.Kind
		wantTotal int
	}{
		"nobody came":                       {"", 0, redisconfig.Lists, 4},
		"a producer of an older build came": {"", 4, redisconfig.Lists, 4},
		"one of another kind came":          {redisconfig.Asynq, 7, redisconfig.Asynq, 7},
	} {
		t.Run(name, func(t *testing.T) {
			mini, client := redistest.Mini(t)
			src, err := New(client, "mails", Config{Partitions: 4})
			if err != nil {
				t.Fatal(err)
			}
			open := func(epoch partition.Epoch) sources.Stream {
				t.Helper()
				g := partition.Grant{ID: 1, Epoch: epoch}
				st, err := src.Open(ctx, g, partition.Token{Epoch: epoch})
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
			st := open(5)
			mini.FlushAll()
			if c.total > 0 {
				if _, err := c.meanwhile.Agree(ctx, client, "mails", partition.Config{Total: c.total}); err != nil {
					t.Fatal(err)
				}
			}
			waits, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if _, err := st.Fetch(waits, 1); !errors.Is(err, sources.ErrForgot) {
				t.Fatalf("fetch says %v", err)
			}
			_ = st.Close(ctx)
			if err := open(6).Close(ctx); err != nil { // another kind does not end a peer at work
				t.Fatal(err)
			}
			kind, err := redisconfig.KindOf(ctx, client, "mails")
			if err != nil || kind != c.want {
				t.Errorf("the name is of kind %q, %v, want %q", kind, err, c.want)
			}
			if cfg, err := redisconfig.Read(ctx, client, "mails"); err != nil || cfg.Total != c.wantTotal {
				t.Errorf("it has %d partitions, %v, want %d", cfg.Total, err, c.wantTotal)
			}
		})
	}
}

// The node that had what was agreed on may be away just then: partitions on the others go on without it.
func TestAPartitionDoesNotWaitUntilItIsSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		direct, cluster := redistest.Frozen(t)
		// The configuration is on the node that stands still, the partition is not.
		name := "mails"
		for redistest.Slot(redisconfig.Key(name)) < 8192 || redistest.Slot(KeysOf(name, 1).Fence) >= 8192 {
			name += "s"
		}
		src, err := New(cluster, name, Config{})
		if err != nil {
			t.Fatal(err)
		}
		src.layout = partition.Config{Total: 4}.WithDefaults()
		src.forgot.Store(true)
		began := time.Now()
		st, err := src.Open(t.Context(), partition.Grant{ID: 1, Epoch: 6}, partition.Token{Epoch: 6})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it was open after %v", took)
		}
		if !src.forgot.Load() {
			t.Error("it is not said with the next that is opened")
		}
		if err := st.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n, err := direct.Exists(t.Context(), KeysOf(name, 1).Fence).Result(); n != 1 || err != nil {
			t.Errorf("%d fences, %v", n, err)
		}
	})
}

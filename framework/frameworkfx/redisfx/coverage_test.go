package redisfx_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/redisledger"
)

// TestCoverageFaults breaks a name by hand while a peer serves it, in each way there is,
// and wants the peer to say so.
func TestCoverageFaults(t *testing.T) {
	t.Parallel()
	for kind, c := range map[coverage.Kind]struct {
		inject func(*testing.T, redis.UniversalClient, string)
		word   string
	}{
		coverage.Unowned: {func(t *testing.T, client redis.UniversalClient, name string) {
			if err := client.HDel(t.Context(), "{"+name+"}:transition", "1").Err(); err != nil {
				t.Fatal(err)
			}
		}, "partition 1: it is granted to nobody"},
		coverage.Double: {func(t *testing.T, client redis.UniversalClient, name string) {
			token := partition.Token{Epoch: 1000, Session: "bb"}
			if err := client.HSet(t.Context(), redissource.KeysOf(name, 2).Fence, "t", token.String(), "e", "1000").Err(); err != nil {
				t.Fatal(err)
			}
		}, "the data admits epoch 1000 of session bb"},
		coverage.Refused: {func(t *testing.T, client redis.UniversalClient, name string) {
			if _, err := redisconfig.Agree(t.Context(), client, name, partition.Config{Total: 8}); err == nil {
				t.Fatal("another number of partitions was accepted")
			}
		}, "total 4 stands there, this program wants 8"},
		coverage.TwoNames: {func(t *testing.T, client redis.UniversalClient, name string) {
			join(t, client, name, "theirs")
		}, `"ours" (us) and "theirs" (them)`},
		coverage.Overdue: {func(t *testing.T, client redis.UniversalClient, name string) {
			producer, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 { // one at least in each partition; their handlers do not end
				if _, err := producer.Enqueue(t.Context(), redissource.Message{Key: fmt.Sprint("k", i)}); err != nil {
					t.Fatal(err)
				}
			}
			join(t, client, name, "ours", 0, 1, 2, 3)
		}, "them waits for it, and us has not handed it over"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			client, name := redistest.New(t), redistest.Name(t)
			if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 4}); err != nil {
				t.Fatal(err)
			}
			served, enough := make(chan struct{}, 16), make(chan struct{})
			synced := make(chan struct{})
			found := make(chan coverage.Finding, 16)
			cfg := quick
			cfg.Timing.Lease, cfg.Timing.Drain = 5*time.Second, 50*time.Millisecond // what is looked at is looked at with each beat
			app := fxtest.New(t,
				frameworkfx.Module,
				fx.Provide(func() redis.UniversalClient { return client }),
				redisfx.Source(name, redisfx.Config{Deployment: "ours"}),
				frameworkfx.Configure(name, cfg, framework.WithPeer("us", 1)),
				frameworkfx.Otherwise(name, func(context.Context, *framework.Task) error { <-enough; return nil }),
				frameworkfx.Observe(func() framework.Observer {
					return framework.ObserverFunc(func(e framework.Event) {
						switch e := e.(type) {
						case framework.Opened:
							served <- struct{}{}
						case framework.Coordinated:
							if _, ok := e.Event.(transition.Synced); ok {
								select {
								case synced <- struct{}{}:
								default:
								}
							}
						case framework.Uncovered:
							found <- e.Finding
						}
					})
				}),
			)
			app.RequireStart()
			defer app.RequireStop()
			defer close(enough)
			for range 4 {
				<-served
			}
			// A full Sync finds out that a grant was deleted, and opens a grace. Afterwards
			// nothing happens any more that would need one.
			for range 4 {
				<-synced
			}
			c.inject(t, client, name)
			select {
			case f := <-found:
				if f.Kind != kind || !strings.Contains(f.String(), c.word) {
					t.Errorf("found %v", f)
				}
			case <-time.After(patience):
				t.Error("nobody noticed")
			}
		})
	}
}

// join lets a session of another deployment become a member, and ask for partitions.
func join(t *testing.T, client redis.UniversalClient, name, deployment string, claim ...partition.ID) {
	t.Helper()
	l, err := redisledger.New(client, name, redisledger.Config{
		Config: partition.Config{Total: 4}, Timing: transition.Timing{Lease: time.Minute, Settle: time.Second}, Deployment: deployment,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(t.Context(), transition.Request{Session: "bb", Peer: "them", Weight: 1, Claim: claim}); err != nil {
		t.Fatal(err)
	}
}

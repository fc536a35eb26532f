package redisfx_test

import (
	"context"
	"errors"
	"flag"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/quorum"
	"github.com/countoff/countoff/transition/quorum/redisquorum"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) {
	// The tests wait most of the time. -parallel on the command line goes before this.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	debug.SetGCPercent(400) // miniredis makes a state of Lua for each script: a fifth of the time went to their garbage
	goleak.VerifyTestMain(m)
}

// patience is how long anything may take before it counts as never.
const patience = 2 * time.Minute

// quick begins at once. The lease is long, so that it does not run out on a slow machine.
var quick = framework.Config{
	Timing:   transition.Timing{Lease: 20 * time.Second, Settle: 10 * time.Millisecond},
	PodGrace: time.Minute,
}

func TestTasksOfRedisAreHandled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		cfg   redisfx.Config
		fresh bool // nobody ran init: the first peer waits for a lease
	}{
		{"roster", redisfx.Config{}, false},
		{"interval", redisfx.Config{Indexer: redisfx.Interval, Interval: 100 * time.Millisecond, Strategy: partition.Rendezvous{}}, false},
		{"counted elsewhere", redisfx.Config{Indexer: redisfx.Interval, Interval: 100 * time.Millisecond, Counter: new(intervalindexer.Memory)}, false},
		{"without init", redisfx.Config{Source: redissource.Config{Partitions: 4}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, name := redistest.New(t), redistest.Name(t)
			if !c.fresh {
				if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 4}); err != nil {
					t.Fatal(err)
				}
			}
			cfg := quick
			if c.fresh {
				cfg.Timing.Lease = 2500 * time.Millisecond
			}
			handled := make(chan string, 1)
			app := fxtest.New(t,
				frameworkfx.Module,
				fx.Provide(func() redis.UniversalClient { return client }),
				redisfx.Source(name, c.cfg),
				frameworkfx.Configure(name, cfg),
				frameworkfx.Handle(name, "welcome", func(_ context.Context, task *framework.Task) error {
					handled <- string(task.Payload)
					return nil
				}),
			)
			app.RequireStart()
			producer, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{Partitions: 4})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := producer.Enqueue(t.Context(), redissource.Message{Type: "welcome", Key: "ann", Payload: []byte("hi")}); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-handled:
				if got != "hi" {
					t.Errorf("handled %q", got)
				}
			case <-time.After(patience):
				t.Error("the task was not handled")
			}
			app.RequireStop()
		})
	}
}

func TestWhatIsWrongIsListed(t *testing.T) {
	app := fx.New(fx.NopLogger, frameworkfx.Module,
		redisfx.Source("mails", redisfx.Config{URL: "redis://:secret@host:notaport", Indexer: "moon"}),
		redisfx.Source("orders", redisfx.Config{WaitReplicas: 1, Counter: new(intervalindexer.Memory), Interval: time.Second, Strategy: partition.Jump{}, Ledger: func(partition.Config, transition.Timing, string) (transition.Ledger, error) {
			return nil, nil
		}}),
		redisfx.Source("bills", redisfx.Config{
			URL: "redis://127.0.0.1:1", Indexer: redisfx.Interval, Interval: time.Millisecond, WaitReplicas: -1,
			Source: redissource.Config{Partitions: -2, Hash: "md5"},
			Epochs: []string{"redis://127.0.0.1:1"},
		}),
		frameworkfx.Otherwise("bills", func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Otherwise("mails", func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Otherwise("orders", func(context.Context, *framework.Task) error { return nil }),
	)
	var wrong *frameworkfx.StartError
	if !errors.As(app.Err(), &wrong) {
		t.Fatalf("the application says %v", app.Err())
	}
	for _, want := range []string{
		`indexer "moon": want "roster" or "interval"`,
		`consumer "orders": redisfx: no Redis URL, and the application provides no redis.UniversalClient (fx.As makes one of a *redis.Client)`,
		"interval 1ms: want 10ms to", "WaitReplicas is for a ledger in Redis", `Counter is for the indexer "interval"`,
		`Interval is for the indexer "interval"`, `Strategy is for the indexer "interval"; with the rolls give`, "WaitReplicas -1", "-2 partitions", `hash "md5"`,
		`consumer "bills": redisquorum: 1 of the masters`,
	} {
		if !strings.Contains(wrong.Error(), want) {
			t.Errorf("%q is not listed in:\n%v", want, wrong)
		}
	}
	if len(wrong.Faults) != 12 {
		t.Errorf("%d faults, want 12:\n%v", len(wrong.Faults), wrong)
	}
	if strings.Contains(wrong.Error(), "secret") {
		t.Errorf("the password is told:\n%v", wrong)
	}
}

// Epochs wait for the masters that witness them.
func TestEpochsByMajority(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	var urls []string
	for range 3 {
		urls = append(urls, "redis://"+redistest.Server(t).Addr())
	}
	masters, err := redisquorum.Open(name, urls, quorum.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer masters.Close()
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 1}); err != nil {
		t.Fatal(err)
	}
	missed, opened, back := make(chan error, 10), make(chan partition.Epoch, 10), make(chan framework.MajorityBack, 10)
	app := fxtest.New(t,
		frameworkfx.Module,
		fx.Provide(func() redis.UniversalClient { return client }),
		redisfx.Source(name, redisfx.Config{Epochs: urls}),
		frameworkfx.Configure(name, quick),
		frameworkfx.Otherwise(name, func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Observe(func() framework.Observer {
			return framework.ObserverFunc(func(e framework.Event) {
				switch e := e.(type) {
				case framework.MajorityMissed:
					if e.Consumer != name {
						t.Errorf("told %+v", e)
					}
					missed <- e.Err
				case framework.MajorityBack:
					back <- e
				case framework.Opened:
					opened <- e.Grant.Epoch
				}
			})
		}),
	)
	app.RequireStart()
	defer app.RequireStop()
	select {
	case err := <-missed:
		if !errors.Is(err, quorum.ErrEmpty) && !errors.Is(err, context.DeadlineExceeded) { // of a busy machine they were silent first
			t.Errorf("told %v", err)
		}
	case e := <-opened:
		t.Fatalf("worked under %d, of which no majority has heard", e)
	case <-time.After(patience):
		t.Fatal("nobody was told")
	}
	if n, err := masters.Admit(t.Context()); err != nil || n != 3 {
		t.Fatalf("admitted %d: %v", n, err)
	}
	select {
	case e := <-opened:
		if n, err := masters.Read(t.Context()); err != nil || n < uint64(e) {
			t.Errorf("worked under %d, a majority has heard of %d, %v", e, n, err)
		}
	case <-time.After(patience):
		t.Error("nothing is worked on")
	}
	select {
	case e := <-back:
		if e.Consumer != name {
			t.Errorf("told %+v", e)
		}
	case <-time.After(patience):
		t.Error("nobody was told that the majority is back")
	}
}

// A URL that is wrong, of a client for all consumers, is one of the faults that keep the application from starting.
func TestAClientOfAWrongURLIsListed(t *testing.T) {
	app := fx.New(fx.NopLogger, frameworkfx.Module, redisfx.Client("redis://host:notaport"), redisfx.Source("mail", redisfx.Config{}),
		frameworkfx.Otherwise("mail", func(context.Context, *framework.Task) error { return nil }))
	var wrong *frameworkfx.StartError
	if !errors.As(app.Err(), &wrong) || len(wrong.Faults) != 1 {
		t.Errorf("the application says %v", app.Err())
	}
}

// A peer that the store does not count says so.
func TestAMiscountIsTold(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	client.AddHook(refuse{"incr"})
	told := make(chan framework.Miscounted, 100)
	app := fxtest.New(t,
		frameworkfx.Module,
		fx.Provide(func() redis.UniversalClient { return client }),
		redisfx.Source(name, redisfx.Config{Indexer: redisfx.Interval, Interval: 50 * time.Millisecond}),
		frameworkfx.Configure(name, quick),
		frameworkfx.Otherwise(name, func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Observe(func() framework.Observer {
			return framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.Miscounted); ok {
					select {
					case told <- e:
					default:
					}
				}
			})
		}),
	)
	app.RequireStart()
	defer app.RequireStop()
	for { // on a busy machine a turn may also come too late
		select {
		case e := <-told:
			if strings.Contains(e.Err.Error(), "NOPERM") {
				if e.Consumer != name || e.Interval == 0 {
					t.Errorf("told %+v", e)
				}
				return
			}
		case <-time.After(patience):
			t.Fatal("nobody was told")
		}
	}
}

// What the store may cost is told at the start.
func TestEvictionIsTold(t *testing.T) {
	p := redistest.Server(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	told := make(chan string, 100)
	app := fxtest.New(t,
		frameworkfx.Module,
		fx.Provide(func() redis.UniversalClient { return p.Client() }),
		redisfx.Source("n", redisfx.Config{}),
		frameworkfx.Configure("n", quick),
		frameworkfx.Otherwise("n", func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Observe(func() framework.Observer {
			return framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.Warned); ok {
					told <- e.Warning
				}
			})
		}),
	)
	app.RequireStart()
	defer app.RequireStop()
	for {
		select {
		case w := <-told:
			if strings.Contains(w, "allkeys-lru") {
				return
			}
		case <-time.After(patience):
			t.Fatal("nobody was told")
		}
	}
}

// refuse is a store that does not allow a command.
type refuse struct{ command string }

func (refuse) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r refuse) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.refuses(cmd) {
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (r refuse) refuses(cmd redis.Cmder) bool {
	if cmd.Name() != r.command {
		return false
	}
	cmd.SetErr(errors.New("NOPERM this user has no permissions to run the command"))
	return true
}

func (r refuse) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if r.refuses(cmd) {
				return cmd.Err()
			}
		}
		return next(ctx, cmds)
	}
}

func TestTheClientOfAURLIsClosedAfterTheConsumer(t *testing.T) {
	var client redis.UniversalClient
	app := fxtest.New(t, redisfx.Client("redis://127.0.0.1:1"), fx.Populate(&client))
	app.RequireStart().RequireStop()
	if err := client.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("the client says %v, want that it is closed", err)
	}
}

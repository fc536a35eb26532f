package asynqfx_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/asynqfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) {
	// The tests wait most of the time. -parallel on the command line goes before this.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long anything may take before it counts as never.
const patience = 2 * time.Minute

// quick begins at once. The lease is long, so that it does not run out on a slow machine.
var quick = framework.Config{
	Timing:   transition.Timing{Lease: 20 * time.Second, Settle: 10 * time.Millisecond},
	PodGrace: time.Minute,
}

// silent is a logger of asynq that says nothing.
type silent struct{ *log.Logger }

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

var quiet = asynq.Config{Logger: silent{log.New(io.Discard, "", 0)}}

// One task through handlers of asynq, given and constructed, and through handlers of the
// framework.
func TestTasksOfAsynqAreHandled(t *testing.T) {
	t.Parallel()
	handled := make(chan string, 1)
	mux := func() *asynq.ServeMux {
		m := asynq.NewServeMux()
		m.HandleFunc("welcome", func(_ context.Context, task *asynq.Task) error {
			handled <- string(task.Payload())
			return nil
		})
		return m
	}
	for _, c := range []struct {
		name string
		with func(name string) fx.Option
	}{
		{"a mux", func(name string) fx.Option { return asynqfx.Mux(name, asynqfx.Config{Server: quiet}, mux()) }},
		{"a function", func(name string) fx.Option {
			return asynqfx.Mux(name, asynqfx.Config{Server: quiet}, func(ctx context.Context, task *asynq.Task) error {
				return mux().ProcessTask(ctx, task)
			})
		}},
		{"a constructor", func(name string) fx.Option { return asynqfx.Mux(name, asynqfx.Config{Server: quiet}, mux) }},
		{"the framework's", func(name string) fx.Option {
			return fx.Options(asynqfx.Source(name, asynqfx.Config{}),
				frameworkfx.Handle(name, "welcome", func(_ context.Context, task *framework.Task) error {
					if task.Key != "ann" {
						t.Errorf("the key is %q", task.Key)
					}
					handled <- string(task.Payload)
					return nil
				}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, name := redistest.New(t), redistest.Name(t)
			if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 4}); err != nil {
				t.Fatal(err)
			}
			app := fxtest.New(t, frameworkfx.Module, fx.Provide(func() redis.UniversalClient { return client }),
				c.with(name), frameworkfx.Configure(name, quick))
			app.RequireStart()
			producer, err := asynqsource.NewClient(t.Context(), client, name, asynqsource.ClientConfig{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := producer.Enqueue("ann", asynq.NewTask("welcome", []byte("hi"))); err != nil {
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

// The way to another queue, as the refusal tells it: the ledger is begun anew, and the queues
// with their tasks, and with fences of later epochs, stay.
func TestANameIsBegunAnewWithAnotherQueue(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	producer := asynq.NewClientFromRedisClient(client)
	enqueue := func(queue string) {
		t.Helper()
		if _, err := producer.Enqueue(asynq.NewTask("t", []byte(queue)), asynq.Queue(queue)); err != nil {
			t.Fatal(err)
		}
	}
	handled := make(chan string, 4)
	work := func(queues ...string) {
		t.Helper()
		if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: len(queues)}); err != nil {
			t.Fatal(err)
		}
		app := fxtest.New(t, frameworkfx.Module, fx.Provide(func() redis.UniversalClient { return client }), frameworkfx.Configure(name, quick),
			asynqfx.Mux(name, asynqfx.Config{Server: quiet, Source: asynqsource.Config{Queues: queues}}, func(_ context.Context, task *asynq.Task) error {
				handled <- string(task.Payload())
				return nil
			}))
		app.RequireStart()
		defer app.RequireStop()
		open := slices.Clone(queues)
		late := time.After(patience)
		for len(open) > 0 {
			select {
			case queue := <-handled:
				open = slices.DeleteFunc(open, func(q string) bool { return q == queue })
			case <-late:
				t.Fatalf("nothing of %q was handled", open)
			}
		}
	}
	critical, reports := name+"-critical", name+"-reports"
	enqueue(critical)
	for range 2 { // a fence of the second epoch
		work(critical)
		enqueue(critical)
	}
	if err := redisledger.Destroy(t.Context(), client, name); err != nil {
		t.Fatal(err)
	}
	enqueue(reports)
	work(critical, reports)
}

// What old producers put into an ordinary queue goes to the partition of its key, and
// its handler runs there.
func TestAnIngressIsMovedAndHandled(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	in := name + "-in"
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 4, Units: []string{in}}); err != nil {
		t.Fatal(err)
	}
	key := func(_ string, payload []byte, _ map[string]string) string { return string(payload) }
	handled := make(chan string, 1)
	mux := asynq.NewServeMux()
	mux.HandleFunc("welcome", func(ctx context.Context, task *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		handled <- queue + " " + string(task.Payload())
		return nil
	})
	app := fxtest.New(t, frameworkfx.Module, fx.Provide(func() redis.UniversalClient { return client }),
		asynqfx.Mux(name, asynqfx.Config{Server: quiet, Source: asynqsource.Config{Ingress: []string{in}, Key: key}}, mux),
		frameworkfx.Configure(name, quick))
	app.RequireStart()
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("welcome", []byte("ann")), asynq.Queue(in)); err != nil {
		t.Fatal(err)
	}
	want := asynqsource.QueueOf(name, partition.Of("ann", 4)) + " ann"
	select {
	case got := <-handled:
		if got != want {
			t.Errorf("handled %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Error("the task was not handled")
	}
	app.RequireStop()
}

func TestWhatIsWrongIsListed(t *testing.T) {
	app := fx.New(fx.NopLogger, frameworkfx.Module,
		asynqfx.Mux("mails", asynqfx.Config{URL: "redis://127.0.0.1:1", Server: asynq.Config{GroupGracePeriod: time.Millisecond}}, asynq.NewServeMux()),
		asynqfx.Mux("bills", asynqfx.Config{URL: "redis://127.0.0.1:1", Server: asynq.Config{Concurrency: 1 << 20}}, asynq.NewServeMux()),
		asynqfx.Mux("orders", asynqfx.Config{Source: asynqsource.Config{Queues: []string{"a{b"}}, Server: asynq.Config{StrictPriority: true}}, asynq.NewServeMux()),
		asynqfx.Mux("bare", asynqfx.Config{URL: "redis://127.0.0.1:1/db"}, nil),
		asynqfx.Mux("texts", asynqfx.Config{URL: "redis://127.0.0.1:1/db"}, "a text"),
		asynqfx.Mux("parcels", asynqfx.Config{URL: "redis://127.0.0.1:1"}, func(*asynq.Task) error { return nil }),
		asynqfx.Mux("none", asynqfx.Config{URL: "redis://127.0.0.1:1", WaitReplicas: -1}, (func() *asynq.ServeMux)(nil)),
	)
	var wrong *frameworkfx.StartError
	if !errors.As(app.Err(), &wrong) {
		t.Fatalf("the application says %v", app.Err())
	}
	for _, want := range []string{
		`consumer "mails": asynqsource: GroupGracePeriod 1ms`,
		`consumer "bills": framework: concurrency 1048576`,
		`consumer "orders": asynqfx: no Redis URL, and the application provides no redis.UniversalClient`,
		`queue "a{b"`,
		`consumer "orders": asynqsource: StrictPriority`,
		`consumer "bare": asynqsource: no handler`,
		`consumer "bare": redis URL`,
		`consumer "texts": asynqfx: string is neither a handler of asynq`,
		`consumer "texts": redis URL`,
		`consumer "parcels": asynqfx: func(*asynq.Task) error is neither a handler of asynq`,
		`consumer "none": asynqsource: no handler`, `consumer "none": asynqfx: WaitReplicas -1: want 0 or more`,
	} {
		if !strings.Contains(wrong.Error(), want) {
			t.Errorf("%q is not listed in:\n%v", want, wrong)
		}
	}
	if strings.Contains(wrong.Error(), "no Redis client") {
		t.Errorf("that there is no client is said without the reason as well:\n%v", wrong)
	}
}

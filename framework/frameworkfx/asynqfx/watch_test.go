package asynqfx_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/asynqfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/transition/redisledger"
)

// startPlain makes a name of two queues and starts a plain server on the second, until the
// test ends. It returns when that is listed.
func startPlain(t *testing.T, client redis.UniversalClient, name string) (queue string) {
	t.Helper()
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	queue = asynqsource.QueueOf(name, 1)
	plain := asynq.NewServerFromRedisClient(client, asynq.Config{Queues: map[string]int{queue: 1}, Logger: quiet.Logger})
	if err := plain.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Shutdown)
	deadline := time.Now().Add(patience)
	for listed := false; !listed; { // it writes itself into the list when it has started
		servers, err := asynq.NewInspectorFromRedisClient(client).Servers()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the plain server is not listed: %v", err)
		}
		for _, s := range servers {
			listed = listed || s.Queues[queue] > 0
		}
	}
	return queue
}

// A start that is refused because of a plain server is tried again after milliseconds: the
// server is told of once.
func TestARefusedStartTellsOfAPlainServerOnce(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	startPlain(t, client, name)
	events := make(chan framework.Event, 64)
	app := fxtest.New(t, frameworkfx.Module,
		fx.Provide(func() redis.UniversalClient { return client }),
		asynqfx.Source(name, asynqfx.Config{}),
		frameworkfx.Configure(name, quick),
		frameworkfx.Otherwise(name, func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Observe(func() framework.Observer { return framework.ObserverFunc(func(e framework.Event) { events <- e }) }))
	app.RequireStart()
	defer app.RequireStop()
	late := time.After(patience)
	told := 0
	for refused := 0; refused < 5; {
		select {
		case e := <-events:
			switch e := e.(type) {
			case framework.StartFailed:
				refused++
			case framework.Warned:
				if strings.Contains(e.Warning, "a plain asynq.Server") {
					told++
				}
			}
		case <-late:
			t.Fatalf("refused %d times in time", refused)
		}
	}
	if told != 1 {
		t.Errorf("it is told of %d times", told)
	}
}

// A plain server beside ours is an event.
func TestAPlainServerIsTold(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	queue := startPlain(t, client, name)
	warned := make(chan string, 64)
	app := fxtest.New(t, frameworkfx.Module,
		fx.Provide(func() redis.UniversalClient { return client }),
		asynqfx.Source(name, asynqfx.Config{Source: asynqsource.Config{Plain: asynqsource.Alarm}}),
		frameworkfx.Configure(name, quick),
		frameworkfx.Otherwise(name, func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Observe(func() framework.Observer {
			return framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.Warned); ok {
					warned <- e.Warning
				}
			})
		}))
	app.RequireStart()
	defer app.RequireStop()
	late := time.After(patience)
	for told := false; !told; {
		select {
		case w := <-warned:
			told = strings.Contains(w, fmt.Sprintf("a plain asynq.Server consumes queue %q", queue))
		case <-late:
			t.Fatal("nobody was told of the plain server")
		}
	}
}

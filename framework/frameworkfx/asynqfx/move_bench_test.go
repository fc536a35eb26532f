package asynqfx_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/transition/redisledger"
)

// peer starts a consumer of l's queues and returns how to stop it.
func (l load) peer(b *testing.B, id string, hit func(*asynq.Task), observe func(framework.Event)) (stop func()) {
	b.Helper()
	src, err := asynqsource.New(l.client, l.name, asynqsource.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ledger, err := redisledger.New(l.client, l.name, redisledger.Config{Config: partition.Config{Total: l.queues}, Timing: quick.Timing})
	if err != nil {
		b.Fatal(err)
	}
	engine, err := src.Handler(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error { hit(t); return nil }), quiet)
	if err != nil {
		b.Fatal(err)
	}
	consumer, err := framework.New(l.name, src, engine, framework.WithLedger(ledger), framework.WithPeer(id, 1),
		framework.WithObserver(framework.ObserverFunc(observe)), framework.WithConfig(quick))
	if err != nil {
		b.Fatal(err)
	}
	if err := consumer.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := consumer.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkIdlePush is the time from asynq's client to the handler of a peer that has
// nothing else to do. The goal is a median of 2 ms.
func BenchmarkIdlePush(b *testing.B) {
	l := load{client: redistest.Server(b).Client(), name: redistest.Name(b), queues: 16}
	if _, err := redisledger.Init(b.Context(), l.client, l.name, partition.Config{Total: l.queues}); err != nil {
		b.Fatal(err)
	}
	handled, opened := make(chan time.Time, 1), make(chan struct{}, l.queues)
	stop := l.peer(b, "only", func(*asynq.Task) { handled <- time.Now() }, func(e framework.Event) {
		if _, ok := e.(framework.Opened); ok {
			opened <- struct{}{}
		}
	})
	defer stop()
	for range l.queues {
		<-opened
	}
	client := asynq.NewClientFromRedisClient(l.client)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		time.Sleep(5 * time.Millisecond) // it is idle again
		pushed := time.Now()
		if _, err := client.Enqueue(asynq.NewTask("t", nil), asynq.Queue(asynqsource.QueueOf(l.name, partition.ID(i%l.queues)))); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-handled).Sub(pushed))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
}

// BenchmarkMove is how long an idle partition that changes hands has no owner at work:
// from the word that its owner must drain until the next one has opened it. The goal is
// 10 ms.
func BenchmarkMove(b *testing.B) {
	client := redistest.Server(b).Client()
	var silent []time.Duration
	for range b.N {
		l := load{client: client, name: redistest.Name(b), queues: 16}
		if _, err := redisledger.Init(b.Context(), client, l.name, partition.Config{Total: l.queues}); err != nil {
			b.Fatal(err)
		}
		var mu sync.Mutex
		drains := make(map[partition.ID]time.Time)
		opened := make(chan struct{}, 4*l.queues)
		observe := func(e framework.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e := e.(type) {
			case framework.Draining:
				drains[e.Grant.ID] = time.Now()
			case framework.Opened:
				if began, moved := drains[e.Grant.ID]; moved {
					silent = append(silent, time.Since(began))
				}
				opened <- struct{}{}
			}
		}
		first := l.peer(b, "first", func(*asynq.Task) {}, observe)
		for range l.queues {
			<-opened
		}
		second := l.peer(b, "second", func(*asynq.Task) {}, observe)
		for range l.queues / 2 { // half of them move
			<-opened
		}
		first()
		for range l.queues / 2 { // the other half
			<-opened
		}
		second()
	}
	slices.Sort(silent)
	b.ReportMetric(silent[len(silent)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(silent[len(silent)-1].Seconds()*1e3, "max-ms")
	b.ReportMetric(float64(len(silent))/float64(b.N), "moves/op")
}

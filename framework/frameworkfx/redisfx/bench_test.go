package redisfx_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// The whole way of a task from a Redis list through a handler that does nothing and
// back. The goal is 10 times what a queue with a call per task does (13,000/s on the
// machine of the design).
func BenchmarkConsumer(b *testing.B) {
	for _, c := range []struct{ partitions, keys int }{{1, 0}, {16, 0}, {16, 10_000}, {256, 10_000}} {
		b.Run(fmt.Sprintf("partitions=%d,keys=%d", c.partitions, c.keys), func(b *testing.B) {
			client, name := redistest.Server(b).Client(), redistest.Name(b)
			if _, err := redisledger.Init(b.Context(), client, name, partition.Config{Total: c.partitions}); err != nil {
				b.Fatal(err)
			}
			p, err := redissource.NewProducer(b.Context(), client, name, redissource.ProducerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			batch := make([]redissource.Message, 0, 1000)
			payload := make([]byte, 200)
			for i := range b.N {
				m := redissource.Message{Payload: payload}
				if c.keys > 0 {
					m.Key = fmt.Sprint(i % c.keys)
				}
				if batch = append(batch, m); len(batch) == cap(batch) || i == b.N-1 {
					if _, err := p.Enqueue(b.Context(), batch...); err != nil {
						b.Fatal(err)
					}
					batch = batch[:0]
				}
			}
			first, done, stop := workOff(b, client, name, c.partitions, b.N)
			<-first
			b.ReportAllocs()
			b.ResetTimer()
			<-done
			b.StopTimer()
			perSecond := float64(b.N) / b.Elapsed().Seconds()
			verdict := 0.0
			if perSecond >= 130_000 {
				verdict = 1
			}
			b.ReportMetric(perSecond, "tasks/s")
			b.ReportMetric(verdict, "ok(≥130k/s)")
			stop()
		})
	}
}

// workOff starts a peer whose handler does nothing but count: first is closed with its first task,
// done with the one that makes them n.
func workOff(b *testing.B, client redis.UniversalClient, name string, partitions, n int) (first, done <-chan struct{}, stop func()) {
	source, err := redissource.New(client, name, redissource.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ledger, err := redisledger.New(client, name, redisledger.Config{Config: partition.Config{Total: partitions}, Timing: quick.Timing})
	if err != nil {
		b.Fatal(err)
	}
	var handled atomic.Int64
	began, ended := make(chan struct{}), make(chan struct{})
	h := framework.HandlerFunc(func(context.Context, *framework.Task) error {
		i := handled.Add(1)
		if i == 1 {
			close(began)
		}
		if i == int64(n) {
			close(ended)
		}
		return nil
	})
	consumer, err := framework.New(name, source, h, framework.WithLedger(ledger), framework.WithPeer("bench", 1),
		framework.WithConfig(framework.Config{Timing: transition.Timing{Settle: quick.Timing.Settle, Lease: quick.Timing.Lease}}))
	if err != nil {
		b.Fatal(err)
	}
	if err := consumer.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return began, ended, func() {
		if err := consumer.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	}
}

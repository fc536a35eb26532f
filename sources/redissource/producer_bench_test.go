package redissource

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
)

// plainClient returns a client of a real server, without a test's hooks.
func plainClient(b *testing.B) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: redistest.Server(b).Addr()})
	b.Cleanup(func() { client.Close() })
	return client
}

// Fifty goroutines that enqueue one message of 200 bytes at a time, and one that
// enqueues a thousand at once, on a real server.
func BenchmarkEnqueue(b *testing.B) {
	payload := make([]byte, 200)
	for _, total := range []int{16, 256} {
		b.Run(fmt.Sprintf("callers=50/partitions=%d", total), func(b *testing.B) {
			client, name := plainClient(b), redistest.Name(b)
			p := newProducer(b, client, name, ProducerConfig{Partitions: total})
			var n atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			for range 50 {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						if _, err := p.Enqueue(context.Background(), Message{Key: fmt.Sprint(i % 1000), Payload: payload}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
		b.Run(fmt.Sprintf("batch=1000/partitions=%d", total), func(b *testing.B) {
			client, name := plainClient(b), redistest.Name(b)
			p := newProducer(b, client, name, ProducerConfig{Partitions: total})
			messages := make([]Message, 1000)
			for i := range messages {
				messages[i] = Message{Key: fmt.Sprint(i), Payload: payload}
			}
			b.ReportAllocs()
			for sent := 0; sent < b.N; sent += len(messages) {
				if _, err := p.Enqueue(context.Background(), messages[:min(len(messages), b.N-sent)]...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

package redissource

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// fill puts n elements of about 200 bytes in a list.
func fill(b testing.TB, client redis.UniversalClient, key string, n int) {
	e := envelope{id: "01HZX3J8Q1V5T7Y9B2D4F6G8K0", key: "ann@example.com", born: sources.MomentOf(time.Now()), payload: make([]byte, 150)}
	element := appendEnvelope(nil, &e)
	for n > 0 {
		batch := make([]any, min(n, 1000))
		for i := range batch {
			batch[i] = element
		}
		if err := client.RPush(b.Context(), key, batch...).Err(); err != nil {
			b.Fatal(err)
		}
		n -= len(batch)
	}
}

// BenchmarkStream fetches and settles batches of 100, beside LPOP COUNT 100 of the
// same elements, which has no safety at all, in the same run.
func BenchmarkStream(b *testing.B) {
	const chunk, batch = 20_000, 100
	client := plainClient(b)
	w := newWorld(b, client, Config{})
	s := w.open()
	var stream, lpop time.Duration
	var allocs uint64
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		fill(b, client, w.keys.Pending, chunk)
		fill(b, client, "plain", chunk)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.StartTimer()

		began := time.Now()
		fetchAndSettle(b, s, chunk, batch)
		stream += time.Since(began)
		runtime.ReadMemStats(&after)
		allocs += after.Mallocs - before.Mallocs

		began = time.Now()
		for n := 0; n < chunk; {
			got, err := client.LPopCount(b.Context(), "plain", batch).Result()
			if err != nil {
				b.Fatal(err)
			}
			n += len(got)
		}
		lpop += time.Since(began)
	}
	tasks := float64(chunk * b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(tasks/stream.Seconds(), "tasks/s")
	b.ReportMetric(tasks/lpop.Seconds(), "lpop/s")
	b.ReportMetric(stream.Seconds()/lpop.Seconds(), "x-lpop")
	b.ReportMetric(float64(allocs)/tasks, "allocs/task")
	b.Logf("%.1f times as long as LPOP COUNT %d, %.2f allocations a task (goal: 2)", stream.Seconds()/lpop.Seconds(), batch, float64(allocs)/tasks)
}

// fetchAndSettle works off n tasks: while some are settled the next are fetched, so
// that both travel together, as they do under a runtime.
func fetchAndSettle(b *testing.B, s sources.Stream, n, batch int) {
	ctx := b.Context()
	fetched := make(chan []sources.Task, 2)
	failed := make(chan error, 1)
	go func() {
		done := make([]sources.Settlement, 0, batch)
		for tasks := range fetched {
			done = done[:0]
			for i := range tasks {
				done = append(done, sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1})
			}
			if err := s.Settle(ctx, done...); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	for n > 0 {
		tasks, err := s.Fetch(ctx, batch)
		if err != nil {
			b.Fatal(err)
		}
		n -= len(tasks)
		fetched <- tasks
	}
	close(fetched)
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPushToHandler measures from before a push until its task was fetched, at an
// idle owner. The goal is 1 ms for the median and 5 ms for 99 of 100.
func BenchmarkPushToHandler(b *testing.B) {
	client := plainClient(b)
	const total = 16
	name := redistest.Name(b)
	src, err := New(client, name, Config{Partitions: total})
	if err != nil {
		b.Fatal(err)
	}
	p := newProducer(b, client, name, ProducerConfig{Partitions: total})
	ctx, cancel := context.WithCancel(b.Context())
	got := make(chan time.Time)
	ended := make(chan error)
	for id := range partition.ID(total) {
		s, err := src.Open(ctx, partition.Grant{ID: id, Epoch: 1}, partition.Token{Epoch: 1, Session: "s"})
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for {
				tasks, err := s.Fetch(ctx, 16)
				if err != nil {
					ended <- s.Close(context.Background())
					return
				}
				now := time.Now()
				for _, t := range tasks {
					if err := s.Settle(ctx, sources.Settlement{Task: &t, Outcome: sources.Done, Attempt: 1}); err != nil && !errors.Is(err, context.Canceled) {
						b.Error(err)
					}
					got <- now
				}
			}
		}()
	}
	var took []time.Duration
	b.ResetTimer()
	for range b.N {
		pushed := time.Now()
		if _, err := p.Enqueue(ctx, Message{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-got).Sub(pushed))
	}
	b.StopTimer()
	cancel()
	for range total {
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.Logf("push to handler: p50 %v (goal: 1 ms), p99 %v (goal: 5 ms)", took[len(took)/2], took[len(took)*99/100])
}

// Of a task only its element is allocated, by the client.
func TestStreamHardlyAllocates(t *testing.T) {
	server := redistest.Server(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	w := newWorld(t, client, Config{})
	s := w.open()
	const batch = 500
	fill(t, client, w.keys.Pending, 12*batch)
	done := make([]sources.Settlement, batch)
	perBatch := testing.AllocsPerRun(10, func() {
		tasks, err := s.Fetch(t.Context(), batch)
		if err != nil || len(tasks) != batch {
			t.Fatalf("%d tasks, %v", len(tasks), err)
		}
		for i := range tasks {
			done[i] = sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1}
		}
		if err := s.Settle(t.Context(), done...); err != nil {
			t.Fatal(err)
		}
	})
	if n := perBatch / batch; n > 1.5 {
		t.Errorf("%.2f allocations a task", n)
	}
}

package kafkasource

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/redisprogress"
)

// benchPartitions and benchBatch are what both sides of a comparison have.
const (
	benchPartitions = 4
	benchBatch      = 256
)

// benchRedis is a server of its own where there is one: miniredis is slow.
func benchRedis(b *testing.B) redis.UniversalClient {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return redistest.New(b)
	}
	p := redistest.Server(b)
	c := redis.NewClient(&redis.Options{Addr: p.Addr()})
	b.Cleanup(func() { c.Close() })
	return c
}

// benchTopic makes a topic with b.N records of 200 B that do not compress.
func benchTopic(b *testing.B) (*kafkatest.Broker, string) {
	broker := kafkatest.New(b)
	topic := broker.Topic(benchPartitions)
	client := broker.Client(kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1<<20))
	var failed atomic.Pointer[error]
	for i := range b.N {
		value := make([]byte, 200)
		copy(value, fmt.Sprint(i))
		r := &kgo.Record{Topic: topic, Partition: int32(i % benchPartitions), Key: fmt.Append(nil, "key", i%1000), Value: value}
		client.Produce(b.Context(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := client.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	return broker, topic
}

// measure runs work and reports records a second and the time of the processor.
func measure(b *testing.B, work func()) {
	b.Helper()
	b.ReportAllocs()
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ResetTimer()
	before := cpu()
	work()
	used := cpu() - before
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/record")
}

// BenchmarkRaw is the client alone, directly consuming, with a handler for each record
// and a commit each second. With kfake in the process its time is in the figure, on
// both sides alike; COUNTOFF_KAFKA takes it out.
func BenchmarkRaw(b *testing.B) {
	broker, topic := benchTopic(b)
	offsets := map[int32]kgo.Offset{}
	for p := range int32(benchPartitions) {
		offsets[p] = kgo.NewOffset().AtStart()
	}
	client := broker.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	admin := kadm.NewClient(client)
	measure(b, func() {
		committed := time.Now()
		for n := 0; n < b.N; {
			fetches := client.PollFetches(b.Context())
			if err := fetches.Err(); err != nil {
				b.Fatal(err)
			}
			fetches.EachRecord(func(r *kgo.Record) { n += handle(r.Value) })
			if time.Since(committed) > time.Second || n == b.N {
				committed = time.Now()
				at := kadm.OffsetsFromFetches(fetches)
				if _, err := admin.CommitOffsets(b.Context(), topic, at); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkSource is the source: the same records, each handed out under the fence and
// settled by itself, in batches, with the store's answers awaited.
func BenchmarkSource(b *testing.B) {
	broker, topic := benchTopic(b)
	name := redistest.Name(b)
	store, err := redisprogress.NewStore(benchRedis(b), name)
	if err != nil {
		b.Fatal(err)
	}
	src, err := New(name, store, Config{Topic: topic, Options: broker.Options(), Mirror: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { src.Close() })
	var streams []sources.Stream
	for p := range partition.ID(benchPartitions) {
		st, err := src.Open(b.Context(), partition.Grant{ID: p, Epoch: 1}, partition.Token{Epoch: 1, Session: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		streams = append(streams, st)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	measure(b, func() {
		ctx, enough := context.WithCancel(b.Context())
		defer enough()
		var wg sync.WaitGroup
		for _, st := range streams {
			wg.Go(func() { drainStream(ctx, b, st, &left, enough) })
		}
		wg.Wait()
	})
	for _, st := range streams {
		if err := st.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func drainStream(ctx context.Context, b *testing.B, st sources.Stream, left *atomic.Int64, enough func()) {
	// The settlements of a batch travel with the next fetch.
	said := make(chan error, 1)
	said <- nil
	for {
		tasks, err := st.Fetch(ctx, benchBatch)
		if err != nil {
			if ctx.Err() == nil {
				b.Error(err)
			}
			break
		}
		done := make([]sources.Settlement, len(tasks))
		for i, t := range tasks {
			handle(t.Payload)
			done[i] = sources.Settlement{Task: &t, Outcome: sources.Done, Attempt: 1}
		}
		if err := <-said; err != nil {
			b.Error(err)
			said <- nil
			break
		}
		go func() { said <- st.Settle(b.Context(), done...) }()
		if left.Add(-int64(len(tasks))) <= 0 {
			enough()
		}
	}
	if err := <-said; err != nil {
		b.Error(err)
	}
}

// handle is what a handler does with a record.
func handle(value []byte) int {
	if len(value) == 0 {
		return 0
	}
	return 1
}

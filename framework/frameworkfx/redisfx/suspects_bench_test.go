package redisfx_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

// How long the next peer takes for the tasks that one had in hand when it died: in each
// partition they run one at a time.
func BenchmarkSuspects(b *testing.B) {
	const partitions = 16
	for _, each := range []int{512, 1024} {
		b.Run(fmt.Sprintf("each=%d", each), func(b *testing.B) {
			var took time.Duration
			for range b.N {
				took += suspects(b, partitions, each)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(took.Seconds()*1000/float64(b.N), "ms")
			b.ReportMetric(took.Seconds()*1e6/float64(b.N*each), "µs/suspect")
		})
	}
}

// suspects returns how long a peer needs for a backlog of which another has left each tasks in
// each partition.
func suspects(b *testing.B, partitions, each int) time.Duration {
	client, name := redistest.Server(b).Client(), redistest.Name(b)
	if _, err := redisledger.Init(b.Context(), client, name, partition.Config{Total: partitions}); err != nil {
		b.Fatal(err)
	}
	p, err := redissource.NewProducer(b.Context(), client, name, redissource.ProducerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	batch := make([]redissource.Message, 2*partitions*each)
	for i := range batch {
		batch[i] = redissource.Message{Key: fmt.Sprint(i % 10_000), Payload: make([]byte, 200)}
	}
	if _, err := p.Enqueue(b.Context(), batch...); err != nil {
		b.Fatal(err)
	}
	died, err := redissource.New(client, name, redissource.Config{Partitions: partitions})
	if err != nil {
		b.Fatal(err)
	}
	var left []sources.Stream
	for id := range partition.ID(partitions) {
		s, err := died.Open(b.Context(), partition.Grant{ID: id, Epoch: 1}, partition.Token{Epoch: 1, Session: "died"})
		if err != nil {
			b.Fatal(err)
		}
		for n := 0; n < each; {
			tasks, err := s.Fetch(b.Context(), each-n)
			if err != nil {
				b.Fatal(err)
			}
			n += len(tasks)
		}
		left = append(left, s)
	}
	first, done, stop := workOff(b, client, name, partitions, len(batch))
	<-first
	began := time.Now()
	<-done
	took := time.Since(began)
	stop()
	for _, s := range left {
		_ = s.Close(b.Context())
	}
	return took
}

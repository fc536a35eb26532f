package kafkafx_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
)

// One partition, 100 keys, a handler of 50 ms: one record at a time, as a consumer of a
// group works a partition, and key by key. The goal is 20 times as many.
func BenchmarkKeysOfOnePartition(b *testing.B) {
	const keys, takes = 100, 50 * time.Millisecond
	rate := func(s *stage, concurrency, records int) float64 {
		batch := make([]*kgo.Record, records)
		for i := range batch {
			batch[i] = &kgo.Record{Topic: s.topic, Key: fmt.Append(nil, "key", i%keys), Value: []byte("x")}
		}
		if err := s.client.ProduceSync(s.Context(), batch...).FirstErr(); err != nil {
			s.Fatal(err)
		}
		var ended atomic.Int64
		began, done := make(chan time.Time, records), make(chan struct{})
		cfg := quick
		cfg.Concurrency = concurrency
		app := s.peer(cfg, func(context.Context, *framework.Task) error {
			began <- time.Now()
			time.Sleep(takes)
			if ended.Add(1) == int64(records) {
				close(done)
			}
			return nil
		})
		<-done
		took := time.Since(<-began)
		app.RequireStop()
		return float64(records) / took.Seconds()
	}
	for _, p := range []kafkafx.Progress{kafkafx.InRedis, kafkafx.InKafka} {
		b.Run("progress in "+string(p), func(b *testing.B) {
			var serial, keyed float64
			for range b.N {
				for _, c := range []struct {
					concurrency, records int
					sum                  *float64
				}{{1, 40, &serial}, {keys, 4000, &keyed}} {
					s := newStage(b, 1)
					s.progress = p
					*c.sum += rate(s, c.concurrency, c.records)
				}
			}
			b.ReportMetric(serial/float64(b.N), "serial/s")
			b.ReportMetric(keyed/float64(b.N), "keyed/s")
			b.ReportMetric(keyed/serial, "times")
		})
	}
}

package kafkasource

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/sources"
)

// A task that waits keeps itself, and not the batch that it was fetched with: one of each batch waits
// here, for its owner and then for the next one. Alone: it looks at the memory of the process.
func TestWhatWaitsKeepsNoBatch(t *testing.T) {
	for _, o := range []sources.Outcome{sources.Retry, sources.Requeue} {
		t.Run(o.String(), func(t *testing.T) {
			s := newStage(t, 1)
			const batches, each = 48, 96
			s.batches(batches, each)
			src := s.source(Config{})
			st := s.open(src, 0)
			before := heap()
			for n := 0; n < batches*each; {
				tasks, err := st.Fetch(s.soon(), 256)
				if err != nil {
					t.Fatal(err)
				}
				done := make([]sources.Settlement, len(tasks))
				for i := range tasks {
					done[i] = sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1}
					if n++; n%each == 1 {
						done[i].Outcome, done[i].Delay, done[i].Reason = o, time.Hour, "no luck"
					}
				}
				if err := st.Settle(s.soon(), done...); err != nil {
					t.Fatal(err)
				}
			}
			s.keepsLittle("its owner", before)
			runtime.KeepAlive(st)
			s.close(st)

			st = s.open(src, 0)
			for n := 0; n < batches; {
				tasks, err := st.Fetch(s.soon(), 256)
				if err != nil {
					t.Fatal(err)
				}
				n += len(tasks)
			}
			s.keepsLittle("the next owner", before)
			runtime.KeepAlive(st)
		})
	}
}

// batches produces records of 10 KiB, so many batches of so many records each.
func (s *stage) batches(n, each int) {
	s.Helper()
	noise := make([]byte, 10<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for b := range n {
		records := make([]*kgo.Record, each)
		for i := range records {
			records[i] = &kgo.Record{Topic: s.topic, Partition: 0, Key: fmt.Append(nil, b, "-", i), Value: noise}
		}
		if err := s.client.ProduceSync(s.soon(), records...).FirstErr(); err != nil {
			s.Fatal(err)
		}
	}
}

// keepsLittle checks that much less than the batches is in memory, beside what was there before.
func (s *stage) keepsLittle(who string, before uint64) {
	s.Helper()
	if grown := int64(heap()) - int64(before); grown > 20<<20 {
		s.Errorf("with %s there are %d MiB more", who, grown>>20)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what was in a pool goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What waits is what it was when it comes again, and its letter is whole: its memory only is another.
func TestWhatWaitsIsWhatItWas(t *testing.T) {
	t.Parallel()
	records := []*kgo.Record{
		{Key: []byte("key"), Value: []byte("value"), Headers: []kgo.RecordHeader{{Key: HeaderID, Value: []byte("id")}, {Key: "none"}, {Key: "empty", Value: []byte{}}}},
		{Key: []byte("tombstone")},
		{Value: []byte{}},
	}
	for i, r := range records {
		r.Topic, r.Partition, r.Offset, r.LeaderEpoch, r.Timestamp = "orders", 3, int64(7+i), 5, time.UnixMilli(1234)
		c := apart(r)
		if got, want := fmt.Sprintf("%#v", *c), fmt.Sprintf("%#v", *r); got != want {
			t.Errorf("the copy is\n%s, want\n%s", got, want)
		}
		for _, b := range [][]byte{r.Key, r.Value} {
			for i := range b {
				b[i] = '?'
			}
		}
		for i := range r.Headers {
			r.Headers[i].Key = "another"
			copy(r.Headers[i].Value, "??")
		}
		records[i] = c
	}
	if r := records[0]; string(r.Key) != "key" || string(r.Value) != "value" || r.Headers[0].Key != HeaderID || string(r.Headers[0].Value) != "id" {
		t.Errorf("what happens to the batch is in the copy: %+v", r)
	}
	_ = append(records[0].Key, '?')
	if string(records[0].Value) != "value" {
		t.Error("who appends to the key writes over the value")
	}
}

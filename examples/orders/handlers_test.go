package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
	"github.com/countoff/countoff/transition/redisledger"
)

// notes is a handler, and what it has seen. It knows nothing of where tasks come from.
type notes struct {
	mu   sync.Mutex
	seen []string
	runs map[string]int
}

// note fails the first run of "again" and gives up on "never".
func (n *notes) note(_ context.Context, t *framework.Task) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	word := string(t.Payload)
	n.runs[word]++
	switch {
	case word == "never":
		return framework.Dead(errors.New("no such customer"))
	case word == "again" && n.runs[word] == 1:
		return framework.RetryAfter(time.Millisecond, errors.New("busy"))
	}
	n.seen = append(n.seen, fmt.Sprint(t.Type, " ", t.Key, " ", word, " ", t.Attempt, " ", t.Headers["trace"], t.FirstError))
	return nil
}

// One handler, three sources: what it is given and in which order is the same.
func TestOneHandlerThreeSources(t *testing.T) {
	words := []string{"first", "again", "never", "last"}
	want := []string{"placed ann first 1 ab", "placed ann again 2 abbusy", "placed ann last 1 ab"}
	timing := transition.Timing{Lease: 20 * time.Second, Settle: 10 * time.Millisecond} // not over on a slow machine
	for _, c := range []struct {
		name string
		make func(t *testing.T, name string) (source fx.Option, push func(word string) error)
	}{
		{"memory", func(t *testing.T, name string) (fx.Option, func(string) error) {
			store, err := memsource.New(memsource.Config{Partitions: partition.Config{Total: 2}})
			if err != nil {
				t.Fatal(err)
			}
			ledger := memledger.New(partition.Config{Total: 2}, timing, memledger.Options{})
			return frameworkfx.From(name, store, ledger), func(word string) error {
				return store.Push(sources.Task{Type: "placed", Key: "ann", Payload: []byte(word), Delivery: &sources.Delivery{Headers: map[string]string{"trace": "ab"}}})
			}
		}},
		{"redis", func(t *testing.T, name string) (fx.Option, func(string) error) {
			client := redistest.New(t)
			if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2}); err != nil {
				t.Fatal(err)
			}
			producer, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{Partitions: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { producer.Close(context.Background()) })
			source := fx.Options(redisfx.Source(name, redisfx.Config{}), fx.Provide(func() redis.UniversalClient { return client }))
			return source, func(word string) error {
				_, err := producer.Enqueue(t.Context(), redissource.Message{Type: "placed", Key: "ann", Payload: []byte(word), Headers: map[string]string{"trace": "ab"}})
				return err
			}
		}},
		{"kafka", func(t *testing.T, name string) (fx.Option, func(string) error) {
			broker, store := kafkatest.New(t), redistest.New(t)
			topic := broker.Topic(2)
			if _, err := redisledger.Init(t.Context(), store, name, partition.Config{Total: 2, Hash: partition.Murmur2}); err != nil {
				t.Fatal(err)
			}
			client := broker.Client(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
			source := fx.Options(kafkafx.Source(name, kafkafx.Config{Source: kafkasource.Config{Topic: topic, Options: broker.Options()}}),
				fx.Provide(func() redis.UniversalClient { return store }))
			return source, func(word string) error {
				r := &kgo.Record{Topic: topic, Key: []byte("ann"), Value: []byte(word), Headers: []kgo.RecordHeader{
					{Key: kafkasource.HeaderType, Value: []byte("placed")}, {Key: "trace", Value: []byte("ab")},
				}}
				return client.ProduceSync(t.Context(), r).FirstErr()
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := redistest.Name(t)
			n := &notes{runs: map[string]int{}}
			source, push := c.make(t, name)
			app := fxtest.New(t, frameworkfx.Module, source, frameworkfx.Handle(name, "placed", n.note),
				frameworkfx.Configure(name, framework.Config{Timing: timing, PodGrace: time.Minute}))
			app.RequireStart()
			for _, word := range words {
				if err := push(word); err != nil {
					t.Fatal(err)
				}
			}
			end := time.After(patience)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for over := false; !over; {
				select {
				case <-tick.C:
				case <-end:
					over = true
				}
				n.mu.Lock()
				over = over || len(n.seen) >= len(want)
				n.mu.Unlock()
			}
			app.RequireStop()
			if !slices.Equal(n.seen, want) || n.runs["never"] != 1 {
				t.Errorf("the handler saw %q, %v, want %q", n.seen, n.runs, want)
			}
		})
	}
}

package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/kafkaprogress"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/redisprogress"
)

// patience is how long a test waits for what must come.
const testPatience = time.Minute

// A stage is a topic, a store, and what a test does with both.
type stage struct {
	*testing.T
	broker *kafkatest.Broker
	redis  redis.UniversalClient
	name   string
	topic  string
	client *kgo.Client
	admin  *kadm.Client
	epoch  partition.Epoch
	// inKafka says that the progress is kept in the group, and not in Redis.
	inKafka bool
}

// eachStore runs a test with each store that there is.
func eachStore(t *testing.T, partitions int, test func(s *stage)) {
	t.Run("progress in Redis", func(t *testing.T) { test(newStage(t, partitions)) })
	t.Run("progress in Kafka", func(t *testing.T) {
		s := newStage(t, partitions)
		s.inKafka = true
		test(s)
	})
}

func newStage(t *testing.T, partitions int) *stage {
	t.Helper()
	return stageOn(t, kafkatest.New(t), partitions)
}

func stageOn(t *testing.T, b *kafkatest.Broker, partitions int) *stage {
	t.Helper()
	s := &stage{T: t, broker: b, redis: redistest.New(t), name: redistest.Name(t), topic: b.Topic(partitions), client: b.Client()}
	s.admin = kadm.NewClient(s.client)
	return s
}

func newRedis(t *testing.T) redis.UniversalClient { return redistest.New(t) }

func newName(t *testing.T) string { return redistest.Name(t) }

// soon bounds a call.
func (s *stage) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	s.Cleanup(cancel)
	return ctx
}

// source makes a peer's source.
func (s *stage) source(cfg Config) *Source {
	s.Helper()
	if cfg.Topic == "" {
		cfg.Topic = s.topic
	}
	if cfg.Options == nil {
		cfg.Options = s.broker.Options()
	}
	if cfg.Mirror == 0 {
		cfg.Mirror = 20 * time.Millisecond
	}
	src, err := New(s.name, s.store(cfg), cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { src.Close() })
	return src
}

// store is where a peer's source keeps its progress.
func (s *stage) store(cfg Config) Store {
	s.Helper()
	if !s.inKafka {
		store, err := redisprogress.NewStore(s.redis, s.name)
		if err != nil {
			s.Fatal(err)
		}
		return store
	}
	store, err := kafkaprogress.NewStore(s.name, kafkaprogress.Config{Topic: cfg.Topic, Options: cfg.Options, Warn: cfg.Warn})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = store.Disconnect() })
	return store
}

// try opens a partition under the next epoch.
func (s *stage) try(src *Source, id partition.ID) (*stream, error) {
	s.Helper()
	s.epoch++
	g := partition.Grant{ID: id, Epoch: s.epoch}
	st, err := src.Open(s.soon(), g, partition.Token{Epoch: s.epoch, Session: partition.Session(fmt.Sprint("s", s.epoch))})
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { _ = st.Close(s.soon()) }) // may be closed already
	return st.(*stream), nil
}

func (s *stage) open(src *Source, id partition.ID) *stream {
	s.Helper()
	st, err := s.try(src, id)
	if err != nil {
		s.Fatal(err)
	}
	return st
}

// push produces n records without keys, or of one key if it is given, with the
// payloads prefix0, prefix1 and so on.
func (s *stage) push(id partition.ID, prefix string, n int, key ...string) {
	s.Helper()
	if err := s.pushed(id, prefix, n, key...); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) pushed(id partition.ID, prefix string, n int, key ...string) error {
	var records []*kgo.Record
	for i := range n {
		r := &kgo.Record{Topic: s.topic, Partition: int32(id), Value: fmt.Append(nil, prefix, i)}
		if len(key) > 0 {
			r.Key = []byte(key[0])
		}
		records = append(records, r)
	}
	return s.client.ProduceSync(s.soon(), records...).FirstErr()
}

// take fetches until n tasks are there.
func (s *stage) take(st *stream, n int) []sources.Task {
	s.Helper()
	var got []sources.Task
	for len(got) < n {
		tasks, err := st.Fetch(s.soon(), n-len(got))
		if err != nil {
			s.Fatalf("fetch after %d: %v", len(got), err)
		}
		got = append(got, tasks...)
	}
	return got
}

func (s *stage) settle(st *stream, o sources.Outcome, tasks ...sources.Task) {
	s.Helper()
	var done []sources.Settlement
	for _, t := range tasks {
		done = append(done, sources.Settlement{Task: &t, Outcome: o, Attempt: t.Attempt, Reason: "no luck"})
	}
	if err := st.Settle(s.soon(), done...); err != nil {
		s.Fatal(err)
	}
}

// worked has an owner do the first n tasks of a partition, and go.
func (s *stage) worked(src *Source, id partition.ID, n int) {
	s.Helper()
	st := s.open(src, id)
	s.settle(st, sources.Done, s.take(st, n)...)
	s.close(st)
}

func (s *stage) close(st *stream) {
	s.Helper()
	if err := st.Close(s.soon()); err != nil {
		s.Fatal(err)
	}
}

// first checks the payload of a task.
func (s *stage) want(what string, t sources.Task, payload string) {
	s.Helper()
	if string(t.Payload) != payload {
		s.Errorf("%s: got %q, want %q", what, t.Payload, payload)
	}
}

// until waits for what must come.
func (s *stage) until(what string, ok func() bool) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(testPatience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			s.Fatalf("never: %s", what)
		}
	}
}

// committed is what the group has for a partition, -1 if nothing.
func (s *stage) committed(group string, id partition.ID) int64 {
	s.Helper()
	all, err := s.admin.FetchOffsetsForTopics(s.soon(), group, s.topic)
	if err == nil {
		err = all.Error()
	}
	if err != nil {
		return -1 // nobody has committed yet
	}
	at, ok := all.Lookup(s.topic, int32(id))
	if !ok {
		return -1
	}
	return at.At
}

// unfenced checks that who was refused a partition last has not got it open: whoever looks would see one that is worked.
func (s *stage) unfenced(id partition.ID) {
	s.Helper()
	var fence partition.Token
	if s.inKafka {
		store := s.store(Config{Topic: s.topic, Options: s.broker.Options()}).(*kafkaprogress.Store)
		fences, err := store.Fences(s.soon(), []partition.ID{id})
		if err != nil {
			s.Fatal(err)
		}
		fence = fences[id]
	} else if stands := s.redis.HGet(s.soon(), redisprogress.Elsewhere(s.name, id).Fence, "t").Val(); stands != "" {
		var err error
		if fence, err = partition.ParseToken(stands); err != nil {
			s.Fatal(err)
		}
	}
	if fence.Epoch == s.epoch {
		s.Errorf("the fence of what was not opened is that of who was refused, %v", fence)
	}
}

// cut removes the records of a partition below offset, as its retention does.
func (s *stage) cut(id partition.ID, offset int64) {
	s.Helper()
	var o kadm.Offsets
	o.AddOffset(s.topic, int32(id), offset, -1)
	done, err := s.admin.DeleteRecords(s.soon(), o)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		s.Fatal(err)
	}
}

func asRange(err error) *OutOfRangeError {
	var e *OutOfRangeError
	errors.As(err, &e)
	return e
}

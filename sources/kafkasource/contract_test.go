package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/sources/sourcetest"
	"github.com/countoff/countoff/sources/sourcetest/redisline"
)

// ops says what commands are for. A round trip that settles nothing is there for a
// Fetch.
func ops() func(redis.Cmder) sourcetest.Op {
	settles := redisline.Settles()
	return func(c redis.Cmder) sourcetest.Op {
		args := c.Args()
		switch {
		case c.Name() == "hgetall":
			return sourcetest.Open
		case c.Name() != "evalsha" && c.Name() != "eval":
		case fmt.Sprint(args[2]) == "6", fmt.Sprint(args[2]) == "4":
			return sourcetest.Open
		case fmt.Sprint(args[2]) == "1" && strings.HasSuffix(fmt.Sprint(args[3]), ":fence"):
			return sourcetest.Close
		case strings.HasSuffix(fmt.Sprint(args[4]), ":done"):
			if settles(c) {
				return sourcetest.Settle
			}
			return sourcetest.Fetch
		}
		return ""
	}
}

// contract makes a topic, a name in Redis, and peers of both.
func contract(t *testing.T) sourcetest.Harness {
	server := redistest.New(t)
	if _, cluster := server.(*redis.ClusterClient); cluster {
		t.Skip("the store is tested on a cluster by its own tests")
	}
	broker := kafkatest.New(t)
	topic := broker.Topic(4)
	producer := broker.Client()
	name := redistest.Name(t)
	buried := new(sourcetest.Burials)
	peer := func() (*Source, *redisline.Line) {
		client := redistest.Another(t, server)
		l := redisline.New(client, server, ops())
		store, err := redisprogress.NewStore(client, name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(name, store, Config{Topic: topic, Options: broker.Options(), Mirror: 50 * time.Millisecond, Buried: buried.Tell})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s, l
	}
	// The scripts are loaded first, so that faults do not hit the loading.
	s, _ := peer()
	for _, id := range []partition.ID{0, 1, 2, 3} {
		warm, err := s.Open(t.Context(), partition.Grant{ID: id, Epoch: 1}, partition.Token{Epoch: 1, Session: "warm"})
		if err != nil {
			t.Fatal(err)
		}
		if err := warm.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		server.Del(t.Context(), redisprogress.Elsewhere(name, id).Fence)
	}
	return sourcetest.Harness{
		Peer: func() sourcetest.Peer {
			s, l := peer()
			return sourcetest.Peer{Source: s, Inject: l.Inject, Kill: l.Kill}
		},
		Push: func(ctx context.Context, id partition.ID, tasks ...sources.Task) error {
			for _, t := range tasks {
				if err := producer.ProduceSync(ctx, record(topic, id, t)).FirstErr(); err != nil {
					return err
				}
			}
			return nil
		},
		Dead: func(ctx context.Context, id partition.ID) ([]sourcetest.DeadLetter, error) {
			return deadLetters(ctx, broker, topic+".dead", id)
		},
		Snapshot: func(ctx context.Context) (func(context.Context) error, error) {
			return snapshot(ctx, server, redisprogress.Elsewhere(name, 0))
		},
		Buried:     buried,
		PushesStay: true,
		Lacks:      []sourcetest.Ability{sourcetest.RequeueToEnd},
		Goroutines: []string{ // connections of the client, and kfake's ends of them
			"github.com/twmb/franz-go/pkg/kgo.(*brokerCxn).handleResps", "github.com/twmb/franz-go/pkg/kgo.(*broker).handleReqs",
			"github.com/twmb/franz-go/pkg/kfake.(*clientConn).read", "github.com/twmb/franz-go/pkg/kfake.(*clientConn).read.func1",
			"github.com/twmb/franz-go/pkg/kfake.(*clientConn).write",
		},
	}
}

// record makes the record of a task, as a producer does.
func record(topic string, id partition.ID, t sources.Task) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: int32(id), Value: t.Payload, Timestamp: t.Born.Time()}
	if t.Key != "" {
		r.Key = []byte(t.Key)
	}
	for k, v := range t.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	for k, v := range map[string]string{HeaderID: t.ID, HeaderType: t.Type} {
		if v != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
		}
	}
	return r
}

// deadLetters reads a partition of the dead topic to its end. After a crash a letter
// may be there twice: its partition and offset tell.
func deadLetters(ctx context.Context, b *kafkatest.Broker, topic string, id partition.ID) ([]sourcetest.DeadLetter, error) {
	c, err := kgo.NewClient(append(b.Options(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(id): kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	end, _ := ends.Lookup(topic, int32(id))
	if errors.Is(end.Err, kerr.UnknownTopicOrPartition) {
		return nil, nil
	}
	if end.Err != nil {
		return nil, end.Err
	}
	var list []sourcetest.DeadLetter
	seen := make(map[string]bool)
	for at := int64(0); at < end.Offset; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, r := range fetches.Records() {
			at = r.Offset + 1
			d := letterOf(r)
			where := d.Task.Headers[HeaderDeadPartition] + "/" + d.Task.Headers[HeaderDeadOffset]
			if !seen[where] {
				seen[where] = true
				list = append(list, d)
			}
		}
	}
	return list, nil
}

func letterOf(r *kgo.Record) sourcetest.DeadLetter {
	d := sourcetest.DeadLetter{Task: sources.Task{Key: string(r.Key), Payload: r.Value, Delivery: &sources.Delivery{Headers: map[string]string{}}}}
	for _, h := range r.Headers {
		switch v := string(h.Value); h.Key {
		case HeaderID:
			d.Task.ID = v
		case HeaderType:
			d.Task.Type = v
		case HeaderDeadBorn:
			if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
				d.Task.Born = sources.MomentOf(at)
			}
		case HeaderDeadReason:
			d.Reason = v
		case HeaderDeadFirstError:
			d.Task.FirstError = v
		case HeaderDeadAttempts:
			d.Task.Attempt, _ = strconv.Atoi(v)
		case HeaderDeadCrashes:
			d.Task.Crashes, _ = strconv.Atoi(v)
		default:
			d.Task.Headers[h.Key] = v
		}
	}
	return d
}

// snapshot copies what the store has of a partition; what it returns puts it back.
func snapshot(ctx context.Context, c redis.UniversalClient, k redisprogress.Keys) (func(context.Context) error, error) {
	pipe := c.Pipeline()
	done := pipe.ZRangeWithScores(ctx, k.Done, 0, -1)
	hashes := map[string]*redis.MapStringStringCmd{}
	for _, key := range []string{k.Fence, k.Lifted, k.Tries} {
		hashes[key] = pipe.HGetAll(ctx, key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, k.Fence, k.Done, k.Lifted, k.Tries)
			for _, z := range done.Val() {
				p.ZAdd(ctx, k.Done, z)
			}
			for key, cmd := range hashes {
				for f, v := range cmd.Val() {
					p.HSet(ctx, key, f, v)
				}
			}
			return nil
		})
		return err
	}, nil
}

func TestContract(t *testing.T) { sourcetest.Run(t, contract) }

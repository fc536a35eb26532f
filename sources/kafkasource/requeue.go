package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Requeue writes dead letters back to the partitions that they came from, oldest
// first, so that those of a key keep their order, and returns how many. It ends with
// the letters that were there when it began. match says which; those that it refuses
// stay dead. Nil: all.
//
// Of cfg it uses Topic, DeadTopic and Options. How far it came is committed to the
// group DeadTopic + ".requeued": called again it goes on from there; after a crash it
// may write some a second time. The records get the present time, since retention
// would take them away otherwise, and keep their id.
func Requeue(ctx context.Context, cfg Config, match func(*kgo.Record) bool) (n int, err error) {
	cfg = cfg.withDefaults("requeue")
	if err := cfg.validate(); err != nil {
		return 0, err
	}
	client, err := kgo.NewClient(cfg.options()...)
	if err != nil {
		return 0, fmt.Errorf("kafkasource: %w", err)
	}
	defer client.Close()
	q := requeue{client: client, admin: kadm.NewClient(client), cfg: cfg, group: cfg.DeadTopic + ".requeued", match: match}
	if match == nil {
		q.match = func(*kgo.Record) bool { return true }
	}
	err = q.run(ctx)
	if err != nil {
		err = fmt.Errorf("kafkasource: requeue from %s: %w", cfg.DeadTopic, explain(err))
	}
	return q.n, err
}

type requeue struct {
	client *kgo.Client
	admin  *kadm.Client
	cfg    Config
	group  string
	match  func(*kgo.Record) bool
	n      int
}

func (q *requeue) run(ctx context.Context) error {
	if err := q.client.Ping(ctx); err != nil {
		return err
	}
	starts, err := q.admin.ListStartOffsets(ctx, q.cfg.DeadTopic)
	if err != nil {
		return err
	}
	ends, err := q.admin.ListEndOffsets(ctx, q.cfg.DeadTopic)
	if err != nil {
		return err
	}
	known, err := q.admin.FetchOffsetsForTopics(ctx, q.group, q.cfg.DeadTopic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	for _, end := range ends.Offsets().Sorted() {
		start, _ := starts.Lookup(q.cfg.DeadTopic, end.Partition)
		from := max(0, start.Offset)
		if o, ok := known.Lookup(q.cfg.DeadTopic, end.Partition); ok {
			from = max(from, o.At)
		}
		if err := errors.Join(start.Err, q.partition(ctx, end.Partition, from, end.At)); err != nil {
			return err
		}
	}
	return nil
}

// partition requeues what lies in one partition between two offsets.
func (q *requeue) partition(ctx context.Context, p int32, from, end int64) error {
	if from >= end {
		return nil
	}
	topic := q.cfg.DeadTopic
	q.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(from)}})
	defer q.client.RemoveConsumePartitions(map[string][]int32{topic: {p}})
	for from < end {
		fetches := q.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			if r.Partition != p || r.Offset >= end {
				from = max(from, min(r.Offset, end))
				continue
			}
			if !r.Attrs.IsControl() && q.match(r) {
				back, err := q.back(r)
				if err == nil {
					// One after the other: a batch could be larger than the topic allows.
					err = q.client.ProduceSync(ctx, back).FirstErr()
				}
				if err != nil {
					return fmt.Errorf("partition %d, offset %d: %w", p, r.Offset, err)
				}
				q.n++
			}
			from = r.Offset + 1
		}
		var at kadm.Offsets
		at.AddOffset(topic, p, from, -1)
		done, err := q.admin.CommitOffsets(ctx, q.group, at)
		if err == nil {
			err = done.Error()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// back makes the record of a letter as it was when it was alive.
func (q *requeue) back(l *kgo.Record) (*kgo.Record, error) {
	r := &kgo.Record{Topic: q.cfg.Topic, Key: l.Key, Value: l.Value, Headers: Alive(l.Headers), Timestamp: time.Now(), Partition: -1}
	var where struct{ topic, offset string }
	id := false
	for _, h := range l.Headers {
		switch h.Key {
		case HeaderDeadTopic:
			where.topic = string(h.Value)
		case HeaderDeadPartition:
			p, err := strconv.ParseInt(string(h.Value), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("header %s: %w", h.Key, err)
			}
			r.Partition = int32(p)
		case HeaderDeadOffset:
			where.offset = string(h.Value)
		case HeaderID:
			id = true
		}
	}
	if r.Partition < 0 {
		return nil, fmt.Errorf("no header %s: not a dead letter of ours", HeaderDeadPartition)
	}
	if !id {
		name := where.topic + "-" + strconv.Itoa(int(r.Partition)) + "-" + where.offset
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderID, Value: []byte(name)})
	}
	return r, nil
}

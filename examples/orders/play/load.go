package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An Order is what a record holds; the customer is its key as well.
type Order struct {
	Customer string `json:"customer"`
	N        int    `json:"n"` // the customer's first is 0
}

// A Load is a number of orders.
type Load struct {
	Customers, Each int
	Pause           time.Duration // after each round of one order a customer
}

// Validate returns an error if it is not a load.
func (l Load) Validate() error {
	if l.Customers < 1 || l.Each < 1 {
		return fmt.Errorf("--customers %d --each %d: want at least 1", l.Customers, l.Each)
	}
	return nil
}

// reachable is how long it may take to reach a broker.
const reachable = 10 * time.Second

// Send writes the orders of a load: each customer's in order, the customers in turn.
func (l Load) Send(ctx context.Context, opts []kgo.Opt, topic string) error {
	c, err := kgo.NewClient(append(slices.Clone(opts), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		return err
	}
	defer c.Close()
	reach, done := context.WithTimeout(ctx, reachable)
	defer done()
	if err := c.Ping(reach); err != nil { // a record waits for a broker for ever
		return fmt.Errorf("reach the brokers: %w", err)
	}
	for n := range l.Each {
		var round []*kgo.Record
		for i := range l.Customers {
			o := Order{Customer: fmt.Sprint("c", i), N: n}
			body, err := json.Marshal(o)
			if err != nil {
				return err
			}
			round = append(round, &kgo.Record{Key: []byte(o.Customer), Value: body})
		}
		err := c.ProduceSync(ctx, round...).FirstErr()
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("send orders to %s: %w (create it first, with as many partitions as you want: kafka-topics --create --topic %[1]s --partitions 6)", topic, err)
		}
		if err != nil {
			return fmt.Errorf("send orders to %s: %w", topic, err)
		}
		select {
		case <-time.After(l.Pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// CreateTopic makes the topic, if it is not there.
func CreateTopic(ctx context.Context, opts []kgo.Opt, topic string, partitions int) error {
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer c.Close()
	made, err := kadm.NewClient(c).CreateTopics(ctx, int32(partitions), -1, nil, topic)
	if err == nil {
		err = made.Error()
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return nil
}

// Lag is how many records of a topic a group has not got behind it; what it knows
// nothing of counts whole.
func Lag(ctx context.Context, opts []kgo.Opt, group, topic string) (int64, error) {
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	known, err := admin.FetchOffsetsForTopics(ctx, group, topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return 0, err
	}
	var lag int64
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(0)
		if o, ok := known.Lookup(topic, end.Partition); ok && o.At > 0 {
			at = o.At
		}
		lag += end.Offset - at
	})
	return lag, nil
}

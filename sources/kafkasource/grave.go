package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/sources/kafkasource/internal/prompt"
)

// A letter is a dead letter on its way.
type letter struct {
	record   *kgo.Record
	admitted bool // the store has admitted its owner since it was written
	buried   bool // it is on the dead topic
}

// letterBytes is about how much goes into one batch: what fits in the default limit
// of a broker. A letter that is larger goes alone.
const letterBytes = 512 << 10

// letterTimeout bounds a put: what the broker does not refuse the client would try for ever.
const letterTimeout = 10 * time.Second

var errLate = errors.New("the broker may be away, or the partition without a leader or enough replicas in sync")

// A grave is the dead topic.
type grave struct {
	source   *Source
	patience time.Duration // letterTimeout; less in tests

	asking     chan struct{} // holds a value while somebody asks, once for all
	partitions atomic.Int32  // of the dead topic; 0: not asked yet
}

// put writes letters and returns how many were answered, in their order. Its error comes within
// patience.
func (g *grave) put(ctx context.Context, letters []*letter) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	defer func() {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("kafkasource: dead letters to %s: not answered within %v: %w", g.source.cfg.DeadTopic, g.patience, errLate)
		}
	}()
	total, err := g.ready(ctx)
	if err != nil {
		return 0, err
	}
	for n < len(letters) {
		var batch []*kgo.Record
		for bytes := 0; n+len(batch) < len(letters); {
			r := *letters[n+len(batch)].record // the client keeps in it the ctx of an attempt
			if bytes += weight(&r); bytes > letterBytes && len(batch) > 0 {
				break
			}
			r.Topic = g.source.cfg.DeadTopic
			r.Partition %= total
			batch = append(batch, &r)
		}
		if err := g.write(ctx, batch); err != nil {
			g.forget(ctx, err)
			return n, fmt.Errorf("kafkasource: dead letters to %s: %w", g.source.cfg.DeadTopic, explain(err))
		}
		n += len(batch)
	}
	return n, nil
}

// write waits until all of a batch are answered, or one is refused, or ctx ends: the client takes
// its time to notice that.
func (g *grave) write(ctx context.Context, batch []*kgo.Record) error {
	answers := make(chan error, len(batch))
	for _, r := range batch {
		g.source.client.Produce(ctx, r, func(_ *kgo.Record, err error) { answers <- err })
	}
	for range batch {
		select {
		case err := <-answers:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// forget has the dead topic looked for again. If somebody has deleted it, to empty it, the client
// forgets it as well, with all that is on its way there.
func (g *grave) forget(ctx context.Context, err error) {
	g.partitions.Store(0)
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		_, _ = prompt.Call(ctx, func() (struct{}, error) {
			g.source.client.PurgeTopicsFromProducing(g.source.cfg.DeadTopic)
			return struct{}{}, nil
		})
	}
}

// ready finds the dead topic, or makes it.
func (g *grave) ready(ctx context.Context) (int32, error) {
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if n := g.partitions.Load(); n > 0 {
		return n, nil
	}
	s := g.source
	fail := func(err error) (int32, error) {
		return 0, fmt.Errorf("kafkasource: dead topic %s: %w", s.cfg.DeadTopic, explain(err))
	}
	t, err := s.describe(ctx, s.cfg.DeadTopic, kadm.OpWrite)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if err = g.create(ctx, s.admin.CreateTopics); err == nil {
			t, err = g.known(ctx)
		}
	}
	if err != nil {
		return fail(err)
	}
	g.partitions.Store(int32(len(t.Partitions)))
	return g.partitions.Load(), nil
}

// known waits until what was just created is known: brokers hear of it one after the other.
func (g *grave) known(ctx context.Context) (kmsg.MetadataResponseTopic, error) {
	for {
		t, err := g.source.describe(ctx, g.source.cfg.DeadTopic, kadm.OpWrite)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, err
		case <-time.After(knownAfter):
		}
	}
}

// knownAfter is how soon it is asked again whether a topic is known.
const knownAfter = 20 * time.Millisecond

// A creation makes topics, or only asks whether they could be made.
type creation func(ctx context.Context, partitions int32, replicas int16, configs map[string]*string, topics ...string) (kadm.CreateTopicResponses, error)

// foresee tells if the brokers refuse to make the dead topic, which is not there: the first letter would be told that.
// A controller that does not answer says nothing, nor does one that cannot be asked without making it.
func (g *grave) foresee(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	err := g.create(ctx, g.source.admin.ValidateCreateTopics)
	cannotAsk := errors.Is(err, kerr.InvalidRequest) || errors.Is(err, kerr.UnsupportedVersion)
	if refusal := (*kerr.Error)(nil); errors.As(err, &refusal) && !refusal.Retriable && !cannotAsk {
		g.source.warn(fmt.Errorf("kafkasource: dead topic %s is not there and cannot be made, so that the first dead letter holds up its partition: create it: %w",
			g.source.cfg.DeadTopic, explain(err)))
	}
}

// create makes the dead topic like the topic: as many partitions, so that a letter
// stays in its own, as many replicas, and room for the largest record and what a letter adds.
// Letters are kept until somebody takes them away.
func (g *grave) create(ctx context.Context, say creation) error {
	s := g.source
	live, err := s.topic(ctx)
	if err != nil {
		return err
	}
	configs := map[string]*string{}
	described, err := prompt.Call(ctx, func() (kadm.ResourceConfigs, error) { return s.admin.DescribeTopicConfigs(ctx, s.cfg.Topic) })
	if err == nil && len(described) == 1 {
		for _, c := range described[0].Configs {
			switch n, err := strconv.Atoi(c.MaybeValue()); {
			case err != nil:
			case c.Key == "max.message.bytes":
				configs[c.Key] = kadm.StringPtr(strconv.Itoa(min(n+letterRoom, math.MaxInt32)))
			case c.Key == "min.insync.replicas":
				configs[c.Key] = c.Value
			}
		}
	}
	create := func(replicas int16) error {
		made, err := prompt.Call(ctx, func() (kadm.CreateTopicResponses, error) {
			return say(ctx, int32(len(live.Partitions)), replicas, configs, s.cfg.DeadTopic)
		})
		return cmp.Or(err, made.Error())
	}
	configs["retention.ms"], configs["cleanup.policy"] = kadm.StringPtr("-1"), kadm.StringPtr("delete")
	err = create(int16(len(live.Partitions[0].Replicas)))
	if errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation) {
		delete(configs, "retention.ms") // a broker may bound how long records are kept
		err = create(-1)
	}
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil // by another peer
	}
	return err
}

// examine tells of a dead topic that somebody else has made and that loses letters, or does not take each
// of them. Who may not ask for that is told nothing.
func (g *grave) examine(ctx context.Context) {
	s := g.source
	described, err := prompt.Call(ctx, func() (kadm.ResourceConfigs, error) {
		return s.admin.DescribeTopicConfigs(ctx, s.cfg.Topic, s.cfg.DeadTopic)
	})
	if err != nil {
		return
	}
	const policy, limit = "cleanup.policy", "max.message.bytes"
	is := map[string]map[string]string{s.cfg.Topic: {}, s.cfg.DeadTopic: {}}
	for _, topic := range described {
		for _, c := range topic.Configs {
			is[topic.Name][c.Key] = c.MaybeValue()
		}
	}
	dead := is[s.cfg.DeadTopic]
	if strings.Contains(dead[policy], "compact") {
		s.warn(fmt.Errorf("kafkasource: dead topic %s has %s %s: of the letters of a key only the last stays, and without a key none is taken: make it delete",
			s.cfg.DeadTopic, policy, dead[policy]))
	}
	most, errDead := strconv.Atoi(dead[limit])
	live, errLive := strconv.Atoi(is[s.cfg.Topic][limit])
	if errDead == nil && errLive == nil && most < live {
		s.warn(fmt.Errorf("kafkasource: dead topic %s has %s %d, and %s has %d: a letter that is too large holds up its partition: make it %d",
			s.cfg.DeadTopic, limit, most, s.cfg.Topic, live, min(live+letterRoom, math.MaxInt32)))
	}
}

// letterRoom is how much larger than its record a letter may be.
const letterRoom = 64 << 10

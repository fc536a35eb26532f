// Package kafkatest gives tests a Kafka: kfake inside the test process, or the broker
// that COUNTOFF_KAFKA names, so that one suite runs on both. What kfake does
// differently is listed in docs/kafka.md.
package kafkatest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BrokerVariable names a real broker, as host:port.
const BrokerVariable = "COUNTOFF_KAFKA"

// patience is how long anything may take before it counts as never.
const patience = 30 * time.Second

// A Broker is a Kafka for one test.
type Broker struct {
	t       testing.TB
	seeds   []string
	Cluster *kfake.Cluster // nil: it is a real one
}

// New returns the broker that BrokerVariable names, else a kfake that ends with the test.
func New(t testing.TB) *Broker {
	t.Helper()
	if addr := os.Getenv(BrokerVariable); addr != "" {
		return &Broker{t: t, seeds: strings.Split(addr, ",")}
	}
	return Fake(t)
}

// Fake returns a kfake with one node that ends with the test.
func Fake(t testing.TB, opts ...kfake.Opt) *Broker {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &Broker{t: t, seeds: c.ListenAddrs(), Cluster: c}
}

// Real returns the broker that BrokerVariable names, and skips the test if there is none.
func Real(t testing.TB) *Broker {
	t.Helper()
	if os.Getenv(BrokerVariable) == "" {
		t.Skipf("%s is not set: start a broker with .ci/kafka start, and set it to the address that it prints", BrokerVariable)
	}
	return New(t)
}

// Options are those of a client.
func (b *Broker) Options() []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(b.seeds...)} }

// Seeds are the addresses.
func (b *Broker) Seeds() []string { return b.seeds }

// Client returns a client that produces each record to its Partition, and ends with
// the test.
func (b *Broker) Client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(append(append(b.Options(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(100*time.Millisecond)), opts...)...) // a topic that was just made is not known everywhere
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

// coordinate waits until the broker keeps the offsets of groups: a new one makes the
// topic for them when it is first asked, and has no coordinator until then.
func (b *Broker) coordinate(ctx context.Context, admin *kadm.Client) {
	b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := admin.FetchOffsets(ctx, "countoff-kafkatest")
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("kafkatest: no coordinator of groups: %v", err)
		}
	}
}

// Topic makes a topic that takes records of 4 MiB, and removes it with the test, on a
// real broker with its dead letters. Its name is unique.
func (b *Broker) Topic(partitions int) string {
	b.t.Helper()
	name := Name(b.t)
	b.Create(name, partitions)
	return name
}

// Create makes the topic name.
func (b *Broker) Create(name string, partitions int) {
	b.t.Helper()
	admin := kadm.NewClient(b.Client())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	large, forever := "4194304", "-1" // tests push records that were born long ago
	done, err := admin.CreateTopics(ctx, int32(partitions), 1, map[string]*string{"max.message.bytes": &large, "retention.ms": &forever}, name)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		b.t.Fatalf("kafkatest: create %s: %v", name, err)
	}
	b.await(ctx, name, partitions)
	if b.Cluster != nil {
		return
	}
	b.coordinate(ctx, admin)
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := kgo.NewClient(b.Options()...)
		if err != nil {
			b.t.Error(err)
			return
		}
		defer c.Close()
		// Whether there is a dead topic is the test's business.
		_, _ = kadm.NewClient(c).DeleteTopics(ctx, name, name+".dead")
	})
}

// await waits until the broker knows a topic that was created, or grew: a real one
// answers before it does.
func (b *Broker) await(ctx context.Context, name string, partitions int) {
	b.t.Helper()
	client := b.Client()
	for {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		reply, err := req.RequestWith(ctx, client)
		if err != nil {
			b.t.Fatalf("kafkatest: metadata of %s: %v", name, err)
		}
		ready := 0
		for _, p := range reply.Topics[0].Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				ready++
			}
		}
		if ready >= partitions {
			return
		}
	}
}

// Grow gives a topic more partitions, total in all.
func (b *Broker) Grow(name string, total int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done, err := kadm.NewClient(b.Client()).UpdatePartitions(ctx, total, name)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		b.t.Fatalf("kafkatest: grow %s to %d: %v", name, total, err)
	}
	b.await(ctx, name, total)
}

// Name returns a name for a topic that no other test has.
func Name(t testing.TB) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	if len(clean) > 40 {
		clean = clean[len(clean)-40:]
	}
	return clean + "-" + time.Now().Format("150405.000000")
}

package kafkasource

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
)

// An unreadyStore is not ready.
type unreadyStore struct{ Store }

var errUnready = errors.New("give me a disk")

func (unreadyStore) Ready(context.Context) error { return errUnready }

// A store that is not ready is told at start, and not when the first partition is opened.
func TestAStoreThatIsNotReady(t *testing.T) {
	t.Parallel()
	src := newStage(t, 1).source(Config{})
	src.store = unreadyStore{src.store}
	if l, err := src.Layout(t.Context()); !errors.Is(err, errUnready) {
		t.Errorf("the layout is %+v, %v, want what the store says", l, err)
	}
}

// Two names with their progress in one place would each take the other's tasks for done.
func TestAStoreOfAnotherName(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	_, err := New(s.name+"-2", s.store(Config{Topic: s.topic, Options: s.broker.Options()}), Config{Topic: s.topic, Options: s.broker.Options()})
	if !errors.Is(err, partition.ErrName) {
		t.Errorf("the source was made: %v", err)
	}
}

// Of a partition that the store knows the group is not asked: one that does not answer, or
// stands elsewhere, stops and moves nothing.
func TestTheGroupIsNotAskedForWhatIsKnown(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 3)
	s.worked(s.source(Config{}), 0, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	var asked atomic.Int32
	s.broker.Cluster.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	src := s.source(Config{Mirror: time.Hour}) // it looks before it commits
	s.want("the next owner", s.take(s.open(src, 0), 1)[0], "t1")
	if n := asked.Load(); n != 0 {
		t.Errorf("the group was asked %d times", n)
	}
}

// A token of another epoch is no right to the partition: what it would install is the fence of
// another grant.
func TestATokenOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		src := s.source(Config{})
		for _, c := range []struct{ grant, token partition.Epoch }{{0, 0}, {1, 2}, {2, 1}} {
			st, err := src.Open(s.soon(), partition.Grant{Epoch: c.grant}, partition.Token{Epoch: c.token, Session: "x"})
			if err == nil || !strings.Contains(err.Error(), "not of the grant's epoch") {
				s.Errorf("a token of epoch %v opened a grant of epoch %v: %v, %v", c.token, c.grant, st, err)
			}
		}
		if base, _, err := src.store.Stands(s.soon(), 0); base >= 0 || err != nil {
			s.Errorf("it stands at %d, %v", base, err)
		}
	})
}

// Who comes too late is told of the epoch that stands, by the store's own words.
func TestARefusalSaysTheEpoch(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		src := s.source(Config{})
		st := s.open(src, 0)
		g := partition.Grant{Epoch: s.epoch}
		_, err := src.Open(s.soon(), g, partition.Token{Epoch: g.Epoch, Session: "another"})
		if want := (&sources.FencedError{Grant: g, Stored: g.Epoch}).Error(); err == nil || err.Error() != want {
			s.Errorf("refused with %v, want %s", err, want)
		}
		s.close(st)
	})
}

// A topic that was made again with fewer partitions has as many as the ledger was told, and who
// holds one that is not there is told what to do.
func TestATopicThatShrinks(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	src := s.source(Config{OutOfRange: Earliest})
	if _, err := src.Layout(s.soon()); err != nil {
		t.Fatal(err)
	}
	recreate(1)(s)
	if l, err := src.Layout(s.soon()); err != nil || l.Total != 3 {
		t.Errorf("the layout is %+v, %v, want the 3 partitions that were", l, err)
	}
	if _, err := s.try(src, 2); err == nil || !strings.Contains(err.Error(), "partition 2 does not exist") || !strings.Contains(err.Error(), "3 partitions") {
		t.Errorf("a partition that is not there any more: %v", err)
	}
	if _, err := s.try(s.source(Config{OutOfRange: Earliest}), 2); err == nil || !strings.Contains(err.Error(), "partition 2 does not exist") || !strings.Contains(err.Error(), "as many again") {
		t.Errorf("to who starts now: %v", err)
	}
	s.want("one that is there", s.take(s.open(src, 0), 1)[0], "again0")
	s.broker.Grow(s.topic, 3)
	s.client.PurgeTopicsFromClient(s.topic)
	s.push(2, "t", 1)
	s.want("one that is there again", s.take(s.open(src, 2), 1)[0], "t0")
}

// To look at a topic does not make it: neither one whose name is wrong, nor the dead topic
// before there is a letter, which would get the partitions and limits of the broker's defaults.
func TestLookingMakesNoTopic(t *testing.T) {
	t.Parallel()
	s := stageOn(t, kafkatest.Fake(t, kfake.AllowAutoTopicCreation()), 1)
	for range 2 {
		if l, err := s.source(Config{Topic: "wrong"}).Layout(s.soon()); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("the layout is %+v, %v, want that there is no such topic", l, err)
		}
	}
	src := s.source(Config{})
	if _, err := src.Layout(s.soon()); err != nil {
		t.Fatal(err)
	}
	s.push(0, "t", 1)
	st := s.open(src, 0)
	s.take(st, 1)
	src.mirror.look(s.soon())
	if err := DeadLetters(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}, nil); err != nil {
		t.Error(err)
	}
	if err := DeadLetters(s.soon(), s.name, Config{Topic: "wrong", Options: s.broker.Options()}, nil); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("the letters of a topic that is not there: %v", err)
	}
	made, err := s.admin.ListTopics(s.soon())
	if err != nil || len(made) != 1 {
		t.Errorf("there are %v, %v, want %s alone", made.Names(), err, s.topic)
	}
}

// A topic of which the broker knows no partition yet is not there.
func TestATopicWithoutPartitions(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	s.broker.Create(s.topic+".dead", 1)
	src := s.source(Config{})
	s.broker.Cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster.KeepControl()
		reply := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range req.(*kmsg.MetadataRequest).Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = asked.Topic
			reply.Topics = append(reply.Topics, topic)
		}
		node := kmsg.NewMetadataResponseBroker()
		addr := strings.Split(s.broker.Seeds()[0], ":")
		node.Host = addr[0]
		_, _ = fmt.Sscan(addr[1], &node.Port)
		reply.Brokers = append(reply.Brokers, node)
		return reply, nil, true
	})
	if l, err := src.Layout(s.soon()); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("the layout is %+v, %v", l, err)
	}
	if n, err := src.grave.put(s.soon(), lettersOf(1, 0)); n != 0 || err == nil {
		t.Errorf("%d letters in a dead topic without partitions, %v", n, err)
	}
}

// A position that the broker has not got ends the ownership: the client does not go on elsewhere
// by itself.
func TestAPositionThatIsNotThere(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 2)
	src := s.source(Config{})
	s.worked(src, 0, 2)
	s.fault(s.topic, kerr.OffsetOutOfRange, kmsg.Fetch)
	st := s.open(src, 0)
	if tasks, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Errorf("fetched %d tasks, %v, want ErrForgot", len(tasks), err)
	}
}

// A letter is as large as the dead topic takes: the client's own limit would keep it from ever
// being written.
func TestALargeLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)          // takes records of 4 MiB
	noise := make([]byte, 3<<20) // not to be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	if n, err := s.source(Config{}).grave.put(s.soon(), []*letter{{record: &kgo.Record{Value: noise}}}); n != 1 || err != nil {
		t.Error(n, err)
	}
}

// What is fetched of a partition at once is bounded by the buffer.
func TestLimitsOfBytes(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	asked := make(chan int32, 100)
	s.broker.Cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster.KeepControl()
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			for _, p := range topic.Partitions {
				select {
				case asked <- p.PartitionMaxBytes:
				default:
				}
			}
		}
		return nil, nil, false
	})
	for _, c := range []struct {
		buffer int
		want   int32
	}{{1, 1 << 16}, {1 << 20, 1 << 18}, {1 << 30, 1 << 20}} {
		st := s.open(s.source(Config{Buffer: c.buffer}), 0)
		if got := <-asked; got != c.want {
			t.Errorf("with a buffer of %d a fetch asks for %d, want %d", c.buffer, got, c.want)
		}
		s.close(st)
		for len(asked) > 0 {
			<-asked
		}
	}
}

// Options that would have the client consume by itself are refused: it would be given no
// partition, and nobody would be told. So are those that keep letters in the client, send them elsewhere or
// take them for written before a broker says so, and what is none.
func TestOptionsThatConsume(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	for name, opt := range map[string]kgo.Opt{
		"ConsumerGroup": kgo.ConsumerGroup("workers"), "ConsumeTopics": kgo.ConsumeTopics(s.topic), "ConsumeRegex": kgo.ConsumeRegex(),
		"ManualFlushing": kgo.ManualFlushing(), "DefaultProduceTopicAlways": kgo.DefaultProduceTopicAlways(), "NoAck": kgo.RequiredAcks(kgo.NoAck()), "is nil": nil,
	} {
		options := append(s.broker.Options(), kgo.DisableIdempotentWrite(), opt) // kgo itself refuses less than all acks beside it
		src, err := New(s.name, unreadyStore{s.store(Config{})}, Config{Topic: s.topic, Options: options})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want that it is refused", name, err)
		}
		if src != nil {
			src.Close()
		}
		if _, err := Drop(s.soon(), s.name, Config{Topic: s.topic, Options: options}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: drop: %v, want that it is refused", name, err)
		}
	}
}

// A record that is large and was compressed well is a letter that fits, and comes back.
func TestALetterIsAsSmallAsItsRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	most := fmt.Sprint(1 << 20) // a batch; to compress one of 4 MiB takes a slow machine a minute
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &most}}
	if done, err := s.admin.AlterTopicConfigs(s.soon(), set, s.topic); err != nil || done[0].Err != nil {
		t.Fatal(err, done)
	}
	noise := make([]byte, 3<<18) // in hex it compresses to about this
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	producer := s.broker.Client(kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(64<<20))
	if err := producer.ProduceSync(s.soon(), &kgo.Record{Topic: s.topic, Value: hex.AppendEncode(nil, noise)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	src := s.source(Config{})
	src.grave.patience = testPatience // it is compressed again, which takes a slow machine its time
	st := s.open(src, 0)
	s.settle(st, sources.Dead, s.take(st, 1)...)
	if n, err := Requeue(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}, nil); n != 1 || err != nil {
		t.Errorf("requeued %d, %v", n, err)
	}
}

// What a transaction has open when a name begins at the latest comes when it is committed: all of it, as
// after the last stable offset for any other consumer.
func TestATransactionThatIsOpenAtTheLatestIsNotSkipped(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	p := s.broker.Client(kgo.TransactionalID(s.name + "-tx"))
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := p.ProduceSync(s.soon(), &kgo.Record{Topic: s.topic, Partition: 0, Value: fmt.Append(nil, "t", i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	st := s.open(s.source(Config{Start: Latest}), 0)
	if err := p.ProduceSync(s.soon(), &kgo.Record{Topic: s.topic, Partition: 0, Value: []byte("t3")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := p.EndTransaction(s.soon(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	got := s.take(st, 1)
	s.want("the first of a transaction that was committed after the start", got[0], "t0")
}

// What a constructor returns beside an error is a nil pointer.
func TestAStoreThatIsNilInsideIsMissing(t *testing.T) {
	t.Parallel()
	cfg := Config{Topic: "mails", Options: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}}
	for _, store := range []Store{nil, (*unreadyStore)(nil)} {
		if _, err := New("mail", store, cfg); err == nil || !strings.Contains(err.Error(), "no store") {
			t.Errorf("%T: %v", store, err)
		}
	}
}

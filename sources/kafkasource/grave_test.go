package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// lettersOf are n letters of about a batch each.
func lettersOf(n int, p int32) (all []*letter) {
	noise := make([]byte, letterBytes/4*3) // not to be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for i := range n {
		all = append(all, &letter{record: &kgo.Record{Partition: p, Key: fmt.Append(nil, i), Value: noise}})
	}
	return all
}

// A dead topic of somebody's own may have fewer partitions than the topic: letters of all find
// a place, and the largest that the topic takes fits with what a letter adds.
func TestEachLetterFindsAPlace(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	t.Run("in the one that is made", func(t *testing.T) {
		src := s.source(Config{})
		if n, err := src.grave.put(s.soon(), lettersOf(1, 2)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		s.records(s.topic+".dead", 2, 1)
		made, err := s.admin.DescribeTopicConfigs(s.soon(), s.topic+".dead")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range made[0].Configs {
			if want := fmt.Sprint(4<<20 + letterRoom); c.Key == "max.message.bytes" && c.MaybeValue() != want {
				t.Errorf("it takes %s bytes, want %s", c.MaybeValue(), want)
			}
		}
	})
	t.Run("in a smaller one", func(t *testing.T) {
		dead := s.broker.Topic(1)
		if n, err := s.source(Config{DeadTopic: dead}).grave.put(s.soon(), lettersOf(2, 2)); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		s.records(dead, 0, 2)
	})
}

// Letters go in batches that a broker takes, and those before one that is refused are not
// written again.
func TestLettersBeforeARefusedOne(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	src := s.source(Config{})
	if _, err := src.grave.ready(s.soon()); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	s.broker.Cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster.KeepControl()
		if requests.Add(1) != 3 {
			return nil, nil, false
		}
		produce := req.(*kmsg.ProduceRequest)
		reply := produce.ResponseKind().(*kmsg.ProduceResponse)
		r := kmsg.NewProduceResponseTopic()
		r.Topic, r.TopicID = produce.Topics[0].Topic, produce.Topics[0].TopicID
		part := kmsg.NewProduceResponseTopicPartition()
		part.ErrorCode = kerr.PolicyViolation.Code
		r.Partitions = append(r.Partitions, part)
		reply.Topics = append(reply.Topics, r)
		return reply, nil, true
	})
	letters := lettersOf(4, 0)
	n, err := src.grave.put(s.soon(), letters)
	if n != 2 || !errors.Is(err, kerr.PolicyViolation) {
		t.Fatalf("%d were written, %v, want 2 and why not the third", n, err)
	}
	if n, err := src.grave.put(s.soon(), letters[n:]); n != 2 || err != nil {
		t.Fatalf("%d of the rest were written, %v", n, err)
	}
	if n := s.buried(); n != int64(len(letters)) || requests.Load() != 5 {
		t.Errorf("%d letters lie there after %d requests, want %d after 5", n, requests.Load(), len(letters))
	}
}

// A dead topic that is deleted, to empty it, is made again: nobody could end a task or hand
// the partition over until the peer was started again.
func TestADeadTopicThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 2)
	st := s.open(s.source(Config{}), 0)
	got := s.take(st, 2)
	s.settle(st, sources.Dead, got[0])
	if _, err := s.admin.DeleteTopics(s.soon(), s.topic+".dead"); err != nil {
		t.Fatal(err)
	}
	s.until("the topic is gone", func() bool { // the answer comes before: a letter might still be written to the old one
		all, err := s.admin.ListTopics(s.soon(), s.topic+".dead")
		return err == nil && errors.Is(all[s.topic+".dead"].Err, kerr.UnknownTopicOrPartition)
	})
	dead := sources.Settlement{Task: &got[1], Outcome: sources.Dead, Attempt: 1, Reason: "no luck"}
	s.until("the letter is written", func() bool { return st.Settle(s.soon(), dead) == nil })
	s.close(st)
	if letters := s.records(s.topic+".dead", 0, 1); string(letters[0].Value) != "t1" {
		t.Errorf("the letter is %q", letters[0].Value)
	}
}

// Brokers hear one after the other of a topic that was just made: it is waited for, and the letter
// is written.
func TestADeadTopicIsKnownLate(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	src, asked := s.source(Config{}), 0
	s.broker.Cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster.KeepControl()
		topics := req.(*kmsg.MetadataRequest).Topics
		if len(topics) != 1 || topics[0].Topic == nil || *topics[0].Topic != s.topic+".dead" {
			return nil, nil, false
		}
		if asked++; asked > 5 {
			return nil, nil, false
		}
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.ErrorCode = topics[0].Topic, kerr.UnknownTopicOrPartition.Code
		return &kmsg.MetadataResponse{Version: req.GetVersion(), Topics: []kmsg.MetadataResponseTopic{topic}}, nil, true
	})
	if n, err := src.grave.put(s.soon(), lettersOf(1, 0)); n != 1 || err != nil {
		t.Errorf("%d letters are written, %v", n, err)
	}
}

// What the broker refuses to say is not taken for an answer: where the group stands that a
// partition goes on from, and where the topic begins and ends.
func TestARefusedAnswerIsNone(t *testing.T) {
	t.Parallel()
	at := func(o int64, code int16) *kmsg.ListOffsetsResponse {
		return &kmsg.ListOffsetsResponse{Topics: []kmsg.ListOffsetsResponseTopic{{
			Partitions: []kmsg.ListOffsetsResponseTopicPartition{{Offset: o, ErrorCode: code}},
		}}}
	}
	if o, err := listed(at(7, 0)); o != 7 || err != nil {
		t.Errorf("offset %d, %v, want 7", o, err)
	}
	if _, err := listed(at(-1, kerr.NotLeaderForPartition.Code)); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("the broker does not lead it: %v", err)
	}
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	s.push(0, "t", 3)
	src := s.source(Config{Start: Latest})
	if _, err := src.look(s.soon()); err != nil { // else the partition counts as one that came later
		t.Fatal(err)
	}
	commit := func(o int64) {
		t.Helper()
		var offsets kadm.Offsets
		offsets.AddOffset(s.topic, 0, o, -1)
		if _, err := s.admin.CommitOffsets(s.soon(), s.name, offsets); err != nil {
			t.Fatal(err)
		}
	}
	commit(0)
	if begin, _, err := src.begin(s.soon(), 0, bounds{start: 0, end: 3, stable: 3}); begin != 0 || err != nil {
		t.Errorf("it begins at %d, %v, want where the group stands: 0", begin, err)
	}
	for _, whole := range []bool{true, false} {
		s.broker.Cluster.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			reply := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			reply.Version = req.GetVersion()
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group = s.name
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			for _, asked := range req.(*kmsg.OffsetFetchRequest).Groups[0].Topics {
				topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
			}
			part := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			part.Offset = -1
			if whole {
				g.ErrorCode = kerr.GroupAuthorizationFailed.Code
			} else {
				part.ErrorCode = kerr.GroupAuthorizationFailed.Code
			}
			topic.Partitions = append(topic.Partitions, part)
			g.Topics = append(g.Topics, topic)
			reply.Groups = append(reply.Groups, g)
			return reply, nil, true
		})
		if begin, _, err := src.begin(s.soon(), 0, bounds{start: 0, end: 3, stable: 3}); !errors.Is(err, kerr.GroupAuthorizationFailed) {
			t.Errorf("whole %v: it begins at %d, %v, want the refusal", whole, begin, err)
		}
	}
}

// A refusingStore admits a reset to nobody.
type refusingStore struct{ Store }

var errReset = errors.New("no reset")

func (refusingStore) Reset(context.Context, partition.Grant, partition.Token, int64, int64, string) (int64, error) {
	return 0, errReset
}

// A base that the store has not taken is none: the next owner would begin at the old one, with
// what is known of positions that are not there.
func TestAResetThatFails(t *testing.T) {
	t.Parallel()
	src := &Source{store: refusingStore{}, cfg: Config{OutOfRange: Latest}}
	f := progress.Found{Opened: progress.Opened{Base: 1}}
	if err := src.place(t.Context(), partition.Grant{}, partition.Token{}, bounds{start: 4, end: 8, stable: 8, life: "x"}, &f); !errors.Is(err, errReset) {
		t.Errorf("it is placed at %d, %v", f.Base, err)
	}
}

// Letters stay until somebody takes them away, whatever the broker does with topics that say nothing. A
// broker that bounds it has its way.
func TestLettersAreKept(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1) // kafkatest makes topics with retention.ms=-1
	if _, err := s.source(Config{}).grave.ready(s.soon()); err != nil {
		t.Fatal(err)
	}
	kept := map[string]string{}
	for _, topic := range []string{s.topic, s.topic + ".dead"} {
		c, err := s.admin.DescribeTopicConfigs(s.soon(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range c[0].Configs {
			if e.Key == "retention.ms" {
				kept[topic] = e.MaybeValue()
			}
		}
	}
	if kept[s.topic] != kept[s.topic+".dead"] {
		t.Errorf("records are kept %s ms, letters %s ms", kept[s.topic], kept[s.topic+".dead"])
	}
}

// A dead topic that somebody else has made and that loses letters, or takes not each of them, is told of at the
// start, and before a letter was lost.
func TestADeadTopicThatKeepsNotAll(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1) // kafkatest makes topics that take 4 MiB
	s.broker.Create(s.topic+".dead", 1)
	told := func() string {
		var all []string
		if _, err := s.source(Config{Warn: func(err error) { all = append(all, err.Error()) }}).Layout(s.soon()); err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, "\n")
	}
	if is := told(); is != "" {
		t.Errorf("of a dead topic that is like its topic it says %s", is)
	}
	policy, size := "compact,delete", "1048588"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}, {Op: kadm.SetConfig, Name: "max.message.bytes", Value: &size}}
	done, err := s.admin.AlterTopicConfigs(s.soon(), set, s.topic+".dead")
	if err != nil || done[0].Err != nil {
		t.Fatal(err, done[0].Err)
	}
	s.until("the dead topic is compacted", func() bool {
		is, err := s.admin.DescribeTopicConfigs(s.soon(), s.topic+".dead")
		return err == nil && slices.ContainsFunc(is[0].Configs, func(c kadm.Config) bool { return c.MaybeValue() == policy })
	})
	is := told()
	for _, word := range []string{s.topic + ".dead", "cleanup.policy", "max.message.bytes 1048588", "4194304", "holds up its partition"} {
		if !strings.Contains(is, word) {
			t.Errorf("%q does not say %q", is, word)
		}
	}
}

// A dead topic that is not there, and that the brokers would not make, is told of at the start, and not by the first
// letter. A broker that is not the controller at the moment says nothing of that, nor one that only knows how to make it.
func TestADeadTopicThatCouldNotBeMade(t *testing.T) {
	t.Parallel() // it waits for most of its time
	for _, c := range []struct {
		err  *kerr.Error
		told bool
	}{{nil, false}, {kerr.TopicAuthorizationFailed, true}, {kerr.PolicyViolation, true}, {kerr.NotController, false}, {kerr.InvalidRequest, false}, {kerr.UnsupportedVersion, false}} {
		t.Run(fmt.Sprint(c.err), func(t *testing.T) {
			s := newStage(t, 1)
			if s.broker.Cluster == nil {
				t.Skip("a broker that can be told to refuse")
			}
			s.broker.Cluster.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				req := r.(*kmsg.CreateTopicsRequest)
				if !req.ValidateOnly {
					t.Errorf("a start makes %s", req.Topics[0].Topic)
				}
				if c.err == nil {
					return nil, nil, false
				}
				reply := req.ResponseKind().(*kmsg.CreateTopicsResponse)
				topic := kmsg.NewCreateTopicsResponseTopic()
				topic.Topic, topic.ErrorCode = req.Topics[0].Topic, c.err.Code
				reply.Topics = append(reply.Topics, topic)
				return reply, nil, true
			})
			var warned []error
			if _, err := s.source(Config{Warn: func(err error) { warned = append(warned, err) }}).Layout(s.soon()); err != nil {
				t.Fatal(err)
			}
			if told := len(warned) == 1 && errors.Is(warned[0], c.err) && strings.Contains(warned[0].Error(), s.topic+".dead is not there and cannot be made, so that the first dead letter holds up its partition"); told != c.told || len(warned) > 1 {
				t.Errorf("warned of %v, told: %v, want %v", warned, told, c.told)
			}
		})
	}
}

// A dead topic has as many replicas in sync as its topic, and whoever comes after another peer that has made it takes it as it is.
func TestADeadTopicIsMadeOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	two := "2"
	done, err := s.admin.AlterTopicConfigs(s.soon(), []kadm.AlterConfig{{Name: "min.insync.replicas", Value: &two}}, s.topic)
	if err == nil {
		_, err = done.On(s.topic, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	limited := func(topic string) func() bool {
		return func() bool { // a broker hears of it later than the controller
			configs, err := s.admin.DescribeTopicConfigs(s.soon(), topic)
			return err == nil && len(configs) == 1 && slices.ContainsFunc(configs[0].Configs, func(c kadm.Config) bool {
				return c.Key == "min.insync.replicas" && c.MaybeValue() == two
			})
		}
	}
	s.until("the topic has its limits", limited(s.topic))
	src := s.source(Config{})
	for range 2 {
		if err := src.grave.create(s.soon(), src.admin.CreateTopics); err != nil {
			t.Error(err)
		}
	}
	s.until("its limits are those of the topic", limited(s.topic+".dead"))
}

// A broker may bound how long records are kept, and say so by refusing: then the dead topic is made as it allows,
// and the letter is written.
func TestADeadTopicThatMayNotKeepForEver(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.InvalidConfig, kerr.PolicyViolation} {
		t.Run(refusal.Message, func(t *testing.T) {
			s := newStage(t, 1)
			if s.broker.Cluster == nil {
				t.Skip("a broker that can be told to refuse")
			}
			s.broker.Cluster.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				req := r.(*kmsg.CreateTopicsRequest)
				if !slices.ContainsFunc(req.Topics[0].Configs, func(c kmsg.CreateTopicsRequestTopicConfig) bool { return c.Name == "retention.ms" }) {
					return nil, nil, false
				}
				reply := req.ResponseKind().(*kmsg.CreateTopicsResponse)
				topic := kmsg.NewCreateTopicsResponseTopic()
				topic.Topic, topic.ErrorCode = req.Topics[0].Topic, refusal.Code
				reply.Topics = append(reply.Topics, topic)
				return reply, nil, true
			})
			s.push(0, "t", 1)
			st := s.open(s.source(Config{}), 0)
			s.settle(st, sources.Dead, s.take(st, 1)...)
			if n := s.buried(); n != 1 {
				t.Errorf("%d letters, want 1", n)
			}
		})
	}
}

package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// Dead letters that are requeued come again in their order, as the tasks that they
// were, and once.
func TestRequeue(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	src := s.source(Config{})
	var died []sources.Task
	for id, key := range []string{"ann", "bob"} {
		st := s.open(src, partition.ID(id))
		s.push(partition.ID(id), key, 5, key)
		got := s.take(st, 5)
		s.settle(st, sources.Done, got[4])
		s.settle(st, sources.Dead, got[:4]...)
		died = append(died, got[:4]...)
		s.close(st)
	}
	requeue := func(want int) {
		t.Helper()
		n, err := Requeue(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}, func(r *kgo.Record) bool { return string(r.Value) != "bob1" })
		if err != nil || n != want {
			t.Fatalf("requeued %d, %v, want %d", n, err, want)
		}
	}
	requeue(7)
	requeue(0)
	var back []sources.Task
	for id, n := range []int{4, 3} {
		back = append(back, s.take(s.open(src, partition.ID(id)), n)...)
	}
	died = append(died[:5:5], died[6:]...) // bob1 stays dead
	for i, was := range died {
		is := back[i]
		if string(is.Payload) != string(was.Payload) || is.Key != was.Key || is.ID != was.ID || is.Attempt != 1 || fmt.Sprint(is.Headers) != fmt.Sprint(was.Headers) {
			t.Errorf("%d: %s of %s came back as %+v", i, was.Payload, was.Key, is)
		}
	}
}

// How far the letters were passed is of each partition: one is not passed as far as another, with what
// it gets after that.
func TestLettersArePassedInEachPartition(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	src := s.source(Config{})
	streams := []*stream{s.open(src, 0), s.open(src, 1)}
	for i, died := range [][]int{{3, 1}, {0, 1}, {1, 0}} {
		for id, n := range died {
			s.push(partition.ID(id), "t", n)
			s.settle(streams[id], sources.Dead, s.take(streams[id], n)...)
		}
		if n, err := Drop(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}); n != died[0]+died[1] || err != nil {
			t.Errorf("drop %d: %d, %v, want %d", i, n, err, died[0]+died[1])
		}
	}
}

// Dead letters are listed until they were requeued or dropped.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	cfg := Config{Topic: s.topic, Options: s.broker.Options()}
	list := func(most int) string {
		t.Helper()
		var values []string
		err := DeadLetters(s.soon(), s.name, cfg, func(r *kgo.Record) bool {
			values = append(values, string(r.Value))
			return len(values) < most
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(values, " ")
	}
	if got := list(9); got != "" {
		t.Errorf("without a dead topic there is %q", got)
	}
	st := s.open(s.source(Config{}), 1)
	die := func(n int) {
		s.push(1, "t", n)
		s.settle(st, sources.Dead, s.take(st, n)...)
	}
	die(3)
	if got := list(9); got != "t0 t1 t2" {
		t.Errorf("listed %q", got)
	}
	if got := list(2); got != "t0 t1" {
		t.Errorf("listed %q, two were wanted", got)
	}
	if n, err := Drop(s.soon(), s.name, cfg); n != 3 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	die(1)
	if got := list(9); got != "t0" {
		t.Errorf("after the drop there is %q", got)
	}
	if n, err := Requeue(s.soon(), s.name, cfg, nil); n != 1 || err != nil {
		t.Errorf("requeued %d, %v", n, err)
	}
	if got := list(9); got != "" {
		t.Errorf("after the requeue there is %q", got)
	}
}

// bury writes the letter of a record that was at 7/offset, as somebody else may do.
func (s *stage) bury(producer *kgo.Client, dead string, offset string, headers ...kgo.RecordHeader) {
	s.Helper()
	l := &kgo.Record{Topic: dead, Value: []byte("t" + offset), Headers: append(headers,
		kgo.RecordHeader{Key: HeaderDeadTopic, Value: []byte(s.topic)},
		kgo.RecordHeader{Key: HeaderDeadPartition, Value: []byte("0")},
		kgo.RecordHeader{Key: HeaderDeadOffset, Value: []byte(offset)})}
	if err := producer.ProduceSync(s.soon(), l).FirstErr(); err != nil {
		s.Fatal(err)
	}
}

// A letter comes back under the id that its record said; what ends a transaction is no
// letter, nor is what retention has taken waited for.
func TestLettersInATransaction(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	dead := s.topic + ".dead"
	s.broker.Create(dead, 1)
	cfg := Config{Topic: s.topic, Options: s.broker.Options()}
	s.bury(s.client, dead, "4")
	producer := s.broker.Client(kgo.TransactionalID(s.name))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	s.bury(producer, dead, "5", kgo.RecordHeader{Key: HeaderID, Value: []byte("mine")})
	if err := producer.EndTransaction(s.soon(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	letters := *s
	letters.topic = dead
	letters.cut(0, 1)
	var listed []string
	err := DeadLetters(s.soon(), s.name, cfg, func(r *kgo.Record) bool {
		listed = append(listed, string(r.Value))
		return true
	})
	if err != nil || fmt.Sprint(listed) != "[t5]" {
		t.Errorf("listed %q, %v, want t5", listed, err)
	}
	if n, err := Requeue(s.soon(), s.name, cfg, nil); n != 1 || err != nil {
		t.Errorf("requeued %d, %v, want 1", n, err)
	}
	task := s.take(s.open(s.source(Config{}), 0), 1)[0]
	if s.want("what was requeued", task, "t5"); task.ID != "mine" {
		t.Errorf("it has the id %s, want mine", task.ID)
	}
}

// A record whose header of the id is empty has the id of its place, and comes back under that one.
func TestALetterWithAnEmptyID(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	dead := s.topic + ".dead"
	s.broker.Create(dead, 1)
	id := func(value string) kgo.RecordHeader { return kgo.RecordHeader{Key: HeaderID, Value: []byte(value)} }
	s.bury(s.client, dead, "4", id(""))
	s.bury(s.client, dead, "5", id("mine"), id("")) // the last counts
	s.bury(s.client, dead, "6", id(""), id("mine"))
	if n, err := Requeue(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}, nil); n != 3 || err != nil {
		t.Fatalf("requeued %d, %v, want 3", n, err)
	}
	tasks := s.take(s.open(s.source(Config{}), 0), 3)
	for i, want := range []string{s.topic + "-0-4", s.topic + "-0-5", "mine"} {
		if tasks[i].ID != want {
			t.Errorf("%s has the id %s, want %s", tasks[i].Payload, tasks[i].ID, want)
		}
	}
}

// What is no letter of ours stays, and is said; a walk ends where it was told to, although
// more came meanwhile.
func TestLettersOfOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 3)
	cfg := Config{Topic: s.topic + ".live", DeadTopic: s.topic, Options: s.broker.Options()}
	if n, err := Requeue(s.soon(), s.name, cfg, nil); n != 0 || err == nil || !strings.Contains(err.Error(), "partition 0, offset 0") ||
		!strings.Contains(err.Error(), HeaderDeadPartition) {
		t.Errorf("requeued %d, %v, want that the first is no letter of ours", n, err)
	}
	client := s.broker.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{}))
	var met []int64
	w := walker{client: client, admin: kadm.NewClient(client), cfg: cfg, do: func(_ *walker, r *kgo.Record) error {
		met = append(met, r.Offset)
		return nil
	}}
	if err := w.partition(s.soon(), 0, 0, 2); err != nil || fmt.Sprint(met) != "[0 1]" {
		t.Errorf("met %v, %v, want the first two", met, err)
	}
}

// Topics may share a dead topic: the letters of one are listed, requeued and dropped alone, and those
// of the other are there afterwards.
func TestTopicsThatShareADeadTopic(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	dead, other := s.broker.Topic(1), *s
	other.topic, other.name = s.broker.Topic(1), s.name+"-too"
	for _, of := range []*stage{s, &other} { // theirs lie between each other's
		for i := range 2 {
			of.bury(s.client, dead, fmt.Sprint(i))
		}
	}
	s.bury(s.client, dead, "2")
	cfg := func(of *stage) Config { return Config{Topic: of.topic, DeadTopic: dead, Options: s.broker.Options()} }
	want := func(of *stage, n int) {
		t.Helper()
		listed := 0
		if err := DeadLetters(s.soon(), of.name, cfg(of), func(*kgo.Record) bool { listed++; return true }); err != nil || listed != n {
			t.Errorf("%d letters are listed, %v, want %d", listed, err, n)
		}
	}
	want(s, 3)
	want(&other, 2)
	if n, err := Requeue(s.soon(), other.name, cfg(&other), nil); n != 2 || err != nil {
		t.Errorf("requeued %d, %v, want 2", n, err)
	}
	want(&other, 0)
	want(s, 3)
	if n, err := Drop(s.soon(), s.name, cfg(s)); n != 3 || err != nil {
		t.Errorf("dropped %d, %v, want 3", n, err)
	}
	want(s, 0)
	other.bury(s.client, dead, "2")
	want(s, 0)
	want(&other, 1)
	for i, r := range s.records(other.topic, 0, 2) {
		if want := fmt.Sprint("t", i); string(r.Value) != want {
			t.Errorf("requeued %q, want %s", r.Value, want)
		}
	}
}

// A letter of a partition that the topic has not got any more, since it was made anew with fewer,
// goes where the records of its key go now, and holds up no other.
func TestARequeueToATopicThatHasShrunk(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	st := s.open(s.source(Config{}), 2)
	s.push(2, "dan", 2, "dan")
	s.push(2, "none", 1)
	s.settle(st, sources.Dead, s.take(st, 3)...)
	s.close(st)
	if _, err := s.admin.DeleteTopics(s.soon(), s.topic); err != nil {
		t.Fatal(err)
	}
	s.broker.Create(s.topic, 2)
	if n, err := Requeue(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}, nil); n != 3 || err != nil {
		t.Fatalf("requeued %d, %v, want 3", n, err)
	}
	home, err := partition.Murmur2.Of("dan", 2)
	if err != nil {
		t.Fatal(err)
	}
	if home == 0 {
		t.Fatal("the key shows nothing: one without a key goes there as well")
	}
	for i, r := range s.records(s.topic, home, 2) {
		if want := fmt.Sprint("dan", i); string(r.Value) != want {
			t.Errorf("the partition of the key has %q, want %s", r.Value, want)
		}
	}
	if r := s.records(s.topic, 0, 1)[0]; string(r.Value) != "none0" {
		t.Errorf("the one without a key is %q", r.Value)
	}
}

// What cannot go back is said, and what stands before it is not written again: a foreign
// record is passed over, and a letter that the topic does not take is tried again.
func TestARequeueThatFailsGoesOnFromThere(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	dead := s.topic + ".dead"
	s.broker.Create(dead, 1)
	cfg := Config{Topic: s.topic, Options: s.broker.Options()}
	requeue := func(ctx context.Context, want int, says string) {
		t.Helper()
		n, err := Requeue(ctx, s.name, cfg, nil)
		if n != want || says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("requeued %d, %v; want %d and %q", n, err, want, says)
		}
	}
	s.bury(s.client, dead, "0")
	letters := *s
	letters.topic = dead
	letters.push(0, "foreign", 2)
	s.bury(s.client, dead, "1")
	requeue(s.soon(), 2, "2 that cannot be run again, first in "+dead+": partition 0, offset 1")
	requeue(s.soon(), 0, "")

	least := "1000"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &least}}
	if _, err := s.admin.AlterTopicConfigs(s.soon(), set, s.topic); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 2000) // not to be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	s.bury(s.client, dead, "2")
	s.bury(s.client, dead, "4", kgo.RecordHeader{Key: "large", Value: noise})
	s.bury(s.client, dead, "3")
	requeue(s.soon(), 1, "partition 0, offset 5")
	requeue(s.soon(), 0, "partition 0, offset 5")

	st := s.open(s.source(Config{}), 0)
	for i, task := range s.take(st, 3) {
		s.want("what was requeued", task, fmt.Sprint("t", i))
	}
	if st.Log.Read() > 3 {
		t.Errorf("%d were written, want 3", st.Log.Read())
	}
}

// Who interrupts a requeue does not get what it has written a second time.
func TestARequeueThatIsInterruptedGoesOnFromThere(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	dead := s.topic + ".dead"
	s.broker.Create(dead, 1)
	for i := range 3 {
		s.bury(s.client, dead, fmt.Sprint(i))
	}
	ctx, cancel := context.WithCancel(s.soon())
	cfg := Config{Topic: s.topic, Options: s.broker.Options()}
	n, err := Requeue(ctx, s.name, cfg, func(r *kgo.Record) bool {
		if r.Offset == 2 {
			cancel()
		}
		return true
	})
	if n != 2 || !errors.Is(err, context.Canceled) {
		t.Errorf("requeued %d, %v, want the two before the interruption", n, err)
	}
	if n, err := Requeue(s.soon(), s.name, cfg, nil); n != 1 || err != nil {
		t.Errorf("then requeued %d, %v, want 1", n, err)
	}
}

// A givenUp hears of each record that the client has done with.
type givenUp chan struct{}

func (g givenUp) OnProduceRecordUnbuffered(*kgo.Record, error) { close(g) }

// The letter that is on its way when somebody interrupts a requeue is not written a second time: what the broker
// says of it is waited for.
func TestALetterOnItsWayIsRequeuedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker whose answer comes late")
	}
	dead := s.topic + ".dead"
	s.broker.Create(dead, 1)
	for i := range 3 {
		s.bury(s.client, dead, fmt.Sprint(i))
	}
	ctx, cancel := context.WithCancel(s.soon())
	given := make(givenUp)
	s.broker.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		select { // the broker writes it, and answers a client that has given up, or that waits
		case <-given:
		case <-time.After(500 * time.Millisecond):
		}
		return nil, nil, false
	})
	cfg := Config{Topic: s.topic, Options: s.broker.Options()}
	heard := cfg
	heard.Options = append(s.broker.Options(), kgo.WithHooks(given))
	n, err := Requeue(ctx, s.name, heard, nil)
	if n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("requeued %d, %v, want the one that was on its way", n, err)
	}
	if n, err := Requeue(s.soon(), s.name, cfg, nil); n != 2 || err != nil {
		t.Errorf("then requeued %d, %v, want the other 2", n, err)
	}
}

// Letters stay for good, and so does how far they were passed. Brokers forget what a group without members has
// committed after a week, and what was dropped would be there again, and run.
func TestHowFarLettersWerePassedIsKept(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that shows what it is asked")
	}
	s.broker.Create(s.topic+".dead", 1)
	s.bury(s.client, s.topic+".dead", "4")
	var kept []int64
	s.broker.Cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster.KeepControl()
		kept = append(kept, r.(*kmsg.OffsetCommitRequest).RetentionTimeMillis)
		return nil, nil, false
	})
	if n, err := Drop(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}); n != 1 || err != nil {
		t.Fatalf("dropped %d, %v", n, err)
	}
	if year := (365 * 24 * time.Hour).Milliseconds(); len(kept) == 0 || slices.Min(kept) < 10*year {
		t.Errorf("it is to be kept for %d ms", kept)
	}
}

// A broker that cannot be asked how long it keeps a commit keeps it as long as others.
func TestHowFarLettersWerePassedIsKeptSomehow(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	keeper := s.broker.Client()
	keeper.Close()
	w := walker{admin: s.admin, keeper: keeper, cfg: Config{DeadTopic: s.topic}, group: s.name}
	if err := w.passed(s.soon(), 0, 3); err != nil {
		t.Fatal(err)
	}
	if at := s.committed(s.name, 0); at != 3 {
		t.Errorf("the group has %d, want 3", at)
	}
}

// What the group refuses is said: the letters would be written once more.
func TestARequeueThatIsNotKeptIsSaid(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	st := s.open(s.source(Config{}), 0)
	s.push(0, "t", 1)
	s.settle(st, sources.Dead, s.take(st, 1)...)
	member := s.broker.Client(kgo.ConsumerGroup(s.topic+".dead."+s.name+".requeued"), kgo.ConsumeTopics(s.topic))
	joined := make(chan struct{})
	ctx, cancel := context.WithCancel(s.soon())
	go func() {
		defer close(joined)
		member.PollFetches(ctx)
	}()
	s.until("a consumer has the group", func() bool {
		_, generation := member.GroupMetadata()
		return generation > 0
	})
	if _, err := Drop(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}); err == nil || !strings.Contains(err.Error(), "UNKNOWN_MEMBER_ID") {
		t.Errorf("dropped with %v, want what the group says", err)
	}
	cancel()
	<-joined
}

// Who requeues or drops hears that what was done is there again, and not the broker's word alone.
func TestHowFarLettersWerePassedIsNotKept(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]func(context.Context, string, Config) (int, error){
		"requeued": func(ctx context.Context, name string, cfg Config) (int, error) { return Requeue(ctx, name, cfg, nil) },
		"dropped":  Drop,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1)
			if s.broker.Cluster == nil {
				t.Skip("a broker that can be told to fail")
			}
			s.broker.Create(s.topic+".dead", 1)
			s.bury(s.client, s.topic+".dead", "4")
			s.broker.Cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				req := r.(*kmsg.OffsetCommitRequest)
				if req.Topics[0].Partitions[0].Offset == 0 {
					return nil, nil, false // the claim
				}
				reply := req.ResponseKind().(*kmsg.OffsetCommitResponse)
				refused := kmsg.NewOffsetCommitResponseTopicPartition()
				refused.ErrorCode = kerr.PolicyViolation.Code
				reply.Topics = []kmsg.OffsetCommitResponseTopic{{Topic: req.Topics[0].Topic, Partitions: []kmsg.OffsetCommitResponseTopicPartition{refused}}}
				return reply, nil, true
			})
			n, err := take(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()})
			if n != 1 || !errors.Is(err, kerr.PolicyViolation) || !strings.Contains(err.Error(), "up to offset 1 is not kept: letters that were requeued or dropped") {
				t.Errorf("%s %d, %v", what, n, err)
			}
		})
	}
}

// Whatever a walk asks the group, a refusal ends it, and names the group and the right: it is not the group of the peers.
func TestAWalkThatMayNotAskItsGroup(t *testing.T) {
	t.Parallel()
	if newStage(t, 1).broker.Cluster == nil {
		t.Skip("a broker that can be told to refuse")
	}
	for refused, when := range []string{"who has the claim", "how far others came", "whose the claim is", "whether to say how far it came", "whether to give it up"} {
		t.Run(when, func(t *testing.T) {
			s := newStage(t, 1)
			w := s.walker(s.dead(1), func(*kgo.Record) {})
			w.claim.every = time.Hour // it does not look
			w.claim.pause = func(context.Context, time.Duration) error { return nil }
			asked := 0
			s.broker.Cluster.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				req := r.(*kmsg.OffsetFetchRequest)
				if req.Groups[0].Group != w.group {
					return nil, nil, false
				}
				if asked++; asked != refused+1 {
					return nil, nil, false
				}
				reply := req.ResponseKind().(*kmsg.OffsetFetchResponse)
				g := kmsg.NewOffsetFetchResponseGroup()
				g.Group, g.ErrorCode = w.group, kerr.GroupAuthorizationFailed.Code
				reply.Groups = append(reply.Groups, g)
				return reply, nil, true
			})
			err := w.walk(s.soon(), "test")
			if !errors.Is(err, kerr.GroupAuthorizationFailed) || !strings.Contains(err.Error(), "READ on the group "+w.group) || strings.Contains(err.Error(), "mirror") {
				t.Errorf("it ends with %v, want what the group says", err)
			}
		})
	}
}

// Who may not write to the topic, or not read the letters, is told which of both it may have to be.
func TestAWalkThatMayNotReadOrWrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		where string
		key   kmsg.Key
	}{{"", kmsg.Produce}, {".dead", kmsg.ListOffsets}} {
		s := newStage(t, 1)
		cfg := s.dead(1)
		s.fault(s.topic+c.where, kerr.TopicAuthorizationFailed, c.key)
		n, err := Requeue(s.soon(), s.name, cfg, nil)
		if n != 0 || !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "READ and DESCRIBE on the dead topic") ||
			!strings.Contains(err.Error(), "WRITE and DESCRIBE on the topic "+s.topic+")") {
			t.Errorf("%d are requeued, %v", n, err)
		}
	}
}

// A consumer with Pass goes on with a key while one of its tasks waits for its retry. What ends the
// peer then is suspect: it waits until the other is over, is charged when it runs alone, and buried
// after four deaths, and one more for each that came while the other was out for its retry.
func TestPoisonBehindWhatIsPassed(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "fails", 1, "a")
	s.push(0, "poison", 1, "a")
	buried := make(chan sources.Buried, 1)
	deaths := 0
	for len(buried) == 0 {
		st := s.open(s.source(Config{Buried: func(b sources.Buried) { buried <- b }}), 0)
		for len(buried) == 0 {
			task := s.take(st, 1)[0]
			if strings.HasPrefix(string(task.Payload), "poison") {
				break
			}
			o := sources.Requeue
			if task.Attempt == 20 {
				o = sources.Dead
			}
			if err := st.Settle(s.soon(), sources.Settlement{Task: &task, Outcome: o, Attempt: task.Attempt, Delay: time.Millisecond, Reason: "no"}); err != nil {
				t.Fatal(err)
			}
		}
		if deaths++; deaths > 30 {
			t.Fatalf("%d peers died of it, and it is still run", deaths)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_ = st.Close(over) // the peer dies: nothing is said
	}
	if b := <-buried; deaths-1 < 4 || deaths-1 > 6 || b.Position != 1 {
		t.Errorf("%d peers died, want 4, or one or two more; buried: %+v", deaths-1, b)
	}
}

// Two names work one topic, as two consumer groups do. What one of them gave up is its own: the other
// neither lists nor drops it, and what is requeued is nothing to who was done with it.
func TestARequeueIsOfOneName(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	other := *s
	other.name = s.name + "-audit"
	s.push(0, "t", 2)
	cfg := Config{Topic: s.topic, Options: s.broker.Options()}
	billing, audit := s.open(s.source(Config{}), 0), other.open(other.source(Config{}), 0)
	s.settle(billing, sources.Done, s.take(billing, 2)...)
	got := other.take(audit, 2)
	other.settle(audit, sources.Done, got[0])
	other.settle(audit, sources.Dead, got[1])
	if n, err := Requeue(s.soon(), s.name, cfg, nil); n != 0 || err != nil {
		t.Errorf("%d of the other's were requeued, %v", n, err)
	}
	if n, err := Drop(s.soon(), s.name, cfg); n != 0 || err != nil {
		t.Errorf("%d of the other's were dropped, %v", n, err)
	}
	for range 2 { // it dies again
		if n, err := Requeue(s.soon(), other.name, cfg, nil); n != 1 || err != nil {
			t.Errorf("%d were requeued, %v", n, err)
		}
		again := other.take(audit, 1)
		other.want("audit gets", again[0], "t1")
		if len(again[0].Headers) > 0 || again[0].ID != got[1].ID {
			t.Errorf("it comes as %+v", again[0])
		}
		other.settle(audit, sources.Dead, again[0])
	}
	s.push(0, "next", 1)
	s.want("billing, which was done with it, gets", s.take(billing, 1)[0], "next0")
}

// A letter whose record was gone before it died has nothing to run again. It keeps none of the others.
func TestALetterWithoutItsRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 40, "k")
	src := s.source(Config{Window: 4, OutOfRange: Earliest})
	st := s.open(src, 0)
	first := s.take(st, 1)
	if err := st.Settle(s.soon(), sources.Settlement{Task: &first[0], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour, Reason: "no luck"}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		s.settle(st, sources.Done, s.take(st, 1)...)
	}
	s.close(st)
	s.cut(0, 15)
	st = s.open(src, 0)
	rest := s.take(st, 19)
	s.settle(st, sources.Dead, rest[0])
	s.settle(st, sources.Done, rest[1:]...)
	n, err := Requeue(s.soon(), s.name, Config{Topic: s.topic, Options: s.broker.Options()}, nil)
	if n != 1 || err == nil || !strings.Contains(err.Error(), "passed over 1 that cannot be run again") {
		t.Errorf("requeued %d, %v", n, err)
	}
	s.want("requeued is", s.take(st, 1)[0], "t21")
}

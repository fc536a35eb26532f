package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redisprogress"
)

// A partition whose tasks nobody takes is paused, and the others go on. When it goes
// on, nothing is missing.
func TestFullPartitionStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	src := s.source(Config{Buffer: 4 << 10})
	full, other := s.open(src, 0), s.open(src, 1)
	s.push(0, "a", 500)
	for i := range 5 {
		name := fmt.Sprint("b", i, "-")
		s.push(1, name, 100)
		for j, task := range s.take(other, 100) {
			s.want("the other partition", task, fmt.Sprint(name, j))
			s.settle(other, sources.Done, task)
		}
	}
	s.until("the pause", func() bool {
		full.Mu.Lock()
		defer full.Mu.Unlock()
		return full.buffer.paused
	})
	full.Mu.Lock()
	held := full.buffer.bytes
	full.Mu.Unlock()
	if most := full.buffer.most; most != 2<<10 {
		t.Errorf("one of two may have %d bytes of 4096", most)
	}
	// A fetch that was under way comes on top, and its size is bounded as well.
	if held > 4<<10+1<<17 {
		t.Errorf("%d bytes are buffered, 4096 were allowed", held)
	}
	s.close(full) // while it is paused: the next ownership is not
	full = s.open(src, 0)
	for i, task := range s.take(full, 500) {
		s.want("the full partition", task, fmt.Sprint("a", i))
	}
}

// Of a partition with a large backlog that is worked off fast the client is not made to stop: to go on
// it would wait for records of the others, which have none.
func TestABacklogBesideIdlePartitions(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	// So long is a fetch of idle partitions under way: the backlog would take several of them.
	src := s.source(Config{Options: append(s.broker.Options(), kgo.FetchMaxWait(25*time.Second))})
	silent := s.fault(s.topic, kerr.NotLeaderForPartition, kmsg.Fetch)
	st, _ := s.open(src, 0), s.open(src, 1)
	const size, n = 64 << 10, 12 * mostBuffered / (64 << 10)
	value := make([]byte, size)
	var records []*kgo.Record
	for range n {
		records = append(records, &kgo.Record{Topic: s.topic, Value: value})
	}
	if err := s.client.ProduceSync(s.soon(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	silent.Remove()
	ctx := s.soon()
	for left := n; left > 0; {
		tasks, err := st.Fetch(ctx, left)
		if err != nil {
			t.Fatalf("with %d of %d records left: %v", left, n, err)
		}
		left -= len(tasks)
	}
}

// What is given away is read no more, and what was buffered does not reach the next
// ownership, nor are others disturbed.
func TestGivenAway(t *testing.T) {
	t.Parallel()
	eachStore(t, 2, func(s *stage) {
		src := s.source(Config{})
		s.push(0, "a", 50)
		s.push(1, "b", 50)
		stays := s.open(src, 1)
		for round := range 5 {
			st := s.open(src, 0)
			got := s.take(st, 10)
			s.want("the first task of an ownership", got[0], fmt.Sprint("a", 10*round))
			s.settle(st, sources.Done, got...)
			s.close(st)
			for j, task := range s.take(stays, 10) {
				s.want("the partition that stays", task, fmt.Sprint("b", 10*round+j))
			}
		}
	})
}

// An owner that was followed by another, and does not know, moves nothing: neither the
// truth in the store nor, for long, the mirror.
func TestStaleOwner(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		s.push(0, "t", 6)
		old := s.open(s.source(Config{}), 0)
		had := s.take(old, 4)
		owner := s.open(s.source(Config{}), 0)
		for range 4 { // suspects of an owner that did not close come one at a time
			s.settle(owner, sources.Done, s.take(owner, 1)...)
		}
		for _, o := range []sources.Outcome{sources.Done, sources.Dead, sources.Retry, sources.Requeue} {
			err := old.Settle(s.soon(), sources.Settlement{Task: &had[0], Outcome: o, Attempt: 1})
			if !errors.Is(err, sources.ErrFenced) {
				s.Errorf("the old owner settles as %v: %v", o, err)
			}
		}
		if _, err := old.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrFenced) {
			s.Errorf("the old owner fetches: %v", err)
		}
		if err := old.Close(s.soon()); err != nil {
			s.Errorf("the old owner closes: %v", err)
		}
		s.until("the mirror", func() bool { return s.committed(s.name, 0) == 4 })
		s.want("the owner that stands", s.take(owner, 1)[0], "t4")
	})
}

// ... nor does it bury what its successor may do well.
func TestStaleOwnerBuriesNothing(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		s.push(0, "t", 2)
		old := s.open(s.source(Config{}), 0)
		had := s.take(old, 2)
		s.settle(old, sources.Dead, had[1]) // so that there is a dead topic
		owner := s.open(s.source(Config{}), 0)
		err := old.Settle(s.soon(), sources.Settlement{Task: &had[0], Outcome: sources.Dead, Attempt: 1})
		if !errors.Is(err, sources.ErrFenced) {
			s.Errorf("the old owner settles: %v", err)
		}
		s.settle(owner, sources.Dead, s.take(owner, 1)...)
		for i, want := range []string{"1", "0"} {
			letters := s.records(s.topic+".dead", 0, 2)
			if len(letters) != 2 {
				s.Fatalf("%d letters, want 2", len(letters))
			}
			for _, h := range letters[i].Headers {
				if h.Key == HeaderDeadOffset && string(h.Value) != want {
					s.Errorf("letter %d is of %s, want %s", i, h.Value, want)
				}
			}
		}
		ends, err := s.admin.ListEndOffsets(s.soon(), s.topic+".dead")
		if o, _ := ends.Lookup(s.topic+".dead", 0); err != nil || o.Offset != 2 {
			s.Errorf("the dead topic ends at %d, %v, want 2", o.Offset, err)
		}
	})
}

// An idle owner asks for its fence, so that it learns that the partition is another's
// without a task to settle.
func TestIdleOwnerAsks(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		old := s.open(s.source(Config{Check: 20 * time.Millisecond}), 0)
		waits := make(chan error, 1)
		ctx := s.soon()
		go func() {
			_, err := old.Fetch(ctx, 1)
			waits <- err
		}()
		s.open(s.source(Config{}), 0)
		if err := <-waits; !errors.Is(err, sources.ErrFenced) {
			s.Errorf("the idle owner was told %v", err)
		}
	})
}

// An owner whose fence the store has lost is over: nothing stands that could refuse it, and who opens the partition
// next begins where the log stood.
func TestAStoreThatForgotEndsTheOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 1)
	old := s.open(s.source(Config{}), 0)
	task := s.take(old, 1)[0]
	if err := s.redis.Del(s.soon(), redisprogress.Elsewhere(s.name, 0).Fence).Err(); err != nil {
		t.Fatal(err)
	}
	err := old.Settle(s.soon(), sources.Settlement{Task: &task, Outcome: sources.Done, Attempt: 1})
	old.Mu.Lock()
	lost := old.Lost()
	old.Mu.Unlock()
	if !errors.Is(err, sources.ErrForgot) || !lost {
		t.Fatalf("settled where the store forgot: %v, lost %v, want ErrForgot, and that it is", err, lost)
	}
	if tasks, err := old.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Errorf("fetched %d tasks where the store forgot, %v, want ErrForgot", len(tasks), err)
	}
	next := s.open(s.source(Config{}), 0)
	s.want("of the next owner", s.take(next, 1)[0], "t0")
}

// What is pushed after an owner died was not started by it: it is no suspect, whatever
// the owner had asked for.
func TestGateIsWhatWasRead(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		s.push(0, "t", 1)
		old := s.open(s.source(Config{}), 0)
		tasks, err := old.Fetch(s.soon(), 10)
		if err != nil || len(tasks) != 1 {
			s.Fatalf("fetch: %v, %v", tasks, err)
		}
		s.push(0, "u", 5)
		next := s.open(s.source(Config{}), 0) // the old owner is dead
		s.settle(next, sources.Done, s.take(next, 1)...)
		if got := s.take(next, 5); len(got) != 5 { // together
			s.Errorf("got %d tasks", len(got))
		}
	})
}

// Too much behind one key: reading stops and somebody is told; then it goes on.
func TestStuck(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		var mu sync.Mutex
		var told []Stuck
		src := s.source(Config{Window: 2, Stuck: func(e Stuck) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		}})
		st := s.open(src, 0)
		s.push(0, "t", 30, "ann")
		var open []sources.Task
		ctx := s.soon()
		more := make(chan []sources.Task)
		go func() {
			defer close(more)
			for range 30 {
				tasks, err := st.Fetch(ctx, 1)
				if err != nil {
					return
				}
				more <- tasks
			}
		}()
		count := func() int { mu.Lock(); defer mu.Unlock(); return len(told) }
		for count() == 0 {
			select {
			case tasks := <-more:
				open = append(open, tasks...)
			case <-time.After(5 * time.Millisecond):
			}
		}
		mu.Lock()
		if e := told[0]; e.Key != "ann" || e.Position != 0 || e.Over {
			s.Errorf("told %+v, want key ann at 0", e)
		}
		mu.Unlock()
		s.settle(st, sources.Done, open...)
		for tasks := range more {
			s.settle(st, sources.Done, tasks...)
		}
		if count() < 2 || !told[1].Over {
			s.Errorf("told %+v, want that it is over", told)
		}
	})
}

// A record keeps its key, its time and its headers on the way to a task, and on the
// way to the dead topic as well, with all that says why.
func TestDeadLetter(t *testing.T) {
	t.Parallel()
	eachStore(t, 2, func(s *stage) {
		born := time.UnixMilli(1_700_000_000_123)
		r := &kgo.Record{Topic: s.topic, Partition: 1, Key: []byte("ann"), Value: []byte("pay"), Timestamp: born, Headers: []kgo.RecordHeader{
			{Key: "traceparent", Value: []byte("00-4bf9-00f0-01")}, {Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte("2")},
			{Key: HeaderDeadReason, Value: []byte("an earlier death")},
		}}
		if err := s.client.ProduceSync(s.soon(), r).FirstErr(); err != nil {
			s.Fatal(err)
		}
		st := s.open(s.source(Config{}), 1)
		task := s.take(st, 1)[0]
		if task.Key != "ann" || !task.Born.Time().Equal(born) || task.Headers["traceparent"] != "00-4bf9-00f0-01" || task.Headers["twice"] != "2" ||
			task.ID != s.topic+"-1-0" {
			s.Errorf("the task is %+v", task)
		}
		done := sources.Settlement{Task: &task, Outcome: sources.Dead, Attempt: 3, Reason: "550 no such user"}
		task = *task.Copy()
		task.FirstError = "451 later" // as a caller does that keeps a task
		if err := st.Settle(s.soon(), done); err != nil {
			s.Fatal(err)
		}
		letters := s.records(s.topic+".dead", 1, 1)
		got := map[string][]string{}
		for _, h := range letters[0].Headers {
			got[h.Key] = append(got[h.Key], string(h.Value))
		}
		for key, want := range map[string]string{
			"traceparent": "[00-4bf9-00f0-01]", "twice": "[1 2]",
			HeaderDeadTopic: "[" + s.topic + "]", HeaderDeadPartition: "[1]", HeaderDeadOffset: "[0]",
			HeaderDeadBorn: "[2023-11-14T22:13:20.123Z]", HeaderDeadReason: "[550 no such user]", HeaderDeadAttempts: "[3]", HeaderDeadCrashes: "[0]", HeaderDeadFirstError: "[451 later]",
		} {
			if fmt.Sprint(got[key]) != want {
				s.Errorf("header %s is %v, want %s", key, got[key], want)
			}
		}
		if l := letters[0]; string(l.Key) != "ann" || string(l.Value) != "pay" || time.Since(l.Timestamp) > time.Hour {
			s.Errorf("the letter is %+v", l)
		}
	})
}

// A record need not have a time. Kafka says so with a millisecond before 1970, which nobody
// was born in.
func TestRecordWithoutTime(t *testing.T) {
	t.Parallel()
	r := &kgo.Record{Topic: "orders", Value: []byte("pay"), Timestamp: time.UnixMilli(-1)}
	var task sources.Task
	deliver(&task, r, &sources.Delivery{}, &names{prefix: "orders-0-"})
	if !task.Born.IsZero() {
		t.Errorf("it was born %v", task.Born)
	}
	for _, h := range (&Source{cfg: Config{Topic: "orders"}}).bury(r, death{}).Headers {
		if h.Key == HeaderDeadBorn && len(h.Value) > 0 {
			t.Errorf("its dead letter says %s of when it was born", h.Value)
		}
	}
}

// A store that fails now and then, and answers a moment later.
type flakyStore struct {
	Store
	calls atomic.Int32
}

func (f *flakyStore) Close(ctx context.Context, g partition.Grant, tok partition.Token) error {
	if f.calls.Add(1) == 1 {
		return errors.New("a broken connection")
	}
	return f.Store.Close(ctx, g, tok)
}

// A Close whose word does not get through says it again.
func TestCloseIsRepeated(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	src := s.source(Config{})
	flaky := &flakyStore{Store: src.store}
	src.store = flaky
	s.close(s.open(src, 0))
	if n := flaky.calls.Load(); n != 2 {
		t.Errorf("the store was asked %d times, want once more than it failed", n)
	}
}

// A dead topic that cannot be written to holds up what ended after the dead task, and
// says so; tasks go on, and what is dead is not lost.
func TestDeadTopicFails(t *testing.T) {
	t.Parallel() // it waits for most of its time
	eachStore(t, 1, func(s *stage) {
		s.Parallel()
		if s.broker.Cluster == nil {
			s.Skip("a broker that can be told to fail")
		}
		var broken atomic.Bool
		broken.Store(true)
		s.broker.Cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			s.broker.Cluster.KeepControl()
			produce := req.(*kmsg.ProduceRequest)
			if !broken.Load() {
				return nil, nil, false
			}
			reply := produce.ResponseKind().(*kmsg.ProduceResponse)
			for _, topic := range produce.Topics {
				r := kmsg.NewProduceResponseTopic()
				r.Topic, r.TopicID = topic.Topic, topic.TopicID
				for _, p := range topic.Partitions {
					part := kmsg.NewProduceResponseTopicPartition()
					part.Partition, part.ErrorCode = p.Partition, kerr.PolicyViolation.Code
					r.Partitions = append(r.Partitions, part)
				}
				reply.Topics = append(reply.Topics, r)
			}
			return reply, nil, true
		})
		broken.Store(false)
		s.push(0, "t", 6)
		broken.Store(true)
		st := s.open(s.source(Config{}), 0)
		got := s.take(st, 3)
		s.settle(st, sources.Done, got[0])
		dead := sources.Settlement{Task: &got[1], Outcome: sources.Dead, Attempt: 1, Reason: "no luck"}
		if err := st.Settle(s.soon(), dead); err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
			s.Fatalf("settle: %v, want what is wrong with the dead topic", err)
		}
		rest := s.take(st, 3) // goes on
		broken.Store(false)
		if err := st.Settle(s.soon(), dead); err != nil {
			s.Error(err)
		}
		s.settle(st, sources.Done, got[2])
		if letters := s.records(s.topic+".dead", 0, 1); string(letters[0].Value) != "t1" {
			s.Errorf("the letter is %q", letters[0].Value)
		}
		// The fence is not cleared before the letter is there.
		broken.Store(true)
		over, cancel := context.WithCancel(s.soon())
		cancel()
		dead.Task = &rest[0]
		if err := st.Settle(over, dead); !errors.Is(err, context.Canceled) {
			s.Error(err)
		}
		if err := st.Close(s.soon()); err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
			s.Errorf("close: %v, want what is wrong with the dead topic", err)
		}
		broken.Store(false)
		s.close(st)
		if letters := s.records(s.topic+".dead", 0, 2); string(letters[1].Value) != "t3" {
			s.Errorf("the second letter is %q", letters[1].Value)
		}
	})
}

// records reads n records of a partition.
func (s *stage) records(topic string, id partition.ID, n int) []*kgo.Record {
	s.Helper()
	var got []*kgo.Record
	ctx := s.soon()
	for len(got) < n {
		// A broker may not know yet, at this place or that, a topic that was just made anew: a client keeps what it has heard.
		c := s.broker.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(id): kgo.NewOffset().AtStart()}}))
		got = nil
		var err error
		for len(got) < n && err == nil {
			fetches := c.PollFetches(ctx)
			got, err = append(got, fetches.Records()...), fetches.Err()
		}
		if err != nil && (!kerr.IsRetriable(err) || ctx.Err() != nil) {
			s.Fatal(err)
		}
	}
	return got
}

// Of a partition that has its share, or that cannot be read, nothing more is asked, and the others are read: it would
// take memory without bounds, or the broker would be asked again at once. It goes on when somebody wants it.
func TestAPausedPartitionIsNotAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		pause func(s *stage) (goOn func())
	}{
		{"it has its share", func(s *stage) func() { return func() {} }},
		{"it cannot be read", func(s *stage) func() {
			away := s.broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: s.topic, Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1})
			return func() { away.Remove() }
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newStage(t, 2)
			if s.broker.Cluster == nil {
				t.Skip("a broker that tells what it is asked")
			}
			var mu sync.Mutex
			alone := 0 // so often was the other partition asked for without this one
			s.broker.Cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				asked := make(map[int32]bool)
				for _, topic := range r.(*kmsg.FetchRequest).Topics {
					for _, p := range topic.Partitions {
						asked[p.Partition] = true
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if asked[1] && !asked[0] {
					alone++
				}
				return nil, nil, false
			})
			s.push(0, "t", 3)
			goOn := c.pause(s)
			src := s.source(Config{Buffer: 1, Check: time.Hour, Options: append(s.broker.Options(), kgo.DisableFetchSessions())})
			st := s.open(src, 0)
			s.until("it is paused", func() bool {
				st.Mu.Lock()
				defer st.Mu.Unlock()
				return st.buffer.paused
			})
			other := s.open(src, 1)
			for i := range 3 {
				mu.Lock()
				alone = 0
				mu.Unlock()
				s.push(1, fmt.Sprint("u", i), 1)
				s.settle(other, sources.Done, s.take(other, 1)...)
				s.until("the other is asked for alone", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return alone > 0
				})
			}
			goOn()
			s.push(0, "last", 1)
			var got []sources.Task
			for len(got) < 4 { // the first may tell why it could not be read
				tasks, err := st.Fetch(s.soon(), 4)
				if err != nil && !errors.Is(err, kerr.TopicAuthorizationFailed) {
					t.Fatal(err)
				}
				got = append(got, tasks...)
			}
			s.want("it goes on to", got[3], "last0")
		})
	}
}

package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// A partition that nobody has opened begins where the configuration says, or where
// the group stands.
func TestBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		cfg   Config
		first string
	}{
		{"earliest", Config{Group: NoGroup}, "old0"},
		{"latest", Config{Group: NoGroup, Start: Latest}, "new0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, 1)
			s.push(0, "old", 3)
			st := s.open(s.source(c.cfg), 0)
			s.push(0, "new", 1)
			s.want("the first task", s.take(st, 1)[0], c.first)
		})
	}
	t.Run("the group", func(t *testing.T) {
		s := newStage(t, 1)
		s.push(0, "t", 5)
		src := s.source(Config{})
		st := s.open(src, 0)
		got := s.take(st, 3)
		s.settle(st, sources.Done, got[0], got[2])
		s.close(st)
		s.until("the commit", func() bool { return s.committed(s.name, 0) == 1 })
		redistest.Forget(t, s.redis, "*"+s.name+"*") // Redis has lost everything
		s.epoch = 0
		s.want("the first task that is not done", s.take(s.open(src, 0), 1)[0], "t1")
	})
}

// A stored position that the topic has not got follows the policy, and somebody is
// told.
func TestOutOfRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		lose   func(s *stage)
		policy Place
		first  string // empty: refused
		again  bool   // the topic is another one
	}{
		{"retention, fail", func(s *stage) { s.cut(0, 4) }, Fail, "", false},
		{"retention, earliest", func(s *stage) { s.cut(0, 4) }, Earliest, "t4", false},
		{"retention, latest", func(s *stage) { s.cut(0, 4) }, Latest, "new0", false},
		{"recreated and shorter, fail", recreate(1), Fail, "", true},
		{"recreated and shorter, earliest", recreate(1), Earliest, "again0", true},
		{"recreated and longer, fail", recreate(9), Fail, "", true},
		{"recreated and longer, earliest", recreate(9), Earliest, "again0", true},
		{"recreated and longer, latest", recreate(9), Latest, "new0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStore(t, 1, func(s *stage) {
				t, first := s.T, c.first
				if s.inKafka && c.again {
					first = "again0" // a topic that is deleted takes the offsets of its groups along
				}
				s.push(0, "t", 6)
				src := s.source(Config{})
				st := s.open(src, 0)
				s.settle(st, sources.Done, s.take(st, 2)...)
				s.settle(st, sources.Retry, s.take(st, 1)...) // what is known of it must not hit another
				s.close(st)
				c.lose(s)
				var mu sync.Mutex
				var told []error
				next, err := s.try(s.source(Config{OutOfRange: c.policy, Warn: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, err)
				}}), 0)
				if first == "" {
					if e := asRange(err); e == nil || e.Base != 2 || e.Recreated != c.again {
						t.Fatalf("opened with %v, want an OutOfRangeError of position 2", err)
					}
					s.unfenced(0)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				s.push(0, "new", 1)
				got := s.take(next, 1)
				s.want("the first task", got[0], first)
				if got[0].Attempt != 1 {
					t.Errorf("its attempt is %d: that is another record's", got[0].Attempt)
				}
				s.settle(next, sources.Done, got...)
				s.close(next)
				mu.Lock()
				defer mu.Unlock()
				if !slices.ContainsFunc(told, func(err error) bool {
					return asRange(err) != nil || s.inKafka && c.again && strings.Contains(err.Error(), "knows nothing of it")
				}) {
					t.Errorf("nobody was told of it, only %v", told)
				}
			})
		})
	}
}

// recreate deletes the topic and makes it again, with n records.
func recreate(n int) func(s *stage) {
	return func(s *stage) {
		s.Helper()
		s.anew(1)
		s.until("the new topic is known", func() bool { // Kafka has the id of the old one for a moment
			s.client.PurgeTopicsFromClient(s.topic)
			err := s.pushed(0, "again", n)
			if err != nil && !errors.Is(err, kerr.UnknownTopicID) {
				s.Fatal(err)
			}
			return err == nil
		})
	}
}

// anew deletes the topic and makes another of its name.
func (s *stage) anew(partitions int) {
	s.Helper()
	id := func() kadm.TopicID {
		topics, err := s.admin.ListTopics(s.soon(), s.topic)
		if err != nil {
			s.Fatal(err)
		}
		return topics[s.topic].ID
	}
	was := id()
	done, err := s.admin.DeleteTopics(s.soon(), s.topic)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		s.Fatal(err)
	}
	s.broker.Create(s.topic, partitions)
	s.until("the old topic is gone", func() bool { // a busy Kafka takes records to it for a moment
		is := id()
		return is != was && is != kadm.TopicID{}
	})
	s.client.PurgeTopicsFromClient(s.topic)
}

// Retention that overtakes an owner ends its ownership; it does not go on elsewhere.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	src := s.source(Config{OutOfRange: Earliest, Buffer: 1})
	s.push(0, "t", 1)
	s.worked(src, 0, 1)
	s.push(0, "u", 5)
	// The reader is told of a position that is gone meanwhile.
	opened, err := src.open(s.soon(), partition.Grant{ID: 0, Epoch: 100}, partition.Token{Epoch: 100, Session: "x"})
	if err != nil {
		t.Fatal(err)
	}
	src.reader.remove(s.soon(), opened)
	s.cut(0, 5)
	_ = src.reader.add(s.soon(), opened, 1)
	_, err = opened.Fetch(s.soon(), 1)
	for err == nil {
		_, err = opened.Fetch(s.soon(), 1)
	}
	if !errors.Is(err, sources.ErrForgot) {
		t.Errorf("fetch: %v, want ErrForgot", err)
	}
	if says := err.Error(); strings.Contains(says, sources.ErrForgot.Error()) || strings.Contains(says, "\n") ||
		!strings.Contains(says, "topic "+s.topic) || !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("it says %q, want that it is the topic that has not got it", says)
	}
	if err := opened.Close(s.soon()); err != nil {
		t.Error(err)
	}
	s.epoch = 100
	s.want("the next owner", s.take(s.open(src, 0), 1)[0], "u4")
}

// A client that goes on where the topic begins now, without a word, is not followed.
func TestOvertakenInSilence(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 2)
	src := s.source(Config{})
	st, err := src.open(s.soon(), partition.Grant{ID: 0, Epoch: 1}, partition.Token{Epoch: 1, Session: "x"})
	if err != nil {
		t.Fatal(err)
	}
	s.take(st, 2)
	src.reader.remove(s.soon(), st)
	for i := range int64(2) { // what was read before it was taken away is not missing
		if _, pause := st.arrive(&kgo.FetchPartition{LogStartOffset: 3 * i, Records: []*kgo.Record{{Topic: s.topic, Offset: 2 + i}}}, 1<<20); pause {
			t.Errorf("it is paused at %d", 2+i)
		}
	}
	if _, pause := st.arrive(&kgo.FetchPartition{LogStartOffset: 5, Records: []*kgo.Record{{Topic: s.topic, Offset: 5}}}, 1<<20); !pause {
		t.Error("it is read on")
	}
	if tasks, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Errorf("fetched %v, %v, want ErrForgot", tasks, err)
	}
	if err := st.Close(s.soon()); err != nil {
		t.Error(err)
	}
}

// What is wrong with the broker or the topic is said at start.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	for _, c := range []struct {
		name string
		cfg  Config
		says []string
	}{
		{"no such topic", Config{Topic: "no-such-topic"}, []string{"no-such-topic", "UNKNOWN_TOPIC", "create it", "just started"}},
	} {
		_, err := s.source(c.cfg).Layout(s.soon())
		for _, word := range c.says {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not say %q", c.name, err, word)
			}
		}
	}
	if _, err := s.try(s.source(Config{}), 2); err == nil || !strings.Contains(err.Error(), "2 partitions") {
		t.Errorf("a partition that is not there: %v", err)
	}
	for _, c := range []struct {
		cfg  Config
		says []string
	}{
		{Config{Start: "somewhere", Window: -1, OutOfRange: "anywhere"}, []string{"no topic", "Options", "somewhere", "anywhere", "Window"}},
		{
			Config{Topic: "t", DeadTopic: "t", Window: 1<<16 + 1, Buffer: -1, CrashLimit: -1},
			[]string{"DeadTopic t is the topic itself", "Window", "Buffer", "CrashLimit"},
		},
		{Config{Topic: "t", Check: -1}, []string{"Check -1ns: must not be negative"}},
		{Config{Topic: "t", Mirror: -1}, []string{"Mirror -1ns: must not be negative"}},
		{Config{Topic: "t", Look: -1}, []string{"Look -1ns: must not be negative"}},
	} {
		_, err := New("orders", nil, c.cfg)
		for _, word := range c.says {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("of %+v the error does not say %q: %v", c.cfg, word, err)
			}
		}
	}
}

// The options are the caller's, who may give them to several sources at once.
func TestOptionsStayTheCallers(t *testing.T) {
	t.Parallel()
	mine := make([]kgo.Opt, 1, 20)
	mine[0] = kgo.SeedBrokers("localhost:9092")
	if n := len(Config{Options: mine}.options()); n < 2 {
		t.Errorf("%d options", n)
	}
	if mine[:2][1] != nil {
		t.Error("what is behind the caller's options was written over")
	}
}

// An interval that is none changes nothing: the store would be asked without a pause.
func TestCheckEvery(t *testing.T) {
	t.Parallel()
	src := newStage(t, 1).source(Config{Check: time.Minute})
	for _, c := range []struct{ d, want time.Duration }{{0, time.Minute}, {-1, time.Minute}, {time.Hour, time.Hour}} {
		if src.CheckEvery(c.d); time.Duration(src.check.Load()) != c.want {
			t.Errorf("after %v it checks every %v, want %v", c.d, time.Duration(src.check.Load()), c.want)
		}
	}
}

// A topic that grows is noticed, and its new partitions begin at their beginning.
func TestGrows(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"", NoGroup} {
		t.Run("group "+group, func(t *testing.T) { grows(newStage(t, 2), group) })
	}
}

func grows(s *stage, group string) {
	t, grown := s.T, make(chan int)
	src := s.source(Config{Group: group, Start: Latest, Look: 10 * time.Millisecond, Grown: func(ctx context.Context, total int) error {
		select {
		case grown <- total:
		case <-ctx.Done():
		}
		return nil
	}})
	if l, err := src.Layout(s.soon()); err != nil || l.Total != 2 || l.Hash != partition.Murmur2 {
		t.Fatalf("the layout is %+v, %v", l, err)
	}
	s.open(src, 0)
	s.broker.Grow(s.topic, 5)
	for id := partition.ID(2); id < 5; id++ {
		s.push(id, "t", 1)
	}
	if total := <-grown; total != 5 {
		t.Errorf("it grew to %d, want 5", total)
	}
	for id := partition.ID(2); id < 5; id++ {
		s.want(fmt.Sprint("the first task of the new partition ", id), s.take(s.open(src, id), 1)[0], "t0")
	}
	if l, err := src.Layout(s.soon()); err != nil || l.Total != 5 {
		t.Errorf("the layout is %+v, %v", l, err)
	}
}

// A peer that comes after the topic has grown begins the new partitions at their beginning as well: so
// does each when the topic has grown while nobody worked. One that was there when the name began does not,
// however late it is opened.
func TestAPartitionThatIsYoungerThanTheName(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	s.push(0, "old", 1)
	s.push(1, "old", 1)
	first := s.source(Config{Start: Latest})
	s.close(s.open(first, 0))
	s.broker.Grow(s.topic, 3)
	s.client = s.broker.Client() // the other one does not know yet
	s.push(1, "new", 1)
	s.push(2, "new", 1)
	later := s.source(Config{Start: Latest})
	if l, err := later.Layout(s.soon()); err != nil || l.Total != 3 {
		t.Fatalf("the layout is %+v, %v", l, err)
	}
	s.want("the first task of the new partition", s.take(s.open(later, 2), 1)[0], "new0")
	s.want("the first task of one that was there", s.take(s.open(later, 1), 1)[0], "new0")
}

// Where the partitions end is said of all of them, or the first one is not opened: one without a place of its
// own would be taken for younger than the name, and all that it had before would run.
func TestANameDoesNotBeginWithoutAllEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	s.push(1, "old", 1)
	s.broker.Cluster.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster.KeepControl()
		req := r.(*kmsg.ListOffsetsRequest)
		if len(req.Topics[0].Partitions) != 2 {
			return nil, nil, false
		}
		reply := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic := kmsg.ListOffsetsResponseTopic{Topic: s.topic}
		for p, code := range []int16{0, kerr.InvalidRequest.Code} {
			at := kmsg.NewListOffsetsResponseTopicPartition()
			at.Partition, at.ErrorCode = int32(p), code
			topic.Partitions = append(topic.Partitions, at)
		}
		reply.Topics = append(reply.Topics, topic)
		return reply, nil, true
	})
	_, err := s.try(s.source(Config{Start: Latest}), 0)
	if !errors.Is(err, kerr.InvalidRequest) || s.committed(s.name, 0) != -1 {
		t.Errorf("a broker does not say where a partition ends: %v, and the group has %d", err, s.committed(s.name, 0))
	}
}

// Peers of a name that is new say one after the other where its partitions end. Who looked at one before
// that was said takes it for what it is: there was more meanwhile.
func TestAPartitionThatBeganElsewhereMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	src := s.source(Config{Start: Latest, Group: "g-" + s.name})
	var offsets kadm.Offsets
	offsets.AddOffset(s.topic, 0, 1, -1)
	store := begunLate{src.store, func() { // when the bounds were asked for
		s.push(0, "t", 2)
		if err := s.admin.CommitAllOffsets(s.soon(), "g-"+s.name, offsets); err != nil {
			t.Error(err)
		}
	}}
	src.store = store
	s.want("the first task", s.take(s.open(src, 0), 1)[0], "t1")
}

// Who is not known to be gone works on until the fence is another's: what it has done since the bounds were asked for
// is no position that the topic has lost.
func TestAnOwnerIsAtWorkUntilTheFence(t *testing.T) {
	t.Parallel()
	for _, policy := range []Place{Fail, Earliest} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			eachStore(t, 1, func(s *stage) {
				s.push(0, "t", 1)
				old := s.open(s.source(Config{}), 0)
				s.settle(old, sources.Done, s.take(old, 1)...)
				src := s.source(Config{OutOfRange: policy, Warn: func(err error) {
					if asRange(err) != nil {
						s.Errorf("told of %v", err)
					}
				}})
				src.store = openLate{src.store, func() {
					s.push(0, "u", 1)
					s.settle(old, sources.Done, s.take(old, 1)...)
				}}
				st := s.open(src, 0)
				s.push(0, "new", 1)
				s.want("the first task", s.take(st, 1)[0], "new0")
			})
		})
	}
}

// begunLate is a store before whose answer something happens.
type begunLate struct {
	Store
	before func()
}

func (b begunLate) Stands(ctx context.Context, id partition.ID) (int64, string, error) {
	b.before()
	return b.Store.Stands(ctx, id)
}

// Where the partitions of a new name end is said to the group before one is opened: what is committed
// later would make those look younger that were not opened yet.
func TestAGroupThatTakesNoBeginnings(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	s.push(0, "old", 1)
	s.push(1, "old", 1)
	src := s.source(Config{Start: Latest})
	refused := s.fault("", kerr.UnknownMemberID, kmsg.OffsetCommit)
	if _, err := s.try(src, 0); !errors.Is(err, kerr.UnknownMemberID) {
		t.Errorf("opened with %v, want what the group says", err)
	}
	refused.Remove()
	for id := range partition.ID(2) {
		st := s.open(src, id)
		s.push(id, "new", 1)
		s.want("the first task", s.take(st, 1)[0], "new0")
	}
}

// A listener or a store that is asked meanwhile does not hold up a stop, and nobody is told
// that it was cut off.
func TestALookEndsWithTheLastStream(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(*Source, func(context.Context) error)
	}{
		{"at the listener", func(src *Source, wait func(context.Context) error) {
			src.cfg.Grown = func(ctx context.Context, _ int) error { return wait(ctx) }
		}},
		{"at the store", func(src *Source, wait func(context.Context) error) {
			src.store = slowEnds{src.store, wait}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1)
			asked, ended := make(chan struct{}, 10), make(chan error, 10)
			warned := make(chan error, 10)
			src := s.source(Config{Look: time.Second, Warn: func(err error) { warned <- err }})
			c.wait(src, func(ctx context.Context) error {
				asked <- struct{}{}
				<-ctx.Done()
				ended <- ctx.Err()
				return ctx.Err()
			})
			if _, err := src.Layout(s.soon()); err != nil {
				t.Fatal(err)
			}
			s.broker.Grow(s.topic, 2)
			st := s.open(src, 0)
			<-asked
			s.close(st)
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it was waited for: %v", err)
			}
			if len(warned) > 0 {
				t.Errorf("told of %v", <-warned)
			}
		})
	}
}

// slowEnds is a store that takes its time to note where partitions end.
type slowEnds struct {
	Store
	wait func(context.Context) error
}

func (s slowEnds) Ends(ctx context.Context, _ map[partition.ID]int64) error { return s.wait(ctx) }

// That a topic has grown is told with each look, also after it was taken in: a ledger may have
// forgotten it.
func TestGrowthIsToldWithEachLook(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	var told []int
	var warned []error
	src := s.source(Config{Warn: func(err error) { warned = append(warned, err) }, Grown: func(_ context.Context, total int) error {
		if told = append(told, total); len(told) == 1 {
			return errAway
		}
		return nil
	}})
	alone := s.source(Config{}) // with nobody to tell
	for _, src := range []*Source{src, alone} {
		if _, err := src.Layout(s.soon()); err != nil {
			t.Fatal(err)
		}
	}
	look := func() {
		src.mirror.look(s.soon())
		alone.mirror.look(s.soon())
	}
	look()
	s.broker.Grow(s.topic, 3)
	for range 3 {
		look()
	}
	if !slices.Equal(told, []int{3, 3, 3}) || len(warned) != 1 || !errors.Is(warned[0], errAway) {
		t.Errorf("told %v, warned %v, want three times 3, and what went wrong at first", told, warned)
	}
}

// resetting is a store that is told where logs go on.
type resetting struct {
	Store
	told []string
}

func (r *resetting) Reset(_ context.Context, _ partition.Grant, _ partition.Token, _, base int64, life string) (int64, error) {
	r.told = append(r.told, fmt.Sprint(base, life))
	return 8, nil
}

// A broker without topic ids does not say that a topic is another one, and neither does the
// first that has them.
func TestTopicsWithoutIDs(t *testing.T) {
	t.Parallel()
	if life := lifeOf([16]byte{}); life != "" {
		t.Errorf("no id is %q", life)
	}
	a, b := lifeOf([16]byte{1}), lifeOf([16]byte{2})
	for _, c := range []struct {
		name        string
		stored, now string
		base        int64
		told        string // of a store; empty: nothing
		kept        bool   // what is known of it
		fails       bool
	}{
		{name: "the same", stored: a, now: a, base: 5, kept: true},
		{name: "no ids any more", stored: a, base: 5, kept: true},
		{name: "never any", base: 5, kept: true},
		{name: "the first ids", now: a, base: 5, told: fmt.Sprint(5, a), kept: true},
		{name: "another topic", stored: a, now: b, base: 5, fails: true},
		{name: "out of range, no ids any more", stored: a, base: 20, fails: true},
	} {
		for _, policy := range []Place{Fail, Earliest} {
			store := &resetting{}
			s := &Source{cfg: Config{OutOfRange: policy, Warn: func(error) {}}, store: store}
			f := &progress.Found{Opened: progress.Opened{Base: c.base, Writes: 7, Done: []int64{6}}, Life: c.stored}
			err := s.place(t.Context(), partition.Grant{}, partition.Token{}, bounds{start: 0, end: 10, life: c.now}, f)
			if refused := c.fails && policy == Fail; refused != (asRange(err) != nil) || err != nil && !refused {
				t.Fatalf("%s, %s: %v", c.name, policy, err)
			}
			if !c.fails && (fmt.Sprint(store.told) != fmt.Sprint(slices.DeleteFunc([]string{c.told}, func(s string) bool { return s == "" })) || c.kept != (f.Done != nil)) {
				t.Errorf("%s, %s: the store was told %v, known is %+v", c.name, policy, store.told, f)
			}
			if c.fails && policy == Earliest && (len(store.told) != 1 || store.told[0] != fmt.Sprint(0, cmp.Or(c.now, c.stored))) {
				t.Errorf("%s, %s: the store was told %v", c.name, policy, store.told)
			}
		}
	}
}

// Positions are Kafka's: where the fence is lost, what is left of an older life must not pass what was
// open. The group knows where to go on.
func TestTheFenceAloneIsLost(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 10)
	src := s.source(Config{})
	st := s.open(src, 0)
	got := s.take(st, 10)
	s.settle(st, sources.Done, got[0], got[9]) // 1 to 8 are open
	s.until("committed", func() bool { return s.committed(s.name, 0) == 1 })
	k := redisprogress.Elsewhere(s.name, 0)
	s.redis.Del(s.soon(), k.Fence)
	_ = st.Close(s.soon())
	st = s.open(src, 0)
	s.push(0, "u", 1)
	again := s.take(st, 1)
	s.want("the first task of the next owner", again[0], "t1")
}

// To peers with the brokers of another cluster, as of the test beside production, the topic looks like one that was made
// anew. Who reads that alone sets OutOfRange, and they work the wrong cluster.
func TestOfAnotherClusterIsSaid(t *testing.T) {
	t.Parallel()
	const words = "another cluster"
	for _, policy := range []Place{Fail, Earliest, Latest} {
		if err := (&OutOfRangeError{Topic: "orders", Base: 3, End: 9, Policy: policy, Recreated: true}); !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
		if err := (&OutOfRangeError{Topic: "orders", Base: 3, Start: 5, End: 9, Policy: policy}); strings.Contains(err.Error(), words) {
			t.Errorf("%v says %q: its topic is the one that it was", err, words)
		}
	}
}

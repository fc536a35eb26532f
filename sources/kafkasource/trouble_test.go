package kafkasource

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
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
)

// fault makes a kfake answer with an error until it is removed.
func (s *stage) fault(topic string, err *kerr.Error, keys ...kmsg.Key) *kfake.FaultHandle {
	s.Helper()
	if s.broker.Cluster == nil {
		s.Skip("a broker that can be told to fail")
	}
	return s.broker.Cluster.Fault(kfake.Fault{Keys: keys, Topic: topic, Err: err, Count: -1})
}

// A line is how a client reaches the broker. While it is cut nothing comes through, and nobody
// is told.
type line struct {
	cut   atomic.Bool
	lost  chan struct{} // holds a value if a question for metadata did not come through
	mu    sync.Mutex
	conns []net.Conn
}

func newLine() *line { return &line{lost: make(chan struct{}, 1)} }

// options gives the client 4 s for an answer, instead of 10, so that a test is over sooner: what is
// tested is that nobody waits for it.
func (l *line) options() []kgo.Opt {
	return []kgo.Opt{kgo.RequestTimeoutOverhead(4 * time.Second), kgo.WithHooks(l), kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, host)
		if err == nil {
			l.mu.Lock()
			l.conns = append(l.conns, c)
			l.mu.Unlock()
		}
		return lineConn{c, l}, err
	})}
}

// mend ends the cut. Who waits for what was lost in it is told now, and not when its time is up.
func (l *line) mend() {
	l.cut.Store(false)
	l.anew()
}

// anew ends all connections: those that are made while the line is cut get no answer to their first
// question.
func (l *line) anew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

func (l *line) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if l.cut.Load() && key == int16(kmsg.Metadata) {
		select {
		case l.lost <- struct{}{}:
		default:
		}
	}
}

type lineConn struct {
	net.Conn
	line *line
}

func (c lineConn) Write(b []byte) (int, error) {
	if c.line.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// An error of the whole topic is told to whoever waits for its tasks, and is over when the
// broker answers again: the client names no partition in it.
func TestATroubleOfTheTopicIsTold(t *testing.T) {
	t.Parallel() // it waits until it is told
	s := newStage(t, 2)
	src := s.source(Config{})
	streams := []*stream{s.open(src, 0), s.open(src, 1)}
	for id, st := range streams {
		src.reader.remove(s.soon(), st)
		s.push(partition.ID(id), "t", 1)
	}
	refused := s.fault(s.topic, kerr.TopicAuthorizationFailed, kmsg.Metadata)
	for _, st := range streams {
		_ = src.reader.add(s.soon(), st, 0)
	}
	for _, st := range streams {
		_, err := st.Fetch(s.soon(), 1)
		if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "READ and DESCRIBE") {
			t.Errorf("fetch: %v, want what the broker says of the topic, and what to do", err)
		}
	}
	refused.Remove()
	for _, st := range streams {
		s.until("it is read again", func() bool {
			tasks, err := st.Fetch(s.soon(), 1)
			if err != nil && !errors.Is(err, kerr.TopicAuthorizationFailed) {
				t.Fatal(err)
			}
			return len(tasks) == 1
		})
	}
}

// A dead topic that takes nothing, now or ever, is told, and holds up nothing but the end of
// what is dead; who closes meanwhile waits no longer than it wants.
func TestADeadTopicThatDoesNotAnswer(t *testing.T) {
	t.Parallel() // it waits for most of its time
	for _, c := range []struct {
		name string
		fail func(*stage, *line) (over func())
	}{
		{"too few replicas", func(s *stage, _ *line) func() {
			return s.fault(s.topic+".dead", kerr.NotEnoughReplicas, kmsg.Produce).Remove
		}},
		{"silence", func(_ *stage, l *line) func() { l.cut.Store(true); l.anew(); return l.mend }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1)
			s.push(0, "t", 6)
			l := newLine()
			src := s.source(Config{Options: append(s.broker.Options(), l.options()...)})
			src.grave.patience = 3 * time.Second
			st := s.open(src, 0)
			got := s.take(st, 2)
			s.until("all is read", func() bool {
				st.Mu.Lock()
				defer st.Mu.Unlock()
				return len(st.buffer.records) == 4
			})
			s.settle(st, sources.Dead, got[0]) // so that there is a dead topic
			over := c.fail(s, l)
			defer over()
			told := make(chan error, 1)
			ctx := s.soon()
			go func() {
				told <- st.Settle(ctx, sources.Settlement{Task: &got[1], Outcome: sources.Dead, Attempt: 1})
			}()
			s.until("the letter may be written", func() bool {
				st.Mu.Lock()
				defer st.Mu.Unlock()
				for _, l := range st.letters {
					return l.admitted
				}
				return false
			})
			for n := 0; n < 4; { // goes on
				soon, cancel := context.WithTimeout(ctx, src.grave.patience/2)
				tasks, err := st.Fetch(soon, 4)
				cancel()
				if err != nil {
					t.Fatalf("fetch beside the letter: %v", err)
				}
				n += len(tasks)
			}
			if err := <-told; err == nil || !strings.Contains(err.Error(), s.topic+".dead") {
				t.Errorf("settle: %v, want what is wrong with the dead topic", err)
			}
			if err := s.closeInTime(st); err == nil {
				t.Error("it is closed although the letter is not there")
			}
		})
	}
}

// soonEnough is about when a ctx ends that ends soon, on a slow machine too: the client itself takes ten
// seconds and more to give up a broker that takes a connection and never answers.
const soonEnough = 8 * time.Second

// closeInTime closes a stream with a ctx that ends soon, and wants the answer about then.
func (s *stage) closeInTime(st *stream) error {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- st.Close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-time.After(soonEnough):
		s.Error("close outlasts its ctx")
		return <-closed
	}
}

// A stop waits neither for the goroutine that reads nor for the last word to the group when its
// time is up, although both wait for a broker that is silent; nor does the start of a partition.
func TestWhatWaitsForASilentBrokerHoldsUpNoStop(t *testing.T) {
	t.Parallel() // it waits for most of its time
	eachStore(t, 3, silentBrokerHoldsUpNoStop)
}

func silentBrokerHoldsUpNoStop(s *stage) {
	t, l := s.T, newLine()
	t.Parallel()
	src := s.source(Config{Options: append(s.broker.Options(), l.options()...)})
	src.mirror.patience = 2 * soonEnough // the last word must not be over before a stop would be late
	purged, st := s.open(src, 0), s.open(src, 1)
	s.push(1, "t", 2)
	tasks := s.take(st, 2)
	s.settle(st, sources.Done, tasks[0]) // news for the group
	l.cut.Store(true)
	defer l.mend()
	src.client.ForceMetadataRefresh()
	<-l.lost
	l.anew()
	// The reader asks the client for what waits for the answer.
	src.reader.order(order{do: func() { src.client.PurgeTopicsFromConsuming(s.topic) }})
	ctx, cancel := context.WithTimeout(s.soon(), 100*time.Millisecond)
	defer cancel()
	_ = st.Settle(ctx, sources.Settlement{Task: &tasks[1], Outcome: sources.Done, Attempt: 1}) // it may be left to Close
	for _, st := range []*stream{purged, st} {
		_ = s.closeInTime(st)
	}
	ctx, cancel = context.WithTimeout(s.soon(), 100*time.Millisecond)
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, err := src.open(ctx, partition.Grant{ID: 2, Epoch: 100}, partition.Token{Epoch: 100, Session: "x"})
		opened <- err
	}()
	select {
	case err := <-opened:
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no broker has answered in time") {
			t.Errorf("open: %v", err)
		}
	case <-time.After(soonEnough):
		t.Error("open outlasts its ctx")
		<-opened
	}
}

// A partition that is not served is told of: the client only waits until it is. Of the others it is
// noted where they end.
func TestAPartitionThatIsNotServedIsTold(t *testing.T) {
	for _, c := range []struct {
		err  *kerr.Error
		keys []kmsg.Key
	}{
		{kerr.LeaderNotAvailable, []kmsg.Key{kmsg.Metadata, kmsg.Fetch}},
		{kerr.KafkaStorageError, []kmsg.Key{kmsg.ListOffsets, kmsg.Fetch}},
	} {
		t.Run(c.err.Message, func(t *testing.T) { t.Parallel(); notServed(t, c.err, c.keys) })
	}
}

func notServed(t *testing.T, why *kerr.Error, keys []kmsg.Key) {
	s := newStage(t, 2)
	warned := make(chan error, 100)
	src := s.source(Config{Look: 300 * time.Millisecond, Warn: func(err error) {
		select {
		case warned <- err:
		default:
		}
	}})
	noted := make(chan map[partition.ID]int64, 100)
	src.store = notedEnds{src.store, noted}
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	s.push(0, "t", 3)
	s.open(src, 0)
	s.open(src, 1)
	s.broker.Cluster.Fault(kfake.Fault{
		Keys: keys, Topic: s.topic, Partitions: []int32{1}, Err: why, Count: -1,
	})
	select {
	case err := <-warned:
		if !errors.Is(err, why) && !strings.Contains(err.Error(), why.Message) {
			t.Errorf("told of %v", err)
		}
	case <-s.soon().Done():
		t.Error("nobody is told")
	}
	for { // what was noted before the leader was gone has both
		select {
		case ends := <-noted:
			if _, both := ends[1]; both {
				continue
			}
			if ends[0] != 3 {
				t.Errorf("where partitions end is noted as %v, want that of the other one", ends)
			}
			return
		case <-s.soon().Done():
			t.Fatal("of the other partition it is not noted where it ends")
		}
	}
}

// notedEnds is a store that says what was noted.
type notedEnds struct {
	Store
	noted chan<- map[partition.ID]int64
}

func (n notedEnds) Ends(_ context.Context, ends map[partition.ID]int64) error {
	n.noted <- ends
	return nil
}

// A polls counts how often a client is polled.
type polls struct{ atomic.Int32 }

func (p *polls) OnPollStart(context.Context) { p.Add(1) }

// A source that is closed although a stream is open, against its word, tells who waits, and does
// not spin.
func TestClosedBeforeItsStream(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	var made polls
	src := s.source(Config{Group: NoGroup, Options: append(s.broker.Options(), kgo.WithHooks(&made))})
	st := s.open(src, 0)
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, kgo.ErrClientClosed) {
			t.Fatalf("fetch: %v, want that the client is closed", err)
		}
	}
	s.close(st)
	if n := made.Load(); n > 100 {
		t.Errorf("it was polled %d times", n)
	}
}

// However many partitions a peer has, it reads ahead about as much as it was told.
func TestTheBufferOfManyPartitions(t *testing.T) {
	t.Parallel()
	const n, size = 16, 1 << 20
	s := newStage(t, n)
	noise := make([]byte, 16<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	src := s.source(Config{Buffer: size})
	var streams []*stream
	for id := range partition.ID(n) {
		streams = append(streams, s.open(src, id))
	}
	silent := s.fault(s.topic, kerr.NotLeaderForPartition, kmsg.Fetch)
	for range 32 { // a batch each
		var records []*kgo.Record
		for p := range int32(n) {
			records = append(records, &kgo.Record{Topic: s.topic, Partition: p, Value: noise})
		}
		if err := s.client.ProduceSync(s.soon(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	silent.Remove()
	held := 0
	s.until("all are paused", func() bool {
		held = 0
		all := true
		for _, st := range streams {
			st.Mu.Lock()
			held += st.buffer.bytes
			all = all && st.buffer.paused
			st.Mu.Unlock()
		}
		return all
	})
	if held > 3*size {
		t.Errorf("%d bytes are read ahead, %d were allowed", held, size)
	}
}

// What is too large for the dead topic, says so, and what to do.
func TestALetterThatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.broker.Create(s.topic+".dead", 1)
	noise := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	n, err := s.source(Config{}).grave.put(s.soon(), []*letter{{record: &kgo.Record{Value: noise}}})
	if n != 0 || !errors.Is(err, kerr.MessageTooLarge) || !strings.Contains(err.Error(), "max.message.bytes") {
		t.Error(n, err)
	}
}

// A topic without a limit has a dead topic without.
func TestADeadTopicOfATopicWithoutALimit(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that shows what it is asked")
	}
	most := "2147483647"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &most}}
	if _, err := s.admin.AlterTopicConfigs(s.soon(), set, s.topic); err != nil {
		t.Fatal(err)
	}
	if _, err := s.source(Config{}).grave.ready(s.soon()); err != nil {
		t.Fatal(err)
	}
	made, err := s.admin.DescribeTopicConfigs(s.soon(), s.topic+".dead")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range made[0].Configs {
		if c.Key == "max.message.bytes" && c.MaybeValue() != most {
			t.Errorf("it takes %s bytes, want %s: there is no larger number", c.MaybeValue(), most)
		}
	}
}

// A stop does not wait for a broker that is silent.
func TestABrokerThatIsSilentHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	l := newLine()
	src := s.source(Config{Group: NoGroup, Options: append(s.broker.Options(), l.options()...)})
	st := s.open(src, 0)
	s.push(0, "t", 1)
	s.take(st, 1) // the client has its connections
	l.cut.Store(true)
	defer l.mend()
	src.client.ForceMetadataRefresh()
	<-l.lost
	ctx, cancel := context.WithTimeout(s.soon(), soonEnough)
	defer cancel()
	if err := st.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// silent is the address of a broker that takes connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var held []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range held {
			c.Close()
		}
	})
	return l.Addr().String()
}

// One broker that hangs, or whose machine is gone, keeps nobody from starting: the others are asked as well.
func TestABrokerThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	src := s.source(Config{Options: []kgo.Opt{
		kgo.SeedBrokers(append([]string{silent(t), silent(t)}, s.broker.Seeds()...)...),
		kgo.RequestTimeoutOverhead(10 * time.Minute), // nor does the client give it up
	}})
	for i := range 5 { // it asks another one each time
		if _, err := src.look(s.soon()); err != nil {
			t.Fatalf("look %d: %v", i, err)
		}
	}
}

// A batch that is larger than the client takes is told each time, as long as it is there.
func TestABatchThatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	r := &kgo.Record{Topic: s.topic, Value: bytes.Repeat([]byte("a"), 2<<20)}
	if err := s.broker.Client(kgo.ProducerBatchCompression(kgo.GzipCompression())).ProduceSync(s.soon(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	st := s.open(s.source(Config{Options: append(s.broker.Options(), kgo.MaxDecompressBatchBytes(1<<20))}), 0)
	for i := range 3 {
		var large *kgo.ErrDecompressTooLarge
		if tasks, err := st.Fetch(s.soon(), 1); !errors.As(err, &large) {
			t.Fatalf("fetch %d: %d tasks, %v", i, len(tasks), err)
		}
	}
}

// A group whose broker is not there is told with the broker's word.
func TestAGroupWithoutACoordinator(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	s.broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.CoordinatorNotAvailable, Count: -1})
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	_, err := s.source(Config{}).Layout(ctx)
	if !errors.Is(err, kerr.CoordinatorNotAvailable) || !strings.Contains(err.Error(), "offsets.topic.replication.factor") {
		t.Errorf("the layout: %v, want what the broker says, and what to do", err)
	}
}

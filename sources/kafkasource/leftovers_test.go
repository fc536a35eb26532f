package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// A yesStore admits whatever is said to it, and keeps it.
type yesStore struct {
	Store
	said   []progress.Request
	resets []string // base and life of each
	fails  error    // if set, the answer to what is settled
}

func (y *yesStore) Settle(_ context.Context, _ partition.Grant, _ partition.Token, r *progress.Request, _ []progress.Content) (progress.Answer, error) {
	if y.fails != nil {
		return progress.Answer{}, y.fails
	}
	said := *r
	said.Others = slices.Clone(r.Others)
	y.said = append(y.said, said)
	return progress.Answer{Status: progress.Admitted, Base: r.Base, Writes: r.Seen + 1}, nil
}

func (y *yesStore) Reset(_ context.Context, _ partition.Grant, _ partition.Token, seen, base int64, life string) (int64, error) {
	y.resets = append(y.resets, fmt.Sprint(base, " ", life))
	return seen + 1, nil
}

// What nobody may start any more is buried when a partition is opened, each once, the oldest
// first, whether it was carried past the base or not; the rest of what was carried past it
// comes again.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 12)
	src := s.source(Config{CrashLimit: 2})
	store := &yesStore{Store: src.store}
	src.store = store
	f := &progress.Found{
		Opened: progress.Opened{Base: 4, Writes: 7, Gate: 12},
		Lifted: []int64{1, 2, 3},
		Tried: map[int64]progress.Tried{
			2: {Crashes: 2}, 3: {Crashes: 1, Tries: 1}, // carried past the base
			5: {Crashes: 2}, 6: {Crashes: 3}, 7: {Crashes: 2}, 8: {Crashes: 2}, 9: {Crashes: 1}, 10: {Crashes: 2},
		},
	}
	records, corpses, err := src.leftovers(s.soon(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1}, bounds{start: 0, end: 12}, f)
	if err != nil || len(corpses) > 0 {
		t.Fatal(corpses, err)
	}
	if len(records) != 2 || records[0].Offset != 1 || records[1].Offset != 3 {
		t.Errorf("%d records come again, want those at 1 and 3", len(records))
	}
	ended := []int64{2, 5, 6, 7, 8, 10}
	for i, r := range store.said {
		if v := r.Others[0]; i >= len(ended) || v.Position != ended[i] || v.Outcome != progress.Dead || r.Seen != 7+int64(i) || r.Base != 4 {
			t.Errorf("the store was told %+v, want the ends of %v", r, ended)
		}
	}
	for i, l := range s.records(s.topic+".dead", 0, len(ended)) {
		if want := fmt.Sprint("t", ended[i]); string(l.Value) != want {
			t.Errorf("letter %d is %s, want %s", i, l.Value, want)
		}
	}
	if n := s.buried(); n != int64(len(ended)) {
		t.Errorf("%d letters, want %d", n, len(ended))
	}
	left := slices.Sorted(maps.Keys(f.Tried))
	if fmt.Sprint(left, f.Lifted, f.Done, f.Writes) != "[3 9] [1 3] [5 6 7 8 10] 13" {
		t.Errorf("what is left is %v, %v, %v after %d writes", left, f.Lifted, f.Done, f.Writes)
	}
}

// A dials counts the connections that clients make.
type dials struct{ atomic.Int32 }

func (d *dials) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) { d.Add(1) }

// However many there are, and however far apart, they cost one client: an owner opens with
// thousands of them behind a key that does not get done.
func TestLeftoversAreReadByOneClient(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	const n = 12
	noise := make([]byte, 1<<16) // not to be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for i := range n { // a batch each, of which one fills a fetch
		s.push(0, fmt.Sprintf("%d %s", i, noise), 1)
	}
	var made dials
	src := s.source(Config{Buffer: 1, Options: append(s.broker.Options(), kgo.WithHooks(&made))})
	recall := func(wanted ...int64) (connections int32) {
		before := made.Load()
		read, err := src.recall(s.soon(), 0, bounds{start: 0, end: n}, wanted)
		if err != nil {
			t.Fatal(err)
		}
		for _, pos := range wanted {
			if r := read[pos]; r == nil || r.Offset != pos || !strings.HasPrefix(string(r.Value), fmt.Sprint(pos, " ")) {
				t.Errorf("of %v there is no record at %d", wanted, pos)
			}
		}
		if len(read) != len(wanted) {
			t.Errorf("%d records were read, want those at %v", len(read), wanted)
		}
		return made.Load() - before
	}
	// A client may have asked all by its first connection, or have made those that it has for a broker.
	if one, many := recall(3), recall(0, 1, 4, 7, 10, 11); many > 2*one {
		t.Errorf("one record takes %d connections, and six of them %d", one, many)
	}
}

// What was carried past the base and is not in the topic any more follows the policy: it is
// refused, or becomes a dead letter without a payload.
func TestLeftoversThatAreGone(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 5)
	s.cut(0, 2)
	open := func(policy Place) (*yesStore, []int64, error) {
		src := s.source(Config{OutOfRange: policy})
		store := &yesStore{Store: src.store}
		src.store = store
		f := &progress.Found{Opened: progress.Opened{Base: 4}, Lifted: []int64{1, 3, 9}}
		records, _, err := src.leftovers(s.soon(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1}, bounds{start: 2, end: 5}, f)
		var at []int64
		for _, r := range records {
			at = append(at, r.Offset)
		}
		return store, at, err
	}
	if store, at, err := open(Fail); asRange(err) == nil || asRange(err).Base != 1 || len(at)+len(store.said) != 0 {
		t.Errorf("opened with %v, %v, %v, want an OutOfRangeError of position 1", at, store.said, err)
	}
	store, at, err := open(Latest)
	if err != nil || fmt.Sprint(at) != "[3]" || len(store.said) != 2 || store.said[0].Others[0].Position != 1 || store.said[1].Others[0].Position != 9 {
		t.Errorf("opened with %v, %+v, %v, want the ends of 1 and 9", at, store.said, err)
	}
	for i, l := range s.records(s.topic+".dead", 0, 2) {
		why, where := "", ""
		for _, h := range l.Headers {
			switch h.Key {
			case HeaderDeadReason:
				why = string(h.Value)
			case HeaderDeadOffset:
				where = string(h.Value)
			}
		}
		if !strings.Contains(why, "has not got it any more") || where != []string{"1", "9"}[i] || len(l.Value) != 0 {
			t.Errorf("the letter %+v is of %s, since %s", l, where, why)
		}
	}
}

// The base that a store has is made one that the topic has. What was known of positions of
// another topic, or of an end that was cut off, is void; what retention has overtaken leaves
// the rest as it is.
func TestPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		found  progress.Found
		policy Place
		want   string // base, gate, suspects, whether the rest stands, resets; empty: refused
	}{
		{"in range", progress.Found{Opened: progress.Opened{Base: 6, Gate: 7, Suspects: 7}, Life: "x"}, Fail, "6 7 7 true []"},
		{"at its end", progress.Found{Opened: progress.Opened{Base: 8, Gate: 8}, Life: "x"}, Fail, "8 8 0 true []"},
		{"nobody has said of what", progress.Found{Opened: progress.Opened{Base: 6, Gate: 7}}, Fail, "6 7 0 true [6 x]"},
		{"overtaken, fail", progress.Found{Opened: progress.Opened{Base: 2}, Life: "x"}, Fail, ""},
		{"overtaken", progress.Found{Opened: progress.Opened{Base: 2, Gate: 3, Suspects: 3}, Life: "x"}, Earliest, "4 4 3 true [4 x]"},
		{"overtaken, latest", progress.Found{Opened: progress.Opened{Base: 2, Gate: 9}, Life: "x"}, Latest, "8 9 0 true [8 x]"},
		{"beyond the end, fail", progress.Found{Opened: progress.Opened{Base: 9}, Life: "x"}, Fail, ""},
		{"beyond the end", progress.Found{Opened: progress.Opened{Base: 9, Gate: 12, Suspects: 12}, Life: "x"}, Latest, "8 8 0 false [8 x]"},
		{"another", progress.Found{Opened: progress.Opened{Base: 3, Gate: 6, Suspects: 6}, Life: "y"}, Earliest, "4 4 0 false [4 x]"},
		{"another, in range", progress.Found{Opened: progress.Opened{Base: 6, Gate: 7, Suspects: 7}, Life: "y"}, Fail, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, store := c.found, &yesStore{}
			f.Lifted, f.Done, f.Tried, f.Writes = []int64{1}, []int64{9}, map[int64]progress.Tried{1: {Tries: 1}}, 20
			var told []error
			src := &Source{store: store, cfg: Config{OutOfRange: c.policy, Warn: func(err error) { told = append(told, err) }}}
			err := src.place(t.Context(), partition.Grant{}, partition.Token{}, bounds{start: 4, end: 8, stable: 8, life: "x"}, &f)
			if c.want == "" {
				if e := asRange(err); e == nil || e.Base != c.found.Base || len(store.resets)+len(told) > 0 {
					t.Errorf("it is %+v, %v, reset to %v; want an OutOfRangeError", f, err, store.resets)
				}
				return
			}
			got := fmt.Sprint(f.Base, f.Gate, f.Suspects, len(f.Lifted)+len(f.Done)+len(f.Tried) == 3, store.resets)
			if err != nil || got != c.want || f.Life != "x" || f.Writes != 20+int64(len(store.resets)) {
				t.Errorf("it is %s of %q after %d writes, %v; want %s", got, f.Life, f.Writes, err, c.want)
			}
			if gone := c.found.Base < 4 || c.found.Base > 8 || c.found.Life == "y"; gone != (len(told) == 1) {
				t.Errorf("told %v", told)
			}
		})
	}
}

// compacted makes a topic one that is compacted when the broker is told to.
func (s *stage) compacted() {
	s.Helper()
	if s.broker.Cluster == nil {
		s.Skip("it needs a broker that compacts when it is told to: the embedded one, without COUNTOFF_KAFKA")
	}
	compact, zero := "compact", "0"
	_, err := s.admin.AlterTopicConfigs(s.soon(), []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &compact}, {Op: kadm.SetConfig, Name: "delete.retention.ms", Value: &zero},
		{Op: kadm.SetConfig, Name: "min.compaction.lag.ms", Value: &zero}, {Op: kadm.SetConfig, Name: "segment.ms", Value: &zero},
	}, s.topic)
	if err != nil {
		s.Fatal(err)
	}
}

// A record whose key waits for a retry is lifted, a newer one of its key comes, and compaction takes
// the older: it becomes a dead letter that says so, and its partition is opened.
func TestALiftedRecordIsCompactedAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.compacted()
	s.push(0, "stays", 1, "q") // the log begins where it did, as Kafka's does
	s.push(0, "old", 1, "a")
	for i := range 20 {
		s.push(0, "other", 1, fmt.Sprint("b", i))
	}
	src := s.source(Config{Window: 4})
	st := s.open(src, 0)
	s.settle(st, sources.Done, s.take(st, 1)...)
	first := s.take(st, 1)
	if err := st.Settle(s.soon(), sources.Settlement{Task: &first[0], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour, Reason: "no luck"}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		s.settle(st, sources.Done, s.take(st, 1)...)
	}
	s.close(st)
	s.push(0, "new", 1, "a")
	s.push(0, "last", 1, "z")
	s.broker.Cluster.Compact()
	st, err := s.try(src, 0)
	if err != nil {
		t.Fatalf("the partition is opened no more: %v", err)
	}
	s.settle(st, sources.Done, s.take(st, 2)...)
	s.close(st)
	reason := ""
	for _, h := range s.records(s.topic+".dead", 0, 1)[0].Headers {
		if h.Key == HeaderDeadReason {
			reason = string(h.Value)
		}
	}
	if !strings.Contains(reason, "is compacted") {
		t.Errorf("the reason is %q", reason)
	}
}

// A record waits for its retry, within the window, and compaction takes it before another owner has read it.
func TestAWaitingRecordIsCompactedAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.compacted()
	for i, key := range []string{"q", "a", "b", "c"} {
		s.push(0, fmt.Sprint("t", i), 1, key)
	}
	src := s.source(Config{Check: 20 * time.Millisecond})
	st := s.open(src, 0)
	got := s.take(st, 4)
	for _, i := range []int{2, 1} {
		if err := st.Settle(s.soon(), sources.Settlement{Task: &got[i], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour, Reason: "no luck"}); err != nil {
			t.Fatal(err)
		}
	}
	s.settle(st, sources.Done, got[0], got[3])
	s.close(st)
	for _, key := range []string{"a", "b", "z"} {
		s.push(0, "new", 1, key)
	}
	s.broker.Cluster.Compact()
	st = s.open(src, 0)
	s.settle(st, sources.Done, s.take(st, 3)...)
	var offsets []string
	for _, r := range s.records(s.topic+".dead", 0, 2) {
		for _, h := range r.Headers {
			if h.Key == HeaderDeadReason && !strings.Contains(string(h.Value), "is compacted") {
				t.Errorf("the reason is %q", h.Value)
			}
			if h.Key == HeaderDeadOffset {
				offsets = append(offsets, string(h.Value))
			}
		}
	}
	if !slices.Equal(offsets, []string{"1", "2"}) {
		t.Errorf("letters of %v, want 1 and 2", offsets)
	}
	s.close(st)
}

// A record waits for its retry, within the window, and retention takes it before another owner has read it.
func TestAWaitingRecordIsOvertakenByRetention(t *testing.T) {
	t.Parallel()
	for _, policy := range []Place{Earliest, Latest} {
		t.Run(string(policy), func(t *testing.T) {
			eachStore(t, 1, func(s *stage) {
				s.push(0, "t", 6)
				var told []sources.Buried
				src := s.source(Config{OutOfRange: policy, Buried: func(b sources.Buried) { told = append(told, b) }})
				st := s.open(src, 0)
				got := s.take(st, 5)
				for _, i := range []int{3, 1} {
					if err := st.Settle(s.soon(), sources.Settlement{Task: &got[i], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour, Reason: "no luck"}); err != nil {
						s.Fatal(err)
					}
				}
				s.settle(st, sources.Done, got[2], got[4]) // and 0 is open, but nothing is known of it
				s.close(st)
				s.cut(0, 5)
				st = s.open(src, 0)
				var offsets []string
				for _, r := range s.records(s.topic+".dead", 0, 2) {
					for _, h := range r.Headers {
						switch {
						case h.Key == HeaderDeadReason && !strings.Contains(string(h.Value), "longer than records are kept"),
							h.Key == HeaderDeadAttempts && string(h.Value) != "1", h.Key == HeaderDeadFirstError && string(h.Value) != "no luck":
							s.Errorf("%s is %q", h.Key, h.Value)
						case h.Key == HeaderDeadOffset:
							offsets = append(offsets, string(h.Value))
						}
					}
				}
				if !slices.Equal(offsets, []string{"1", "3"}) {
					s.Errorf("letters of %v, want 1 and 3", offsets)
				}
				if len(told) != 1 || told[0].Tasks != 2 || told[0].Position != 1 {
					s.Errorf("told %+v, want once, of two", told)
				}
				want := "t5"
				if policy == Latest {
					want = "new0"
				}
				s.push(0, "new", 1)
				s.want("the first task", s.take(st, 1)[0], want)
				s.close(st)
				s.close(s.open(src, 0)) // and once only
				if n := s.buried(); n != 2 {
					s.Errorf("%d letters, want 2", n)
				}
			})
		})
	}
}

// What a new base has passed may be started at once, and is suspect if its peer dies then.
func TestWhatIsCarriedPastANewBaseMayBeStarted(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		s.push(0, "t", 6)
		src := s.source(Config{OutOfRange: Latest})
		st := s.open(src, 0)
		got := s.take(st, 4)
		s.settle(st, sources.Retry, got[3])
		s.close(st)
		s.cut(0, 2)
		own := func(epoch partition.Epoch) (partition.Grant, partition.Token, progress.Found) {
			g, tok := partition.Grant{Epoch: epoch}, partition.Token{Epoch: epoch, Session: "dies"}
			f, err := src.store.Open(s.soon(), g, tok, 0)
			if err != nil {
				s.Fatal(err)
			}
			return g, tok, f
		}
		log, err := src.bounds(s.soon(), 0)
		if err != nil {
			s.Fatal(err)
		}
		g, tok, f := own(s.epoch + 1)
		if err := src.place(s.soon(), g, tok, log, &f); err != nil || f.Base != 6 || f.Gate != 6 || !slices.Equal(f.Lifted, []int64{3}) {
			s.Fatalf("it is %+v, %v", f, err)
		}
		if _, _, f = own(s.epoch + 2); f.Suspects != 6 {
			s.Errorf("the suspects are those below %d, want 6", f.Suspects)
		}
	})
}

// What is known of the tries of a record that compaction took before it was read again goes with
// the next owner after the base has passed it.
func TestTriesOfWhatWasCompactedAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.compacted()
	s.push(0, "stays", 1, "q")
	s.push(0, "old", 1, "a")
	src := s.source(Config{Check: 20 * time.Millisecond})
	st := s.open(src, 0)
	s.settle(st, sources.Done, s.take(st, 1)...)
	tried := s.take(st, 1)
	if err := st.Settle(s.soon(), sources.Settlement{Task: &tried[0], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour, Reason: "no luck"}); err != nil {
		t.Fatal(err)
	}
	s.close(st)
	s.push(0, "new", 1, "a")
	s.push(0, "last", 1, "z")
	s.broker.Cluster.Compact()
	st = s.open(src, 0)
	s.settle(st, sources.Done, s.take(st, 2)...)
	k := redisprogress.Elsewhere(s.name, 0)
	s.until("the base has passed it", func() bool { return s.redis.HGet(t.Context(), k.Fence, "b").Val() == "4" })
	s.close(st)
	s.close(s.open(src, 0))
	if left := s.redis.HGetAll(t.Context(), k.Tries).Val(); len(left) > 0 {
		t.Errorf("%v is kept for ever", left)
	}
}

// What was carried past the base and cannot be read, or is dead and cannot be said to be, keeps the partition closed:
// an owner without it would never hand it out.
func TestLeftoversThatFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		lift int64
		fail func(s *stage, store *yesStore, over func())
		err  error
	}{
		{"they cannot be read", 1, func(s *stage, _ *yesStore, _ func()) { s.fault(s.topic, kerr.TopicAuthorizationFailed, kmsg.Fetch) }, kerr.TopicAuthorizationFailed},
		{"the end cannot be said", 2, func(_ *stage, store *yesStore, _ func()) { store.fails = errAway }, errAway},
		{"time is up before the letter is there", 2, func(s *stage, _ *yesStore, over func()) {
			s.fault(s.topic+".dead", kerr.NotEnoughReplicas, kmsg.Produce)
			over()
		}, context.Canceled},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newStage(t, 1)
			s.push(0, "t", 4)
			s.broker.Create(s.topic+".dead", 1)
			src := s.source(Config{CrashLimit: 2})
			store := &yesStore{Store: src.store}
			src.store = store
			ctx, cancel := context.WithCancel(s.soon())
			defer cancel()
			produced := func() {
				s.broker.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
					cancel()
					return nil, nil, false
				})
			}
			c.fail(s, store, produced)
			f := progress.Found{Opened: progress.Opened{Base: 3}, Lifted: []int64{c.lift}, Tried: map[int64]progress.Tried{2: {Crashes: 2}}}
			records, corpses, err := src.leftovers(ctx, partition.Grant{Epoch: 1}, partition.Token{Epoch: 1}, bounds{start: 0, end: 4}, &f)
			if !errors.Is(err, c.err) {
				t.Errorf("%d records and %d that wait, %v, want %v", len(records), len(corpses), err, c.err)
			}
		})
	}
}

// What lies at the edge of the topic: its first position, of which there is no record, was compacted away; the one that
// comes next is out of range. A marker is no record.
func TestLeftoversAtTheEdges(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	producer := s.broker.Client(kgo.TransactionalID(s.name))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(s.soon(), &kgo.Record{Topic: s.topic, Value: []byte("t0")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := producer.EndTransaction(s.soon(), kgo.TryCommit); err != nil { // its marker is at 1
		t.Fatal(err)
	}
	var told []sources.Buried
	src := s.source(Config{Buried: func(b sources.Buried) { told = append(told, b) }})
	src.store = &yesStore{Store: src.store}
	left := func(pos int64) error {
		f := progress.Found{Opened: progress.Opened{Base: 2}, Lifted: []int64{pos}}
		_, _, err := src.leftovers(s.soon(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1}, bounds{start: 1, end: 2}, &f)
		return err
	}
	if err := left(1); err != nil || len(told) != 1 || told[0].Tasks != 1 || !strings.Contains(told[0].Reason, "is compacted") {
		t.Errorf("without the first record: told of %+v, %v", told, err)
	}
	if r, err := new(walker).back(s.records(s.topic+".dead", 0, 1)[0]); err == nil {
		t.Errorf("its letter would be requeued, as %+v", r)
	}
	for _, pos := range []int64{0, 2} {
		if r := asRange(left(pos)); r == nil || r.Base != pos {
			t.Errorf("at %d, where the topic has only 1: %+v, want that it is out of range", pos, r)
		}
	}
}

// What has ended its peers too often waits for a dead topic that takes nothing, and nothing waits for
// it: the rest is handed out, settled and not done again, and the letter is written when it can be.
func TestADueLetterKeepsNothingClosed(t *testing.T) {
	t.Parallel() // it waits for most of its time
	eachStore(t, 1, func(s *stage) {
		s.Parallel()
		s.push(0, "poison", 1)
		var told []sources.Buried
		var warned atomic.Int32
		src := s.source(Config{
			CrashLimit: 1, Buried: func(b sources.Buried) { told = append(told, b) }, Warn: func(err error) {
				if strings.Contains(err.Error(), "waits for the dead topic") {
					warned.Add(1)
				}
			},
		})
		src.grave.patience = 500 * time.Millisecond
		away := s.fault(s.topic+".dead", kerr.NotEnoughReplicas, kmsg.Produce)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 { // alone the second time, which counts
			st := s.open(src, 0)
			s.take(st, 1)
			_ = st.Close(over) // the peer dies: nothing is said
		}
		s.push(0, "t", 5)
		for range 2 {
			st, err := s.try(src, 0)
			if err != nil {
				t.Fatalf("it keeps the partition closed: %v", err)
			}
			if n := warned.Swap(0); n != 1 {
				t.Errorf("it is told %d times that a letter waits", n)
			}
			for i, task := range s.take(st, 2) {
				if string(task.Payload) == "poison0" {
					t.Fatalf("task %d is what nobody may start", i)
				}
				s.settle(st, sources.Done, task)
			}
			s.close(st)
		}
		st := s.open(src, 0)
		last := s.take(st, 1)
		s.want("the last", last[0], "t4")
		away.Remove()
		s.settle(st, sources.Done, last...)
		if letters := s.records(s.topic+".dead", 0, 1); string(letters[0].Value) != "poison0" {
			t.Errorf("the letter is %q", letters[0].Value)
		}
		s.until("its end is answered", func() bool {
			st.Mu.Lock()
			defer st.Mu.Unlock()
			return st.Log.Base() == 6
		})
		s.close(st)
		if len(told) != 1 || told[0].Position != 0 || !strings.Contains(told[0].Reason, "died 1 times") {
			t.Errorf("told of %+v", told)
		}
		st = s.open(src, 0)
		s.push(0, "after", 1)
		s.want("the next owner", s.take(st, 1)[0], "after0")
		s.close(st)
	})
}

// A heldStore keeps what is said to be done until it may go on.
type heldStore struct {
	Store
	goOn chan struct{}
}

func (h *heldStore) Settle(ctx context.Context, g partition.Grant, tok partition.Token, r *progress.Request, content []progress.Content) (progress.Answer, error) {
	if len(r.Done) > 0 {
		<-h.goOn
	}
	return h.Store.Settle(ctx, g, tok, r, content)
}

// Who waits for a slow store is not told that the dead topic takes nothing: it holds nothing of his.
func TestALetterThatHoldsNothingIsNoErrorOfOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	src := s.source(Config{CrashLimit: 1})
	src.grave.patience = 50 * time.Millisecond
	away := s.fault(s.topic+".dead", kerr.NotEnoughReplicas, kmsg.Produce)
	if err := src.grave.create(s.soon(), src.admin.CreateTopics); err != nil {
		t.Fatal(err)
	}
	s.push(0, "poison", 1)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 { // alone the second time, which counts
		st := s.open(src, 0)
		s.take(st, 1)
		_ = st.Close(over) // the peer dies: nothing is said
	}
	s.push(0, "t", 1)
	held := &heldStore{Store: src.store, goOn: make(chan struct{})}
	src.store = held
	st := s.open(src, 0)
	tasks := s.take(st, 1)
	s.want("the other", tasks[0], "t0")
	settled := make(chan error, 1)
	go func() {
		settled <- st.Settle(s.soon(), sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1})
	}()
	before := away.Hits()
	s.until("the letter is refused several times", func() bool { return away.Hits() > before+3 || len(settled) > 0 })
	close(held.goOn)
	if err := <-settled; err != nil {
		t.Errorf("of a task that is done he is told: %v", err)
	}
}

// Wherever it lies, below the base or among what is read, what waits for the dead topic is handed to
// nobody, and is said to be dead once its letter is there.
func TestLeftoversThatWait(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 12)
	src := s.source(Config{CrashLimit: 2})
	src.grave.patience = 500 * time.Millisecond
	store := &yesStore{Store: src.store}
	src.store = store
	away := s.fault(s.topic+".dead", kerr.NotEnoughReplicas, kmsg.Produce)
	g, tok := partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}
	f := progress.Found{
		Opened: progress.Opened{Base: 4, Writes: 7, Gate: 12, Suspects: 12},
		Lifted: []int64{1, 2, 3},
		Tried:  map[int64]progress.Tried{1: {Crashes: 2}, 3: {Crashes: 2}, 5: {Crashes: 2}, 6: {Crashes: 3}, 11: {Crashes: 2}},
	}
	records, corpses, err := src.leftovers(s.soon(), g, tok, bounds{start: 0, end: 12}, &f)
	if err != nil || len(corpses) != 5 || len(store.said) > 0 {
		t.Fatalf("%d wait, %v, %v", len(corpses), store.said, err)
	}
	st := newStream(src, g, tok, f, records, corpses)
	src.mirror.add(st, false)
	if err := src.reader.add(s.soon(), st, f.Base); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 6 { // suspects come one by one
		task := s.take(st, 1)
		got = append(got, string(task[0].Payload))
		s.settle(st, sources.Done, task...)
	}
	if want := "[t2 t4 t7 t8 t9 t10]"; fmt.Sprint(got) != want {
		t.Errorf("handed out are %v, want %s", got, want)
	}
	away.Remove()
	reading, enough := context.WithCancel(t.Context())
	read := make(chan []sources.Task, 1)
	go func() { // as an owner does all the time
		more, _ := st.Fetch(reading, 1)
		read <- more
	}()
	s.until("all are answered", func() bool {
		st.Mu.Lock()
		defer st.Mu.Unlock()
		return st.Log.Base() == 12
	})
	enough()
	if more := <-read; len(more) > 0 {
		t.Errorf("%s is handed out", more[0].Payload)
	}
	_ = st.Close(s.soon()) // the store does not know of it
	var dead []int64
	for _, r := range store.said {
		for _, v := range r.Others {
			dead = append(dead, v.Position)
		}
	}
	if fmt.Sprint(dead) != "[1 3 5 6 11]" {
		t.Errorf("said to be dead are %v", dead)
	}
	for i, l := range s.records(s.topic+".dead", 0, 5) {
		if want := []string{"t1", "t3", "t5", "t6", "t11"}[i]; string(l.Value) != want {
			t.Errorf("letter %d is %s, want %s", i, l.Value, want)
		}
	}
}

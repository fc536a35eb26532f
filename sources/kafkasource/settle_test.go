package kafkasource

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

var errAway = errors.New("the store is away")

// An awayStore fails whenever it is told to.
type awayStore struct {
	Store
	away func(*progress.Request) bool
}

func (a *awayStore) Settle(ctx context.Context, g partition.Grant, tok partition.Token, r *progress.Request, content []progress.Content) (progress.Answer, error) {
	if a.away(r) {
		return progress.Answer{}, errAway
	}
	return a.Store.Settle(ctx, g, tok, r, content)
}

// buried is how many letters there are.
func (s *stage) buried() int64 {
	s.Helper()
	ends, err := s.admin.ListEndOffsets(s.soon(), s.topic+".dead")
	if err != nil {
		s.Fatal(err)
	}
	o, _ := ends.Lookup(s.topic+".dead", 0)
	return o.Offset
}

// buriesNoMore checks that st has nothing to bury, beside the one letter that there is.
func (s *stage) buriesNoMore(st *stream) {
	s.Helper()
	if err := st.bury(s.soon()); err != nil {
		s.Error(err)
	}
	if n := s.buried(); n != 1 {
		s.Errorf("%d letters, want 1", n)
	}
}

// condemn records that a task is dead, and does something before the store can be told.
func (s *stage) condemn(st *stream, task *sources.Task, before func()) {
	s.Helper()
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if _, err := st.Record(&sources.Settlement{Task: task, Outcome: sources.Dead, Attempt: 1}, time.Now()); err != nil {
		s.Fatal(err)
	}
	before()
}

// Tasks come again by their time, whenever they were put aside: one that waits for long holds up no other, and of one
// instant the first comes first.
func TestTasksComeAgainByTheirTime(t *testing.T) {
	t.Parallel()
	var a redeliveries
	now := time.Now()
	for pos, wait := range []time.Duration{4, 1, 3, 1} {
		a.put(int64(pos), &sources.Settlement{Task: &sources.Task{Delivery: &sources.Delivery{}, Key: strconv.Itoa(pos)}}, &kgo.Record{}, now.Add(wait))
	}
	for _, c := range []struct {
		after time.Duration
		limit int
		want  string
	}{{0, 9, ""}, {1, 1, "1"}, {1, 9, "3"}, {3, 9, "2"}, {9, 9, "0"}} {
		var got []string
		for _, task := range a.take(now.Add(c.after), c.limit) {
			got = append(got, task.Key)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("after %d came %v, want %q", c.after, got, c.want)
		}
	}
	if !a.due().IsZero() {
		t.Errorf("nothing waits, and %v is due", a.due())
	}
}

// A letter that is on the dead topic is not written again while the store does not hear of
// its end.
func TestALetterIsBuriedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 1)
	src := s.source(Config{})
	var away atomic.Bool
	away.Store(true)
	src.store = &awayStore{src.store, func(r *progress.Request) bool { return len(r.Others) > 0 && away.Load() }}
	st := s.open(src, 0)
	task := s.take(st, 1)[0]
	settled, ctx := make(chan error, 1), s.soon()
	go func() {
		settled <- st.Settle(ctx, sources.Settlement{Task: &task, Outcome: sources.Dead, Attempt: 1})
	}()
	s.until("the letter is there", func() bool {
		st.Mu.Lock()
		defer st.Mu.Unlock()
		for _, l := range st.letters {
			return l.buried
		}
		return false
	})
	s.buriesNoMore(st)
	away.Store(false)
	<-settled // the store was away for as long as it takes to be told, or not
	s.settle(st, sources.Dead, task)
	if n := s.buried(); n != 1 {
		t.Errorf("%d letters, want 1", n)
	}
}

// A letter is written when the store has admitted the owner since: not with one that was
// admitted before it.
func TestALetterIsNotBuriedUnasked(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 2)
	st := s.open(s.source(Config{}), 0)
	tasks := s.take(st, 2)
	s.settle(st, sources.Dead, tasks[0]) // so that there is a dead topic
	s.open(s.source(Config{}), 0)        // the next owner
	s.condemn(st, &tasks[1], func() {})
	s.buriesNoMore(st)
}

// An owner that has heard that it was followed buries nothing any more, not even what it
// was admitted to bury before.
func TestWhoIsLostBuriesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 2)
	st := s.open(s.source(Config{}), 0)
	tasks := s.take(st, 2)
	s.settle(st, sources.Dead, tasks[0]) // so that there is a dead topic
	s.condemn(st, &tasks[1], func() {
		for _, l := range st.letters {
			l.admitted = true
		}
		st.Lose(sources.ErrFenced)
	})
	s.buriesNoMore(st)
}

// A store that does not answer is told to who waits for it; what was said is said to it
// when it is back.
func TestAStoreThatIsAwayIsTold(t *testing.T) {
	t.Parallel() // it waits until it is told
	s := newStage(t, 1)
	s.push(0, "t", 2)
	src := s.source(Config{})
	away := make(chan bool, 1)
	away <- false
	src.store = &awayStore{src.store, func(*progress.Request) bool {
		is := <-away
		away <- is
		return is
	}}
	st := s.open(src, 0)
	tasks := s.take(st, 2)
	<-away
	away <- true
	done := sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1}
	if err := st.Settle(s.soon(), done); !errors.Is(err, errAway) {
		t.Errorf("the store is away, and a settlement says %v", err)
	}
	<-away
	away <- false
	if err := st.Settle(s.soon(), done); err != nil {
		t.Error(err)
	}
	if next := s.take(s.open(s.source(Config{}), 0), 1); string(next[0].Payload) != "t1" {
		t.Errorf("the next owner has %q, want t1", next[0].Payload)
	}
}

// What the reader has met is told to one Fetch; the next one goes on.
func TestWhatTheReaderHasMetIsToldOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 1)
	src := s.source(Config{})
	st := s.open(src, 0)
	fail := func() {
		src.client.PauseFetchPartitions(map[string][]int32{s.topic: {0}}) // as the reader does
		st.paused()
		st.readFailed(errAway)
	}
	fail()
	if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, errAway) {
		t.Errorf("the reader has failed, and a fetch says %v", err)
	}
	s.want("the next fetch", s.take(st, 1)[0], "t0")
	// The same to one that waits.
	waits, ctx := make(chan error, 1), s.soon()
	go func() {
		_, err := st.Fetch(ctx, 1)
		waits <- err
	}()
	s.until("a fetch waits", func() bool {
		st.Mu.Lock()
		defer st.Mu.Unlock()
		return st.Reads()
	})
	fail()
	if err := <-waits; !errors.Is(err, errAway) {
		t.Errorf("the reader has failed, and the fetch that waits says %v", err)
	}
	s.push(0, "u", 1)
	s.want("the next fetch", s.take(st, 1)[0], "u0")
}

// A task that gives way comes again, when its time has come, as one that has run once more;
// only the receipt of that delivery counts, and nothing is left of it when it has ended.
func TestRedeliveries(t *testing.T) {
	t.Parallel()
	var a redeliveries
	now := time.Now()
	task := sources.Task{Receipt: 7, Delivery: &sources.Delivery{Attempt: 1, NotBefore: now.Add(time.Hour)}}
	if pos, ok := a.position(7); pos != 7 || !ok {
		t.Errorf("the first delivery is of %d, %v", pos, ok)
	}
	a.put(7, &sources.Settlement{Task: &task, Attempt: 3, Reason: "no"}, &kgo.Record{}, now.Add(time.Second))
	other := sources.Task{Receipt: 9, Delivery: &sources.Delivery{Attempt: 1}}
	a.put(9, &sources.Settlement{Task: &other, Attempt: 1}, &kgo.Record{}, now)
	if tasks := a.take(now, 5); len(tasks) != 1 || !a.due().Equal(now.Add(time.Second)) {
		t.Fatalf("%d come at once, the next is due at %v", len(tasks), a.due())
	}
	again := a.take(now.Add(time.Second), 5)
	if len(again) != 1 || again[0].Attempt != 4 || again[0].FirstError != "no" || !again[0].NotBefore.IsZero() {
		t.Fatalf("what comes again is %+v", again)
	}
	if task.Attempt != 1 || task.NotBefore.IsZero() {
		t.Errorf("the delivery that others may have was changed: %+v", task.Delivery)
	}
	if _, ok := a.position(7); ok {
		t.Error("the receipt of the first delivery counts")
	}
	if pos, ok := a.position(again[0].Receipt); pos != 7 || !ok {
		t.Errorf("the second delivery is of %d, %v", pos, ok)
	}
	a.put(7, &sources.Settlement{Task: &again[0], Attempt: 4}, &kgo.Record{}, now)
	if _, ok := a.position(again[0].Receipt); ok {
		t.Error("the receipt of the second delivery counts")
	}

	s := newStage(t, 1)
	s.push(0, "t", 1)
	st := s.open(s.source(Config{}), 0)
	s.settle(st, sources.Requeue, s.take(st, 1)...)
	s.settle(st, sources.Done, s.take(st, 1)...)
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if n := len(st.passed.of) + len(st.passed.current); n != 0 {
		t.Errorf("of a task that has ended %d receipts are left", n)
	}
}

// What ends a transaction takes a position, and is no task: it is passed.
func TestMarkersOfTransactions(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	producer := s.broker.Client(kgo.TransactionalID(s.name))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	r := &kgo.Record{Topic: s.topic, Value: []byte("t0")}
	if err := producer.ProduceSync(s.soon(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := producer.EndTransaction(s.soon(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	st := s.open(s.source(Config{Check: 50 * time.Millisecond}), 0) // with the marker alone the store is asked no sooner
	s.settle(st, sources.Done, s.take(st, 1)...)
	over, cancel := context.WithCancel(s.soon())
	waits := make(chan struct{})
	go func() { // somebody wants more: that is when it is read
		defer close(waits)
		_, _ = st.Fetch(over, 1)
	}()
	s.until("the marker is passed", func() bool { return st.lowest() == 2 })
	cancel()
	<-waits
}

// What an earlier owner has done is read again, and is neither handed out nor held.
func TestWhatIsDoneIsNotHeld(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 3)
	first := s.open(s.source(Config{}), 0)
	s.settle(first, sources.Done, s.take(first, 3)[1])
	s.close(first)
	st := s.open(s.source(Config{}), 0)
	tasks := s.take(st, 2)
	s.want("the first", tasks[0], "t0")
	s.want("the second", tasks[1], "t2")
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if st.records.at(1) != nil || st.Held.Len() != 0 {
		t.Errorf("what is done is held: %v, %d tasks wait", st.records.at(1) != nil, st.Held.Len())
	}
}

// What is settled a second time changes nothing: not what another verdict says, and what has
// ended does not come again. A retry must say how often its task has run.
func TestSettledASecondTime(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 3)
	st := s.open(s.source(Config{}), 0)
	tasks := s.take(st, 3)
	record := func(task int, o sources.Outcome, delay time.Duration) uint64 {
		seq, err := st.Record(&sources.Settlement{Task: &tasks[task], Outcome: o, Attempt: 1, Delay: delay}, time.Now())
		if err != nil {
			t.Error(err)
		}
		return seq
	}
	st.Mu.Lock() // nothing is answered meanwhile
	record(0, sources.Retry, time.Minute)
	seq := record(1, sources.Retry, time.Hour)
	record(0, sources.Retry, time.Second)
	if c := st.content[seq]; len(st.content) != 2 || c.Delay != time.Hour {
		t.Errorf("the second retry waits for %v, want an hour", c.Delay)
	}
	record(2, sources.Dead, 0)
	record(2, sources.Dead, 0)
	record(2, sources.Requeue, 0)
	if len(st.letters) != 1 || len(st.content) != 2 || !st.passed.due().IsZero() {
		t.Errorf("of one that is dead there are %d letters and %d verdicts, and it comes again at %v", len(st.letters), len(st.content)-2, st.passed.due())
	}
	if _, err := st.Record(&sources.Settlement{Task: &tasks[0], Outcome: sources.Retry}, time.Now()); err == nil {
		t.Error("a retry of a task that has not run is taken")
	}
	if _, err := st.Record(&sources.Settlement{Task: &tasks[0]}, time.Now()); err == nil {
		t.Error("a settlement without an outcome is taken")
	}
	st.Mu.Unlock()
}

// What was done in a transaction that was taken back was never there.
func TestATransactionThatWasTakenBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	producer := s.broker.Client(kgo.TransactionalID(s.name))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(s.soon(), &kgo.Record{Topic: s.topic, Value: []byte("back")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := producer.EndTransaction(s.soon(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	s.push(0, "t", 1)
	s.want("the first task", s.take(s.open(s.source(Config{}), 0), 1)[0], "t0")
}

// An error that quotes a large payload makes no letter that no dead topic takes: that would hold up
// its partition for ever.
func TestALongReasonIsCut(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 2)
	st := s.open(s.source(Config{}), 0)
	tasks := s.take(st, 2)
	noise := make([]byte, 5<<20) // what a topic takes is less, and it does not get smaller
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	dead := sources.Settlement{Task: &tasks[0], Outcome: sources.Dead, Attempt: 1, Reason: "bad payload " + hex.EncodeToString(noise)}
	if err := st.Settle(s.soon(), dead, sources.Settlement{Task: &tasks[1], Outcome: sources.Done, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	letters := s.records(s.topic+".dead", 0, 1)
	for _, h := range letters[0].Headers {
		if v := string(h.Value); (h.Key == HeaderDeadReason || h.Key == HeaderDeadFirstError) && (len(v) > mostReason || !strings.HasPrefix(v, "bad payload ")) {
			t.Errorf("%s has %d bytes: %.40s", h.Key, len(v), v)
		}
	}
	s.close(st)
}

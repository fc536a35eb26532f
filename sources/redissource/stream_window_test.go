package redissource

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// A task stuck at the head does not stop the rest: it is carried past the base, and
// the next owner gets it first.
func TestStreamLiftsWhatIsStuck(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{Window: 4})
	for i := range 40 {
		w.push(fmt.Sprint(i))
	}
	s := w.open()
	stuck := w.fetch(s, 1, "0")
	for i := 1; i < 40; i++ {
		w.done(s, w.fetch(s, 1, fmt.Sprint(i))...)
	}
	if n := w.client.LLen(t.Context(), w.keys.Pending).Val(); n > 4 {
		t.Errorf("%d elements are left behind one that is stuck", n)
	}
	if n := w.client.HLen(t.Context(), w.keys.Lifted).Val(); n != 1 {
		t.Errorf("%d are lifted", n)
	}
	w.settle(s, retry(stuck[0], 0, "stuck"))
	w.push("40")
	w.close(s)
	s = w.open()
	again := w.fetch(s, 5, "0", "40")
	if again[0].Receipt != stuck[0].Receipt || again[0].Attempt != 2 || string(again[0].Payload) != "payload of 0" {
		t.Errorf("the lifted task is %+v", again[0])
	}
	w.done(s, again...)
	w.close(s)
	w.empty(w.keys.Pending, w.keys.Done, w.keys.Lifted, w.keys.Tries)
}

// With eight windows of open tasks carried along, nothing more is read, and somebody
// is told which key it is.
func TestStreamStopsAtTheCap(t *testing.T) {
	told := make(chan Stuck, 10)
	w := newWorld(t, redistest.New(t), Config{Window: 2, Stuck: func(s Stuck) { told <- s }})
	for i := range 40 {
		w.push(fmt.Sprint(i, ":slow"))
	}
	s := w.open()
	var all []sources.Task
	for len(all) < 18 { // eight windows, and one that is full
		tasks, err := s.Fetch(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tasks...)
	}
	w.nothing(s)
	if e := <-told; e.Key != "slow" || e.Position != 0 || e.Over || e.Grant.Epoch != 1 {
		t.Errorf("told %+v", e)
	}
	w.done(s, all...)
	w.fetch(s, 2, "18", "19")
	if e := <-told; !e.Over {
		t.Errorf("told %+v", e)
	}
}

// A unique task holds its lock until it is done or dead, over retries and requeues.
func TestStreamReleasesLocks(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	p := newProducer(t, w.client, w.name, ProducerConfig{Partitions: 1})
	enqueue := func(want bool) {
		t.Helper()
		r, err := p.Enqueue(t.Context(), Message{ID: "once", Unique: true})
		if err != nil || r[0].Duplicate == want {
			t.Fatalf("enqueued %v, %v, want %v", !r[0].Duplicate, err, want)
		}
	}
	enqueue(true)
	s := w.open()
	w.settle(s, sources.Settlement{Task: &w.fetch(s, 1, "once")[0], Outcome: sources.Requeue, Attempt: 1})
	again := w.fetch(s, 1, "once")[0]
	enqueue(false)
	w.settle(s, retry(again, 0, "no"))
	w.close(s)
	s = w.open()
	again = w.fetch(s, 1, "once")[0]
	enqueue(false)
	w.settle(s, retry(again, 0, "no")) // who has it runs it again
	enqueue(false)
	w.done(s, again)
	enqueue(true)
	w.settle(s, sources.Settlement{Task: &w.fetch(s, 1, "once")[0], Outcome: sources.Dead, Attempt: 1})
	enqueue(true)
	w.done(s, w.fetch(s, 1, "once")...)
	w.done(s, again) // late, and once more
	enqueue(true)
	w.done(s, w.fetch(s, 1, "once")...)
	w.empty(w.keys.Unique("once"))
}

// An owner that always finds more to read moves what was scheduled behind its back as well.
func TestWhatIsDueDoesNotWaitForABacklog(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	p := newProducer(t, w.client, w.name, ProducerConfig{Partitions: 1})
	backlog := func(n int) {
		for range n {
			if _, err := p.Enqueue(t.Context(), Message{ID: "plain"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	backlog(20)
	s := w.open()
	work := func() {
		tasks, err := s.Fetch(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		w.done(s, tasks...)
	}
	work() // the server knows the scripts now
	work()
	if _, err := p.Enqueue(t.Context(), Message{ID: "due", Delay: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); w.client.ZCard(t.Context(), w.keys.Delayed).Val() > 0; backlog(4) {
		if time.Now().After(deadline) {
			t.Fatal("it waits for the backlog to end")
		}
		work()
	}
}

// While an owner is busy it looks at what is delayed once a second; once it is not, it
// moves what is due, also what was scheduled behind its back.
func TestStreamMovesWhatIsDue(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	p := newProducer(t, w.client, w.name, ProducerConfig{Partitions: 1})
	s := w.open()
	w.nothing(s)
	var all []Message
	for i, delay := range []time.Duration{60, 20, 40} {
		all = append(all, Message{ID: fmt.Sprint(i), Delay: delay * time.Millisecond})
	}
	if _, err := p.Enqueue(t.Context(), all...); err != nil { // one call, one instant
		t.Fatal(err)
	}
	w.done(s, w.fetch(s, 1, "1", "2", "0")...)
	w.close(s)
	w.empty(w.keys.Delayed, w.keys.Pending)
}

// Large payloads are read few at a time, whatever the limit.
func TestStreamReadsLargePayloadsFewAtATime(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	for i := range 5 {
		e := envelope{id: fmt.Sprint(i), payload: make([]byte, 6<<20)}
		if err := w.client.RPush(t.Context(), w.keys.Pending, appendEnvelope(nil, &e)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := w.open()
	w.done(s, w.fetch(s, 1, "0")...)
	tasks, err := s.Fetch(t.Context(), 100)
	if err != nil || len(tasks) != 2 {
		t.Errorf("%d tasks of 6 MB at once, %v", len(tasks), err)
	}
}

func TestStreamCallsThatCannotBe(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	w.push("a")
	s := w.open()
	if _, err := s.Fetch(t.Context(), 0); err == nil {
		t.Error("a limit of 0 is taken")
	}
	a := w.fetch(s, 1, "a")[0]
	if err := s.Settle(t.Context(), sources.Settlement{Task: &a}); err == nil {
		t.Error("a settlement without an outcome is taken")
	}
	if err := s.Settle(t.Context(), sources.Settlement{Task: &a, Outcome: sources.Retry}); err == nil {
		t.Error("a retry without its attempt is taken")
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Fetch(ended, 1); err != context.Canceled {
		t.Errorf("fetch with an ended context: %v", err)
	}
	w.done(s, a)
	w.close(s)
	w.close(s)
}

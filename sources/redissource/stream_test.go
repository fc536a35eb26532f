package redissource

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// A world is a name with one partition, and what a test does to it.
type world struct {
	t      testing.TB
	client redis.UniversalClient
	name   string
	source *Source
	id     partition.ID
	keys   Keys
	born   sources.Moment
	epoch  partition.Epoch
}

func newWorld(t testing.TB, client redis.UniversalClient, cfg Config) *world {
	t.Helper()
	name := redistest.Name(t)
	cfg.Partitions = max(cfg.Partitions, 1)
	s, err := New(client, name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, client: client, name: name, source: s, keys: KeysOf(name, 0), born: 1}
}

// push appends tasks as a producer that does not ring: "id" or "id:key".
func (w *world) push(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		e := envelope{born: w.born}
		e.id, e.key, _ = strings.Cut(id, ":")
		e.payload = []byte("payload of " + e.id)
		if err := w.client.RPush(w.t.Context(), w.keys.Pending, appendEnvelope(nil, &e)).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// open opens the partition with the next epoch. The stream is closed with the test.
func (w *world) open() *stream {
	w.t.Helper()
	w.epoch++
	return w.openAt(w.epoch)
}

func (w *world) openAt(e partition.Epoch) *stream {
	w.t.Helper()
	tok := partition.Token{Epoch: e, Session: partition.Session("s" + strconv.Itoa(int(e)))}
	s, err := w.source.Open(w.t.Context(), partition.Grant{ID: w.id, Epoch: e}, tok)
	if err != nil {
		w.t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	w.t.Cleanup(func() { s.Close(ended) })
	return s.(*stream)
}

// crash ends an ownership as the death of its peer does.
func (w *world) crash(s *stream) {
	w.t.Helper()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s.Close(ended)
}

func (w *world) close(s *stream) {
	w.t.Helper()
	if err := s.Close(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// fetch expects the tasks with these ids next.
func (w *world) fetch(s *stream, limit int, ids ...string) []sources.Task {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	var got []sources.Task
	for len(got) < len(ids) {
		tasks, err := s.Fetch(ctx, limit)
		if err != nil {
			w.t.Fatalf("fetch: %v, after %v, want %v", err, idsOfTasks(got), ids)
		}
		got = append(got, tasks...)
	}
	if fmt.Sprint(idsOfTasks(got)) != fmt.Sprint(ids) {
		w.t.Fatalf("fetched %v, want %v", idsOfTasks(got), ids)
	}
	return got
}

// nothing expects that there is nothing to fetch now.
func (w *world) nothing(s *stream) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 50*time.Millisecond)
	defer cancel()
	if tasks, err := s.Fetch(ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Fatalf("fetched %v, %v, want nothing", idsOfTasks(tasks), err)
	}
}

func (w *world) settle(s *stream, done ...sources.Settlement) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Settle(ctx, done...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) done(s *stream, tasks ...sources.Task) {
	w.t.Helper()
	var all []sources.Settlement
	for _, t := range tasks {
		all = append(all, sources.Settlement{Task: &t, Outcome: sources.Done, Attempt: t.Attempt})
	}
	w.settle(s, all...)
}

func (w *world) fence(field string) string {
	w.t.Helper()
	v, err := w.client.HGet(w.t.Context(), w.keys.Fence, field).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) empty(keys ...string) {
	w.t.Helper()
	for _, k := range keys {
		if n, err := w.client.Exists(w.t.Context(), k).Result(); err != nil || n != 0 {
			w.t.Errorf("%s is left", k)
		}
	}
}

func idsOfTasks(tasks []sources.Task) []string {
	ids := make([]string, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	return ids
}

func retry(t sources.Task, after time.Duration, reason string) sources.Settlement {
	return sources.Settlement{Task: &t, Outcome: sources.Retry, Attempt: t.Attempt, Delay: after, Reason: reason}
}

func TestStreamInOrder(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	w.push("a:k", "b", "c", "d")
	s := w.open()
	tasks := w.fetch(s, 3, "a", "b", "c")
	if a := tasks[0]; a.Key != "k" || string(a.Payload) != "payload of a" || a.Attempt != 1 || a.Grant != (partition.Grant{ID: 0, Epoch: 1}) || a.Token.Epoch != 1 {
		t.Errorf("the task is %+v", a)
	}
	w.done(s, tasks[1], tasks[2])
	if n := w.client.LLen(t.Context(), w.keys.Pending).Val(); n != 4 {
		t.Errorf("%d in the list: the first is open", n)
	}
	w.done(s, tasks[0])
	w.done(s, w.fetch(s, 3, "d")...)
	w.nothing(s)
	w.push("e") // no bell: the sweep finds it
	w.done(s, w.fetch(s, 3, "e")...)
	w.close(s)
	w.empty(w.keys.Pending, w.keys.Done, w.keys.Lifted, w.keys.Tries, w.keys.Delayed, w.keys.Dead)
	if b := w.fence("b"); b != "5" {
		t.Errorf("the base is %s", b)
	}
}

func TestStreamHandsOver(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	w.push("a:k", "b:k", "c", "d")
	s := w.open()
	tasks := w.fetch(s, 4, "a", "b", "c", "d")
	w.done(s, tasks[2])
	w.settle(s, retry(tasks[0], time.Hour, "first"))
	w.close(s)

	s2 := w.open()
	again := w.fetch(s2, 4, "a", "b", "d")
	if a := again[0]; a.Attempt != 2 || a.FirstError != "first" || time.Until(a.NotBefore) < 50*time.Minute {
		t.Errorf("the retry is %+v", a)
	}
	if err := s.Settle(t.Context(), retry(tasks[1], 0, "late")); !errors.Is(err, sources.ErrClosed) {
		t.Errorf("settle after close: %v", err)
	}
	w.done(s2, again...)
	w.close(s2)
	w.empty(w.keys.Pending, w.keys.Done, w.keys.Lifted, w.keys.Tries, w.keys.Delayed, w.keys.Dead)
}

// What tasks have in common is there once; a task with more to tell has a Delivery of its own,
// and so has what is made of one that others have, too.
func TestTasksShareADelivery(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	w.push("a", "b", "c")
	headed := envelope{id: "d", born: w.born, headers: map[string]string{"trace": "ab"}}
	if err := w.client.RPush(t.Context(), w.keys.Pending, appendEnvelope(nil, &headed)).Err(); err != nil {
		t.Fatal(err)
	}
	s := w.open()
	tasks := append(w.fetch(s, 1, "a"), w.fetch(s, 3, "b", "c", "d")...)
	first := tasks[0].Delivery
	if tasks[1].Delivery != first || tasks[2].Delivery != first {
		t.Error("tasks that have all in common have a Delivery each")
	}
	if own := tasks[3]; own.Delivery == first || own.Headers["trace"] != "ab" || own.Token != first.Token || own.Attempt != 1 {
		t.Errorf("the one with headers is %+v", own.Delivery)
	}
	w.settle(s, retry(tasks[0], 0, "busy"), sources.Settlement{Task: &tasks[1], Outcome: sources.Requeue, Attempt: 1, Reason: "late"})
	w.close(s)
	s = w.open()
	tasks = w.fetch(s, 4, "a", "c", "d", "b")
	for _, i := range []int{0, 3} {
		if own := tasks[i]; own.Delivery == tasks[1].Delivery || own.Attempt != 2 || own.Grant != tasks[1].Grant {
			t.Errorf("the one that was tried is %+v", own.Delivery)
		}
	}
	if tasks[1].Attempt != 1 || tasks[1].FirstError != "" || tasks[1].Headers != nil {
		t.Errorf("the one that never ran is %+v", tasks[1].Delivery)
	}
	w.done(s, tasks...)
	w.close(s)
}

func TestStreamRequeuesAndBuries(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	w.push("a", "b", "c")
	s := w.open()
	tasks := w.fetch(s, 3, "a", "b", "c")
	w.settle(s,
		sources.Settlement{Task: &tasks[0], Outcome: sources.Requeue, Attempt: 1, Delay: 20 * time.Millisecond, Reason: "not now"},
		sources.Settlement{Task: &tasks[1], Outcome: sources.Dead, Attempt: 1, Reason: "never"},
	)
	again := w.fetch(s, 3, "a")
	if a := again[0]; a.Attempt != 2 || a.FirstError != "not now" || a.Receipt == tasks[0].Receipt {
		t.Errorf("requeued: %+v", a)
	}
	w.done(s, again[0], tasks[2])
	w.close(s)
	dead, err := w.client.LRange(t.Context(), w.keys.Dead, 0, -1).Result()
	if err != nil || len(dead) != 1 {
		t.Fatalf("%d dead letters, %v", len(dead), err)
	}
	l, err := parseLetter(dead[0])
	if err != nil || l.reason != "never" || l.attempts != 1 {
		t.Errorf("letter %+v, %v", l, err)
	}
	if e, err := parseEnvelope(l.body); err != nil || e.id != "b" || string(e.payload) != "payload of b" {
		t.Errorf("body %+v, %v", e, err)
	}
	w.empty(w.keys.Pending, w.keys.Done, w.keys.Lifted, w.keys.Tries, w.keys.Delayed)
}

// A letter that is heavier than a round trip should be has one of its own.
func TestStreamBuriesWhatIsHeavy(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	w.push("a", "b")
	s := w.open()
	tasks := w.fetch(s, 2, "a", "b")
	for i := range tasks {
		tasks[i].Payload = make([]byte, tripBytes+1)
	}
	w.settle(s,
		sources.Settlement{Task: &tasks[0], Outcome: sources.Dead, Attempt: 1},
		sources.Settlement{Task: &tasks[1], Outcome: sources.Dead, Attempt: 1},
	)
	if n := w.client.LLen(t.Context(), w.keys.Dead).Val(); n != 2 {
		t.Errorf("%d dead letters", n)
	}
}

func TestStreamIsFenced(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	w.push("a", "b")
	old := w.open()
	tasks := w.fetch(old, 1, "a")
	now := w.open()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := old.Settle(ctx, retry(tasks[0], 0, "")); !errors.Is(err, sources.ErrFenced) {
		t.Fatalf("a stale settle: %v", err)
	}
	if _, err := old.Fetch(ctx, 1); !errors.Is(err, sources.ErrFenced) {
		t.Errorf("a stale fetch: %v", err)
	}
	if err := old.Close(t.Context()); err != nil {
		t.Errorf("a stale close: %v", err)
	}
	_, err := w.source.Open(t.Context(), partition.Grant{ID: 0, Epoch: 1}, partition.Token{Epoch: 1, Session: "x"})
	var fenced *sources.FencedError
	if !errors.As(err, &fenced) || fenced.Stored != 2 {
		t.Errorf("a stale open: %v", err)
	}
	w.done(now, w.fetch(now, 2, "a")...) // a suspect, alone
	w.done(now, w.fetch(now, 2, "b")...)
	w.close(now)
}

// A smaller attempt never takes the place of a greater: neither of a retry's, nor of
// the one that the task came with.
func TestStreamAttemptOnlyRises(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	w.push("a")
	s := w.open()
	as := func(o sources.Outcome, attempt int) sources.Settlement {
		return sources.Settlement{Task: &w.fetch(s, 1, "a")[0], Outcome: o, Attempt: attempt, Reason: "no"}
	}
	first := as(sources.Retry, 4)
	w.settle(s, first)
	first.Outcome, first.Attempt = sources.Requeue, 2
	w.settle(s, first)
	second := as(sources.Requeue, 1)
	if second.Task.Attempt != 5 {
		t.Errorf("attempt %d after a retry 4 and a requeue 2, want 5", second.Task.Attempt)
	}
	w.settle(s, second)
	third := as(sources.Dead, 1)
	if third.Task.Attempt != 5 {
		t.Errorf("attempt %d after a requeue 1 of attempt 5, want 5", third.Task.Attempt)
	}
	w.settle(s, third)
	w.close(s)
	dead := w.client.LRange(t.Context(), w.keys.Dead, 0, -1).Val()
	if len(dead) != 1 {
		t.Fatalf("%d dead letters", len(dead))
	}
	if l, err := parseLetter(dead[0]); err != nil || l.attempts != 4 {
		t.Errorf("a letter after %d attempts, %v, want 4", l.attempts, err)
	}
}

package redissource

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// A crowd is a name with tasks of all kinds, and what is known of them.
type crowd struct {
	t      *testing.T
	client redis.UniversalClient
	name   string
	order  map[string][]string // key -> ids of the open tasks of the log, in order
	tries  map[string]int      // of open tasks that were tried
	others map[string]string   // id -> delayed or dead
	locks  map[string]string   // id -> key
}

// newCrowd enqueues tasks to total partitions and works on some of them.
func newCrowd(t *testing.T, client redis.UniversalClient, total int, seed uint64) *crowd {
	t.Helper()
	c, messages, r := enqueuedCrowd(t, client, total, seed)
	c.keep(messages, c.begin(total, r))
	return c
}

// enqueuedCrowd enqueues tasks to total partitions.
func enqueuedCrowd(t *testing.T, client redis.UniversalClient, total int, seed uint64) (*crowd, []Message, *rand.Rand) {
	t.Helper()
	c := &crowd{
		t: t, client: client, name: redistest.Name(t), order: map[string][]string{}, tries: map[string]int{},
		others: map[string]string{}, locks: map[string]string{},
	}
	r := rand.New(rand.NewPCG(seed, 7))
	p := newProducer(t, client, c.name, ProducerConfig{Partitions: total})
	var messages []Message
	for i := range 300 {
		m := Message{ID: fmt.Sprintf("%04d", i), Key: fmt.Sprint("key", r.IntN(25)), Payload: []byte(fmt.Sprint("payload ", i))}
		switch r.IntN(10) {
		case 0:
			m.Key = ""
		case 1:
			m.Delay = time.Hour
			c.others[m.ID] = "delayed"
		case 2:
			m.Unique = true
			c.locks[m.ID] = m.Key
		}
		messages = append(messages, m)
	}
	if _, err := p.Enqueue(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
	return c, messages, r
}

// begin works on some of the tasks, and returns those that ended.
func (c *crowd) begin(total int, r *rand.Rand) map[string]bool {
	t, ctx := c.t, c.t.Context()
	t.Helper()
	src, err := New(c.client, c.name, Config{Window: 16})
	if err != nil {
		t.Fatal(err)
	}
	gone := make(map[string]bool)
	for id := range partition.ID(total) {
		s, err := src.Open(ctx, partition.Grant{ID: id, Epoch: 1}, tokenOf(1))
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			tasks, _ := s.Fetch(short, 4)
			cancel()
			var settled []sources.Settlement
			for _, task := range tasks {
				d := sources.Settlement{Task: &task, Attempt: task.Attempt, Outcome: sources.Done, Reason: "it failed"}
				switch r.IntN(4) {
				case 0:
					d.Outcome, d.Delay = sources.Retry, time.Minute
					c.tries[task.ID] = task.Attempt
				case 1:
					d.Outcome = sources.Dead
					c.others[task.ID] = "dead"
					gone[task.ID] = true
				default:
					gone[task.ID] = true
				}
				settled = append(settled, d)
			}
			if err := s.Settle(ctx, settled...); err != nil {
				t.Fatal(err)
			}
		}
		if id%2 == 0 { // the others died
			if err := s.Close(ctx); err != nil {
				t.Fatal(err)
			}
		} else {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			s.Close(ended)
		}
	}
	return gone
}

// keep notes what is left.
func (c *crowd) keep(messages []Message, gone map[string]bool) {
	for _, m := range messages {
		if gone[m.ID] {
			delete(c.locks, m.ID)
		}
		if !gone[m.ID] && c.others[m.ID] == "" {
			c.order[m.Key] = append(c.order[m.Key], m.ID)
		}
	}
}

// check compares what the partitions hold with what is known.
func (c *crowd) check(total int) {
	c.t.Helper()
	ctx := c.t.Context()
	found := make(map[string]int)
	order := make(map[string][]string)
	for id := range partition.ID(total) {
		k := KeysOf(c.name, id)
		home := func(e *envelope) {
			found[e.id]++
			if e.key != "" && partition.Of(e.key, total) != id {
				c.t.Errorf("task %s of key %s is in partition %v of %d", e.id, e.key, id, total)
			}
		}
		for _, e := range logOf(c.t, c.client, c.name, id) {
			home(&e)
			order[e.key] = append(order[e.key], e.id)
			if e.tries != c.tries[e.id] || (e.tries > 0) != (e.firstError == "it failed") {
				c.t.Errorf("task %s was tried %d times (%q), want %d", e.id, e.tries, e.firstError, c.tries[e.id])
			}
		}
		for _, z := range c.client.ZRangeWithScores(ctx, k.Delayed, 0, -1).Val() {
			e, err := parseEnvelope(z.Member.(string))
			if err != nil {
				c.t.Fatal(err)
			}
			home(&e)
			if due := time.UnixMilli(int64(z.Score)); c.others[e.id] != "delayed" || time.Until(due) < 50*time.Minute {
				c.t.Errorf("task %s is delayed until %v, want %q", e.id, due, c.others[e.id])
			}
		}
		for _, raw := range c.client.LRange(ctx, k.Dead, 0, -1).Val() {
			l, err := parseLetter(raw)
			if err != nil {
				c.t.Fatal(err)
			}
			e, err := parseEnvelope(l.body)
			if err != nil {
				c.t.Fatal(err)
			}
			home(&e)
			if c.others[e.id] != "dead" || l.reason != "it failed" {
				c.t.Errorf("task %s is dead (%q), want %q", e.id, l.reason, c.others[e.id])
			}
		}
		for _, key := range []string{k.Done, k.Lifted, k.Tries} {
			if c.client.Exists(ctx, key).Val() != 0 {
				c.t.Errorf("%s is left", key)
			}
		}
	}
	if staged := redistest.Keys(c.t, c.client, "{"+c.name+":*}:staged-*"); len(staged) > 0 {
		c.t.Errorf("%q is left", staged)
	}
	for key, want := range c.order {
		got := order[key]
		if key == "" {
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			c.t.Errorf("key %q: %v, want %v", key, got, want)
		}
		for _, id := range want {
			if found[id] != 1 {
				c.t.Errorf("task %s is there %d times", id, found[id])
			}
		}
	}
	for id := range c.others {
		if found[id] != 1 {
			c.t.Errorf("task %s (%s) is there %d times", id, c.others[id], found[id])
		}
	}
	for id, key := range c.locks {
		lock := KeysOf(c.name, partition.Of(key, total)).Unique(id)
		if ttl := c.client.PTTL(ctx, lock).Val(); ttl < 23*time.Hour {
			c.t.Errorf("the lock of %s lives %v", id, ttl)
		}
	}
}

// work opens each partition and expects to be given what is there.
func (c *crowd) work(total int) {
	c.t.Helper()
	src, err := New(c.client, c.name, Config{})
	if err != nil {
		c.t.Fatal(err)
	}
	for id := range partition.ID(total) {
		want := len(logOf(c.t, c.client, c.name, id))
		s, err := src.Open(c.t.Context(), partition.Grant{ID: id, Epoch: 1000}, tokenOf(1000))
		if err != nil {
			c.t.Fatal(err)
		}
		got := 0
		for got < want {
			ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
			tasks, err := s.Fetch(ctx, 100)
			cancel()
			if err != nil {
				c.t.Fatalf("partition %v: %v after %d of %d", id, err, got, want)
			}
			var done []sources.Settlement
			for _, t := range tasks {
				done = append(done, sources.Settlement{Task: &t, Outcome: sources.Done, Attempt: t.Attempt})
			}
			if err := s.Settle(c.t.Context(), done...); err != nil {
				c.t.Fatal(err)
			}
			got += len(tasks)
		}
		if err := s.Close(c.t.Context()); err != nil {
			c.t.Error(err)
		}
	}
}

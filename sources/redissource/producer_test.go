package redissource

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

// newProducer returns a producer that the test's end closes.
func newProducer(t testing.TB, client redis.UniversalClient, name string, cfg ProducerConfig) *Producer {
	t.Helper()
	p, err := NewProducer(t.Context(), client, name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestProducerWithoutClient(t *testing.T) {
	if _, err := NewProducer(t.Context(), nil, "mail", ProducerConfig{}); err == nil || !strings.Contains(err.Error(), "no Redis client") {
		t.Error(err)
	}
}

func TestSourceWithoutClient(t *testing.T) {
	if _, err := New(nil, "mail", Config{}); err == nil || !strings.Contains(err.Error(), "no Redis client") {
		t.Error(err)
	}
}

// bothWays tests with a script for each partition, and with one for all of them.
func bothWays(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("cluster", func(t *testing.T) { test(t, redistest.New(t)) })
	t.Run("single", func(t *testing.T) { test(t, redistest.Single(t, redistest.New(t))) })
}

// logOf returns the envelopes of a partition's log, oldest first.
func logOf(t testing.TB, client redis.UniversalClient, name string, id partition.ID) []envelope {
	t.Helper()
	raw, err := client.LRange(context.Background(), KeysOf(name, id).Pending, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]envelope, len(raw))
	for i, s := range raw {
		if out[i], err = parseEnvelope(s); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func idsOf(log []envelope) []string {
	ids := make([]string, len(log))
	for i := range log {
		ids[i] = log[i].id
	}
	return ids
}

func TestEnqueue(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		name := redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 8})
		before := time.Now().Add(-time.Millisecond)
		results, err := p.Enqueue(t.Context(),
			Message{ID: "a", Type: "mail", Key: "ann", Payload: []byte("1"), Headers: map[string]string{"h": "v"}},
			Message{Key: "ann", Payload: []byte("2")},
			Message{Payload: []byte("3")},
		)
		if err != nil {
			t.Fatal(err)
		}
		home := partition.Of("ann", 8)
		if results[0].ID != "a" || results[0].Partition != home || results[1].Partition != home || len(results[1].ID) != 20 {
			t.Errorf("results %+v", results)
		}
		log := logOf(t, client, name, home)
		if len(log) < 2 || log[0].id != "a" || log[0].typ != "mail" || log[0].key != "ann" || log[0].headers["h"] != "v" ||
			string(log[0].payload) != "1" || log[1].id != results[1].ID || log[0].born.Time().Before(before) {
			t.Errorf("log %+v", log)
		}
		other := logOf(t, client, name, results[2].Partition)
		if e := other[len(other)-1]; string(e.payload) != "3" || e.key != "" || e.unique {
			t.Errorf("without a key: %+v", e)
		}
	})
}

// Messages without a key go round: every partition gets its share.
func TestEnqueueGoesRound(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		name := redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 4})
		if _, err := p.Enqueue(t.Context(), make([]Message, 40)...); err != nil {
			t.Fatal(err)
		}
		for id := range partition.ID(4) {
			if n := len(logOf(t, client, name, id)); n != 10 {
				t.Errorf("partition %v has %d tasks, want 10", id, n)
			}
		}
	})
}

// More than one script takes, in one call, in order.
func TestEnqueueMany(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		name := redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 2})
		messages := make([]Message, 2*batchMessages+100)
		for i := range messages {
			messages[i] = Message{ID: fmt.Sprint(i), Key: "k"}
		}
		if _, err := p.Enqueue(t.Context(), messages...); err != nil {
			t.Fatal(err)
		}
		log := logOf(t, client, name, partition.Of("k", 2))
		if len(log) != len(messages) {
			t.Fatalf("%d tasks, want %d", len(log), len(messages))
		}
		for i, e := range log {
			if e.id != fmt.Sprint(i) {
				t.Fatalf("task %d is %s", i, e.id)
			}
		}
	})
}

func TestEnqueueRefusesFaultyMessages(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 2, Hash: partition.ByID})
	mega := strings.Repeat("x", 32<<20)
	large := make(map[string]string) // 512 MB in one piece of 32
	for i := range 16 {
		large[fmt.Sprint(i)] = mega
	}
	results, err := p.Enqueue(t.Context(),
		Message{Key: "17"},
		Message{Key: "ann"},
		Message{Unique: true},
		Message{At: time.Now(), Delay: 1},
		Message{Delay: -1},
		Message{ID: "x", Unique: true, UniqueFor: 1},
		// What the store would refuse in the middle of the batch, or take for now.
		Message{ID: "x", Unique: true, UniqueFor: math.MaxInt64},
		Message{ID: "x", UniqueFor: maxAhead + 1},
		Message{Delay: math.MaxInt64},
		Message{At: time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		// What it would hang up on, each time it is tried.
		Message{Headers: large},
	)
	if results != nil || err == nil {
		t.Fatalf("%v, %v", results, err)
	}
	for i := 1; i <= 10; i++ {
		if !strings.Contains(err.Error(), fmt.Sprintf("message %d:", i)) {
			t.Errorf("nothing about message %d: %v", i, err)
		}
	}
	if n := len(logOf(t, client, name, 0)) + len(logOf(t, client, name, 1)); n != 0 {
		t.Errorf("%d messages were sent all the same", n)
	}
}

// The longest times that may be asked for are taken as they are.
func TestFarAhead(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	results, err := p.Enqueue(ctx,
		Message{ID: "a", Unique: true, UniqueFor: maxAhead, Delay: maxAhead},
		Message{ID: "b", At: time.Now().Add(maxAhead)},
		Message{ID: "c", At: time.Time{}.Add(1)}, // long ago
	)
	if err != nil {
		t.Fatal(results, err)
	}
	k := KeysOf(name, 0)
	if ttl := client.PTTL(ctx, k.Unique("a")).Val(); ttl < 2*maxAhead-time.Hour {
		t.Errorf("the lock lives %v", ttl)
	}
	far := 0
	for _, z := range client.ZRangeWithScores(ctx, k.Delayed, 0, -1).Val() {
		if until := time.Until(time.UnixMilli(int64(z.Score))); until > maxAhead-time.Hour && until <= maxAhead+time.Second {
			far++
		}
	}
	if far != 2 {
		t.Errorf("%d tasks wait for 100 years, want 2", far)
	}
}

// All that is wrong with a producer is told at once, also what is compared with the name's.
func TestProducerSaysAllThatIsWrong(t *testing.T) {
	ctx, client := t.Context(), redistest.New(t)
	_, err := NewProducer(ctx, client, "a b", ProducerConfig{Partitions: -1, Hash: "md5", MaxBacklog: -1, Timeout: -1, Replicas: -1})
	if err == nil {
		t.Fatal("it was made")
	}
	for _, want := range []string{`name "a b"`, "-1 partitions", `hash "md5"`, "MaxBacklog -1", "Timeout -1ns", "Replicas -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s: %v", want, err)
		}
	}
}

func TestProducerAgrees(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 16, Units: []string{"inbox"}}); err != nil {
		t.Fatal(err)
	}
	if p := newProducer(t, client, name, ProducerConfig{}); p.Config().Total != 16 {
		t.Errorf("took %+v", p.Config())
	}
	if _, err := NewProducer(ctx, client, name, ProducerConfig{Partitions: 32}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("another count: %v", err)
	}
	if _, err := NewProducer(ctx, client, name, ProducerConfig{MaxBacklog: -1, Timeout: time.Hour}); err == nil ||
		!strings.Contains(err.Error(), "MaxBacklog") || !strings.Contains(err.Error(), "Timeout") {
		t.Errorf("a bad configuration: %v", err)
	}
}

func TestSchedule(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		before, err := client.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Enqueue(ctx,
			Message{ID: "now"}, Message{ID: "at", At: at}, Message{ID: "after", Delay: time.Minute},
		); err != nil {
			t.Fatal(err)
		}
		after, err := client.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		k := KeysOf(name, 0)
		if ids := idsOf(logOf(t, client, name, 0)); !slices.Equal(ids, []string{"now"}) {
			t.Errorf("log %v", ids)
		}
		for _, z := range client.ZRangeWithScores(ctx, k.Delayed, 0, -1).Val() {
			e, err := parseEnvelope(z.Member.(string))
			if err != nil {
				t.Fatal(err)
			}
			due := time.UnixMilli(int64(z.Score))
			switch e.id {
			case "at":
				if !due.Equal(at) {
					t.Errorf("due at %v, want %v", due, at)
				}
			case "after":
				if due.Before(before.Add(time.Minute-time.Millisecond)) || due.After(after.Add(time.Minute)) {
					t.Errorf("due %v after %v, want a minute", due.Sub(before), before)
				}
			default:
				t.Errorf("delayed: %s", e.id)
			}
		}
		if n := client.ZCard(ctx, k.Delayed).Val(); n != 2 {
			t.Errorf("%d delayed, want 2", n)
		}
	})
}

// Two scheduled tasks that are equal in all that their producer says are two tasks.
func TestScheduleEqualTwice(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		m := Message{ID: "same", Delay: time.Minute}
		if _, err := p.Enqueue(ctx, m, m, m); err != nil {
			t.Fatal(err)
		}
		if n := client.ZCard(ctx, KeysOf(name, 0).Delayed).Val(); n != 3 {
			t.Errorf("%d delayed, want 3", n)
		}
	})
}

func TestUnique(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		u := Message{ID: "u", Unique: true}
		results, err := p.Enqueue(ctx, u, u, Message{ID: "plain"}, Message{ID: "u"},
			Message{ID: "w", Unique: true, UniqueFor: time.Minute, Delay: time.Hour},
			Message{ID: "x", Unique: true, UniqueFor: time.Minute, At: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		var duplicates []bool
		for _, r := range results {
			duplicates = append(duplicates, r.Duplicate)
		}
		if !slices.Equal(duplicates, []bool{false, true, false, false, false, false}) {
			t.Errorf("duplicates %v", duplicates)
		}
		log := logOf(t, client, name, 0)
		if ids := idsOf(log); !slices.Equal(ids, []string{"u", "plain", "u"}) || !log[0].unique || log[2].unique {
			t.Errorf("log %v", ids)
		}
		k := KeysOf(name, 0)
		if v := client.Get(ctx, k.Unique("u")).Val(); v != log[0].lockValue() {
			t.Errorf("the lock holds %q, want %q", v, log[0].lockValue())
		}
		for id, want := range map[string]time.Duration{"u": 24 * time.Hour, "w": time.Hour + time.Minute, "x": time.Hour + time.Minute} {
			if ttl := client.PTTL(ctx, k.Unique(id)).Val(); ttl > want+time.Second || ttl < want-time.Minute {
				t.Errorf("lock of %s lives %v, want %v", id, ttl, want)
			}
		}
		// Once released it may be enqueued again.
		client.Del(ctx, k.Unique("u"))
		if results, err := p.Enqueue(ctx, u); err != nil || results[0].Duplicate {
			t.Errorf("after the release: %+v, %v", results, err)
		}
	})
}

// A task without a key has no partition of its own: its id gives it one, or the second would go to another
// partition than the first and find no lock there. A resize takes both along.
func TestUniqueWithoutKey(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	enqueue := func(when string, duplicate bool) {
		t.Helper()
		p := newProducer(t, client, name, ProducerConfig{})
		for i := range 20 {
			id := fmt.Sprint("report-", i)
			results, err := p.Enqueue(ctx, Message{ID: id, Unique: true})
			if err != nil || results[0].Duplicate != duplicate {
				t.Errorf("%s %s: %+v, %v", when, id, results, err)
			}
		}
	}
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 16}); err != nil {
		t.Fatal(err)
	}
	enqueue("first", false)
	enqueue("again", true)
	if _, err := Resize(ctx, client, name, 7, ResizeConfig{Idle: idle}); err != nil {
		t.Fatal(err)
	}
	enqueue("after the resize", true)
}

func TestMaxBacklog(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1, MaxBacklog: 3})
		for _, c := range []struct {
			messages []Message
			full     []bool
		}{
			{make([]Message, 2), []bool{false, false}},
			{make([]Message, 3), []bool{false, true, true}},
			{make([]Message, 1), []bool{true}},
			// Not plain: counted one by one; what is scheduled is let through.
			{[]Message{{ID: "u", Unique: true}, {Delay: time.Hour}, {}}, []bool{true, false, true}},
		} {
			results, err := p.Enqueue(ctx, c.messages...)
			for i, r := range results {
				if errors.Is(r.Err, ErrBacklog) != c.full[i] {
					t.Errorf("%d messages: %+v, want full %v", len(c.messages), results, c.full)
				}
			}
			if errors.Is(err, ErrBacklog) != slices.Contains(c.full, true) {
				t.Errorf("error %v", err)
			}
		}
		k := KeysOf(name, 0)
		if n := client.LLen(ctx, k.Pending).Val(); n != 3 {
			t.Errorf("%d tasks, want 3", n)
		}
		if n := client.Exists(ctx, k.Unique("u")).Val(); n != 0 {
			t.Error("a refused message holds its lock")
		}
	})
}

// An owner that waits is woken by whatever is enqueued, once.
func TestEnqueueRingsTheBell(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		k := KeysOf(name, 0)
		sub := client.Subscribe(ctx, k.Bell)
		defer sub.Close()
		if _, err := sub.Receive(ctx); err != nil {
			t.Fatal(err)
		}
		for _, m := range []Message{{}, {Delay: time.Hour}, {ID: "u", Unique: true}} {
			client.HSet(ctx, k.Fence, "w", "1")
			for range 2 {
				if _, err := p.Enqueue(ctx, m); err != nil {
					t.Fatal(err)
				}
			}
			if client.HExists(ctx, k.Fence, "w").Val() {
				t.Error("the flag stands")
			}
			client.Publish(ctx, k.Bell, "end")
			rings := 0
			for {
				got, err := sub.ReceiveMessage(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if got.Payload == "end" {
					break
				}
				rings++
			}
			if rings != 1 {
				t.Errorf("%+v: %d rings, want 1", m, rings)
			}
		}
		// A message that is refused rings nobody.
		client.HSet(ctx, k.Fence, "w", "1")
		if r, err := p.Enqueue(ctx, Message{ID: "u", Unique: true}); err != nil || !r[0].Duplicate {
			t.Fatalf("%+v, %v", r, err)
		}
		if !client.HExists(ctx, k.Fence, "w").Val() {
			t.Error("a duplicate rang")
		}
	})
}

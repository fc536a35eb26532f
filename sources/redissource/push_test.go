package redissource

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

// A pushWord is what push.lua is told of one message. Without a head of each it is told the
// body only.
type pushWord struct {
	what   string // "now" if empty
	ms     int64
	unique string // an id
	body   string
}

// runPush pushes to the partitions 0, 1, .. of name and returns the answer.
func runPush(t *testing.T, client redis.UniversalClient, name string, head pushHead, to ...[]pushWord) string {
	t.Helper()
	var targets []pushTarget
	var words []any
	var locks []string
	for id, messages := range to {
		k := KeysOf(name, partition.ID(id))
		targets = append(targets, pushTarget{&k, len(messages)})
		for _, m := range messages {
			if !head.each {
				words = append(words, m.body)
				continue
			}
			ttl := ""
			if m.unique != "" {
				ttl = "1000"
				locks = append(locks, k.Unique(m.unique))
			}
			if m.what == "" {
				m.what = "now"
			}
			words = append(words, m.what, m.ms, ttl, "lock of "+m.body, m.body)
		}
	}
	keys, args := head.arguments(KeysOf(name, 0).Mark("unit"), targets, len(words))
	a, err := parsePush(pushScript.Run(t.Context(), client, append(keys, locks...), append(args, words...)...))
	if err != nil {
		t.Fatal(err)
	}
	return a.status + " " + a.detail
}

// Only what goes to the log takes room in it: neither a dead letter nor what is delayed does,
// and what was pushed before has its place.
func TestPushCountsTheLog(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	head := pushHead{era: 1, first: 1, last: 5, total: 1, backlog: 2, each: true}
	got := runPush(t, client, name, head, []pushWord{
		{what: "dead", body: "x"}, {what: "after", ms: 60_000, body: "y"}, {body: "a"}, {body: "b"}, {body: "c"},
	})
	if log := client.LRange(ctx, k.Pending, 0, -1).Val(); got != "OK ++++f" || !slices.Equal(log, []string{"a", "b"}) {
		t.Errorf("the answer is %q, the log %q", got, log)
	}
	client.Set(ctx, k.Mark("unit"), "1 11 10 ", 0)
	head = pushHead{era: 1, first: 10, last: 13, total: 1, backlog: 3}
	got = runPush(t, client, name, head, []pushWord{{body: "a"}, {body: "b"}, {body: "c"}, {body: "d"}})
	if log := client.LRange(ctx, k.Pending, 0, -1).Val(); got != "OK +++f" || !slices.Equal(log, []string{"a", "b", "c"}) {
		t.Errorf("pushed again: the answer is %q, the log %q", got, log)
	}
	for _, each := range []bool{false, true} { // it is full by now, with the same messages in it
		client.Set(ctx, k.Mark("unit"), "1 11 10 ", 0)
		head = pushHead{era: 1, first: 10, last: 12, total: 1, backlog: 2, each: each}
		got = runPush(t, client, name, head, []pushWord{{body: "a"}, {body: "b"}, {body: "d"}})
		if log := client.LRange(ctx, k.Pending, 0, -1).Val(); got != "OK ++f" || !slices.Equal(log, []string{"a", "b", "c"}) {
			t.Errorf("pushed again where it is full, each %t: the answer is %q, the log %q", each, got, log)
		}
	}
}

// What was pushed before is known by its position, also where a log gets some of a row only; what
// became of a batch is not told to another that ends with it.
func TestPushKnowsPositions(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	for _, c := range []struct {
		head      pushHead
		mark      string
		want, log string
	}{
		{pushHead{first: 10, last: 14, positions: "10 12 14"}, "1 12 10 ", "OK", "c"},
		{pushHead{first: 10, last: 14, positions: "10 12 14"}, "1 13 13 ", "OK", "c"},
		{pushHead{first: 10, last: 14, positions: "10 12 14"}, "1 9 9 ", "OK", "a b c"},
		{pushHead{first: 10, last: 12}, "1 12 10 f=+", "OK f=+", ""},
		{pushHead{first: 10, last: 12}, "1 12 11 f=", "OK", ""},
	} {
		client.Del(ctx, k.Pending)
		client.Set(ctx, k.Mark("unit"), c.mark, 0)
		c.head.era, c.head.total = 1, 1
		got := strings.TrimSpace(runPush(t, client, name, c.head, []pushWord{{body: "a"}, {body: "b"}, {body: "c"}}))
		if log := strings.Join(client.LRange(ctx, k.Pending, 0, -1).Val(), " "); got != c.want || log != c.log {
			t.Errorf("%+v after %q: the answer is %q, the log %q, want %q and %q", c.head, c.mark, got, log, c.want, c.log)
		}
	}
}

// A log that takes nothing is told as such, takes no lock, and keeps nothing from the others of
// the batch: each is told what became of its own messages, which are its own also where a part
// of the batch was pushed before.
func TestPushTellsTargetsApart(t *testing.T) {
	refuse := map[string]func(client redis.UniversalClient, first Keys){
		"r":            func(client redis.UniversalClient, first Keys) { client.HSet(t.Context(), first.Fence, "p", 9) },
		"w":            func(client redis.UniversalClient, first Keys) { client.Set(t.Context(), first.Pending, "no list", 0) },
		"w, its fence": func(client redis.UniversalClient, first Keys) { client.Set(t.Context(), first.Fence, "no hash", 0) },
	}
	for what, refuse := range refuse {
		letter := what[:1]
		for _, c := range []struct {
			what   string
			head   pushHead
			mark   string
			second string // the log
		}{
			{"plain", pushHead{}, "", "c d"},
			{"bounded", pushHead{backlog: 9}, "", "c d"},
			{"each", pushHead{each: true}, "", "c d"},
			{"pushed in part before", pushHead{}, "5 12 10 ", "d"},
			{"each, pushed in part before", pushHead{each: true}, "5 12 10 ", "d"},
		} {
			ctx, client, name := t.Context(), redistest.Single(t, redistest.New(t)), redistest.Name(t)
			first, second := KeysOf(name, 0), KeysOf(name, 1)
			refuse(client, first)
			if c.mark != "" {
				client.Set(ctx, first.Mark("unit"), c.mark, 0)
			}
			c.head.era, c.head.first, c.head.last, c.head.total = 5, 10, 13, 2
			got := runPush(t, client, name, c.head,
				[]pushWord{{body: "a"}, {body: "b", unique: "b"}}, []pushWord{{body: "c"}, {body: "d", unique: "d"}})
			if want := "OK " + letter + letter + "++"; got != want {
				t.Errorf("%s, %s: the answer is %q, want %q", what, c.what, got, want)
			}
			if log := strings.Join(client.LRange(ctx, second.Pending, 0, -1).Val(), " "); log != c.second {
				t.Errorf("%s, %s: the log of the second is %q, want %q", what, c.what, log, c.second)
			}
			lock := ""
			if c.head.each {
				lock = "lock of d"
			}
			if a, b := client.Exists(ctx, first.Unique("b")).Val(), client.Get(ctx, second.Unique("d")).Val(); a != 0 || b != lock {
				t.Errorf("%s, %s: the first has a lock: %d, the second has %q", what, c.what, a, b)
			}
		}
	}
}

// A key that holds something else fails no script after its first push: who sent the batch would
// be told that nothing was pushed, and push it again. Of the message that goes there nothing is left.
func TestPushFailsNotHalfway(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	client.Set(ctx, k.Delayed, "no sorted set", 0)
	client.Set(ctx, k.Dead, "no list", 0)
	head := pushHead{era: 1, first: 1, last: 5, total: 1, each: true}
	words := []pushWord{
		{body: "a"}, {what: "at", ms: 1, body: "x", unique: "x"}, {what: "after", ms: 1, body: "y"}, {what: "dead", body: "z"}, {body: "b"},
	}
	for range 2 {
		got := runPush(t, client, name, head, words)
		if log := client.LRange(ctx, k.Pending, 0, -1).Val(); got != "OK +www+" || !slices.Equal(log, []string{"a", "b"}) {
			t.Errorf("the answer is %q, the log %q", got, log)
		}
	}
	if client.Exists(ctx, k.Unique("x")).Val() != 0 {
		t.Error("what was not pushed holds a lock")
	}
}

// Who waits for a log is rung for whatever comes there, whatever became of the messages beside
// it; who waits for another is not.
func TestPushRingsForItsOwn(t *testing.T) {
	ctx, client, name := t.Context(), redistest.Single(t, redistest.New(t)), redistest.Name(t)
	first, second := KeysOf(name, 0), KeysOf(name, 1)
	rung := listen(t, client, first, second)
	client.HSet(ctx, first.Fence, "w", "1", "p", 9)
	client.HSet(ctx, second.Fence, "w", "1")
	client.Set(ctx, second.Unique("b"), "another's", 0)
	head := pushHead{era: 1, first: 1, last: 3, total: 2, each: true}
	got := runPush(t, client, name, head, []pushWord{{body: "a"}}, []pushWord{{body: "b", unique: "b"}, {body: "c"}})
	if got != "OK r=+" {
		t.Errorf("the answer is %q", got)
	}
	if r := rung(); r != "[1]" || client.HExists(ctx, second.Fence, "w").Val() || !client.HExists(ctx, first.Fence, "w").Val() {
		t.Errorf("rung for %s, want [1]", r)
	}
}

// listen returns what tells for which of the logs a bell was rung since, in their order.
func listen(t *testing.T, client redis.UniversalClient, logs ...Keys) (rung func() string) {
	t.Helper()
	var bells []string
	for _, k := range logs {
		bells = append(bells, k.Bell)
	}
	sub := client.Subscribe(t.Context(), bells...)
	t.Cleanup(func() { sub.Close() })
	for range bells {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return func() string {
		t.Helper()
		client.Publish(t.Context(), bells[0], "end")
		found := []int{}
		for {
			m, err := sub.ReceiveMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if m.Payload == "end" {
				return fmt.Sprint(found)
			}
			found = append(found, slices.Index(bells, m.Channel))
		}
	}
}

// A mark lives as long as its sender says: those of producers that are gone do not fill the store.
func TestPushMarkLives(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	for _, life := range []time.Duration{time.Minute, 0} {
		runPush(t, client, name, pushHead{era: 1, first: 1, last: 1, total: 1, life: life}, []pushWord{{body: "a"}})
		ttl := client.TTL(t.Context(), KeysOf(name, 0).Mark("unit")).Val()
		if life == 0 && ttl != -1 || life > 0 && (ttl <= life/2 || ttl > life) {
			t.Errorf("a mark for %v lives %v", life, ttl)
		}
		client.Del(t.Context(), KeysOf(name, 0).Mark("unit"))
	}
}

// Each unique message takes its own lock, whatever becomes of those before it in the batch.
func TestPushLocksItsOwn(t *testing.T) {
	for what, prepare := range map[string]func(client redis.UniversalClient, mark string, first Keys){
		"refused": func(client redis.UniversalClient, _ string, first Keys) {
			client.HSet(t.Context(), first.Fence, "p", 9)
		},
		"pushed before": func(client redis.UniversalClient, mark string, _ Keys) {
			client.Set(t.Context(), mark, "5 10 10 ", 0)
		},
	} {
		ctx, client, name := t.Context(), redistest.Single(t, redistest.New(t)), redistest.Name(t)
		first, second := KeysOf(name, 0), KeysOf(name, 1)
		mark := first.Mark("unit")
		prepare(client, mark, first)
		head := pushHead{era: 5, first: 10, last: 11, total: 2, each: true}
		keys, args := head.arguments(mark, []pushTarget{{&first, 1}, {&second, 1}}, 2)
		keys = append(keys, first.Unique("a"), second.Unique("b"))
		args = append(args, "now", 0, 1000, "lock a", "a", "now", 0, 1000, "lock b", "b")
		if a, err := parsePush(pushScript.Run(ctx, client, keys, args...)); err != nil || a.status != "OK" {
			t.Fatalf("%s: %+v, %v", what, a, err)
		}
		if a, b := client.Exists(ctx, first.Unique("a")).Val(), client.Get(ctx, second.Unique("b")).Val(); a != 0 || b != "lock b" {
			t.Errorf("the first is %s: it has a lock: %d, the second has %q", what, a, b)
		}
		if got := client.LRange(ctx, second.Pending, 0, -1).Val(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the first is %s: the log of the second has %q", what, got)
		}
	}
}

// So it does in a row of several, of which not each has a lock.
func TestPushLocksItsOwnInARow(t *testing.T) {
	ctx, client, name := t.Context(), redistest.Single(t, redistest.New(t)), redistest.Name(t)
	refused, second := KeysOf(name, 0), KeysOf(name, 1)
	client.HSet(ctx, refused.Fence, "p", 9)
	head := pushHead{era: 1, first: 1, last: 5, total: 2, each: true}
	got := runPush(t, client, name, head,
		[]pushWord{{body: "a"}, {body: "b", unique: "b"}, {body: "c"}},
		[]pushWord{{body: "d"}, {body: "e", unique: "e"}})
	if b, e := client.Exists(ctx, refused.Unique("b")).Val(), client.Get(ctx, second.Unique("e")).Val(); got != "OK rrr++" || b != 0 || e != "lock of e" {
		t.Errorf("the answer is %q; what was refused has a lock: %d, what was pushed has %q", got, b, e)
	}
}

// The lock of a scheduled task outlasts its wait by the store's clock, at which the task will be due: that of its sender
// may be wrong.
func TestPushLocksUntilDue(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	now, err := client.Time(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	hour := now.Add(time.Hour).UnixMilli()
	runPush(t, client, name, pushHead{era: 1, first: 1, last: 4, total: 1, each: true}, []pushWord{
		{what: "at", ms: hour, body: "a", unique: "at"}, {what: "after", ms: time.Hour.Milliseconds(), body: "b", unique: "after"},
		{body: "c", unique: "now"}, {what: "at", ms: 1, body: "d", unique: "long ago"},
	})
	for id, wait := range map[string]time.Duration{"at": time.Hour, "after": time.Hour, "now": 0, "long ago": 0} {
		ttl := client.PTTL(ctx, KeysOf(name, 0).Unique(id)).Val()
		if ttl > wait+time.Second+time.Millisecond || wait > 0 && ttl < wait/2 {
			t.Errorf("the lock of what is due %s lives %v, want %v", id, ttl, wait+time.Second)
		}
	}
}

// A sender that began its positions anew has the word: what was sent under an earlier
// era is refused, and does not bring that era's mark back.
func TestPushEras(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	for i, c := range []struct {
		era, first int64
		bodies     []string
		want       string
	}{
		{5, 10, []string{"a", "b"}, "OK"},
		{5, 10, []string{"a", "b"}, "OK"}, // repeated
		{7, 10, []string{"c"}, "OK"},      // a new era begins where it likes
		{5, 12, []string{"late"}, "STALE 7"},
		{7, 10, []string{"c"}, "OK"},          // repeated
		{7, 9, []string{"x", "c", "d"}, "OK"}, // the first two lie at or below the mark
		{7, 12, []string{"e"}, "OK"},
		{10, 1, []string{"f"}, "OK"}, // numbers, not text
		{9, 2, []string{"late"}, "STALE 10"},
	} {
		head := pushHead{era: c.era, first: c.first, last: c.first + int64(len(c.bodies)) - 1, total: 1}
		keys, args := head.arguments(k.Mark("unit"), []pushTarget{{&k, len(c.bodies)}}, len(c.bodies))
		for _, b := range c.bodies {
			args = append(args, b)
		}
		a, err := parsePush(pushScript.Run(ctx, client, keys, args...))
		if got := strings.TrimSpace(a.status + " " + a.detail); err != nil || got != c.want {
			t.Errorf("push %d: %s, %v, want %s", i, got, err, c.want)
		}
	}
	if got := client.LRange(ctx, k.Pending, 0, -1).Val(); !slices.Equal(got, []string{"a", "b", "c", "d", "e", "f"}) {
		t.Errorf("log %q", got)
	}
	if ttl := client.TTL(ctx, k.Mark("unit")).Val(); ttl != -1 {
		t.Errorf("the mark lives %v, want for ever", ttl)
	}
}

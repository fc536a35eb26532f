package redissource

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// opened returns a stream of partition 0 and what ends it.
func opened(t *testing.T, client redis.UniversalClient, name string, epoch partition.Epoch) sources.Stream {
	t.Helper()
	source, err := New(client, name, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Open(t.Context(), partition.Grant{ID: 0, Epoch: epoch}, partition.Token{Epoch: epoch, Session: "aa"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lettersOf returns the dead letters of partition 0.
func lettersOf(t *testing.T, client redis.UniversalClient, name string) (all []DeadLetter) {
	t.Helper()
	err := DeadLetters(t.Context(), client, name, []partition.ID{0}, func(d DeadLetter) bool {
		all = append(all, d)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDeadLetters(t *testing.T) {
	ctx := t.Context()
	client, name := redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	for _, id := range []string{"a", "b"} {
		if _, err := p.Enqueue(ctx, Message{ID: id, Type: "typ", Key: "k" + id, Payload: []byte("pay" + id), Headers: map[string]string{"h": "v"}}); err != nil {
			t.Fatal(err)
		}
	}
	stream := opened(t, client, name, 1)
	for n := 0; n < 2; {
		tasks, err := stream.Fetch(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			n++
			if err := stream.Settle(ctx, sources.Settlement{Task: &task, Outcome: sources.Dead, Attempt: 3, Reason: "no such mailbox"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What no build can read is seen too.
	if err := client.RPush(ctx, KeysOf(name, 0).Dead, "garbage").Err(); err != nil {
		t.Fatal(err)
	}
	all := lettersOf(t, client, name)
	if len(all) != 3 {
		t.Fatalf("%d dead letters", len(all))
	}
	a := all[0]
	if a.ID != "a" || a.Type != "typ" || a.Key != "ka" || string(a.Payload) != "paya" || a.Headers["h"] != "v" ||
		a.Reason != "no such mailbox" || a.Attempts != 3 || a.Died.IsZero() || a.Born.IsZero() || a.Raw {
		t.Errorf("%+v", a)
	}
	if raw := all[2]; !raw.Raw || string(raw.Payload) != "garbage" {
		t.Errorf("%+v", raw)
	}

	// The owner waits for a bell; what is requeued rings it, and runs as if for the
	// first time.
	got := make(chan sources.Task, 1)
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	go func() {
		defer close(got)
		if tasks, err := stream.Fetch(wait, 1); err == nil {
			got <- tasks[0]
		}
	}()
	if done, err := Requeue(ctx, client, name, a); !done || err != nil {
		t.Fatal(done, err)
	}
	if done, err := Requeue(ctx, client, name, a); done || err != nil {
		t.Errorf("requeued twice: %v %v", done, err)
	}
	task, ok := <-got
	if !ok || task.ID != "a" || task.Attempt != 1 || string(task.Payload) != "paya" || task.FirstError != "" {
		t.Errorf("requeued: %+v", task)
	}
	if done, err := Drop(ctx, client, name, all[1]); !done || err != nil {
		t.Error(done, err)
	}
	if _, err := Requeue(ctx, client, name, all[2]); !errors.Is(err, ErrRaw) {
		t.Error(err)
	}
	if done, err := Drop(ctx, client, name, all[2]); !done || err != nil {
		t.Error(done, err)
	}
	if left := lettersOf(t, client, name); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if err := stream.Settle(ctx, sources.Settlement{Task: &task, Outcome: sources.Done, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if err := stream.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// A line that was no task goes back to its list, where producers push: the next owner may read
// it. What is in no list that the name has now stays.
func TestALineIsRequeuedToItsList(t *testing.T) {
	bothInboxes(t, 4, func(t *testing.T, b *inbox) {
		for _, side := range []Side{Right, Left} {
			b.name, b.unit.Oldest = redistest.Name(t), side
			b.unit.List = b.name + ":inbox"
			b.push("one", "two", "three")
			s := b.open(1)
			b.arrived(3)
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			all := lettersOf(t, b.client, b.name)
			if len(all) != 3 {
				t.Fatalf("letters %+v", all)
			}
			if _, err := Requeue(t.Context(), b.client, b.name, all[0]); !errors.Is(err, ErrRaw) {
				t.Errorf("a name of which nothing is known: %v", err)
			}
			layout := b.layout
			layout.Units = []string{b.unit.List}
			if _, err := redisconfig.Agree(t.Context(), b.client, b.name, layout); err != nil {
				t.Fatal(err)
			}
			for i, want := range []bool{true, true, false} {
				if done, err := Requeue(t.Context(), b.client, b.name, all[i%2]); done != want || err != nil {
					t.Errorf("%d: %v, %v", i, done, err)
				}
			}
			if left := lettersOf(t, b.client, b.name); len(left) != 1 || string(left[0].Payload) != "three" {
				t.Errorf("left %+v", left)
			}
			b.push("four")
			want := []string{"four", "two", "one"}
			if side == Left {
				slices.Reverse(want)
			}
			if got := b.client.LRange(t.Context(), b.unit.List, 0, -1).Val(); !slices.Equal(got, want) {
				t.Errorf("%v: the list is %q, want %q", side, got, want)
			}
			// Where the line cannot go the letter stays.
			b.client.Set(t.Context(), b.unit.List, "no list", 0)
			if done, err := Requeue(t.Context(), b.client, b.name, all[2]); done || err == nil || len(lettersOf(t, b.client, b.name)) != 1 {
				t.Errorf("to what is no list: %v, %v", done, err)
			}
		}
	})
}

// A line that is requeued while the number of partitions is changed is not pushed: its letter could not be taken away, and each
// call would push it once more. What is no line of a list is pushed nowhere.
func TestALineIsNotRequeuedInAResize(t *testing.T) {
	b := newInbox(t, redistest.New(t), 2)
	layout := b.layout
	layout.Units = []string{b.unit.List}
	if _, err := redisconfig.Agree(t.Context(), b.client, b.name, layout); err != nil {
		t.Fatal(err)
	}
	b.push("no object")
	s := b.open(1)
	b.arrived(1)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.client.RPush(t.Context(), KeysOf(b.name, 0).Dead, "garbage").Err(); err != nil {
		t.Fatal(err)
	}
	all := lettersOf(t, b.client, b.name)
	if ok, err := Requeue(t.Context(), b.client, b.name, all[1]); ok || !errors.Is(err, ErrRaw) {
		t.Error(ok, err)
	}
	if _, err := redisconfig.BeginResize(t.Context(), b.client, b.name, 4, newID(time.Now())); err != nil {
		t.Fatal(err)
	}
	if ok, err := Requeue(t.Context(), b.client, b.name, all[0]); ok || !errors.Is(err, partition.ErrConfig) {
		t.Error(ok, err)
	}
	if n := b.client.LLen(t.Context(), b.unit.List).Val(); n != 0 {
		t.Errorf("%d lines were pushed", n)
	}
}

// Where the task of a dead letter cannot go, the letter stays. It can be dropped all the same.
func TestRequeueLosesNothing(t *testing.T) {
	ctx, client := t.Context(), redistest.New(t)
	for what, key := range map[string]func(Keys) string{
		"log": func(k Keys) string { return k.Pending }, "fence": func(k Keys) string { return k.Fence },
	} {
		name := redistest.Name(t)
		k := KeysOf(name, 0)
		client.Set(ctx, key(k), "something else", 0)
		client.RPush(ctx, k.Dead, "letter")
		keys := []string{k.Dead, k.Pending, k.Fence}
		if n, err := requeueScript.Run(ctx, client, keys, "letter", "envelope").Int(); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: requeued: %d, %v", what, n, err)
		}
		if n := client.LLen(ctx, k.Dead).Val(); n != 1 || what == "fence" && client.Exists(ctx, k.Pending).Val() != 0 {
			t.Errorf("%s: %d letters are left", what, n)
		}
		if n, err := requeueScript.Run(ctx, client, keys, "letter", "").Int(); err != nil || n != 1 {
			t.Errorf("%s: dropped: %d, %v", what, n, err)
		}
	}
}

// What is requeued comes after what is in the log, and who waits for it is rung for; what is
// dropped goes nowhere. Of two letters that are the same one is taken.
func TestRequeueTakesOne(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	client.RPush(ctx, k.Dead, "same", "other", "same")
	client.RPush(ctx, k.Pending, "a")
	client.HSet(ctx, k.Fence, "w", "1")
	rung := listen(t, client, k)
	for _, c := range []struct {
		letter, envelope string
		want             int
		dead, log        []string
		rung             string
	}{
		{"same", "b", 1, []string{"other", "same"}, []string{"a", "b"}, "[0]"},
		{"same", "c", 1, []string{"other"}, []string{"a", "b", "c"}, "[]"}, // nobody waits any more
		{"other", "", 1, []string{}, []string{"a", "b", "c"}, "[]"},
		{"other", "d", 0, []string{}, []string{"a", "b", "c"}, "[]"},
	} {
		n, err := requeueScript.Run(ctx, client, []string{k.Dead, k.Pending, k.Fence}, c.letter, c.envelope).Int()
		if err != nil || n != c.want {
			t.Errorf("%q as %q: %d, %v, want %d", c.letter, c.envelope, n, err, c.want)
		}
		if dead, log := client.LRange(ctx, k.Dead, 0, -1).Val(), client.LRange(ctx, k.Pending, 0, -1).Val(); !slices.Equal(dead, c.dead) || !slices.Equal(log, c.log) {
			t.Errorf("%q as %q: the letters are %q, the log %q", c.letter, c.envelope, dead, log)
		}
		if r := rung(); r != c.rung {
			t.Errorf("%q as %q: rung for %s, want %s", c.letter, c.envelope, r, c.rung)
		}
	}
}

// Who changes the number of partitions reads letters and cuts off as many: meanwhile nobody else
// takes one away.
func TestRequeueLeavesAResizeAlone(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	client.RPush(ctx, k.Dead, "a", "b")
	client.HSet(ctx, k.Fence, "t", "7:resize-"+newID(time.Now()))
	d := DeadLetter{ID: "a", element: "a"}
	for what, take := range map[string]func(context.Context, redis.UniversalClient, string, DeadLetter) (bool, error){"requeue": Requeue, "drop": Drop} {
		if ok, err := take(ctx, client, name, d); ok || !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), "countoff resize") {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
	}
	if n := client.LLen(ctx, k.Dead).Val() + client.Exists(ctx, k.Pending).Val(); n != 2 {
		t.Errorf("%d letters and logs, want the two letters", n)
	}
	client.HSet(ctx, k.Fence, "t", tokenOf(8).String())
	if ok, err := Requeue(ctx, client, name, d); !ok || err != nil {
		t.Errorf("afterwards: %v, %v", ok, err)
	}
}

package redisconfig_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

// Peers of two kinds under one name would each own a part of its partitions, whose other tasks
// nobody does.
func TestOneKind(t *testing.T) {
	t.Parallel()
	client := redistest.New(t)
	join := map[redisconfig.Kind]func(ctx context.Context, name string) error{
		redisconfig.Topic: func(ctx context.Context, name string) error {
			return redisconfig.Topic.Claim(ctx, client, name, partition.Murmur2)
		},
	}
	for _, k := range []redisconfig.Kind{redisconfig.Lists, redisconfig.Asynq, redisconfig.Units} {
		join[k] = func(ctx context.Context, name string) error {
			_, err := k.Agree(ctx, client, name, partition.Config{})
			return err
		}
	}
	produce := func(ctx context.Context, name string) error {
		_, err := redisconfig.Lists.AgreePartitions(ctx, client, name, partition.Config{})
		return err
	}
	for first := range join {
		t.Run(string(first)+" first", func(t *testing.T) {
			ctx, name := t.Context(), redistest.Name(t)
			for range 2 {
				if err := join[first](ctx, name); err != nil {
					t.Fatal(err)
				}
			}
			// One with nothing to say of it, as countoff init.
			if first != redisconfig.Topic {
				if _, err := redisconfig.Agree(ctx, client, name, partition.Config{}); err != nil {
					t.Error(err)
				}
			}
			others := map[string]func(context.Context, string) error{}
			for k, j := range join {
				if k != first {
					others["peer of "+k.String()] = j
				}
			}
			if first != redisconfig.Lists {
				others["producer"] = produce
			}
			for who, other := range others {
				err := other(ctx, name)
				if !errors.Is(err, partition.ErrConfig) || !strings.Contains(fmt.Sprint(err), first.String()) ||
					!strings.Contains(fmt.Sprint(err), "HDEL "+redisconfig.Key(name)+" kind ") {
					t.Errorf("a %s: %v", who, err)
				}
			}
			if client.LLen(ctx, redisconfig.RefusedKey(name)).Val() == 0 {
				t.Error("nothing tells those at work that others were refused")
			}
			if got := client.HGet(ctx, redisconfig.Key(name), "kind").Val(); got != string(first) {
				t.Errorf("kind is %q", got)
			}
		})
	}
}

// Names of older builds have no kind. Their peers keep nobody out, and who has come to their name by
// mistake writes nothing that would keep out those who follow them.
func TestKindOfAnOlderBuild(t *testing.T) {
	t.Parallel()
	client := redistest.New(t)
	for _, c := range []struct {
		was    []any // what an older build has written besides
		total  int
		writes []redisconfig.Kind
	}{
		{nil, 4, []redisconfig.Kind{redisconfig.Lists, redisconfig.Asynq, redisconfig.Units}},
		{[]any{"queues", ""}, 4, []redisconfig.Kind{redisconfig.Asynq}},
		{[]any{"list", "u"}, 4, []redisconfig.Kind{redisconfig.Units}},
		{[]any{"hash", "murmur2"}, 4, []redisconfig.Kind{redisconfig.Topic}},
	} {
		for _, k := range []redisconfig.Kind{redisconfig.Lists, redisconfig.Asynq, redisconfig.Units, redisconfig.Topic} {
			ctx, name := t.Context(), redistest.Name(t)
			if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: c.total}); err != nil {
				t.Fatal(err)
			}
			if c.was != nil {
				client.HSet(ctx, redisconfig.Key(name), c.was...)
			}
			var err error
			if k == redisconfig.Topic {
				err = k.Claim(ctx, client, name, partition.Murmur2)
			} else {
				_, err = k.Agree(ctx, client, name, partition.Config{})
			}
			want := ""
			for _, w := range c.writes {
				if w == k {
					want = string(k)
				}
			}
			if got := client.HGet(ctx, redisconfig.Key(name), "kind").Val(); err != nil || got != want {
				t.Errorf("%v, then %v: kind %q, want %q; %v", c.was, k, got, want, err)
			}
		}
	}
}

// Lists may be hashed as a topic is: who makes the name says that it has lists.
func TestListsThatAreHashedAsATopic(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	want := partition.Config{Total: 4, Hash: partition.Murmur2}
	if kind, err := redisconfig.KindOf(ctx, client, name); err != nil || kind != "" {
		t.Errorf("before: %q, %v", kind, err)
	}
	if _, err := redisconfig.Lists.Agree(ctx, client, name, want); err != nil {
		t.Fatal(err)
	}
	if kind, err := redisconfig.KindOf(ctx, client, name); err != nil || kind != redisconfig.Lists {
		t.Errorf("the kind is %q, %v", kind, err)
	}
	if err := redisconfig.Topic.Claim(ctx, client, name, partition.Murmur2); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("a topic beside them: %v", err)
	}
}

// Who is refused for another reason writes no kind: both would be refused for ever, one for this and
// one for that.
func TestARefusedOneWritesNoKind(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 4}); err != nil {
		t.Fatal(err)
	}
	if _, err := redisconfig.Asynq.Agree(ctx, client, name, partition.Config{Total: 8}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("another total: %v", err)
	}
	if err := redisconfig.Topic.Claim(ctx, client, name, partition.Murmur2); err != nil {
		t.Errorf("another hash, which the ledger refuses: %v", err)
	}
	if _, err := redisconfig.Lists.Agree(ctx, client, name, partition.Config{Total: 4}); err != nil {
		t.Error(err)
	}
}

// Of two first ones at once one is refused.
func TestOfTwoKindsOneIsFirst(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{}); err != nil {
		t.Fatal(err)
	}
	second := func() {
		if _, err := redisconfig.Units.Agree(ctx, client, name, partition.Config{}); err != nil {
			t.Error(err)
		}
	}
	between := &afterRead{then: second}
	hooked(t, client, between)
	if _, err := redisconfig.Lists.Agree(ctx, client, name, partition.Config{}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("who was overtaken: %v", err)
	}
}

// A peer that could start before there were kinds can do so in a full store, and as a user who
// may not write. The next one writes its kind.
func TestWhoCannotWriteItsKindMayStart(t *testing.T) {
	t.Parallel()
	p := redistest.Server(t)
	ctx, client, name := t.Context(), p.Client(), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{}); err != nil { // an older build
		t.Fatal(err)
	}
	if err := client.Do(ctx, "ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@all", "-hsetnx").Err(); err != nil {
		t.Fatal(err)
	}
	reader := redis.NewClient(&redis.Options{Addr: p.Addr(), Username: "reader", Password: "x"})
	t.Cleanup(func() { reader.Close() })
	join := func(client redis.UniversalClient, when, want string) {
		t.Helper()
		if _, err := redisconfig.Lists.Agree(ctx, client, name, partition.Config{}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if got := p.Client().HGet(ctx, redisconfig.Key(name), "kind").Val(); got != want {
			t.Errorf("%s: the kind is %q, want %q", when, got, want)
		}
	}
	join(reader, "who may not write", "")
	p.Config("maxmemory", "1")
	join(client, "a full store", "")
	p.Config("maxmemory", "0")
	join(client, "a store with room", "lists")
}

// Who is refused is told of no command that is refused as well.
func TestWhatChangesANameOfAsynq(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	stands := partition.Config{Total: 3, Units: []string{"high", "low"}}
	if _, err := redisconfig.Asynq.Agree(t.Context(), client, name, stands); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]partition.Config{
		" --partitions 3 --unit high":            {Units: []string{"high"}},
		" --partitions 6 --unit high --unit low": {Total: 6, Units: stands.Units},
	} {
		_, err := redisconfig.Asynq.Agree(t.Context(), client, name, c)
		want = "stop all peers: countoff destroy " + name + " --yes, which leaves queues of asynq and their tasks as they are, and countoff init " + name + want + ")"
		if !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

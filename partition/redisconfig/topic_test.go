package redisconfig_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

// topicOf is the layout of a topic of so many partitions.
func topicOf(total int) partition.Config {
	return partition.Config{Total: total, Hash: partition.Murmur2}
}

// Of two topics under one name nobody would do the rest of each, and of two places of progress neither
// knows what the other has done.
func TestOneTopic(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	claim := func(topic, progress string) error {
		return redisconfig.ClaimTopic(ctx, client, name, topicOf(4), redisconfig.Work{Topic: topic, Progress: progress})
	}
	for range 2 {
		if err := claim("orders", "redis"); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range [][2]string{{"mails", "redis"}, {"orders", "kafka"}} {
		err := claim(other[0], other[1])
		if !errors.Is(err, partition.ErrConfig) || !strings.Contains(fmt.Sprint(err), "countoff destroy "+name) {
			t.Errorf("%v: %v", other, err)
		}
	}
	if n := client.LLen(ctx, redisconfig.RefusedKey(name)).Val(); n != 2 {
		t.Errorf("those at work are told of %d refusals", n)
	}
}

// Older builds have written neither topic nor place. The first newer peer does, if it may be one of those
// that follow them: not one whose kind is another, and not one that the ledger will refuse.
func TestTopicOfAnOlderBuild(t *testing.T) {
	t.Parallel()
	client := redistest.New(t)
	for _, c := range []struct {
		was    []any
		writes bool
	}{
		{[]any{"total", "4", "hash", "murmur2", "kind", "kafka"}, true},
		{[]any{"total", "3", "hash", "murmur2"}, true}, // the topic has grown
		{[]any{"total", "5", "hash", "murmur2"}, false},
		{[]any{"total", "4", "hash", "fnv1a"}, false},
		{nil, true},
	} {
		ctx, name := t.Context(), redistest.Name(t)
		if c.was != nil {
			client.HSet(ctx, redisconfig.Key(name), c.was...)
		}
		err := redisconfig.ClaimTopic(ctx, client, name, topicOf(4), redisconfig.Work{Topic: "orders", Progress: "redis"})
		if got := client.HGet(ctx, redisconfig.Key(name), "topic").Val(); err != nil || (got == "orders") != c.writes {
			t.Errorf("%v: topic %q; %v", c.was, got, err)
		}
	}
}

// Of two groups that keep the progress neither knows what is done by the other. An older build has not written which
// it is: the first newer peer does, if all else is the same.
func TestOneGroupForTheProgress(t *testing.T) {
	t.Parallel()
	client := redistest.New(t)
	older := []any{"total", "4", "hash", "murmur2", "kind", "kafka", "topic", "orders", "progress", "kafka"}
	for _, was := range [][]any{nil, older} {
		ctx, name := t.Context(), redistest.Name(t)
		if was != nil {
			client.HSet(ctx, redisconfig.Key(name), was...)
		}
		claim := func(topic, group string) error {
			return redisconfig.ClaimTopic(ctx, client, name, topicOf(4), redisconfig.Work{Topic: topic, Progress: "kafka", Group: group})
		}
		if was != nil {
			if err := claim("mails", "others"); !errors.Is(err, partition.ErrConfig) {
				t.Errorf("of another topic: %v", err)
			}
		}
		for range 2 {
			if err := claim("orders", "ours"); err != nil {
				t.Errorf("of %v: %v", was, err)
			}
		}
		if err := claim("orders", "others"); !errors.Is(err, partition.ErrConfig) || !strings.Contains(fmt.Sprint(err), `"ours" stands there`) {
			t.Errorf("of another group: %v", err)
		}
	}
}

// Of two first ones at once one is refused.
func TestOfTwoTopicsOneIsFirst(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	between := &afterRead{}
	between.then = func() { // the kind was read, and then the topic
		between.then = func() {
			if err := redisconfig.ClaimTopic(ctx, client, name, topicOf(4), redisconfig.Work{Topic: "mails", Progress: "kafka"}); err != nil {
				t.Error(err)
			}
		}
	}
	hooked(t, client, between)
	if err := redisconfig.ClaimTopic(ctx, client, name, topicOf(4), redisconfig.Work{Topic: "orders", Progress: "redis"}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("who was overtaken: %v", err)
	}
}

// Who could start before must be able to.
func TestWhoCannotWriteItsTopicMayStart(t *testing.T) {
	t.Parallel()
	p := redistest.Server(t)
	ctx, client, name := t.Context(), p.Client(), redistest.Name(t)
	client.HSet(ctx, redisconfig.Key(name), "kind", "kafka", "total", "4", "hash", "murmur2")
	if err := client.Do(ctx, "ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@all", "-hsetnx").Err(); err != nil {
		t.Fatal(err)
	}
	reader := redis.NewClient(&redis.Options{Addr: p.Addr(), Username: "reader", Password: "x"})
	t.Cleanup(func() { reader.Close() })
	join := func(client redis.UniversalClient, when, want string) {
		t.Helper()
		if err := redisconfig.ClaimTopic(ctx, client, name, topicOf(4), redisconfig.Work{Topic: "orders", Progress: "redis"}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if got := p.Client().HGet(ctx, redisconfig.Key(name), "topic").Val(); got != want {
			t.Errorf("%s: the topic is %q, want %q", when, got, want)
		}
	}
	join(reader, "who may not write", "")
	p.Config("maxmemory", "1")
	join(client, "a full store", "")
	p.Config("maxmemory", "0")
	join(client, "a store with room", "orders")
}

package unitsource_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/unitsource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// on runs test on miniredis, and on a real server.
func on(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) {
		_, client := redistest.Mini(t)
		test(t, client)
	})
	t.Run("server", func(t *testing.T) { test(t, redistest.Server(t).Client()) })
}

// A key of the ledger is no list: its units would be what others have written there.
func TestTheListIsNoKeyOfTheName(t *testing.T) {
	_, client := redistest.Mini(t)
	if _, err := unitsource.New(client, "n", unitsource.Config{Key: "{n}:table"}); err == nil || !strings.Contains(err.Error(), "another name for the list") {
		t.Error(err)
	}
	for _, key := range []string{"{n}:units", "{m}:table"} {
		if _, err := unitsource.New(client, "n", unitsource.Config{Key: key}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestWithoutClient(t *testing.T) {
	if _, err := unitsource.New(nil, "n", unitsource.Config{}); err == nil || !strings.Contains(err.Error(), "no Redis client") {
		t.Error(err)
	}
}

// Whoever wrote it, and whichever kind it is, before and after it changes: the list is read.
func TestListsAndSets(t *testing.T) {
	on(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		s, err := unitsource.New(client, name, unitsource.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Name() != name {
			t.Errorf("it says the name %q, want %q", s.Name(), name)
		}
		has := func(want ...string) {
			t.Helper()
			if got, err := s.Units(ctx); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q %v, want %q", got, err, want)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		key := "{" + name + "}:units"
		if s.Key() != key || unitsource.Key(name) != key {
			t.Errorf("the list is %s", s.Key())
		}
		has()
		must(s.Add(ctx, "b", "a"))
		must(s.Add(ctx, "b"))
		has("a", "b")
		must(client.SAdd(ctx, key, "c d", "").Err())
		must(s.Remove(ctx, "b", "nothing"))
		has("a", "c d")

		must(client.Del(ctx, key).Err())
		must(client.RPush(ctx, key, "z", "y", "z").Err())
		has("y", "z")
		must(s.Add(ctx, "z", "x"))
		has("x", "y", "z")
		if lines := client.LRange(ctx, key, 0, -1).Val(); !slices.Equal(lines, []string{"y", "z", "x"}) {
			t.Errorf("a unit that is there already was added as another line: %q", lines)
		}
		must(s.Remove(ctx, "z"))
		has("x", "y")
		if n := client.LLen(ctx, key).Val(); n != 2 {
			t.Errorf("%d lines", n)
		}
		must(s.Add(ctx))
		must(s.Remove(ctx))
		if err := s.Add(ctx, "ok", " "); err == nil {
			t.Error("an empty unit was taken")
		}
		if err := s.Add(ctx, "two\nlines"); err == nil {
			t.Error("two lines were taken as a unit")
		}

		must(client.Del(ctx, key).Err())
		must(client.Set(ctx, key, "text", 0).Err())
		_, read := s.Units(ctx)
		for what, err := range map[string]error{"read": read, "add": s.Add(ctx, "a"), "remove": s.Remove(ctx, "a")} {
			if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "neither a set nor a list") {
				t.Errorf("%s of a text: %v does not say what to do about %s", what, err, key)
			}
		}
		must(client.Del(ctx, key).Err())
		has()
	})
}

func TestLayout(t *testing.T) {
	_, client := redistest.Mini(t)
	name := redistest.Name(t)
	if _, err := unitsource.New(client, "{no}", unitsource.Config{Partitions: -1}); err == nil {
		t.Error("taken")
	}
	for _, c := range []struct {
		total int
		ok    bool
	}{{0, true}, {256, true}, {32, false}} {
		s, err := unitsource.New(client, name, unitsource.Config{Partitions: c.total})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Layout(t.Context()); (err == nil) != c.ok || err != nil && !errors.Is(err, partition.ErrConfig) {
			t.Errorf("%d partitions: %v", c.total, err)
		}
	}
}

// Two lists under one name would leave half of each to nobody.
func TestOneListForAll(t *testing.T) {
	on(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		layout := func(key string) error {
			s, err := unitsource.New(client, name, unitsource.Config{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Layout(ctx)
			return err
		}
		for _, key := range []string{"", "", unitsource.Key(name)} {
			if err := layout(key); err != nil {
				t.Fatal(err)
			}
		}
		if err := layout("{" + name + "}:other"); !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), "HDEL {"+name+"}:config list") {
			t.Errorf("another list: %v", err)
		}
		if err := client.HDel(ctx, "{"+name+"}:config", "list").Err(); err != nil {
			t.Fatal(err)
		}
		if err := layout("{" + name + "}:other"); err != nil {
			t.Errorf("after what it said was done: %v", err)
		}
	})
}

// A replica that has not heard of the list yet would have every peer end what it does.
func TestTheListIsReadWhereItIsWritten(t *testing.T) {
	for _, list := range []bool{false, true} {
		store, client := redistest.Lagging(t)
		put := func() error { return store.SAdd(t.Context(), "{town}:units", "a", "b").Err() }
		if list {
			put = func() error { return store.RPush(t.Context(), "{town}:units", "a", "b").Err() }
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		s, err := unitsource.New(client, "town", unitsource.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if units, err := s.Units(t.Context()); err != nil || !slices.Equal(units, []string{"a", "b"}) {
			t.Errorf("list %t: %q, %v: want a and b", list, units, err)
		}
	}
}

package rediscounter_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/indexertest"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/intervalindexer/countertest"
	"github.com/countoff/countoff/partition/intervalindexer/rediscounter"
	"github.com/countoff/countoff/partition/redistest"
)

func TestMain(m *testing.M) {
	// The tests wait most of the time. -parallel on the command line goes before this.
	if err := flag.Set("test.parallel", "9"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestCounts(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	c := rediscounter.New(client)
	a, b, none := "{"+name+"}:7", "{"+name+"}:7:0", "{"+name+"}:8"
	for i := range int64(3) {
		if v, err := c.Incr(ctx, a, time.Minute); v != i+1 || err != nil {
			t.Fatalf("incr: %d, %v, want %d", v, err, i+1)
		}
	}
	if _, err := c.Incr(ctx, b, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(ctx, a, none, b); !slices.Equal(got, []int64{3, 0, 1}) || err != nil {
		t.Errorf("get: %v, %v", got, err)
	}
	for _, key := range []string{a, b} {
		if ttl := client.PTTL(ctx, key).Val(); ttl <= 50*time.Second || ttl > time.Minute {
			t.Errorf("%s lives for %v", key, ttl)
		}
	}
	client.Set(ctx, a, "seven", 0)
	if v, err := c.Get(ctx, a); err == nil {
		t.Errorf("seven is %v", v)
	}
	if v, err := c.Incr(ctx, a, time.Minute); err == nil {
		t.Errorf("seven and one is %v", v)
	}
}

// A dead client gives errors, not zeros: they would mean that nobody came.
func TestUnreachable(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: time.Millisecond})
	defer client.Close()
	c := rediscounter.New(client)
	if v, err := c.Incr(t.Context(), "a", time.Minute); err == nil {
		t.Errorf("incr: %d", v)
	}
	if v, err := c.Get(t.Context(), "a", "b"); err == nil {
		t.Errorf("get: %v", v)
	}
}

func group(t *testing.T, client redis.UniversalClient, interval time.Duration) indexertest.Group {
	config := intervalindexer.Config{Interval: interval, Partitions: partition.Config{Total: 16}}
	g := countertest.Group(t, rediscounter.New(client), redistest.Name(t), config)
	g.Settle = 8 * interval // five would do on a machine that does nothing else
	return g
}

// In real time: on miniredis, or on the server or cluster the environment names.
func TestConformance(t *testing.T) {
	indexertest.Run(t, indexertest.Harness{
		New: func(t *testing.T) indexertest.Group { return group(t, passing(t), 400*time.Millisecond) },
	})
}

// passing returns a client of a Redis whose keys expire by the clock, as those of miniredis do only if it is told.
func passing(t *testing.T) redis.UniversalClient {
	if os.Getenv(redistest.ServerVariable) != "" || os.Getenv(redistest.ClusterVariable) != "" {
		return redistest.New(t)
	}
	mini, client := redistest.Mini(t)
	mini.ClockTTL(true)
	return client
}

func TestConformanceInABubble(t *testing.T) {
	indexertest.Run(t, indexertest.Harness{
		Bubble: true,
		New: func(t *testing.T) indexertest.Group {
			_, client := redistest.Bubble(t)
			return group(t, client, 5*time.Second)
		},
	})
}

// What stands in the store is what design and documentation say, and nothing stays.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		x, err := intervalindexer.New(rediscounter.New(client), "mail-sender", intervalindexer.Config{Interval: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		x.Index(ctx, func(partition.View) {})
		keys := server.Keys()
		if len(keys) > 8 {
			t.Errorf("after 100 intervals these keys stand: %v", keys)
		}
		form := regexp.MustCompile(`^\{mail-sender\}:(\d+)(:0)?$`)
		now := time.Now().Unix()
		for _, k := range keys {
			m := form.FindStringSubmatch(k)
			if m == nil {
				t.Errorf("the key %q", k)
				continue
			}
			var number int64
			fmt.Sscan(m[1], &number)
			if number < now-4 || number > now+1 {
				t.Errorf("the key %q at second %d", k, now)
			}
		}
		<-time.After(5 * time.Second)
		if keys := server.Keys(); len(keys) != 0 {
			t.Errorf("these keys stay: %v", keys)
		}
	})
}

// A client of a cluster may be told to read from replicas, which lag: here one that has heard nothing.
func TestCountsAreReadWhereTheyAreWritten(t *testing.T) {
	_, client := redistest.Lagging(t)
	c := rediscounter.New(client)
	if _, err := c.Incr(t.Context(), "{mail}:1", time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(t.Context(), "{mail}:1", "{mail}:1:0"); err != nil || !slices.Equal(got, []int64{1, 0}) {
		t.Errorf("read %v, %v; want 1, as Incr has just said, and 0", got, err)
	}
}

// Who cannot be counted says why, and what to do: EXECABORT alone says neither.
func TestRefusedIncrement(t *testing.T) {
	server := redistest.Server(t)
	server.Config("min-replicas-to-write", "1")
	_, err := rediscounter.New(server.Client()).Incr(t.Context(), "{refused}:7", time.Minute)
	if !redis.HasErrorPrefix(err, "NOREPLICAS") || !strings.Contains(err.Error(), "min-replicas-to-write asks for") {
		t.Errorf("the store refuses every write, and it says %v", err)
	}
}

package redissource

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/sourcetest"
	"github.com/countoff/countoff/sources/sourcetest/redisline"
)

// ops says what commands are for.
func ops() func(redis.Cmder) sourcetest.Op {
	settles := redisline.Settles()
	return func(c redis.Cmder) sourcetest.Op {
		args := c.Args()
		switch {
		case reads(c):
			return sourcetest.Fetch
		case c.Name() == "hgetall":
			return sourcetest.Open
		case c.Name() != "evalsha" && c.Name() != "eval", strings.HasSuffix(fmt.Sprint(args[3]), ":cancel"):
		case fmt.Sprint(args[2]) == "6":
			return sourcetest.Open
		case fmt.Sprint(args[2]) == "1" && strings.HasSuffix(fmt.Sprint(args[3]), ":fence"):
			return sourcetest.Close
		case strings.HasSuffix(fmt.Sprint(args[4]), ":done"):
			if settles(c) {
				return sourcetest.Settle
			}
		}
		return ""
	}
}

func contract(t *testing.T) sourcetest.Harness {
	admin := redistest.New(t)
	name := redistest.Name(t)
	ctx := t.Context()
	buried := new(sourcetest.Burials)
	peer := func() (*Source, *redisline.Line, redis.UniversalClient) {
		client := redistest.Another(t, admin)
		s, err := New(client, name, Config{Partitions: 4, Buried: buried.Tell})
		if err != nil {
			t.Fatal(err)
		}
		return s, redisline.New(client, admin, ops()), client
	}
	// The scripts are loaded first, so that faults do not hit the loading.
	s, _, _ := peer()
	warm, err := s.Open(ctx, partition.Grant{ID: 3, Epoch: 1}, partition.Token{Epoch: 1, Session: "warm"})
	if err != nil {
		t.Fatal(err)
	}
	if err := warm.Close(ctx); err != nil {
		t.Fatal(err)
	}
	h := sourcetest.Harness{
		Peer: func() sourcetest.Peer {
			s, l, client := peer()
			return sourcetest.Peer{Source: s, Inject: l.Inject, Kill: func() { l.Kill(); client.Close() }}
		},
		Push: func(ctx context.Context, id partition.ID, tasks ...sources.Task) error {
			keys := KeysOf(name, id)
			for _, t := range tasks {
				e := envelope{id: t.ID, typ: t.Type, key: t.Key, payload: t.Payload, headers: t.Headers, born: t.Born}
				if err := admin.RPush(ctx, keys.Pending, appendEnvelope(nil, &e)).Err(); err != nil {
					return err
				}
			}
			return admin.Publish(ctx, keys.Bell, "").Err()
		},
		Dead: func(ctx context.Context, id partition.ID) ([]sourcetest.DeadLetter, error) {
			raw, err := admin.LRange(ctx, KeysOf(name, id).Dead, 0, -1).Result()
			var list []sourcetest.DeadLetter
			for _, r := range raw {
				l, err := parseLetter(r)
				if err != nil {
					return nil, err
				}
				e, err := parseEnvelope(l.body)
				if err != nil {
					return nil, err
				}
				task := sources.Task{
					ID: e.id, Type: e.typ, Key: e.key, Payload: e.payload, Born: e.born,
					Delivery: &sources.Delivery{Attempt: l.attempts, Crashes: l.crashes, FirstError: l.firstError, Headers: e.headers},
				}
				list = append(list, sourcetest.DeadLetter{Task: task, Reason: l.reason})
			}
			return list, err
		},
		Buried: buried,
		Cancel: func(ctx context.Context, why string, ids ...string) error {
			return GiveCancel(ctx, admin, name, why, time.Hour, ids...)
		},
		Snapshot: func(ctx context.Context) (func(context.Context) error, error) {
			return snapshot(ctx, admin, KeysOf(name, 0))
		},
		Goroutines: []string{ // the emulator's ends of connections: the client's pool may grow by one, which stays
			"github.com/alicebob/miniredis/v2/server.(*Server).servePeer",
			"github.com/alicebob/miniredis/v2/server.(*Server).servePeer.func2",
		},
	}
	t.Cleanup(func() {
		if t.Failed() {
			letters, err := h.Dead(context.Background(), 0)
			for _, l := range letters {
				t.Logf("dead letter: %s, %d attempts, %d crashes: %s", l.Task.ID, l.Task.Attempt, l.Task.Crashes, l.Reason)
			}
			t.Logf("dead letters: %v; the fence: %v", err, admin.HGetAll(context.Background(), KeysOf(name, 0).Fence).Val())
		}
	})
	return h
}

// snapshot copies a partition; what it returns puts it back.
func snapshot(ctx context.Context, c redis.UniversalClient, k Keys) (func(context.Context) error, error) {
	lists, hashes, zsets := []string{k.Pending, k.Dead}, []string{k.Fence, k.Lifted, k.Tries}, []string{k.Done, k.Delayed}
	pipe := c.Pipeline()
	var back []func(context.Context, redis.Pipeliner)
	for _, key := range lists {
		cmd := pipe.LRange(ctx, key, 0, -1)
		back = append(back, func(ctx context.Context, p redis.Pipeliner) {
			for _, v := range cmd.Val() {
				p.RPush(ctx, key, v)
			}
		})
	}
	for _, key := range hashes {
		cmd := pipe.HGetAll(ctx, key)
		back = append(back, func(ctx context.Context, p redis.Pipeliner) {
			for f, v := range cmd.Val() {
				p.HSet(ctx, key, f, v)
			}
		})
	}
	for _, key := range zsets {
		cmd := pipe.ZRangeWithScores(ctx, key, 0, -1)
		back = append(back, func(ctx context.Context, p redis.Pipeliner) {
			for _, z := range cmd.Val() {
				p.ZAdd(ctx, key, z)
			}
		})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, slices.Concat(lists, hashes, zsets)...)
			for _, f := range back {
				f(ctx, p)
			}
			return nil
		})
		return err
	}, nil
}

func TestContract(t *testing.T) {
	if testing.Short() && os.Getenv(redistest.ServerVariable) != "" {
		t.Skip("the short form runs on miniredis only")
	}
	sourcetest.Run(t, contract)
}

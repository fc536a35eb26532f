package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/asynqsource/internal/wire"
	"github.com/countoff/countoff/sources/sourcetest"
	"github.com/countoff/countoff/sources/sourcetest/redisline"
)

// op says what a command is for.
func op(c redis.Cmder) sourcetest.Op {
	if c.Name() != "evalsha" && c.Name() != "eval" {
		return ""
	}
	args := c.Args()
	n, _ := strconv.Atoi(fmt.Sprint(args[2]))
	names := n - 1 // the last is a key that never is
	first, last := fmt.Sprint(args[3]), fmt.Sprint(args[2+names])
	switch {
	case strings.HasSuffix(last, "}:marks"): // a push of an ingress
		return sourcetest.Settle
	case !strings.HasSuffix(first, "}:fence") || names == 2:
	case names == 9 && strings.HasSuffix(last, ":groups"):
		return sourcetest.Open
	case names == 10:
		return sourcetest.Fetch
	case names == 4:
		return sourcetest.Close
	case args[3+n+7] != "":
		return sourcetest.Settle
	}
	return ""
}

// store is a Redis with the queues of a name, as a program without this package sees it.
type store struct {
	redis.UniversalClient
	name string

	mu  sync.Mutex
	ids map[string][]string // by queue
}

func newStore(t testing.TB) *store {
	return &store{UniversalClient: redistest.New(t), name: redistest.Name(t), ids: make(map[string][]string)}
}

// locks are the locks of unique tasks of a queue.
func (s *store) locks(t testing.TB, k keys) []string {
	t.Helper()
	var locks []string
	of := func(ctx context.Context, c redis.Cmdable) error {
		found, err := c.Keys(ctx, k.prefix+"unique:*").Result()
		locks = append(locks, found...)
		return err
	}
	var err error
	if cluster, ok := s.UniversalClient.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		err = cluster.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return of(ctx, c)
		})
	} else {
		err = of(t.Context(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

// push does what asynq's client does.
func (s *store) push(ctx context.Context, id partition.ID, tasks ...sources.Task) error {
	queue := QueueOf(s.name, id)
	k := keysOf(queue)
	for _, t := range tasks {
		b := appendText(appendText(nil, fieldType, t.Type), fieldPayload, string(t.Payload))
		b = appendText(appendText(b, fieldID, t.ID), fieldQueue, queue)
		b = appendNumber(appendNumber(b, 5, 25), 8, 1800)
		if t.Key != "" {
			b = appendHeader(b, HeaderKey, t.Key)
		}
		b = appendHeader(b, HeaderBorn, strconv.FormatInt(t.Born.Time().UnixMilli(), 10))
		for name, value := range t.Headers {
			b = appendHeader(b, name, value)
		}
		_, err := s.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, k.task+t.ID, "msg", b, "state", "pending", "pending_since", time.Now().UnixNano())
			p.LPush(ctx, k.pending, t.ID)
			return nil
		})
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.ids[queue] = append(s.ids[queue], t.ID)
		s.mu.Unlock()
	}
	return nil
}

func (s *store) dead(ctx context.Context, id partition.ID) ([]sourcetest.DeadLetter, error) {
	k := keysOf(QueueOf(s.name, id))
	ids, err := s.ZRange(ctx, k.archived, 0, -1).Result()
	var list []sourcetest.DeadLetter
	for _, id := range ids {
		raw, err := s.HGet(ctx, k.task+id, "msg").Result()
		if err != nil {
			return nil, err
		}
		m, err := parseMessage(raw)
		if err != nil {
			return nil, err
		}
		reason := ""
		wire.Fields(raw, func(field int, _ uint64, s string) error {
			if field == fieldError {
				reason = s
			}
			return nil
		})
		task := sources.Task{ID: m.id, Type: m.typ, Key: m.key, Payload: m.payload, Born: sources.MomentOf(m.born), Delivery: &sources.Delivery{Headers: m.headers}}
		list = append(list, sourcetest.DeadLetter{Task: task, Reason: reason})
	}
	return list, err
}

// snapshot copies a queue; what it returns puts it back.
func (s *store) snapshot(ctx context.Context, id partition.ID) (func(context.Context) error, error) {
	queue := QueueOf(s.name, id)
	k := keysOf(queue)
	hashes := func() []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		list := []string{k.fence, k.tries}
		for _, id := range s.ids[queue] {
			list = append(list, k.task+id)
		}
		return list
	}
	pipe := s.Pipeline()
	var back []func(context.Context, redis.Pipeliner)
	for _, key := range []string{k.pending, k.active} {
		cmd := pipe.LRange(ctx, key, 0, -1)
		back = append(back, func(ctx context.Context, p redis.Pipeliner) {
			for _, v := range cmd.Val() {
				p.RPush(ctx, key, v)
			}
		})
	}
	for _, key := range hashes() {
		cmd := pipe.HGetAll(ctx, key)
		back = append(back, func(ctx context.Context, p redis.Pipeliner) {
			for f, v := range cmd.Val() {
				p.HSet(ctx, key, f, v)
			}
		})
	}
	for _, key := range []string{k.lease, k.retry, k.archived} {
		cmd := pipe.ZRangeWithScores(ctx, key, 0, -1)
		back = append(back, func(ctx context.Context, p redis.Pipeliner) {
			for _, z := range cmd.Val() {
				p.ZAdd(ctx, key, z)
			}
		})
	}
	members := pipe.SMembers(ctx, k.suspects)
	back = append(back, func(ctx context.Context, p redis.Pipeliner) {
		for _, m := range members.Val() {
			p.SAdd(ctx, k.suspects, m)
		}
	})
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := s.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, append(hashes(), k.pending, k.active, k.lease, k.retry, k.archived, k.suspects)...)
			for _, f := range back {
				f(ctx, p)
			}
			return nil
		})
		return err
	}, nil
}

// sameServer returns another client of the same server.
func sameServer(t testing.TB, c redis.UniversalClient) redis.UniversalClient {
	t.Helper()
	if s, ok := c.(*store); ok {
		c = s.UniversalClient
	}
	return redistest.Another(t, c)
}

// peer is a source as another process has it.
func (s *store) peer(t testing.TB, cfg Config) (*Source, *redisline.Line, redis.UniversalClient) {
	t.Helper()
	client := sameServer(t, s)
	if len(cfg.Queues) == 0 && cfg.Partitions == 0 {
		cfg.Partitions = 4
	}
	src, err := New(client, s.name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	src.tested = true // it has a test of its own
	return src, redisline.New(client, s.UniversalClient, op), client
}

func contract(modest bool) func(t *testing.T) sourcetest.Harness {
	return func(t *testing.T) sourcetest.Harness {
		s := newStore(t)
		// The scripts are loaded first, so that faults do not hit the loading.
		warm(t, s)
		buried := new(sourcetest.Burials)
		return sourcetest.Harness{
			Peer: func() sourcetest.Peer {
				src, l, client := s.peer(t, Config{Buried: buried.Tell})
				src.modest.Store(modest)
				return sourcetest.Peer{Source: src, Inject: l.Inject, Kill: func() { l.Kill(); client.Close() }}
			},
			Push:     s.push,
			Dead:     s.dead,
			Buried:   buried,
			Lacks:    []sourcetest.Ability{sourcetest.DeadInOrder}, // the archive of asynq keeps the second
			Snapshot: func(ctx context.Context) (func(context.Context) error, error) { return s.snapshot(ctx, 0) },
			Goroutines: []string{ // the emulator's ends of connections: the client's pool may grow by one, which stays
				"github.com/alicebob/miniredis/v2/server.(*Server).servePeer",
				"github.com/alicebob/miniredis/v2/server.(*Server).servePeer.func2",
			},
		}
	}
}

// warm opens and closes a partition that no test uses.
func warm(t testing.TB, s *store) {
	t.Helper()
	ctx := t.Context()
	if err := s.push(ctx, 3, sources.Task{ID: "warm", Delivery: &sources.Delivery{}}); err != nil {
		t.Fatal(err)
	}
	src, _, _ := s.peer(t, Config{})
	st, err := src.Open(ctx, partition.Grant{ID: 3, Epoch: 1}, partition.Token{Epoch: 1, Session: "warm"})
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := st.Fetch(ctx, 1)
	if err == nil {
		err = st.Settle(ctx, sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1})
	}
	if err = errors.Join(err, st.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	if testing.Short() && os.Getenv(redistest.ServerVariable) != "" {
		t.Skip("the short form runs on miniredis only")
	}
	sourcetest.Run(t, contract(false))
}

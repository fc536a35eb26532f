package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/sourcetest"
)

// line is the way of one peer to the store: a hook that says what each request is for
// and lets a sourcetest.Line do the rest.
type line struct {
	sourcetest.Line
	client redis.UniversalClient // for requests that come late
}

func (*line) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *line) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ops := l.ops(cmd)
		if len(ops) == 0 {
			return next(ctx, cmd)
		}
		return l.do(func() error { return next(ctx, cmd) }, ops, cmd)
	}
}

func (l *line) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return l.do(func() error { return next(ctx, cmds) }, l.ops(cmds...), cmds...)
	}
}

func (l *line) do(execute func() error, ops []sourcetest.Op, cmds ...redis.Cmder) error {
	var args [][]any
	for _, c := range cmds {
		args = append(args, slices.Clone(c.Args()))
	}
	var gone atomic.Bool // the sender is
	var err error
	injected := l.Do(func() {
		if !gone.Load() {
			err = execute()
			return
		}
		pipe := l.client.Pipeline()
		for _, a := range args {
			pipe.Do(context.Background(), a...)
		}
		pipe.Exec(context.Background())
	}, ops...)
	gone.Store(true)
	if errors.Is(injected, sourcetest.ErrKilled) {
		injected = redis.ErrClosed // what a client says that is over
	}
	if injected != nil {
		for _, c := range cmds {
			c.SetErr(injected)
		}
		return injected
	}
	return err
}

// ops says what a request is for.
func (l *line) ops(cmds ...redis.Cmder) []sourcetest.Op {
	var ops []sourcetest.Op
	for _, c := range cmds {
		if c.Name() != "evalsha" && c.Name() != "eval" {
			continue
		}
		args := c.Args()
		n, _ := strconv.Atoi(fmt.Sprint(args[2]))
		first, last := fmt.Sprint(args[3]), fmt.Sprint(args[2+n])
		switch {
		case strings.HasSuffix(last, "}:marks"): // a push of an ingress
			ops = append(ops, sourcetest.Settle)
		case !strings.HasSuffix(first, "}:fence") || n == 2:
		case n == 7 && strings.HasSuffix(last, ":archived"):
			ops = append(ops, sourcetest.Open)
		case n == 7:
			ops = append(ops, sourcetest.Fetch)
		case n == 4:
			ops = append(ops, sourcetest.Close)
		case args[3+n+7] != "":
			ops = append(ops, sourcetest.Settle)
		}
	}
	return ops
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
		b = appendHeader(b, HeaderBorn, strconv.FormatInt(t.Born.UnixMilli(), 10))
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
		fields(raw, func(field int, _ uint64, s string) error {
			if field == fieldError {
				reason = s
			}
			return nil
		})
		task := sources.Task{ID: m.id, Type: m.typ, Key: m.key, Payload: m.payload, Headers: m.headers, Born: m.born}
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

// cautious hides that there is one server only, as redistest's clients do.
type cautious struct{ *redis.Client }

// sameServer returns another client of the same server.
func sameServer(t testing.TB, c redis.UniversalClient) redis.UniversalClient {
	t.Helper()
	if s, ok := c.(*store); ok {
		c = s.UniversalClient
	}
	var other redis.UniversalClient
	switch c := c.(type) {
	case interface{ Options() *redis.Options }:
		opt := *c.Options()
		other = cautious{redis.NewClient(&opt)}
	case *redis.ClusterClient:
		opt := *c.Options()
		other = redis.NewClusterClient(&opt)
	default:
		t.Fatalf("a client %T", c)
	}
	t.Cleanup(func() { other.Close() })
	redistest.OneSlot(t, other)
	return other
}

// peer is a source as another process has it.
func (s *store) peer(t testing.TB, cfg Config) (*Source, *line, redis.UniversalClient) {
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
	l := &line{client: s.UniversalClient}
	client.AddHook(l)
	return src, l, client
}

func contract(modest bool) func(t *testing.T) sourcetest.Harness {
	return func(t *testing.T) sourcetest.Harness {
		s := newStore(t)
		// The scripts are loaded first, so that faults do not hit the loading.
		warm(t, s)
		return sourcetest.Harness{
			Peer: func() sourcetest.Peer {
				src, l, client := s.peer(t, Config{})
				src.modest.Store(modest)
				return sourcetest.Peer{Source: src, Inject: l.Inject, Kill: func() { l.Kill(); client.Close() }}
			},
			Push:     s.push,
			Dead:     s.dead,
			Snapshot: func(ctx context.Context) (func(context.Context) error, error) { return s.snapshot(ctx, 0) },
		}
	}
}

// warm opens and closes a partition that no test uses.
func warm(t testing.TB, s *store) {
	t.Helper()
	ctx := t.Context()
	if err := s.push(ctx, 3, sources.Task{ID: "warm"}); err != nil {
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
	if testing.Short() && os.Getenv(redistest.EnvServer) != "" {
		t.Skip("the short form runs on miniredis only")
	}
	sourcetest.Run(t, contract(false))
}

package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// between does something before and after each request of a client.
type between struct{ before, after func(cmds []redis.Cmder) }

func (*between) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.before([]redis.Cmder{cmd})
		defer b.after([]redis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name != "hello" && name != "client" {
			b.before(cmds)
			defer b.after(cmds)
		}
		return next(ctx, cmds)
	}
}

// remembered copies the keys that match; what it returns puts them back.
func remembered(t *testing.T, client redis.UniversalClient, match string) (restore func()) {
	ctx := t.Context()
	var back []func(redis.Pipeliner)
	for _, key := range redistest.Keys(t, client, match) {
		ttl := client.PTTL(ctx, key).Val()
		var put func(redis.Pipeliner)
		switch client.Type(ctx, key).Val() {
		case "string":
			value := client.Get(ctx, key).Val()
			put = func(p redis.Pipeliner) { p.Set(ctx, key, value, 0) }
		case "list":
			all := client.LRange(ctx, key, 0, -1).Val()
			put = func(p redis.Pipeliner) { p.RPush(ctx, key, all) }
		case "hash":
			all := client.HGetAll(ctx, key).Val()
			put = func(p redis.Pipeliner) { p.HSet(ctx, key, all) }
		case "zset":
			all := client.ZRangeWithScores(ctx, key, 0, -1).Val()
			put = func(p redis.Pipeliner) { p.ZAdd(ctx, key, all...) }
		}
		back = append(back, put)
		if ttl > 0 {
			back = append(back, func(p redis.Pipeliner) { p.PExpire(ctx, key, ttl) })
		}
	}
	return func() {
		redistest.Forget(t, client, match)
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, put := range back {
				put(p)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A server, or one shard of a cluster, fails over in the midst of a resize and forgets its last writes, back to what
// was waited for. The call ends with an error, or does not notice; another one goes on, and nothing is lost,
// doubled or out of order.
func TestResizeWhileTheStoreForgets(t *testing.T) {
	const writes = 6
	for i, c := range []struct{ what, of string }{{"a server", "*"}, {"a shard", ":0}*"}, {"a target", ":1}*"}} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			for at, forgot := writes+1+i, true; forgot; at += 3 {
				_, client := redistest.Mini(t)
				if forgot = resizeForgets(t, client, c.of, at, writes); t.Failed() {
					t.Fatalf("it forgot before request %d", at)
				}
			}
		})
	}
}

// resizeForgets resizes in a store that forgets, before request number at, the last writes under keys that end like of.
// It reports whether there were so many.
func resizeForgets(t *testing.T, client redis.UniversalClient, of string, at, writes int) bool {
	w := newCrowd(t, client, 1, 3)
	match := "{" + w.name + of
	opt := *redistest.Single(t, client).Options()
	mover := redis.NewClient(&opt)
	defer mover.Close()
	made := 0
	var restore func()
	mover.AddHook(&between{func([]redis.Cmder) {
		if made++; made == at-writes {
			restore = remembered(t, client, match)
		}
		if made == at {
			restore()
		}
	}, func(cmds []redis.Cmder) {
		if made >= at-writes && made < at && cmds[0].Name() == "info" && strings.Contains(fmt.Sprint(cmds), strings.TrimSuffix(match, "*")) {
			restore = remembered(t, client, match) // replicas have it
		}
	}})
	_, err := Resize(t.Context(), mover, w.name, 3, ResizeConfig{Idle: idle})
	if err != nil && !errors.Is(err, sources.ErrForgot) && !errors.Is(err, sources.ErrFenced) && !errors.Is(err, redisconfig.ErrTaken) {
		t.Error(err)
	}
	for range 2 { // the first may go on with what the other has left
		if _, err := Resize(t.Context(), client, w.name, 3, ResizeConfig{Idle: idle}); err != nil {
			t.Error(err)
		}
	}
	w.check(3)
	return made >= at
}

// A fail-over that has forgotten a fence of a resize, or that it moves at all, is no other call: nobody goes on, and it
// is said, even to who has given up meanwhile, that the name is closed until the resize was called again. It stays as
// the fail-over left it: a call that has looked at it already goes on.
func TestResizeWhoseFenceIsForgotten(t *testing.T) {
	t.Parallel()
	for _, forgets := range []string{"a fence", "a fence and the mover"} {
		t.Run(forgets, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, client := redistest.Mini(t)
			w := newCrowd(t, client, 2, 3)
			opt := *redistest.Single(t, client).Options()
			mover := redis.NewClient(&opt)
			defer mover.Close()
			restore := remembered(t, client, KeysOf(w.name, 1).Fence)
			var left string // by the fail-over
			mover.AddHook(&between{func([]redis.Cmder) {
				if restore == nil || len(redistest.Keys(t, client, "*:mark:resize-*-1-log")) == 0 { // a page is pushed and not taken off
					return
				}
				restore()
				restore = nil
				left = client.HGet(t.Context(), redisconfig.Key(w.name), "resize").Val()
				if forgets != "a fence" {
					left = left[:strings.LastIndex(left, " ")]
					client.HSet(t.Context(), redisconfig.Key(w.name), "resize", left)
				}
			}, func([]redis.Cmder) {
				if restore == nil {
					cancel()
				}
			}})
			_, err := Resize(ctx, mover, w.name, 3, ResizeConfig{Idle: idle})
			if restore != nil || !errors.Is(err, sources.ErrFenced) || !strings.Contains(err.Error(), "call it again") {
				t.Errorf("%v", err)
			}
			if now := client.HGet(t.Context(), redisconfig.Key(w.name), "resize").Val(); now != left {
				t.Errorf("it stands as %q, and the fail-over left %q", now, left)
			}
			if _, err := redisconfig.Read(t.Context(), client, w.name); !errors.Is(err, partition.ErrConfig) {
				t.Errorf("the name is not closed: %v", err)
			}
			if _, err := Resize(t.Context(), client, w.name, 3, ResizeConfig{Idle: idle}); err != nil {
				t.Error(err)
			}
			w.check(3)
		})
	}
}

// The slots of a cluster may move to other nodes in the midst of a resize.
func TestResizeWhileSlotsMove(t *testing.T) {
	t.Parallel()
	m, client := redistest.Mini(t)
	w := newCrowd(t, client, 1, 3)
	mover := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{m.Addr()}})
	defer mover.Close()
	asked := 0
	m.Server().SetPreHook(func(c *server.Peer, _ string, args ...string) bool {
		if len(args) == 0 || args[0] != resizeKeptSource {
			return false
		}
		asked++
		switch asked % 20 {
		case 1:
			c.WriteError("MOVED 1 " + m.Addr())
		case 2:
			c.WriteError("ASK 1 " + m.Addr())
		case 3:
			c.WriteError("TRYAGAIN Multiple keys request during rehashing of slot")
		default:
			return false
		}
		return true
	})
	if _, err := Resize(t.Context(), mover, w.name, 3, ResizeConfig{Idle: idle}); err != nil || asked == 0 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	w.check(3)
}

// A page is taken off once the replica has it at its target. That it is waited for is told.
func TestResizeWaitsForReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--repl-diskless-sync-delay", "0")
	ctx, client := t.Context(), server.Client()
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica := redistest.Server(t, "--replicaof", host+" "+port)
	eventually(t, func() bool { return strings.Contains(client.Info(ctx, "replication").Val(), "state=online") })
	w, messages, _ := enqueuedCrowd(t, client, 1, 3)
	w.keep(messages, nil)
	user := aclUser(t, server, "~*", "&*", "+@all", "-wait")
	if _, err := Resize(ctx, user, w.name, 2, ResizeConfig{Idle: idle}); err == nil || !strings.Contains(err.Error(), "'wait'") {
		t.Errorf("who may not wait for a replica resizes: %v", err)
	}
	if c, err := redisconfig.Read(ctx, client, w.name); err != nil || c.Total != 1 {
		t.Errorf("it has begun, and cannot end: %+v, %v", c, err)
	}
	mover := redistest.Single(t, server.Client())
	paused, told, waited := false, false, 0
	mover.AddHook(&between{func(cmds []redis.Cmder) {
		says := func(text string) bool {
			return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return strings.Contains(fmt.Sprint(c.Args()...), text) })
		}
		switch {
		case says(pushSource) && !paused:
			replica.Pause()
			paused = true
		case says("wait") && paused && told:
			replica.Resume()
			paused = false
			waited++
		case paused && cmds[0].Name() != "info":
			t.Errorf("%v came before the replica had what was pushed", cmds[0].Name())
			replica.Resume()
			paused = false
		}
	}, func([]redis.Cmder) {}})
	most := 0
	tell := func(at Resized, waits bool) { told, most = told || waits, max(most, at.Tasks) }
	out, err := Resize(ctx, mover, w.name, 3, ResizeConfig{Idle: idle, Tell: tell})
	if err != nil || waited == 0 {
		t.Errorf("%v, it waited %d times", err, waited)
	}
	if most != out.Tasks {
		t.Errorf("it told of %d tasks, and there are %d", most, out.Tasks)
	}
	w.check(3)
}

// A store that has lost even what should stand, as the name itself, is told from one that keeps it.
func TestKeptIsWhatStands(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	m := &mover{client: client, name: name, replicated: make(map[*redis.Client]bool), tell: func(Resized, bool) {}}
	config := kept{key: redisconfig.Key(name)}
	if err := m.kept(ctx, config); !errors.Is(err, sources.ErrForgot) {
		t.Errorf("of a name that is gone: %v", err)
	}
	client.HSet(ctx, config.key, "total", 1)
	for _, m.client = range []redis.UniversalClient{client, redistest.Hidden(client, 0)} {
		if err := m.kept(ctx, config); err != nil {
			t.Errorf("%T: %v", m.client, err)
		}
	}
}

// A struct that embeds a client has its connections: a replica is not waited for longer than they wait for an answer.
func TestResizeWaitsNoLongerThanItsConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica := redistest.Server(t, "--replicaof", host+" "+port)
	ctx, name := t.Context(), redistest.Name(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 900 * time.Millisecond})
	defer client.Close()
	eventually(t, func() bool { return strings.Contains(client.Info(ctx, "replication").Val(), "state=online") })
	config, told := kept{key: redisconfig.Key(name)}, false
	client.HSet(ctx, config.key, "total", 1)
	replica.Pause()
	defer replica.Resume()
	m := &mover{client: redistest.Careful(client), name: name, replicated: make(map[*redis.Client]bool), tell: func(_ Resized, waits bool) {
		if waits {
			told = true
			replica.Resume()
		}
	}}
	if err := m.kept(ctx, config); err != nil || !told {
		t.Errorf("%v, that it waits was told: %v", err, told)
	}
}

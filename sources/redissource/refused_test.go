package redissource

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

// A server that refuses the connection of a pipeline has told and done nothing, and whoever asked is told what to do.
func TestARefusedConnectionIsNoAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	ids := []partition.ID{0}
	for what, call := range map[string]func(ctx context.Context, client redis.UniversalClient, name string) error{
		"destroy": func(ctx context.Context, client redis.UniversalClient, name string) error {
			_, err := Destroy(ctx, client, name)
			return err
		},
		"stats": func(ctx context.Context, client redis.UniversalClient, name string) error {
			_, err := Stats(ctx, client, name, ids)
			return err
		},
		"dead letters": func(ctx context.Context, client redis.UniversalClient, name string) error {
			return DeadLetters(ctx, client, name, ids, func(DeadLetter) bool { return true })
		},
		"delayed tasks": func(ctx context.Context, client redis.UniversalClient, name string) error {
			return DelayedTasks(ctx, client, name, ids, "", func(Delayed) bool { return true })
		},
		"jobs": func(ctx context.Context, client redis.UniversalClient, name string) error {
			_, err := Jobs(ctx, client, name, ids)
			return err
		},
		"forget a job": func(ctx context.Context, client redis.UniversalClient, name string) error {
			_, err := ForgetJob(ctx, client, name, "daily", ids)
			return err
		},
		"ingress fences": func(ctx context.Context, client redis.UniversalClient, _ string) error {
			_, err := IngressFences(ctx, client, []string{"lines"})
			return err
		},
		"a push": func(ctx context.Context, client redis.UniversalClient, name string) error {
			p := &pusher{client: client}
			k := KeysOf(name, 0)
			keys, args := pushHead{total: 1}.arguments(k.Mark("a"), []pushTarget{{&k, 0}}, 0)
			one := &push{keys: keys, args: args}
			p.send(ctx, []*push{one})
			return redisconfig.Explain(one.err)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := redistest.Name(t)
			newProducer(t, server.Client(), name, ProducerConfig{Partitions: 1})
			if err := server.Client().RPush(t.Context(), KeysOf(name, 0).Pending, "x").Err(); err != nil {
				t.Fatal(err)
			}
			client := redistest.Refusing(t, server, func([]redis.Cmder) bool { return true })
			told(t, call(t.Context(), client, name))
		})
	}
}

// told checks that err says that the password is refused.
func told(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "WRONGPASS") || !strings.Contains(err.Error(), "give user and password in the URL") {
		t.Errorf("%v", err)
	}
}

// Whatever it is that a resize is refused its connection for, that is why it ended, and another goes on where it was.
func TestAResizeIsRefusedItsConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	w := newCrowd(t, server.Client(), 2, 1)
	for one := 1; ; one++ {
		pipes := 0
		client := redistest.Refusing(t, server, func([]redis.Cmder) bool { pipes++; return pipes >= one })
		_, err := Resize(t.Context(), client, w.name, 3, ResizeConfig{Idle: idle})
		if err == nil {
			break
		}
		told(t, err)
	}
	w.check(3)
}

// A peer that is refused says why, wherever in its work that is: also where a task has ended its peers too often.
func TestAStreamIsRefusedItsConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	w := newWorld(t, server.Client(), Config{})
	w.push("poison", "a")
	w.crash(w.openAndFetch("poison"))
	for range w.source.cfg.CrashLimit {
		w.crash(w.openAndFetch("poison"))
	}
	for one := 1; ; one++ {
		pipes, refused := 0, false
		client := redistest.Refusing(t, server, func([]redis.Cmder) bool { pipes++; return pipes == one || refused })
		source, err := New(client, w.name, Config{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		w.epoch++
		s, err := source.Open(t.Context(), partition.Grant{Epoch: w.epoch}, tokenOf(w.epoch))
		if err != nil {
			told(t, err)
			continue
		}
		if pipes >= one {
			t.Errorf("pipeline %d was refused, and it is open", one)
		}
		refused = true
		_, err = s.Fetch(t.Context(), 1)
		told(t, err)
		refused = false
		if tasks, err := s.Fetch(t.Context(), 1); err != nil || len(tasks) != 1 || tasks[0].ID != "a" {
			t.Errorf("it goes on with %v, %v", tasks, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		break
	}
}

// So does the owner of an ingress list.
func TestAnIngressListIsRefusedItsConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	for _, single := range []bool{false, true} {
		b := newInbox(t, server.Client(), 2)
		b.push(inboxLine("ann", 0))
		var refused atomic.Bool
		refused.Store(true)
		plain := redistest.Refusing(t, server, func([]redis.Cmder) bool { return refused.Load() })
		var client redis.UniversalClient = plain
		if !single {
			client = redistest.Careful(plain)
		}
		s, err := b.start(client, 1)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Fetch(t.Context(), 1)
		told(t, err)
		refused.Store(false)
		b.arrived(1)
	}
}

package asynqsource

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// A server may refuse one connection of an owner, as where it has too many clients: what it did not get has not been
// done, and the owner says why.
func TestARefusedConnectionIsNoAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	for what, refused := range map[string]func(cmds []redis.Cmder) bool{
		"a push by a router": func(cmds []redis.Cmder) bool {
			return slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "sadd" })
		},
		"what a router asks first": func(cmds []redis.Cmder) bool { return cmds[0].Name() == "hdel" },
		"a trip":                   func(cmds []redis.Cmder) bool { return strings.HasPrefix(cmds[0].Name(), "eval") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &store{UniversalClient: server.Client(), name: redistest.Name(t), ids: make(map[string][]string)}
			in := s.name + "-in"
			if _, err := asynq.NewClientFromRedisClient(s.UniversalClient).Enqueue(asynq.NewTask("t", []byte{1}), asynq.Queue(in)); err != nil {
				t.Fatal(err)
			}
			var once atomic.Bool
			client := redistest.Refusing(t, server, func(cmds []redis.Cmder) bool { return refused(cmds) && once.CompareAndSwap(true, false) })
			src, err := New(client, s.name, Config{Partitions: 4, Ingress: []string{in}, Key: byPayload})
			if err != nil {
				t.Fatal(err)
			}
			src.tested = true // it has a test of its own
			st, err := src.Open(t.Context(), partition.Grant{ID: partition.FirstUnit, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			var said error
			once.Store(true)
			go func() {
				defer close(ended)
				for ctx.Err() == nil {
					if _, err := st.Fetch(ctx, 1); ctx.Err() == nil {
						said = errors.Join(said, err)
					}
				}
			}()
			until(t, "the task is moved", func() bool {
				return !once.Load() && s.LLen(t.Context(), queuestat.Pending(in)).Val()+s.LLen(t.Context(), keysOf(in).active).Val() == 0
			})
			cancel()
			<-ended
			if said == nil || !strings.Contains(said.Error(), "WRONGPASS") {
				t.Errorf("it says %v", said)
			}
			if moved := s.moved(t); len(moved["key-1"]) != 1 {
				t.Errorf("the partitions have %v", moved)
			}
			_ = st.Close(ctx) // only frees what it holds
		})
	}
}

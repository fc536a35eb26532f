package asynqsource

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// refusal is an error as the store answers it.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// What waits in a full store is worked off by whoever starts there, with what an ingress holds: it
// may be that which fills the store. What the start has no room for is made up for later.
func TestWhoStartsEmptiesAFullStore(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := newStore(t)
	s.UniversalClient = server.Client()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	in, cfg := s.name+"-in", Config{Ingress: []string{s.name + "-in"}, Key: byPayload}
	client := asynq.NewClientFromRedisClient(s.UniversalClient)
	const n = 20
	for i := range n {
		if _, err := client.Enqueue(asynq.NewTask("t", []byte{byte(i)}), asynq.Queue(in)); err != nil {
			t.Fatal(err)
		}
	}
	former, _, _ := s.peer(t, cfg)
	if _, err := former.Layout(ctx); err != nil { // the name is there
		t.Fatal(err)
	}
	server.Config("maxmemory", "1")
	src, _, _ := s.peer(t, cfg)
	src.tested = false
	unit, err := src.Open(ctx, partition.Grant{ID: partition.FirstUnit, Epoch: 1}, partition.Token{Epoch: 1, Session: "s"})
	if err != nil {
		t.Fatal(err)
	}
	routed := make(chan error, 1)
	stop, over := context.WithCancel(ctx)
	go func() {
		_, err := unit.Fetch(stop, 1)
		routed <- err
	}()
	k := keysOf(in)
	until(t, "the ingress is empty", func() bool {
		select {
		case err := <-routed:
			t.Fatal(err)
		default:
		}
		return s.LLen(ctx, k.pending).Val()+s.LLen(ctx, k.active).Val() == 0
	})
	over()
	<-routed
	done := 0
	for id := range partition.ID(4) {
		st := s.open(t, src, id, 1)
		for left := int(s.LLen(ctx, keysOf(st.queue).pending).Val()); left > 0; {
			tasks, err := st.Fetch(ctx, left)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tasks {
				if err := st.Settle(ctx, sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1}); err != nil {
					t.Fatal(err)
				}
			}
			left, done = left-len(tasks), done+len(tasks)
		}
	}
	if done != n {
		t.Errorf("%d tasks were done, want %d", done, n)
	}
	if err := unit.Close(ctx); err != nil {
		t.Error(err)
	}
	src.lookAgain(ctx, 4)
	if src.tested {
		t.Error("there is no room, and the self-test is said to have passed")
	}
	server.Config("maxmemory", "0")
	src.lookAgain(ctx, 4)
	if err := src.refused(); !src.tested || err != nil {
		t.Errorf("there is room again: tested %v, %v", src.tested, err)
	}
}

// A self-test that is made up for and fails stops what has begun.
func TestALateSelfTestRefuses(t *testing.T) {
	s := newStore(t)
	src, client := s.untested(t)
	client.AddHook(change(func(s string) string { return strings.Replace(s, "f[1] ~= token", "false", 1) }))
	src.lookAgain(t.Context(), 4)
	if err := src.refused(); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("it goes on: %v", err)
	}
	// Nor is anything opened when nothing has been open for a while, and plain servers are looked for anew.
	src.layout, src.looked = partition.Config{Total: 4}, time.Time{}
	if st, err := src.Open(t.Context(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "s"}); err == nil {
		t.Errorf("a queue is opened, and a fetch of it says %v", st.(*stream).Trouble())
		_ = st.Close(t.Context())
	} else if !errors.Is(err, partition.ErrConfig) {
		t.Error(err)
	}
}

// A server of a cluster that is full gets what an ingress has for it when it had some time to
// become emptier, and no sooner: the ingress may be on another one.
func TestAFullServerOfAClusterIsSpared(t *testing.T) {
	s := newStore(t)
	src, _, _ := s.peer(t, Config{})
	r := &router{stream: &stream{source: src}}
	oom := redis.NewCmd(t.Context(), "evalsha")
	oom.SetErr(refusal("OOM command not allowed when used memory > 'maxmemory'."))
	listed := redis.NewIntCmd(t.Context(), "sadd")
	listed.SetErr(oom.Err())
	for i, c := range []struct {
		what      string
		cmds      []redis.Cmder
		fails     bool
		full, now bool
	}{
		{"a push", []redis.Cmder{redis.NewCmd(t.Context(), "evalsha")}, false, false, false},
		{"the list of queues is refused", []redis.Cmder{listed}, false, false, false},
		{"a push is refused", []redis.Cmder{oom}, true, true, false},
		{"again", []redis.Cmder{redis.NewCmd(t.Context(), "evalsha"), oom}, true, true, false},
		{"and is taken", []redis.Cmder{redis.NewCmd(t.Context(), "evalsha")}, false, false, false},
	} {
		since := r.full
		if err := r.pushed(c.cmds); (err != nil) != c.fails || r.full.IsZero() == c.full || !since.IsZero() && c.full && r.full != since {
			t.Errorf("%d, %s: %v, full since %v, before %v", i, c.what, err, r.full, since)
		}
	}
	forced := map[time.Duration]string{0: "0", forceAfter - time.Second: "0", forceAfter: "1"}
	for since, want := range forced {
		r.full = time.Time{}
		if since > 0 {
			r.full = time.Now().Add(-since)
		}
		if got := r.force(); got != want {
			t.Errorf("full for %v: force %q, want %q", since, got, want)
		}
	}
	r = &router{unique: true}
	if got := r.force(); got != "1" {
		t.Errorf("one server: force %q", got)
	}
}

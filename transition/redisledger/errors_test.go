package redisledger_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// A name of another protocol is no name of ours: nothing is said to it, and nothing sealed.
func TestOtherProtocol(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	settled(t, l, session(1), 1)
	if err := s.client.HSet(t.Context(), "{"+s.name+"}:config", "protocol", "99").Err(); err != nil {
		t.Fatal(err)
	}
	_, synced := l.Sync(t.Context(), machine.Request{Session: session(2), Claim: []partition.ID{2}})
	for what, err := range map[string]error{"sync": synced, "seal": l.Seal(t.Context(), machine.Roll{})} {
		if !errors.Is(err, partition.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", what, err)
		}
	}
}

// In a full store leases renew, partitions change hands, rolls are sealed, a name is paused and a peer drained.
func TestFullStore(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client, name := server.Client(), redistest.Name(t)
	makeName(t, client, name, partition.Config{})
	l := newLedger(t, client, name, redisledger.Config{})
	a, b := settled(t, l, session(1), 1), settled(t, l, session(2), 2)
	mustSync(t, l, a)
	server.Config("maxmemory", "1")
	if err := client.Set(t.Context(), "k", "v", 0).Err(); !redis.IsOOMError(err) {
		t.Fatalf("the store is not full: %v", err)
	}
	mustSync(t, l, a)              // quiet
	b.Claim = []partition.ID{1, 3} // waits for one, gets the other
	a.Release, a.Hold = a.Hold, a.Hold[:0]
	if got := mustSync(t, l, b); len(got.Mine) != 2 {
		t.Errorf("got %v", held(got))
	}
	mustSync(t, l, a)
	if got := mustSync(t, l, b); len(got.Mine) != 3 {
		t.Errorf("got %v", held(got))
	}
	mustSync(t, l, machine.Request{Session: session(3)}) // a new peer
	seen, err := l.Census(t.Context())
	if err != nil || len(seen.Sessions) != 3 {
		t.Fatalf("%+v, error %v", seen, err)
	}
	if err := l.Seal(t.Context(), machine.Roll{Membership: seen.Membership}); err != nil {
		t.Error(err)
	}
	if err := l.Seal(t.Context(), machine.Roll{Membership: seen.Membership}); !errors.Is(err, transition.ErrStale) {
		t.Errorf("a roll on top of the same one: %v", err)
	}
	for _, p := range []partition.Pause{rest, {}} { // in an emergency
		if err := l.Pause(t.Context(), p); err != nil {
			t.Error(err)
		}
		if got := mustSync(t, l, b); got.Paused != (p == rest) {
			t.Errorf("after %+v was said, paused is %v", p, got.Paused)
		}
	}
	mine := partition.Drain{Peer: b.Peer, Since: rest.Since}
	for _, say := range []func() error{
		func() error { return l.Drain(t.Context(), mine) }, func() error { return l.Recall(t.Context(), mine.Peer) },
	} {
		if err := say(); err != nil {
			t.Error(err)
		}
	}
	_, err = redisledger.Init(t.Context(), client, redistest.Name(t), partition.Config{})
	wantAdvice(t, err, "maxmemory")
	for _, s := range []partition.Session{session(1), session(2), session(3)} {
		mustSync(t, l, machine.Request{Session: s, State: machine.Gone})
	}
	if err := redisledger.Destroy(t.Context(), client, name); err != nil {
		t.Error(err)
	}
}

// A server that cannot save refuses every write.
func TestServerThatCannotSave(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client, name := server.Client(), redistest.Name(t)
	makeName(t, client, name, partition.Config{})
	l := newLedger(t, client, name, redisledger.Config{})
	mustSync(t, l, machine.Request{Session: session(1)})

	server.Config("save", "3600 1000")
	dir := client.ConfigGet(t.Context(), "dir").Val()["dir"]
	snapshot := filepath.Join(dir, "dump.rdb")
	os.Remove(snapshot)
	if err := os.MkdirAll(filepath.Join(snapshot, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	client.BgSave(t.Context())
	until(t, "a failed snapshot", func() bool {
		return strings.Contains(client.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	_, err := l.Sync(t.Context(), machine.Request{Session: session(1)})
	wantAdvice(t, err, "save to disk")
	if _, err := l.Census(t.Context()); err != nil {
		t.Errorf("what can be read is read: %v", err)
	}
}

func TestReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	name := redistest.Name(t)
	client := dial(t, server, "", "")
	makeName(t, client, name, partition.Config{})
	l := newLedger(t, client, name, redisledger.Config{})
	mustSync(t, l, machine.Request{Session: session(1)})
	if err := server.Client().ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := l.Sync(t.Context(), machine.Request{Session: session(1)})
	wantAdvice(t, err, "connect to the master")
}

func TestWrongServer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	server.Config("requirepass", "secret")
	ask := func(client redis.UniversalClient) error {
		_, err := newLedger(t, client, "mail-sender", redisledger.Config{}).Sync(t.Context(), machine.Request{Session: session(1)})
		return err
	}
	wantAdvice(t, ask(dial(t, server, "", "")), "user and password")
	wantAdvice(t, ask(dial(t, server, "", "wrong")), "user and password")
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer gone.Close()
	wantAdvice(t, ask(gone), "is the server running")
}

func TestForeignKey(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	if err := s.client.Set(t.Context(), "{"+s.name+"}:transition", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := newLedger(t, s.client, s.name, redisledger.Config{}).Sync(t.Context(), machine.Request{Session: session(1)})
	wantAdvice(t, err, "another program")
}

func wantAdvice(t *testing.T, err error, advice string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), advice) {
		t.Errorf("got error %v, want one that says %q", err, advice)
	}
}

// The last who were refused are for people: a roll is sealed without them.
func TestForeignKeyOfTheRefused(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	settled(t, l, session(1), 1)
	s.client.Set(t.Context(), "{"+s.name+"}:refused", "x", 0)
	if c, err := l.Census(t.Context()); err != nil || len(c.Sessions) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	s.client.Set(t.Context(), "{"+s.name+"}:config", "x", 0)
	if _, err := l.Census(t.Context()); err == nil || strings.Count(err.Error(), "another program writes keys") != 1 {
		t.Errorf("got %v", err)
	}
}

// A call ends with its context, also where the server has stopped answering.
func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	l := newLedger(t, dial(t, server, "", ""), "mail-sender", redisledger.Config{})
	mustSync(t, l, machine.Request{Session: session(1)})
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Sync(ctx, machine.Request{Session: session(1)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the deadline is over", err)
	}
}

func TestWithoutClient(t *testing.T) {
	t.Parallel()
	if _, err := redisledger.New(nil, "mail", redisledger.Config{}); err == nil || !strings.Contains(err.Error(), "no Redis client") {
		t.Error(err)
	}
}

// That the time of a call was over tells nothing of where it has been.
func TestConnectionsThatOthersHold(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	opt := *redistest.Single(t, client).Options()
	opt.PoolSize, opt.ContextTimeoutEnabled = 1, true
	one := redis.NewClient(&opt)
	defer one.Close()
	l := newLedger(t, one, redistest.Name(t), redisledger.Config{})
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	sync := func() string {
		_, err := l.Sync(late, machine.Request{Session: session(1)})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return err.Error()
	}
	if what := sync(); strings.Contains(what, "connections") {
		t.Errorf("nobody holds one: %s", what)
	}
	other := one.Conn()
	defer other.Close()
	if err := other.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if what := sync(); !strings.Contains(what, "redisurl.OpenControl") {
		t.Errorf("somebody holds the only one: %s", what)
	}
}

// Which key another program has overwritten is said, by a peer and by whoever looks.
func TestOverwrittenKeysAreNamed(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	settled(t, l, session(1), 1)
	key := "{" + s.name + "}:leases"
	s.client.Del(t.Context(), key)
	s.client.Set(t.Context(), key, "x", 0)
	_, looked := l.Census(t.Context())
	_, synced := l.Sync(t.Context(), machine.Request{Session: session(2), Claim: []partition.ID{2}})
	for what, err := range map[string]error{"census": looked, "sync": synced} {
		if err == nil || !strings.HasSuffix(err.Error(), ": "+key+" is a string, and was a zset") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

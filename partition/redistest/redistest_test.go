package redistest_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

func TestMain(m *testing.M) {
	// The tests wait most of the time. -parallel on the command line goes before this.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestNewIsEmptyAndAlone(t *testing.T) {
	if os.Getenv(redistest.ServerVariable)+os.Getenv(redistest.ClusterVariable) != "" {
		t.Skip("the server is shared")
	}
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			client := redistest.New(t)
			if n := client.DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("%d keys in a new Redis", n)
			}
			if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNameIsLegalAndUnique(t *testing.T) {
	t.Run("spaces, (brackets) and a very long name that goes on", func(t *testing.T) {
		a, b := redistest.Name(t), redistest.Name(t)
		if a == b {
			t.Errorf("%q twice", a)
		}
		if err := partition.CheckName(a); err != nil {
			t.Error(err)
		}
	})
}

func TestBubbleFollowsTheFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		ctx := t.Context()
		if err := client.Set(ctx, "k", "v", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Second)
		if err := client.Get(ctx, "k").Err(); err != redis.Nil {
			t.Errorf("after its time: %v, want redis.Nil", err)
		}
	})
}

// A recorder is a test that notes its failures instead of failing.
type recorder struct {
	testing.TB
	mu  sync.Mutex
	out []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out = append(r.out, fmt.Sprintf(format, args...))
}

func TestOneSlotRefusesKeysOfTwoSlots(t *testing.T) {
	ctx := t.Context()
	const lua = "return #KEYS"
	for _, c := range []struct {
		name string
		send func(c redis.UniversalClient)
		want int
	}{
		{"one tag", func(c redis.UniversalClient) { c.Eval(ctx, lua, []string{"{a}:x", "{a}:y"}) }, 0},
		{"no keys", func(c redis.UniversalClient) { c.Eval(ctx, lua, nil) }, 0},
		{"arguments are no keys", func(c redis.UniversalClient) { c.Eval(ctx, lua, []string{"{a}:x"}, "{b}:x") }, 0},
		{"two tags", func(c redis.UniversalClient) { c.Eval(ctx, lua, []string{"{a}:x", "{b}:x"}) }, 1},
		{"by hash", func(c redis.UniversalClient) { c.EvalSha(ctx, "0", []string{"{a}:x", "{b}:x"}) }, 1},
		{"in a pipeline", func(c redis.UniversalClient) {
			p := c.Pipeline()
			p.Eval(ctx, lua, []string{"{a}:x"})
			p.EvalRO(ctx, lua, []string{"{a}:x", "{b}:x"})
			p.Exec(ctx)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{TB: t}
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: time.Millisecond})
			defer client.Close()
			redistest.OneSlot(r, client)
			c.send(client)
			if len(r.out) != c.want {
				t.Errorf("%d complaints, want %d: %s", len(r.out), c.want, strings.Join(r.out, "; "))
			}
		})
	}
}

// What one server allows is seen by a plain client only.
func TestSingle(t *testing.T) {
	_, client := redistest.Mini(t)
	if _, ok := client.(*redis.Client); ok {
		t.Error("the client shows that it is of one server")
	}
	plain := redistest.Single(t, client)
	if err := plain.Eval(t.Context(), "return #KEYS", []string{"{a}:x", "{b}:x"}).Err(); err != nil {
		t.Error(err)
	}
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil || plain.Get(t.Context(), "k").Val() != "v" {
		t.Errorf("another server: %v", err)
	}
}

// Another client is of the same server, as careful as the first, and lives on when that is closed.
func TestAnother(t *testing.T) {
	client := redistest.New(t)
	other, key := redistest.Another(t, client), redistest.Name(t)
	if _, ok := other.(*redis.Client); ok {
		t.Error("the client shows that it is of one server")
	}
	if err := client.Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if v, err := other.Get(t.Context(), key).Result(); v != "v" || err != nil {
		t.Errorf("another client reads %q, %v", v, err)
	}
}

// The slots are those of CLUSTER KEYSLOT of Redis 7.0.
func TestLagging(t *testing.T) {
	store, client := redistest.Lagging(t)
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Get(t.Context(), "key").Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("the replica knows of %q, %v", got, err)
	}
	if got, err := store.Get(t.Context(), "key").Result(); err != nil || got != "value" {
		t.Errorf("the store has %q, %v", got, err)
	}
}

func TestSlot(t *testing.T) {
	for key, want := range map[string]int{
		"foo": 12182, "{foo}:bar": 12182, "x{foo}": 12182, "{}foo": 9500, "": 0,
	} {
		if got := redistest.Slot(key); got != want {
			t.Errorf("slot of %q: %d, want %d", key, got, want)
		}
	}
}

func TestServerRestarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		do   func(p *redistest.Process)
		want string
	}{
		{"keeping", nil, func(p *redistest.Process) { p.Restart(true) }, "v"},
		{"keeping by append only file", []string{"--appendonly", "yes"}, func(p *redistest.Process) { p.Restart(true) }, "v"},
		{"empty", nil, func(p *redistest.Process) { p.Restart(false) }, ""},
		{"empty of its append only file too", []string{"--appendonly", "yes"}, func(p *redistest.Process) { p.Restart(false) }, ""},
		{"killed", nil, func(p *redistest.Process) { p.Kill(); p.Start() }, ""},
		{"killed with append only file", []string{"--appendonly", "yes", "--appendfsync", "always"},
			func(p *redistest.Process) { p.Kill(); p.Kill(); p.Start() }, "v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := redistest.Server(t, c.args...)
			addr := p.Addr()
			if err := p.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			c.do(p)
			got, err := p.Client().Get(t.Context(), "k").Result()
			if err != nil && err != redis.Nil {
				t.Fatal(err)
			}
			if got != c.want || p.Addr() != addr {
				t.Errorf("%q at %s, want %q at %s", got, p.Addr(), c.want, addr)
			}
		})
	}
}

func TestServerPauses(t *testing.T) {
	t.Parallel()
	p := redistest.Server(t)
	p.Config("maxmemory", "10mb")
	p.Pause()
	hasty := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, ReadTimeout: 100 * time.Millisecond})
	defer hasty.Close()
	if err := hasty.Ping(t.Context()).Err(); err == nil {
		t.Error("a stopped server answers")
	}
	p.Resume()
	if err := p.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	client := redistest.Cluster(t)
	if _, ok := client.(*redis.ClusterClient); !ok {
		t.Fatalf("a %T", client)
	}
	name := redistest.Name(t)
	for i := range 20 {
		key := fmt.Sprintf("{%s:%d}:k", name, i)
		if err := client.Set(t.Context(), key, i, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if want, err := client.ClusterKeySlot(t.Context(), key).Result(); err != nil || int64(redistest.Slot(key)) != want {
			t.Errorf("slot of %s: %d, want %d (%v)", key, redistest.Slot(key), want, err)
		}
	}
}

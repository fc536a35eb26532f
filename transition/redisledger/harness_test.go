package redisledger_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"flag"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) {
	// The tests wait most of the time. -parallel on the command line goes before this.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	debug.SetGCPercent(400) // miniredis makes a state of Lua for each script: a fifth of the time went to their garbage
	goleak.VerifyTestMain(m)
}

// start is where the clocks of the tests begin.
var start = time.Unix(1_800_000_000, 0)

// newLedger returns a ledger with defaults that must be legal.
func newLedger(t testing.TB, client redis.UniversalClient, name string, cfg redisledger.Config) *redisledger.Ledger {
	t.Helper()
	l, err := redisledger.New(client, name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// makeName makes name as `countoff init` does.
func makeName(t testing.TB, client redis.UniversalClient, name string, cfg partition.Config) {
	t.Helper()
	made, err := redisledger.Init(t.Context(), client, name, cfg)
	if err != nil || !made {
		t.Fatalf("init: made %v, error %v", made, err)
	}
}

// A stage is one name in one Redis whose clock the test moves.
type stage struct {
	t       testing.TB
	client  redis.UniversalClient
	name    string
	now     time.Time
	setTime func(time.Time)
}

func (s *stage) Advance(d time.Duration) {
	s.now = s.now.Add(d)
	s.setTime(s.now)
}

func miniStage(t testing.TB) (*stage, *miniredis.Miniredis) {
	m, client := redistest.Mini(t)
	s := &stage{t: t, client: client, name: redistest.Name(t), now: start, setTime: m.SetTime}
	s.Advance(0)
	return s, m
}

// realStage moves the clock of a real server, as far as the scripts of one name see it:
// they take it from a key that the test writes. client is one that ownTime has changed.
func realStage(t testing.TB, client redis.UniversalClient) *stage {
	s := &stage{t: t, client: client, name: redistest.Name(t), now: start}
	key := "{" + s.name + "}:meta:now"
	s.setTime = func(now time.Time) {
		err := client.HSet(context.Background(), key, "s", now.Unix(), "us", now.Nanosecond()/1000).Err()
		if err != nil {
			t.Fatalf("set the clock: %v", err)
		}
	}
	s.Advance(0)
	return s
}

// ownTime makes client send scripts that take the time of their name from a key. It is asked once for
// a client: a hook for each name would hash and rewrite what each of the others has.
func ownTime[C redis.UniversalClient](client C) C {
	client.AddHook(&otherTime{mine: make(map[string]string)})
	return client
}

type otherTime struct {
	mu   sync.Mutex
	mine map[string]string // hash of a script -> hash of the rewritten one
}

func (h *otherTime) rewrite(src string) string {
	changed := strings.ReplaceAll(src, "redis.call('TIME')", "redis.call('HMGET', KEYS[2] .. ':now', 's', 'us')")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mine[sha(src)] = sha(changed)
	return changed
}

func (h *otherTime) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *otherTime) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *otherTime) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		switch name := cmd.Name(); {
		case name == "script" && args[1] == "load":
			src := args[2].(string)
			args[2] = h.rewrite(src)
			err := next(ctx, cmd)
			cmd.(*redis.StringCmd).SetVal(sha(src)) // go-redis keeps it
			return err
		case name == "eval":
			args[1] = h.rewrite(args[1].(string))
		case name == "evalsha":
			h.mu.Lock()
			args[1] = h.mine[args[1].(string)]
			h.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

func sha(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// someTiming are the times of most tests.
var someTiming = transition.Timing{Lease: 10 * time.Second}.WithDefaults()

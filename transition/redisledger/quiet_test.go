package redisledger_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// traffic counts what a client sends: requests, bytes, and the first word of what its
// scripts answered.
type traffic struct {
	requests, out, in atomic.Int64

	mu      sync.Mutex
	answers []string
}

func (h *traffic) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		return counted{conn, h}, err
	}
}

func (h *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.requests.Add(1)
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && err == nil {
			if words, err := c.StringSlice(); err == nil && len(words) > 0 {
				h.mu.Lock()
				h.answers = append(h.answers, words[0])
				h.mu.Unlock()
			}
		}
		return err
	}
}

func (h *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.requests.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// took returns what was sent since the last call of took.
func (h *traffic) took() (requests, out, in int64, answers string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answers = strings.Join(h.answers, " ")
	h.answers = nil
	return h.requests.Swap(0), h.out.Swap(0), h.in.Swap(0), answers
}

type counted struct {
	net.Conn
	h *traffic
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.h.in.Add(int64(n))
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.h.out.Add(int64(n))
	return n, err
}

func session(i int) partition.Session { return partition.Session(fmt.Sprintf("%032x", i)) }

func mustSync(t testing.TB, l *redisledger.Ledger, r machine.Request) machine.Answer {
	t.Helper()
	a, err := l.Sync(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func held(a machine.Answer) []partition.Grant {
	var gs []partition.Grant
	for _, h := range a.Mine {
		gs = append(gs, h.Grant)
	}
	return gs
}

// settled brings a peer to where it only renews its lease: it holds what it claims and
// knows the roll. The request it then sends is returned.
func settled(t testing.TB, l *redisledger.Ledger, s partition.Session, claim ...partition.ID) machine.Request {
	t.Helper()
	r := machine.Request{Session: s, Peer: "p", Weight: 1, State: machine.Live, Claim: claim}
	a := mustSync(t, l, r)
	r.Claim, r.Hold, r.Top = nil, held(a), a.Count
	if a.Line != nil {
		r.View = a.Line.Version
	}
	mustSync(t, l, r)
	return r
}

// A name of 2 peers and 8 partitions and one of 40 and 1,024 cost a quiet peer the
// same: one request, as many bytes and as many commands inside the server.
func TestQuietSyncCostsTheSameForAll(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	h := &traffic{}
	client := server.Client()
	client.AddHook(h)
	type cost struct{ requests, out, in, commands int64 }
	measure := func(peers, total int) cost {
		name := fmt.Sprintf("mail-sender-%d", peers)
		cfg := partition.Config{Total: total}
		makeName(t, client, name, cfg)
		l := newLedger(t, client, name, redisledger.Config{Config: cfg})
		ids := cfg.IDs()
		share := total / peers
		for i := range peers - 1 {
			settled(t, l, session(i+1), ids[(i+1)*share:(i+2)*share]...)
		}
		quiet := settled(t, l, session(0), ids[:share]...)
		mustSync(t, l, quiet)
		before := commands(t, client)
		own := commands(t, client) - before // what asking costs
		h.took()
		mustSync(t, l, quiet)
		var c cost
		var answers string
		c.requests, c.out, c.in, answers = h.took()
		c.commands = commands(t, client) - before - 2*own
		if answers != "same" {
			t.Fatalf("%d peers: answered %q, want same", peers, answers)
		}
		return c
	}
	small, large := measure(2, 8), measure(40, 1024)
	t.Logf("a quiet Sync: %+v", large)
	if small.requests != 1 || large.requests != 1 || small.commands != large.commands {
		t.Errorf("costs %+v in a small name, %+v in a large one", small, large)
	}
	const digits = 16 // numbers that are larger
	if large.out > small.out+digits || large.in > small.in+digits || large.out > 480 || large.in > 80 {
		t.Errorf("costs %+v in a small name, %+v in a large one", small, large)
	}
}

// commands returns how many commands the server has executed, those inside scripts
// included.
func commands(t testing.TB, client redis.UniversalClient) int64 {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, s := range stats["Commandstats"] {
		var calls int64
		if _, err := fmt.Sscanf(s, "calls=%d,", &calls); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		sum += calls
	}
	return sum
}

// An answer to a quiet Sync is the answer that a full one would have got, whatever
// happened since.
func TestQuietSyncHearsOfEverything(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(t *testing.T, s *stage, other *redisledger.Ledger, mine partition.Grant)
		want string // what the scripts answer
	}{
		{"nothing", func(*testing.T, *stage, *redisledger.Ledger, partition.Grant) {}, "same"},
		{"time", func(_ *testing.T, s *stage, _ *redisledger.Ledger, _ partition.Grant) {
			s.Advance(someTiming.Beat())
		}, "same"},
		{"grants of others", func(t *testing.T, _ *stage, l *redisledger.Ledger, _ partition.Grant) {
			mustSync(t, l, machine.Request{Session: session(2), Peer: "q", Claim: []partition.ID{3, 4}})
		}, "same"},
		{"somebody waits", func(t *testing.T, _ *stage, l *redisledger.Ledger, g partition.Grant) {
			mustSync(t, l, machine.Request{Session: session(2), Peer: "q", Claim: []partition.ID{g.ID}})
		}, "say full"},
		{"the grant is lost", func(t *testing.T, _ *stage, l *redisledger.Ledger, g partition.Grant) {
			mustSync(t, l, machine.Request{Session: session(2), Peer: "q", Hold: []partition.Grant{{ID: g.ID, Epoch: g.Epoch + 9}}})
		}, "say full"},
		{"a member", func(t *testing.T, _ *stage, l *redisledger.Ledger, _ partition.Grant) {
			mustSync(t, l, machine.Request{Session: session(3), Peer: "r"})
		}, "say full"},
		{"a roll", func(t *testing.T, _ *stage, l *redisledger.Ledger, _ partition.Grant) {
			seen, err := l.Census(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Seal(t.Context(), machine.Roll{Version: seen.Roll.Version, Membership: seen.Membership}); err != nil {
				t.Fatal(err)
			}
		}, "say full"},
		{"a number", func(t *testing.T, _ *stage, l *redisledger.Ledger, _ partition.Grant) {
			mustSync(t, l, machine.Request{Session: session(2), Peer: "q", Top: 1 << 50})
		}, "same"},
		{"its own lease", func(t *testing.T, s *stage, l *redisledger.Ledger, _ partition.Grant) {
			for range 5 {
				s.Advance(someTiming.ClockStep())
				mustSync(t, l, machine.Request{Session: session(2), Peer: "q"})
			}
		}, "say full"},
		{"the store was emptied", func(t *testing.T, s *stage, _ *redisledger.Ledger, _ partition.Grant) {
			if err := s.client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}, "say full"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, _ := miniStage(t)
			h := &traffic{}
			s.client.AddHook(h)
			cfg := redisledger.Config{Config: partition.Config{Total: 8}, Timing: someTiming}
			makeName(t, s.client, s.name, cfg.Config)
			l, other := newLedger(t, s.client, s.name, cfg), newLedger(t, s.client, s.name, cfg)
			mustSync(t, other, machine.Request{Session: session(2), Peer: "q"})
			quiet := settled(t, l, session(1), 5)

			c.do(t, s, other, quiet.Hold[0])
			h.took()
			got := mustSync(t, l, quiet)
			if _, _, _, answers := h.took(); answers != c.want {
				t.Errorf("the scripts answered %q, want %q", answers, c.want)
			}
			// A ledger that remembers nothing asks for everything.
			if full := mustSync(t, newLedger(t, s.client, s.name, cfg), quiet); !reflect.DeepEqual(got, full) {
				t.Errorf("got      %+v %+v\na full one: %+v %+v", got, got.Line, full, full.Line)
			}
		})
	}
}

// What asks for something is never quiet: the answer may be another one although
// nothing of the caller's changed.
func TestWhatAsksIsNeverQuiet(t *testing.T) {
	s, _ := miniStage(t)
	h := &traffic{}
	s.client.AddHook(h)
	cfg := redisledger.Config{Config: partition.Config{Total: 8}, Timing: someTiming}
	makeName(t, s.client, s.name, cfg.Config)
	l := newLedger(t, s.client, s.name, cfg)
	other := settled(t, l, session(100), 6)
	refused := machine.Request{Hold: []partition.Grant{{ID: 6, Epoch: 1}}}
	for i, c := range []struct {
		what   string
		change func(*machine.Request)
		again  string // what the scripts answer when it is sent once more
	}{
		{"claim", func(r *machine.Request) { r.Claim = []partition.ID{6} }, "full"},
		{"release", func(r *machine.Request) { r.Release = []partition.Grant{{ID: 7, Epoch: 1}} }, "full"},
		{"refused hold", func(r *machine.Request) { r.Hold = append(r.Hold, refused.Hold...) }, "full"},
		{"hold less", func(r *machine.Request) { r.Hold = nil }, "same"},
		{"leave", func(r *machine.Request) { r.State = machine.Leaving }, "same"},
		{"gone", func(r *machine.Request) { r.State = machine.Gone }, "full"},
		{"view", func(r *machine.Request) { r.View = 1 << 40 }, "same"},
		{"weight", func(r *machine.Request) { r.Weight = 7 }, "same"},
		{"peer", func(r *machine.Request) { r.Peer = "another" }, "same"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := settled(t, l, session(i+1), 5)
			c.change(&r)
			for _, want := range []string{"full", c.again} {
				h.took()
				mustSync(t, l, r)
				if _, _, _, answers := h.took(); answers != want {
					t.Errorf("the scripts answered %q, want %q", answers, want)
				}
			}
			mustSync(t, l, machine.Request{Session: r.Session, State: machine.Gone})
		})
	}
	refused.Session = session(50)
	mustSync(t, l, refused)
	// The hold that was refused is honoured once the partition is free.
	other.State, other.Hold = machine.Gone, nil
	mustSync(t, l, other)
	if got := mustSync(t, l, refused); len(got.Mine) != 1 {
		t.Errorf("got %v, want what is held", held(got))
	}
}

// An answer may be changed by its receiver: the next one is whole again.
func TestAnswersAreNotShared(t *testing.T) {
	s, _ := miniStage(t)
	cfg := redisledger.Config{Config: partition.Config{Total: 8}, Timing: someTiming}
	makeName(t, s.client, s.name, cfg.Config)
	l := newLedger(t, s.client, s.name, cfg)
	mustSync(t, l, machine.Request{Session: session(1)})
	next := machine.Roll{Members: []machine.RollMember{{Member: partition.Member{Session: session(1)}, Partitions: []partition.ID{1, 2}}}}
	if err := l.Seal(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	r := machine.Request{Session: session(1), Claim: []partition.ID{1}}
	a := mustSync(t, l, r)
	r.Claim, r.Hold = nil, held(a)
	want := mustSync(t, l, r)
	for range 2 {
		a := mustSync(t, l, r)
		if !reflect.DeepEqual(a, want) {
			t.Fatalf("got %+v %+v, want %+v %+v", a, a.Line, want, want.Line)
		}
		a.Mine[0].Grant.ID, a.Line.Partitions[0] = 99, 99
	}
}

func TestQuietSyncRenewsTheLease(t *testing.T) {
	s, _ := miniStage(t)
	cfg := redisledger.Config{Config: partition.Config{Total: 8}, Timing: someTiming}
	makeName(t, s.client, s.name, cfg.Config)
	l := newLedger(t, s.client, s.name, cfg)
	r := settled(t, l, session(1), 5)
	h := &traffic{}
	s.client.AddHook(h)
	for range 10 {
		s.Advance(someTiming.ClockStep())
		if a := mustSync(t, l, r); a.Expiry < someTiming.Lease {
			t.Fatalf("the lease runs out in %v", a.Expiry)
		}
	}
	if _, _, _, answers := h.took(); strings.Contains(answers, "full") {
		t.Errorf("the scripts answered %q", answers)
	}
}

func TestQuietSyncLiftsTheCount(t *testing.T) {
	s, _ := miniStage(t)
	cfg := redisledger.Config{Config: partition.Config{Total: 8}, Timing: someTiming}
	makeName(t, s.client, s.name, cfg.Config)
	l := newLedger(t, s.client, s.name, cfg)
	r := settled(t, l, session(1), 5)
	r.Top = 1000 // an Open was refused
	if a := mustSync(t, l, r); a.Count != r.Top {
		t.Errorf("count %d, want %d", a.Count, r.Top)
	}
}

// A store that was set back counts its stamps again: one that is equal need not mean
// the same.
func TestQuietSyncAfterASetback(t *testing.T) {
	s, _ := miniStage(t)
	cfg := redisledger.Config{Config: partition.Config{Total: 8}, Timing: someTiming}
	makeName(t, s.client, s.name, cfg.Config)
	l := newLedger(t, s.client, s.name, cfg)
	r, b := settled(t, l, session(1), 5), settled(t, l, session(2))
	mustSync(t, l, r)
	copyKeys := func(from, to string) {
		for _, k := range []string{"meta", "sessions", "leases", "transition"} {
			key := "{" + s.name + "}:" + k
			if err := s.client.Copy(t.Context(), key+from, key+to, 0, true).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}

	copyKeys("", ":kept")
	b.Claim = []partition.ID{5}
	mustSync(t, l, b)
	if a := mustSync(t, l, r); !a.Mine[0].Wanted {
		t.Fatal("nobody waits")
	}
	copyKeys(":kept", "")
	if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b.Claim, b.Hold = nil, []partition.Grant{{ID: 5, Epoch: r.Hold[0].Epoch + 9}}
	mustSync(t, l, b)
	if a := mustSync(t, l, r); len(a.Mine) != 0 {
		t.Errorf("granted %v, which another peer holds", held(a))
	}
}

// A fleet in which nothing changes only renews its leases. With the key of the configuration gone nobody could
// pause or resume the name, and the next producer might make it anew with other partitions.
func TestTheQuietBringBackALostConfiguration(t *testing.T) {
	s, m := miniStage(t)
	cfg := partition.Config{Total: 4}
	makeName(t, s.client, s.name, cfg)
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	r := settled(t, l, session(1), 0, 1, 2, 3)
	if err := l.Pause(t.Context(), rest); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first hears of the pause
		mustSync(t, l, r)
	}
	m.Del(redisconfig.Key(s.name))
	mustSync(t, l, r)
	if c, err := redisconfig.Read(t.Context(), s.client, s.name); err != nil || c.Total != 4 || c.Paused == (partition.Pause{}) {
		t.Errorf("the configuration is %+v, %v", c, err)
	}
	m.HDel(redisconfig.Key(s.name), "total")
	mustSync(t, l, r)
	if c, err := redisconfig.Read(t.Context(), s.client, s.name); err != nil || c.Total != 4 {
		t.Errorf("with a part of it lost the configuration is %+v, %v", c, err)
	}
	// A producer may come first, and knows nothing of the pause.
	m.Del(redisconfig.Key(s.name))
	if _, err := redisconfig.AgreePartitions(t.Context(), s.client, s.name, cfg); err != nil {
		t.Fatal(err)
	}
	mustSync(t, l, r)
	if c, err := redisconfig.Read(t.Context(), s.client, s.name); err != nil || c.Paused == (partition.Pause{}) {
		t.Errorf("after a producer the configuration is %+v, %v", c, err)
	}
	m.Del(redisconfig.Key(s.name))
	if err := m.Set(redisconfig.Key(s.name), "no hash"); err != nil {
		t.Fatal(err)
	}
	if a := mustSync(t, l, r); len(a.Mine) != 4 {
		t.Errorf("while the configuration cannot be read it has %v", a.Mine)
	}
}

// What a producer put in the place of a lost configuration has other partitions: a fleet in which nothing changes would
// serve its own, and leave what waits in the others.
func TestTheQuietHearOfAnotherConfiguration(t *testing.T) {
	s, m := miniStage(t)
	cfg := partition.Config{Total: 4}
	makeName(t, s.client, s.name, cfg)
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	r := settled(t, l, session(1), 0, 1, 2, 3)
	m.Del(redisconfig.Key(s.name))
	if _, err := redisconfig.AgreePartitions(t.Context(), s.client, s.name, partition.Config{Total: 8}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(t.Context(), r); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("under 8 partitions in the place of 4 it says %v", err)
	}
}

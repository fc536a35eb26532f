package redisledger_test

import (
	"fmt"
	"runtime"
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

// Keys that are evicted or deleted by hand leave half a memory: it is treated as none.
func TestHalfAMemory(t *testing.T) {
	for _, keys := range []string{"meta", "sessions", "leases", "transition", "sessions leases"} {
		t.Run(keys, func(t *testing.T) {
			s, _ := miniStage(t)
			makeName(t, s.client, s.name, partition.Config{})
			l := newLedger(t, s.client, s.name, redisledger.Config{})
			a, b := settled(t, l, session(1), 1), settled(t, l, session(2), 2)
			if err := l.Seal(t.Context(), machine.Roll{}); err != nil {
				t.Fatal(err)
			}
			for key := range strings.FieldsSeq(keys) {
				if err := s.client.Del(t.Context(), "{"+s.name+"}:"+key).Err(); err != nil {
					t.Fatal(err)
				}
			}
			b.Claim = []partition.ID{1}
			got := mustSync(t, l, b)
			if got.Grace != someTiming.Grace() || fmt.Sprint(held(got)) != fmt.Sprint(b.Hold) {
				t.Errorf("grace %v, granted %v, held were %v", got.Grace, held(got), b.Hold)
			}
			c, err := l.Census(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Sessions) != 1 || len(c.Grants) != 1 || c.Roll.Version != 0 {
				t.Errorf("known are %+v, %+v and roll %d; only the first who came back was to be", c.Sessions, c.Grants, c.Roll.Version)
			}
			if s.client.HExists(t.Context(), "{"+s.name+"}:peers", string(a.Session)).Val() {
				t.Error("what somebody said of itself stays who is not known any more")
			}
			if got := mustSync(t, l, a); fmt.Sprint(held(got)) != fmt.Sprint(a.Hold) {
				t.Errorf("granted %v, held were %v", held(got), a.Hold)
			}
			for range 6 { // after the grace all is as ever: a dies, b gets what it held
				s.Advance(someTiming.ClockStep())
				got = mustSync(t, l, b)
			}
			for range 6 {
				s.Advance(someTiming.ClockStep())
				got = mustSync(t, l, b)
			}
			if len(got.Mine) != 2 || got.Mine[0].Grant.Epoch <= a.Hold[0].Epoch {
				t.Errorf("granted %v", held(got))
			}
		})
	}
}

// Where the key of the leases is lost and nobody calls, what stands can be told all the same.
func TestCensusWithoutLeases(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	settled(t, l, session(1), 1)
	if err := s.client.Del(t.Context(), "{"+s.name+"}:leases").Err(); err != nil {
		t.Fatal(err)
	}
	c, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Sessions) != 1 || c.Sessions[0].Lease != 0 || len(c.Grants) != 1 {
		t.Errorf("known are %+v and %+v, want the one peer, without a lease", c.Sessions, c.Grants)
	}
}

// The key that says who waits for what is not needed to tell the dead: nobody drains for
// them, and nothing is handed to them.
func TestLostWhoWaits(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	owner, dies := settled(t, l, session(1), 1), settled(t, l, session(2))
	dies.Claim = []partition.ID{1}
	mustSync(t, l, dies)
	if a := mustSync(t, l, owner); !a.Mine[0].Wanted {
		t.Fatal("nobody waits")
	}
	if err := s.client.Del(t.Context(), "{"+s.name+"}:peers").Err(); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		s.Advance(someTiming.ClockStep())
		mustSync(t, l, owner)
	}
	if a := mustSync(t, l, owner); a.Mine[0].Wanted {
		t.Error("the owner is told that somebody waits, who is dead")
	}
	owner.Release, owner.Hold = owner.Hold, nil
	mustSync(t, l, owner)
	c, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range c.Grants {
		t.Errorf("it went to %+v", o)
	}
}

// Without the key that says which leases they have, those who say nothing new still lose
// theirs: the clock goes on.
func TestLostLeases(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	short := newLedger(t, s.client, s.name, redisledger.Config{})
	long := newLedger(t, s.client, s.name, redisledger.Config{Timing: transition.Timing{Lease: 2 * someTiming.Lease}})
	mustSync(t, short, machine.Request{Session: session(1)})
	mustSync(t, long, machine.Request{Session: session(2)})
	if err := s.client.Del(t.Context(), "{"+s.name+"}:peers").Err(); err != nil {
		t.Fatal(err)
	}
	for range 12 { // three times the lease of the first, who dies before the second
		s.Advance(someTiming.ClockStep())
		mustSync(t, long, machine.Request{Session: session(3), Claim: []partition.ID{1}})
	}
	c, err := long.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Sessions) != 1 || c.Sessions[0].Session != session(3) {
		t.Errorf("still known are %+v", c.Sessions)
	}
}

// Without its roll the store makes a new one due.
func TestLostRoll(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	a := mustSync(t, l, machine.Request{Session: session(1)})
	if err := l.Seal(t.Context(), machine.Roll{Membership: a.Count}); err != nil {
		t.Fatal(err)
	}
	r := machine.Request{Session: session(1), View: mustSync(t, l, machine.Request{Session: session(1)}).Line.Version}
	if a := mustSync(t, l, r); a.Sealing {
		t.Fatal("a roll is due at once")
	}
	if err := s.client.Del(t.Context(), "{"+s.name+"}:roll").Err(); err != nil {
		t.Fatal(err)
	}
	if a := mustSync(t, l, r); !a.Sealing {
		t.Error("no roll is due")
	}
}

// Numbers of more than 14 digits come back as they were: Lua's tostring rounds them in
// Redis, and not in miniredis.
func TestLargeNumbers(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client, name := server.Client(), redistest.Name(t)
	makeName(t, client, name, partition.Config{})
	l := newLedger(t, client, name, redisledger.Config{})
	const top = 1<<53 - 100
	r := machine.Request{Session: session(1), Top: top, Claim: []partition.ID{1, 2}}
	a := mustSync(t, l, r)
	if want := "[1@9007199254740894 2@9007199254740895]"; fmt.Sprint(held(a)) != want || a.Count != top+3 {
		t.Fatalf("granted %v at count %d, want %v at %d", held(a), a.Count, want, top+3)
	}
	r.Claim, r.Hold, r.Top = nil, held(a), 1<<63 // no number of any ledger
	for range 2 {
		if b := mustSync(t, l, r); fmt.Sprint(held(b)) != fmt.Sprint(held(a)) || b.Count != a.Count {
			t.Errorf("granted %v at count %d, want %v at %d", held(b), b.Count, held(a), a.Count)
		}
	}
	if seen, err := l.Census(t.Context()); err != nil || seen.Count != a.Count || seen.Grants[1].Grant != a.Mine[1].Grant {
		t.Errorf("%+v, error %v", seen, err)
	}
}

// A Sync may name more partitions than Lua hands to one call.
func TestManyPartitionsAtOnce(t *testing.T) {
	t.Parallel()
	client, name := redistest.Server(t).Client(), redistest.Name(t)
	cfg := partition.Config{Total: 9000}
	makeName(t, client, name, cfg)
	l := newLedger(t, client, name, redisledger.Config{Config: cfg, Timing: transition.Timing{Lease: time.Hour}})
	r := machine.Request{Session: session(1), Claim: cfg.WithDefaults().IDs()}
	r.Hold = held(mustSync(t, l, r))
	if len(r.Hold) != cfg.Total {
		t.Fatalf("granted %d of %d", len(r.Hold), cfg.Total)
	}
	r.Claim, r.Release, r.Hold = nil, r.Hold, nil
	if a := mustSync(t, l, r); len(a.Mine) != 0 {
		t.Errorf("of those given up %d are still its own", len(a.Mine))
	}
}

// The whole of the grants is read only for who holds something that it does not list.
func TestGrantsAreNotScanned(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client, name := server.Client(), redistest.Name(t)
	makeName(t, client, name, partition.Config{})
	l := newLedger(t, client, name, redisledger.Config{})
	scans := func() (n int64) {
		stats := client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
		fmt.Sscanf(stats["cmdstat_hgetall"], "calls=%d,", &n)
		return n
	}
	before := scans()
	a, b := settled(t, l, session(1), 1, 2, 3), settled(t, l, session(2), 4)
	b.Claim = []partition.ID{1}
	mustSync(t, l, b)
	a.Hold, a.Release = a.Hold[1:], a.Hold[:1]
	mustSync(t, l, a) // hands over
	a.Release = nil
	mustSync(t, l, a)
	mustSync(t, l, b)
	a.Hold = nil // works on nothing, but has been told what it holds
	mustSync(t, l, a)
	a.State = machine.Gone
	mustSync(t, l, a)
	if n := scans() - before; n != 0 {
		t.Errorf("the grants were read whole %d times", n)
	}
	// A process that lost its answers is told all.
	other := newLedger(t, client, name, redisledger.Config{})
	if got := mustSync(t, other, machine.Request{Session: b.Session}); len(got.Mine) != 2 {
		t.Errorf("granted %v", held(got))
	}
	if n := scans() - before; n != 1 {
		t.Errorf("the grants were read whole %d times, want once", n)
	}
}

// Who comes back after its lease finds what nobody took meanwhile, listed or not.
func TestComeback(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	a := settled(t, l, session(1), 1, 2, 3)
	for range 5 {
		s.Advance(someTiming.ClockStep())
		mustSync(t, l, machine.Request{Session: session(2)})
	}
	mustSync(t, l, machine.Request{Session: session(2), Claim: []partition.ID{2}})
	again := newLedger(t, s.client, s.name, redisledger.Config{})
	got := mustSync(t, again, machine.Request{Session: a.Session})
	if want := []partition.Grant{a.Hold[0], a.Hold[2]}; fmt.Sprint(held(got)) != fmt.Sprint(want) {
		t.Errorf("granted %v, want %v", held(got), want)
	}
	mustSync(t, again, machine.Request{Session: a.Session, State: machine.Gone})
	// Rows of sessions that left nothing behind are gone with their leases.
	for range 10 {
		s.Advance(someTiming.ClockStep())
		mustSync(t, l, machine.Request{Session: session(3)})
	}
	mustSync(t, l, machine.Request{Session: session(3), Claim: []partition.ID{2}})
	rows, err := s.client.HGetAll(t.Context(), "{"+s.name+"}:sessions").Result()
	if err != nil || len(rows) != 1 {
		t.Errorf("rows %v, error %v", rows, err)
	}
}

// A first start cannot be told from a store that forgot: it waits, and says so. One of
// a name that was made in advance does not.
func TestFirstStart(t *testing.T) {
	for _, made := range []bool{true, false} {
		t.Run(fmt.Sprint("made ", made), func(t *testing.T) {
			s, _ := miniStage(t)
			if made {
				makeName(t, s.client, s.name, partition.Config{})
			}
			l := newLedger(t, s.client, s.name, redisledger.Config{})
			a := mustSync(t, l, machine.Request{Session: session(1), Claim: []partition.ID{1}})
			if made && (a.Grace != 0 || len(a.Mine) != 1) || !made && (a.Grace != someTiming.Grace() || len(a.Mine) != 0) {
				t.Errorf("grace %v, granted %v", a.Grace, held(a))
			}
		})
	}
}

// A unit's id is a large number. An emulator's Lua must not make room for all below it.
func TestUnitsAreAsCheapAsPartitions(t *testing.T) {
	s, _ := miniStage(t)
	cfg := partition.Config{Units: []string{"inbox"}}
	makeName(t, s.client, s.name, cfg)
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg})
	r := machine.Request{Session: session(1), Claim: []partition.ID{partition.FirstUnit}}
	r.Hold = held(mustSync(t, l, r))
	const calls = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		mustSync(t, l, r)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / calls; each > 2<<20 {
		t.Errorf("a Sync allocates %d bytes", each)
	}
}

// The leases of thousands of sessions are more than one unpack of Lua returns.
func TestLeasesOfThousandsOfPeers(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{Total: 4})
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 4}, Timing: someTiming})
	r := machine.Request{Session: session(1), Peer: "ann", Weight: 1}
	mustSync(t, l, r)
	tag, ctx := "{"+s.name+"}:", t.Context()
	pipe := s.client.Pipeline()
	for i := 2; i < 9000; i++ {
		end := s.now.Add(time.Hour)
		if i == 2 {
			end = start.Add(-time.Hour) // whoever is removed has all others looked at
		}
		pipe.HSet(ctx, tag+"sessions", string(session(i)), "live 1 1 0 p")
		pipe.ZAdd(ctx, tag+"leases", redis.Z{Score: float64(end.UnixMilli()), Member: string(session(i))})
		pipe.HSet(ctx, tag+"peers", string(session(i)), "12345")
	}
	pipe.HSet(ctx, tag+"meta", "longest", 99_999)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	r.Weight = 2
	mustSync(t, l, r)
	if got := s.client.HGet(ctx, tag+"meta", "longest").Val(); got != "12345" {
		t.Errorf("the longest lease of all is %s ms", got)
	}
}

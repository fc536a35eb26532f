package redisledger_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestInit(t *testing.T) {
	s, _ := miniStage(t)
	cfg := partition.Config{Total: 8, Units: []string{"inbox"}}
	makeName(t, s.client, s.name, cfg)
	if made, err := redisledger.Init(t.Context(), s.client, s.name, cfg); made || err != nil {
		t.Errorf("a second time: made %v, error %v", made, err)
	}
	for _, other := range []partition.Config{{Total: 9, Units: cfg.Units}, {Total: 8}, {Total: 8, Units: cfg.Units, Hash: partition.ByID}} {
		if _, err := redisledger.Init(t.Context(), s.client, s.name, other); !errors.Is(err, partition.ErrConfig) {
			t.Errorf("with %+v: %v", other, err)
		}
	}
	if got, err := redisconfig.Read(t.Context(), s.client, s.name); err != nil || got.Total != 8 || len(got.Units) != 1 {
		t.Errorf("the configuration is %+v, error %v", got, err)
	}
	h, err := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg}).History(t.Context(), machine.HistoryKept)
	if err != nil || len(h) != 1 || h[0].What != machine.Made {
		t.Errorf("the history is %+v, error %v", h, err)
	}
	if _, err := redisledger.Init(t.Context(), s.client, "no name", cfg); err == nil {
		t.Error("an impossible name was made")
	}
	// A grace is to last as long as the leases of peers, not as that of who made the name.
	short := redisledger.Config{Config: cfg, Timing: transition.Timing{Lease: 3 * time.Second}}
	if a := mustSync(t, newLedger(t, s.client, s.name, short), machine.Request{Session: session(1)}); a.Longest != short.Timing.Lease {
		t.Errorf("the longest lease is %v", a.Longest)
	}
}

// Init must not set a clock step that would slow the clock of peers with long leases,
// nor end the grace of a name that is in use.
func TestInitLeavesPeersAlone(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	long := transition.Timing{Lease: time.Minute}
	l := newLedger(t, s.client, s.name, redisledger.Config{Timing: long})
	mustSync(t, l, machine.Request{Session: session(1)})
	s.Advance(long.ClockStep())
	seen, err := l.Census(t.Context())
	if err != nil || seen.Sessions[0].Lease != long.Lease-long.ClockStep() {
		t.Errorf("the lease has %v left, error %v", seen.Sessions[0].Lease, err)
	}

	if err := s.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	mustSync(t, l, machine.Request{Session: session(1)})
	if made, err := redisledger.Init(t.Context(), s.client, s.name, partition.Config{}); made || err != nil {
		t.Errorf("made %v, error %v", made, err)
	}
	if a := mustSync(t, l, machine.Request{Session: session(1)}); a.Grace != long.Grace() {
		t.Errorf("the grace has %v left", a.Grace)
	}

	// Nor does it make a name of what is left of one, on which an owner may be at work.
	if err := s.client.Del(t.Context(), "{"+s.name+"}:meta").Err(); err != nil {
		t.Fatal(err)
	}
	if made, err := redisledger.Init(t.Context(), s.client, s.name, partition.Config{}); made || err != nil {
		t.Errorf("without :meta: made %v, error %v", made, err)
	}
	if a := mustSync(t, l, machine.Request{Session: session(1)}); a.Grace != long.Grace() {
		t.Errorf("without :meta the grace has %v left", a.Grace)
	}
}

// What a producer wrote first is completed by the first peer, and compared from then on.
func TestProducerCameFirst(t *testing.T) {
	s, _ := miniStage(t)
	if _, err := redisconfig.AgreePartitions(t.Context(), s.client, s.name, partition.Config{Total: 8}); err != nil {
		t.Fatal(err)
	}
	cfg := partition.Config{Total: 8, Units: []string{"inbox", "outbox"}}
	mustSync(t, newLedger(t, s.client, s.name, redisledger.Config{Config: cfg}), machine.Request{Session: session(1)})
	got, err := redisconfig.Read(t.Context(), s.client, s.name) // Agree would complete it itself
	if err != nil || len(got.Units) != 2 {
		t.Errorf("%+v, error %v", got, err)
	}
	other := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 16, Hash: partition.Murmur2}})
	for what, call := range map[string]func() error{
		"sync": func() error {
			_, err := other.Sync(t.Context(), machine.Request{Session: session(2)})
			return err
		},
		"seal":   func() error { return other.Seal(t.Context(), machine.Roll{}) },
		"census": func() error { _, err := other.Census(t.Context()); return err },
		"config": func() error { _, err := other.ReadConfig(t.Context()); return err },
	} {
		err := call()
		if !errors.Is(err, partition.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", what, err)
			continue
		}
		for _, says := range []string{"partitions 8, this peer wants 16", `ingress lists ["inbox" "outbox"], this peer wants []`,
			"hash xxhash64, this peer wants murmur2 (if nobody has worked under the name yet: countoff destroy " + s.name + " --yes)"} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %q does not say %q", what, err, says)
			}
		}
	}
}

// Where a broker grows, more partitions raise the number that stands, and who knows of
// fewer is behind.
func TestGrows(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{Total: 8})
	for _, c := range []struct{ total, stands int }{{8, 8}, {12, 12}, {8, 12}, {10, 12}} {
		l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: c.total}, Grows: true})
		mustSync(t, l, machine.Request{Session: session(c.total)})
		if seen, err := l.Census(t.Context()); err != nil || seen.Config.Total != c.stands {
			t.Errorf("after %d: %d stand, error %v", c.total, seen.Config.Total, err)
		}
	}
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 8}})
	if _, err := l.Sync(t.Context(), machine.Request{Session: session(1)}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("who does not expect growth: %v", err)
	}
}

// An id that no peer may have, as one of an older build, makes no line of its own.
func TestIdleQuotesIDs(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{Timing: someTiming})
	mustSync(t, l, machine.Request{Session: session(1), Peer: "two\nlines\x1b[2J"})
	err := redisledger.Idle(t.Context(), s.client, s.name)
	if !errors.Is(err, redisledger.ErrInUse) || !strings.Contains(err.Error(), `1 peer ("two\nlines\x1b[2J")`) {
		t.Errorf("it says %q", err)
	}
}

func TestDestroy(t *testing.T) {
	s, m := miniStage(t)
	destroy := func() error { return redisledger.Destroy(t.Context(), s.client, s.name) }
	if err := destroy(); err != nil {
		t.Errorf("what is not there: %v", err)
	}
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{Timing: someTiming})
	mustSync(t, l, machine.Request{Session: session(1), Peer: "ann"})
	mustSync(t, l, machine.Request{Session: session(2), Peer: "bob"})
	mustSync(t, l, machine.Request{Session: session(2), Peer: "bob", State: machine.Gone})
	keys := len(m.Keys())
	if err := destroy(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the last lease ends in %v,", someTiming.Lease)) {
		t.Errorf("how long to wait: %v", err)
	}
	for range 5 { // ann has crashed: nobody else moves the clock
		err := destroy()
		if !errors.Is(err, redisledger.ErrInUse) || !strings.Contains(err.Error(), "1 peer (ann)") {
			t.Fatalf("got %v, want ErrInUse by ann", err)
		}
		if len(m.Keys()) != keys {
			t.Fatalf("left are %v", m.Keys())
		}
		s.Advance(someTiming.ClockStep() - 100*time.Millisecond)
	}
	if err := redisledger.Idle(t.Context(), s.client, s.name); err != nil {
		t.Error(err)
	}
	if len(m.Keys()) != keys {
		t.Errorf("asking removed something, left are %v", m.Keys())
	}
	if err := destroy(); err != nil {
		t.Error(err)
	}
	if len(m.Keys()) != 0 {
		t.Errorf("left are %v", m.Keys())
	}
}

func TestSessionNames(t *testing.T) {
	s, _ := miniStage(t)
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	for _, bad := range []partition.Session{"", "_", "a b", "a.peer", "a:b", "a\n", "é"} {
		if _, err := l.Sync(t.Context(), machine.Request{Session: bad}); err == nil {
			t.Errorf("sync of %q", bad)
		}
		next := machine.Roll{Members: []machine.RollMember{{Member: partition.Member{Session: bad}}}}
		if err := l.Seal(t.Context(), next); err == nil || errors.Is(err, transition.ErrStale) {
			t.Errorf("seal with %q: %v", bad, err)
		}
		if err := l.Hints(t.Context(), bad, func() {}); err == nil {
			t.Errorf("hints for %q", bad)
		}
	}
}

// What could not be read back is not written: one such word would keep all peers from going on.
func TestTagsAndRequirements(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{Total: 4})
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 4}})
	if _, err := l.Sync(t.Context(), machine.Request{Session: session(1), Weight: 1, Tags: "gpu/a100"}); err == nil {
		t.Error("sync with a tag that is none")
	}
	if c, err := l.Census(t.Context()); err != nil || len(c.Sessions) != 0 {
		t.Errorf("there is %v, %v", c.Sessions, err)
	}
	if err := redisledger.Require(t.Context(), s.client, s.name, []partition.Requirement{{First: 3, Tags: "gpu"}}); err == nil {
		t.Error("a requirement of partitions 3 to 0")
	}
	if c, err := redisconfig.Read(t.Context(), s.client, s.name); err != nil || len(c.Requires) != 0 {
		t.Errorf("asked for is %v, %v", c.Requires, err)
	}
}

func TestNewSaysAllThatIsWrong(t *testing.T) {
	s, _ := miniStage(t)
	_, err := redisledger.New(s.client, "no name", redisledger.Config{
		Config: partition.Config{Total: -1},
		Timing: transition.Timing{Lease: time.Second},
	})
	for _, says := range []string{"no name", "-1 partitions", "too short"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}

// Other ingress lists are written only while nobody works under the name: grants go by the number
// of a list among all. Who wants the former ones is refused from then on, and who wants the new ones
// is granted them all.
func TestSetUnits(t *testing.T) {
	s, _ := miniStage(t)
	was, next := []string{"inbox", "outbox"}, []string{"outbox", "bulk", "archive"}
	set := func(from, to []string) error {
		return redisledger.SetUnits(t.Context(), s.client, s.name, from, to)
	}
	if err := set(nil, next); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("a name that nobody has made: %v", err)
	}
	cfg := partition.Config{Total: 4, Units: was}
	makeName(t, s.client, s.name, cfg)
	old := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	mustSync(t, old, machine.Request{Session: session(1), Peer: "ann", Claim: []partition.ID{partition.FirstUnit, partition.FirstUnit + 1}})
	if err := set(was, next); !errors.Is(err, redisledger.ErrInUse) {
		t.Errorf("a peer lives: %v", err)
	}
	for range 5 { // ann has crashed
		s.Advance(someTiming.ClockStep() - 100*time.Millisecond)
		if err := redisledger.Idle(t.Context(), s.client, s.name); err == nil {
			break
		}
	}
	if err := set([]string{"inbox"}, next); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("others stand: %v", err)
	}
	config := "{" + s.name + "}:config"
	protocol := s.client.HGet(t.Context(), config, "protocol").Val()
	s.client.HSet(t.Context(), config, "protocol", "resizing")
	if err := set(was, next); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("its number of partitions is being changed: %v", err)
	}
	s.client.HSet(t.Context(), config, "protocol", protocol)
	if err := set(was, []string{"a\nb"}); err == nil {
		t.Error("a list that cannot be written down")
	}
	early := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 4, Units: next}, Timing: someTiming})
	if _, err := early.Sync(t.Context(), machine.Request{Session: session(3), Peer: "eve"}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("who wants those to come: %v", err)
	}
	if err := set(was, next); err != nil {
		t.Fatal(err)
	}
	if n := s.client.LLen(t.Context(), redisconfig.RefusedKey(s.name)).Val(); n != 0 {
		t.Errorf("%d are told to have been refused for lists that no longer stand", n)
	}
	if _, err := old.Sync(t.Context(), machine.Request{Session: session(1), Peer: "ann"}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("who wants the former ones: %v", err)
	}
	cfg.Units = next
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	all := cfg.WithDefaults().Units
	if stands, err := redisconfig.Read(t.Context(), s.client, s.name); err != nil || !slices.Equal(stands.Units, all) {
		t.Errorf("%v, %v", stands.Units, err)
	}
	claim := []partition.ID{partition.FirstUnit, partition.FirstUnit + 1, partition.FirstUnit + 2}
	mustSync(t, l, machine.Request{Session: session(2), Peer: "bob"})
	answer := mustSync(t, l, machine.Request{Session: session(2), Peer: "bob", Claim: claim})
	if len(answer.Mine) != len(claim) {
		t.Errorf("granted %v of %v", answer.Mine, claim)
	}
}

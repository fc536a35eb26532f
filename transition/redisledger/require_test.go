package redisledger_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// What partitions ask for is said while peers work: a roll is due that goes by it, once, and
// builds that do not know of it find another protocol than theirs.
func TestRequire(t *testing.T) {
	s, _ := miniStage(t)
	requires := []partition.Requirement{{First: 0, Last: 1, Tags: "eu gpu"}, {Unit: "inbox", Tags: "eu"}}
	if err := redisledger.Require(t.Context(), s.client, s.name, requires); !errors.Is(err, redisconfig.ErrNone) {
		t.Errorf("of a name that nobody made: %v", err)
	}
	cfg := partition.Config{Total: 4, Units: []string{"inbox"}}
	makeName(t, s.client, s.name, cfg)
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	r := machine.Request{Session: session(1), Peer: "ann", Weight: 1, Tags: "eu gpu"}
	mustSync(t, l, r)
	seal := func() machine.Roll {
		t.Helper()
		c, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.Sessions[0].Tags != r.Tags {
			t.Errorf("it said that it has %q, the seat has %q", r.Tags, c.Sessions[0].Tags)
		}
		roll, _, due := machine.NextRoll(c, partition.Sticky{})
		if !due {
			t.Fatal("no roll is due")
		}
		if err := l.Seal(t.Context(), roll); err != nil {
			t.Fatal(err)
		}
		return roll
	}
	if got := len(seal().Members[0].Partitions); got != 5 {
		t.Errorf("of what asks for nothing it got %d", got)
	}
	protocol := func() string { return s.client.HGet(t.Context(), redisconfig.Key(s.name), "protocol").Val() }
	changes := make(map[string]bool)
	for range 2 {
		if err := redisledger.Require(t.Context(), s.client, s.name, requires); err != nil {
			t.Fatal(err)
		}
		changes[s.client.HGet(t.Context(), "{"+s.name+"}:meta", "membership").Val()] = true
	}
	if len(changes) != 1 {
		t.Error("said again it makes another roll due")
	}
	if stands, err := redisconfig.Read(t.Context(), s.client, s.name); err != nil || !slices.Equal(stands.Requires, requires) || protocol() != "2" {
		t.Errorf("%+v stands under protocol %s, %v", stands, protocol(), err)
	}
	if cfg, err := l.ReadConfig(t.Context()); err != nil || !slices.Equal(cfg.Requires, requires) {
		t.Errorf("the ledger reads %+v, %v", cfg, err)
	}
	if !mustSync(t, l, r).Sealing {
		t.Error("no roll is due")
	}
	if got := len(seal().Members[0].Partitions); got != 5 {
		t.Errorf("it has what is asked for, and got %d", got)
	}
	r.Tags = "gpu"
	if !mustSync(t, l, r).Sealing {
		t.Error("it has other tags, and no roll is due")
	}
	if got := seal().Members[0].Partitions; !slices.Equal(got, []partition.ID{2, 3}) {
		t.Errorf("it has not what is asked for, and got %v", got)
	}
	if err := redisledger.Require(t.Context(), s.client, s.name, nil); err != nil || protocol() != "1" {
		t.Errorf("nothing is asked for any more, and protocol %s stands: %v", protocol(), err)
	}
	if got := len(seal().Members[0].Partitions); got != 5 {
		t.Errorf("of what asks for nothing it got %d", got)
	}
	s.client.HSet(t.Context(), redisconfig.Key(s.name), "protocol", "resizing")
	if err := redisledger.Require(t.Context(), s.client, s.name, requires); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("while its size is changed: %v", err)
	}
}

// What partitions ask for outlives the loss of either key: without it they would go to anybody.
func TestRequirementsAreKeptTwice(t *testing.T) {
	s, _ := miniStage(t)
	cfg := partition.Config{Total: 4}
	makeName(t, s.client, s.name, cfg)
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	sync := func() machine.Answer {
		t.Helper()
		return mustSync(t, l, machine.Request{Session: session(1), Peer: "ann", Weight: 1, Claim: []partition.ID{0}}) // it is no quiet one
	}
	lose := func(key string) {
		t.Helper()
		if n, err := s.client.Del(t.Context(), key).Result(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	config := redisconfig.Key(s.name)
	want := func(requires []partition.Requirement, protocol string) {
		t.Helper()
		stands, err := redisconfig.Read(t.Context(), s.client, s.name)
		if got := s.client.HGet(t.Context(), config, "protocol").Val(); err != nil || !slices.Equal(stands.Requires, requires) || got != protocol {
			t.Errorf("%+v stands under protocol %s, %v", stands.Requires, got, err)
		}
	}
	requires := []partition.Requirement{{First: 0, Last: 1, Tags: "eu gpu"}, {First: 3, Last: 3, Tags: "eu"}}
	if err := redisledger.Require(t.Context(), s.client, s.name, requires); err != nil {
		t.Fatal(err)
	}
	sync()
	lose(config)
	// The next roll is made by a configuration that a producer wrote meanwhile.
	if _, err := redisconfig.Agree(t.Context(), s.client, s.name, cfg); err != nil {
		t.Fatal(err)
	}
	c, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roll, _, _ := machine.NextRoll(c, partition.Sticky{})
	if err := l.Seal(t.Context(), roll); err != nil {
		t.Fatal(err)
	}
	if !sync().Sealing {
		t.Error("no roll is due that goes by them")
	}
	want(requires, "2")
	lose("{" + s.name + "}:meta")
	sync()
	lose(config)
	sync()
	want(requires, "2")
	if err := redisledger.Require(t.Context(), s.client, s.name, nil); err != nil {
		t.Fatal(err)
	}
	lose(config)
	sync()
	want(nil, "1")
}

// What is taken back where the configuration was lost and made anew does not come back with the next Sync.
func TestRequirementsTakenBackAfterALoss(t *testing.T) {
	s, _ := miniStage(t)
	cfg := partition.Config{Total: 4}
	makeName(t, s.client, s.name, cfg)
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	require := func(all ...partition.Requirement) {
		t.Helper()
		if err := redisledger.Require(t.Context(), s.client, s.name, all); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(want int) {
		t.Helper()
		if c, err := l.ReadConfig(t.Context()); err != nil || len(c.Requires) != want {
			t.Errorf("the ledger reads %+v, want %d; %v", c.Requires, want, err)
		}
	}
	mustSync(t, l, machine.Request{Session: session(1), Peer: "ann", Weight: 1})
	require(partition.Requirement{First: 0, Last: 1, Tags: "eu"}, partition.Requirement{First: 3, Last: 3, Tags: "gpu"})
	s.client.Del(t.Context(), redisconfig.Key(s.name))
	reads(2) // a peer with another indexer asks before anybody has written it again
	if _, err := redisconfig.Agree(t.Context(), s.client, s.name, cfg); err != nil {
		t.Fatal(err)
	}
	require()
	mustSync(t, l, machine.Request{Session: session(1), Peer: "ann", Weight: 1, Claim: []partition.ID{0}})
	reads(0)
}

// Thousands of units may ask for tags: what all of them ask for is written when it changes, not with each Sync.
func TestRequirementsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	p := redistest.Server(t)
	client, name, cfg := p.Client(), redistest.Name(t), partition.Config{Total: 4}
	makeName(t, client, name, cfg)
	all := make([]partition.Requirement, 2000)
	for i := range all {
		all[i] = partition.Requirement{Unit: fmt.Sprintf("account-%d", i), Tags: "eu"}
	}
	if err := redisledger.Require(t.Context(), client, name, all); err != nil {
		t.Fatal(err)
	}
	p.Config("appendfsync", "no")
	p.Config("appendonly", "yes")
	written := func() int {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			aof := client.InfoMap(t.Context(), "persistence").Val()["Persistence"]
			if n, err := strconv.Atoi(aof["aof_current_size"]); err == nil && aof["aof_rewrite_in_progress"] == "0" && aof["aof_rewrite_scheduled"] == "0" {
				return n
			}
			if time.Now().After(end) {
				t.Fatalf("the server does not log what is written: %v", aof)
			}
		}
	}
	before := written()
	l := newLedger(t, client, name, redisledger.Config{Config: cfg})
	for weight := range 2 {
		mustSync(t, l, machine.Request{Session: session(1), Peer: "ann", Weight: 1 + weight})
	}
	if n := written() - before; n <= 0 || n > len(redisconfig.PrintRequires(all)) {
		t.Errorf("two Syncs wrote %d bytes", n)
	}
}

// Who says what partitions ask for is no peer: his times count for nothing. A long lease
// runs out as fast as before, and a restart that he is the first to notice lets nobody gain
// anything before the leases of the peers are over.
func TestRequireHasNoTimes(t *testing.T) {
	server := redistest.Server(t)
	client, name := server.Client(), redistest.Name(t)
	cfg := partition.Config{Total: 4}
	require := func(tags partition.Tags) map[string]int64 {
		t.Helper()
		if err := redisledger.Require(t.Context(), client, name, []partition.Requirement{{First: 0, Last: 1, Tags: tags}}); err != nil {
			t.Fatal(err)
		}
		fields, err := client.HGetAll(t.Context(), "{"+name+"}:meta").Result()
		if err != nil {
			t.Fatal(err)
		}
		meta := map[string]int64{}
		for field, value := range fields {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				meta[field] = n
			}
		}
		return meta
	}
	// A producer was first.
	if _, err := redisconfig.AgreePartitions(t.Context(), client, name, cfg); err != nil {
		t.Fatal(err)
	}
	if meta := require("eu"); len(meta) != 0 {
		t.Errorf("no peer was there yet, and it has written %v", meta)
	}
	l := newLedger(t, client, name, redisledger.Config{Config: cfg, Timing: transition.Timing{Lease: 40 * time.Second}})
	mustSync(t, l, machine.Request{Session: session(1), Peer: "ann", Weight: 1})
	if meta := require("gpu"); meta["step"] != 10_000 {
		t.Errorf("the clock goes on by %d ms at most, want 10000", meta["step"])
	}
	server.Restart(true)
	if meta := require("cpu"); meta["step"] != 10_000 || meta["grace"]-meta["clock"] != 40_000 {
		t.Errorf("after a restart the clock goes on by %d ms at most, and there is a grace of %d ms; want 10000 and 40000", meta["step"], meta["grace"]-meta["clock"])
	}
}

package etcdledger_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
	"github.com/countoff/countoff/transition/machine"
)

// What partitions ask for is said while peers work: a roll is due that goes by it, once. Who
// says it is no peer: his times count for nothing.
func TestRequire(t *testing.T) {
	client := etcdtest.Start(t).Client()
	requires := []partition.Requirement{{First: 0, Last: 1, Tags: "eu gpu"}, {Unit: "inbox", Tags: "eu"}}
	require := func(all []partition.Requirement) error {
		return etcdledger.Require(t.Context(), client, prefix, "n", all)
	}
	if err := require(requires); !errors.Is(err, etcdledger.ErrNone) {
		t.Errorf("of a name that nobody made: %v", err)
	}
	cfg := partition.Config{Total: 4, Units: []string{"inbox"}}
	if _, err := etcdledger.Init(t.Context(), client, prefix, "n", cfg); err != nil {
		t.Fatal(err)
	}
	l, err := etcdledger.New(client, prefix, "n", etcdledger.Config{Config: cfg, Timing: transition.Timing{Lease: 40 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Duration(0)
	l.SetClock(func() time.Duration { return now })
	sync := func() transition.Answer {
		t.Helper()
		a, err := l.Sync(t.Context(), transition.Request{Session: "aa", Peer: "ann", Weight: 1, Tags: "gpu", State: machine.Live})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	sealed := func() []partition.ID {
		t.Helper()
		c, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		roll, _, due := machine.NextRoll(c, partition.Sticky{})
		if !due {
			t.Fatal("no roll is due")
		}
		if err := l.Seal(t.Context(), roll); err != nil {
			t.Fatal(err)
		}
		return roll.Members[0].Partitions
	}
	sync()
	if got := sealed(); len(got) != 5 {
		t.Errorf("of what asks for nothing it got %v", got)
	}
	for range 2 {
		if err := require(requires); err != nil {
			t.Fatal(err)
		}
	}
	if stands, _, err := etcdledger.ReadConfig(t.Context(), client, prefix, "n"); err != nil || !slices.Equal(stands.Requires, requires) {
		t.Errorf("%+v stands, %v", stands, err)
	}
	if !sync().Sealing {
		t.Error("no roll is due")
	}
	if got := sealed(); !slices.Equal(got, []partition.ID{2, 3}) {
		t.Errorf("it has not what is asked for, and got %v", got)
	}
	if err := require(requires); err != nil || sync().Sealing {
		t.Errorf("said again, and a roll is due: %v", err)
	}
	// The clock of a long lease still goes on by as much at once, and no grace has begun.
	if _, err := l.Census(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := clockOf(t, l)
	now += 9 * time.Second
	sync()
	if after := clockOf(t, l); after-before != 9*time.Second {
		t.Errorf("in 9 s the clock went on by %v", after-before)
	}
	if err := require(nil); err != nil {
		t.Fatal(err)
	}
	sync()
	if got := sealed(); len(got) != 5 {
		t.Errorf("nothing is asked for any more, and it got %v", got)
	}
}

// What partitions ask for, that the name is paused and who is drained, outlives a loss of anything else, and of itself.
func TestRequirementsOutliveALoss(t *testing.T) {
	server := etcdtest.Start(t)
	rest := partition.Pause{Since: time.UnixMilli(1_790_000_000_000).UTC(), Why: "the database moves"}
	out := partition.Drain{Peer: "b", Since: rest.Since, Why: "its disk is slow"}
	requires := []partition.Requirement{{First: 1, Last: 2, Tags: "gpu"}}
	for _, key := range []string{"config", "meta", "clock", "roll", "transition"} {
		s := newStage(t, server, key)
		if err := etcdledger.Require(t.Context(), server.Client(), prefix, s.name, requires); err != nil {
			t.Fatal(err)
		}
		l, _ := s.ledger()
		if err := errors.Join(l.Pause(t.Context(), rest), l.Drain(t.Context(), out)); err != nil {
			t.Fatal(err)
		}
		s.sync(l, machine.Request{Session: "a"})
		del(key)(s)
		// Without a memory, or a configuration to make it anew by, nothing can be asked for.
		for range 2 { // the first clears what is left
			if err := etcdledger.Require(t.Context(), server.Client(), prefix, s.name, nil); !errors.Is(err, etcdledger.ErrNone) {
				t.Errorf("%s is deleted: require says %v", key, err)
			}
		}
		newcomer, _ := s.ledger() // others may not notice yet
		if got := s.sync(newcomer, machine.Request{Session: "b"}); got.Grace == 0 || !got.Paused || !got.Drained {
			t.Errorf("%s is deleted, grace %v, paused %v, drained %v", key, got.Grace, got.Paused, got.Drained)
		}
		if stands, known, err := etcdledger.ReadConfig(t.Context(), server.Client(), prefix, s.name); err != nil || !known || !slices.Equal(stands.Requires, requires) || stands.Paused != rest || !slices.Equal(stands.Drained, []partition.Drain{out}) {
			t.Errorf("%s was deleted: %+v stands, %v", key, stands, err)
		}
	}
	// What nobody asks for any more does not come back.
	if err := etcdledger.Require(t.Context(), server.Client(), prefix, "meta", nil); err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, server: server, name: "meta", cfg: partition.Config{Total: 4}, timing: transition.Timing{}.WithDefaults()}
	l, _ := s.ledger()
	if err := errors.Join(l.Pause(t.Context(), partition.Pause{}), l.Recall(t.Context(), "b")); err != nil {
		t.Fatal(err)
	}
	del("config")(s)
	l, _ = s.ledger()
	s.sync(l, machine.Request{Session: "a"})
	if stands, _, err := etcdledger.ReadConfig(t.Context(), server.Client(), prefix, "meta"); err != nil || stands.Requires != nil || stands.Paused != (partition.Pause{}) || stands.Drained != nil {
		t.Errorf("%+v stands, %v", stands, err)
	}
	// A configuration that is left keeps out who wants another.
	del("meta")(s)
	s.cfg.Total = 5
	other, _ := s.ledger()
	if _, err := other.Sync(t.Context(), machine.Request{Session: "b", Peer: "b", Weight: 1, State: machine.Live}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("another layout: %v", err)
	}
}

func clockOf(t *testing.T, l *etcdledger.Ledger) time.Duration {
	t.Helper()
	c, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.Clock
}

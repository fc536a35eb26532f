package redisledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

var out = partition.Drain{Peer: "ann", Since: rest.Since, Why: "its disk is slow"}

// A peer may be drained before anybody comes, and stays so although either of the two keys is lost that say so;
// a roll that may have been made without is due again.
func TestADrainOutlivesALostKey(t *testing.T) {
	for _, lost := range []string{"config", "meta"} {
		t.Run(lost, func(t *testing.T) {
			s, _ := miniStage(t)
			cfg := partition.Config{Total: 4}
			l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
			if err := l.Drain(t.Context(), out); !errors.Is(err, redisconfig.ErrNone) {
				t.Errorf("of a name that nobody made: %v", err)
			}
			if _, err := redisconfig.Agree(t.Context(), s.client, s.name, cfg); err != nil {
				t.Fatal(err)
			}
			if err := l.Drain(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			if s.client.Exists(t.Context(), "{"+s.name+"}:meta").Val() != 0 {
				t.Error("who drains a peer of a store that forgot begins it, with a grace of no peer's lease")
			}
			r := machine.Request{Session: session(1), Peer: "ann", Weight: 1}
			if !mustSync(t, l, r).Drained {
				t.Fatal("the first peer of a name is drained, and not told")
			}
			for mustSync(t, l, r).Grace > 0 {
				s.Advance(someTiming.ClockStep())
			}
			c, err := l.Census(t.Context())
			next, _, due := machine.NextRoll(c, partition.Sticky{})
			if err = errors.Join(err, l.Seal(t.Context(), next)); err != nil || !due {
				t.Fatal(due, err)
			}
			if mustSync(t, l, r).Sealing {
				t.Fatal("another roll is due")
			}
			if n := s.client.Del(t.Context(), "{"+s.name+"}:"+lost).Val(); n != 1 {
				t.Fatal("nothing was lost")
			}
			drained := func(want []partition.Drain) {
				t.Helper()
				if c, err := l.Census(t.Context()); err != nil || !slices.Equal(c.Config.Drained, want) || len(c.Sessions) > 0 && c.Sessions[0].Drained != (want != nil) {
					t.Errorf("the census says %+v, %+v, %v", c.Config.Drained, c.Sessions, err)
				}
			}
			drained([]partition.Drain{out})
			a := mustSync(t, l, r)
			if !a.Drained || lost == "config" && !a.Sealing {
				t.Errorf("told to be drained: %v, a roll is due: %v", a.Drained, a.Sealing)
			}
			drained([]partition.Drain{out})
			if err := l.Recall(t.Context(), "ann"); err != nil {
				t.Fatal(err)
			}
			if mustSync(t, l, r).Drained {
				t.Error("it is recalled, and told that it is drained")
			}
			before, err := l.Census(t.Context())
			s.client.Del(t.Context(), "{"+s.name+"}:config")
			drained(nil)
			if mustSync(t, l, r).Drained {
				t.Error("with the configuration lost, who was recalled is drained again")
			}
			drained(nil)
			if after, err2 := l.Census(t.Context()); errors.Join(err, err2) != nil || after.Membership != before.Membership {
				t.Errorf("with the configuration lost, where nobody was drained, a roll is due: %v, %v", err, err2)
			}
		})
	}
}

// What is said stands beside the configuration at once, and what is said while that is lost takes nothing back.
func TestADrainIsSaidBesideALostKey(t *testing.T) {
	s, _ := miniStage(t)
	cfg := partition.Config{Total: 4}
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	mustSync(t, l, machine.Request{Session: session(1), Peer: "ann", Weight: 1})
	bob := partition.Drain{Peer: "bob", Since: rest.Since}
	lose := func() {
		t.Helper()
		if n := s.client.HDel(t.Context(), "{"+s.name+"}:config", "drained").Val(); n != 1 {
			t.Fatal("nothing was lost")
		}
	}
	for _, step := range []struct {
		say  func() error
		want []partition.Drain
	}{
		{func() error { return l.Drain(t.Context(), out) }, []partition.Drain{out}},
		{func() error { return l.Drain(t.Context(), bob) }, []partition.Drain{out, bob}},
		{func() error { return l.Recall(t.Context(), "bob") }, []partition.Drain{out}},
		{func() error { return l.Recall(t.Context(), "ann") }, nil},
	} {
		if err := step.say(); err != nil {
			t.Fatal(err)
		}
		lose()
		restarted := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming}) // its first Sync is no quiet one
		mustSync(t, restarted, machine.Request{Session: session(1), Peer: "ann", Weight: 1})
		if c, err := l.Census(t.Context()); err != nil || !slices.Equal(c.Config.Drained, step.want) {
			t.Errorf("%+v is drained, want %+v, %v", c.Config.Drained, step.want, err)
		}
		if len(step.want) > 0 {
			lose()
		}
	}
}

// Quiet peers stay quiet while somebody is drained.
func TestADrainLeavesTheQuietQuiet(t *testing.T) {
	s, _ := miniStage(t)
	cfg := partition.Config{Total: 4}
	if _, err := redisledger.Init(t.Context(), s.client, s.name, cfg); err != nil {
		t.Fatal(err)
	}
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	for i, peer := range []string{"ann", "bob"} {
		mustSync(t, l, machine.Request{Session: session(i), Peer: peer, Weight: 1})
	}
	if err := l.Drain(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	h := &traffic{}
	s.client.AddHook(h)
	for _, want := range []string{"say full say full", "same same", "same same"} {
		for i, peer := range []string{"ann", "bob"} {
			if got := mustSync(t, l, machine.Request{Session: session(i), Peer: peer, Weight: 1}).Drained; got != (peer == "ann") {
				t.Errorf("%s is told to be drained: %v", peer, got)
			}
		}
		if _, _, _, answers := h.took(); answers != want {
			t.Errorf("the scripts answered %q, want %q", answers, want)
		}
	}
}

// While its number of partitions is changed a name stays closed, whoever is drained: a drain brings back none of what the
// configuration is known to have said.
func TestADrainLeavesAResizeAlone(t *testing.T) {
	s, _ := miniStage(t)
	cfg := partition.Config{Total: 4}
	makeName(t, s.client, s.name, cfg)
	if err := redisledger.Require(t.Context(), s.client, s.name, []partition.Requirement{{First: 0, Last: 1, Tags: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
	mustSync(t, l, machine.Request{Session: session(1), Peer: "ann", Weight: 1})
	s.client.HSet(t.Context(), redisconfig.Key(s.name), "protocol", "resizing")
	if err := l.Drain(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	if protocol := s.client.HGet(t.Context(), redisconfig.Key(s.name), "protocol").Val(); protocol != "resizing" {
		t.Errorf("protocol %q stands", protocol)
	}
}

package redisledger_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// A fail-over has forgotten one grant of a peer with a lease of 60 s, or all, and a peer with one
// of 3 s is the first to speak: it is granted nothing for as long as the other trusts its lease.
func TestGraceOfMixedLeases(t *testing.T) {
	for _, c := range []struct {
		name   string
		heard  time.Duration // by the one with the short lease
		forget func(client redis.UniversalClient, meta string) redis.Cmder
	}{
		{"known", 0, func(client redis.UniversalClient, meta string) redis.Cmder {
			return client.HSet(t.Context(), meta, "longest", 60_000)
		}},
		{"known by an older build", 0, func(client redis.UniversalClient, meta string) redis.Cmder {
			return client.HDel(t.Context(), meta, "longest")
		}},
		{"heard of", time.Minute, func(client redis.UniversalClient, _ string) redis.Cmder {
			return client.FlushAll(t.Context())
		}},
	} {
		t.Run(c.name, func(t *testing.T) { graceOfMixedLeases(t, c.heard, false, c.forget) })
		t.Run("quiet "+c.name, func(t *testing.T) { graceOfMixedLeases(t, c.heard, true, c.forget) })
	}
}

// graceOfMixedLeases lets a quiet Sync, or one that claims, be the first after the fail-over.
func graceOfMixedLeases(t *testing.T, heard time.Duration, quiet bool, forget func(redis.UniversalClient, string) redis.Cmder) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	long, short := transition.Timing{Lease: time.Minute}.WithDefaults(), transition.Timing{Lease: 3 * time.Second}.WithDefaults()
	patient := newLedger(t, s.client, s.name, redisledger.Config{Timing: long})
	brief := newLedger(t, s.client, s.name, redisledger.Config{Timing: short})
	mustSync(t, patient, machine.Request{Session: session(1), Peer: "long", Weight: 1, Claim: []partition.ID{3}})
	trusted := s.now.Add(long.Validity())
	r := settled(t, brief, session(2))
	r.Longest = heard

	key := "{" + s.name + "}:"
	for _, cmd := range []redis.Cmder{
		s.client.HDel(t.Context(), key+"transition", "3"),
		s.client.HIncrBy(t.Context(), key+"meta", "held", -1),
		s.client.HSet(t.Context(), key+"sessions", string(session(1)), "live 1 1 0 long"),
		s.client.ScriptFlush(t.Context()),
		forget(s.client, key+"meta"),
	} {
		if cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
	}
	if quiet {
		mustSync(t, brief, r)
	}
	for r.Claim = []partition.ID{3}; s.now.Before(trusted); s.Advance(short.Beat()) {
		if a := mustSync(t, brief, r); len(a.Mine) > 0 {
			t.Fatalf("%v was granted while its owner may work on it for %v", a.Mine[0].Grant, trusted.Sub(s.now))
		}
	}
}

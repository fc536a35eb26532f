package redisledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// A fail-over has forgotten one grant of a peer with a lease of 60 s, and a peer with one of 3 s
// is the first to speak: it is granted nothing for as long as the other trusts its lease.
func TestGraceOfMixedLeases(t *testing.T) {
	long, short := transition.Timing{Lease: time.Minute}.WithDefaults(), transition.Timing{Lease: 3 * time.Second}.WithDefaults()
	for name, failOver := range map[string]func(ctx context.Context, s *stage, key string) error{
		"known": func(context.Context, *stage, string) error { return nil },
		"known by an older build": func(ctx context.Context, s *stage, key string) error {
			return s.client.HDel(ctx, key+"meta", "longest").Err()
		},
		"heard of": func(ctx context.Context, s *stage, _ string) error { return s.client.FlushAll(ctx).Err() },
	} {
		for _, quiet := range []bool{true, false} {
			t.Run(map[bool]string{true: "quiet ", false: ""}[quiet]+name, func(t *testing.T) {
				s, _ := miniStage(t)
				makeName(t, s.client, s.name, partition.Config{})
				l, q := newLedger(t, s.client, s.name, redisledger.Config{Timing: long}), newLedger(t, s.client, s.name, redisledger.Config{Timing: short})
				mustSync(t, l, machine.Request{Session: session(1), Peer: "long", Weight: 1})
				r := settled(t, q, session(2))
				r.Longest = mustSync(t, q, r).Longest
				mustSync(t, l, machine.Request{Session: session(1), Peer: "long", Weight: 1, Claim: []partition.ID{3}})
				trusted := s.now.Add(long.Validity())
				r = settled(t, q, session(2)) // what of session 1 has changed is known
				r.Longest = long.Lease

				key := "{" + s.name + "}:"
				if quiet {
					mustSync(t, q, r)
				}
				ctx := t.Context()
				s.client.HDel(ctx, key+"transition", "3")
				s.client.HIncrBy(ctx, key+"meta", "held", -1)
				s.client.HSet(ctx, key+"sessions", string(session(1)), "live 1 1 0 long")
				s.client.ScriptFlush(ctx)
				if err := failOver(ctx, s, key); err != nil {
					t.Fatal(err)
				}
				if quiet {
					mustSync(t, q, r)
				}
				for r.Claim = []partition.ID{3}; s.now.Before(trusted); s.Advance(short.Beat()) {
					if a := mustSync(t, q, r); len(a.Mine) > 0 {
						t.Fatalf("%v was granted while its owner may work on it for %v", a.Mine[0].Grant, trusted.Sub(s.now))
					}
				}
			})
		}
	}
}

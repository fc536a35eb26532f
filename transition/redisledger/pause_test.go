package redisledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

var rest = partition.Pause{Since: time.UnixMilli(1_790_000_000_000).UTC(), Why: "the database moves"}

// A name may be paused before its first peer, and stays so although either of the two keys is lost that
// say so.
func TestAPauseOutlivesALostKey(t *testing.T) {
	for _, lost := range []string{"config", "meta"} {
		t.Run(lost, func(t *testing.T) {
			s, _ := miniStage(t)
			cfg := partition.Config{Total: 4}
			l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
			if err := l.Pause(t.Context(), rest); !errors.Is(err, redisconfig.ErrNone) {
				t.Errorf("of a name that nobody made: %v", err)
			}
			if _, err := redisconfig.Agree(t.Context(), s.client, s.name, cfg); err != nil {
				t.Fatal(err)
			}
			if err := l.Pause(t.Context(), rest); err != nil {
				t.Fatal(err)
			}
			r := machine.Request{Session: session(1), Peer: "ann", Weight: 1}
			if !mustSync(t, l, r).Paused {
				t.Fatal("the first peer of a paused name is not told")
			}
			if n := s.client.Del(t.Context(), "{"+s.name+"}:"+lost).Val(); n != 1 {
				t.Fatal("nothing was lost")
			}
			if c, err := l.Census(t.Context()); err != nil || c.Config.Paused.Since.Before(rest.Since) {
				t.Errorf("before anybody speaks, the census says %+v, %v", c.Config.Paused, err)
			}
			if a := mustSync(t, l, r); !a.Paused {
				t.Error("the quiet peer goes on")
			}
			other := machine.Request{Session: session(2), Peer: "bob", Weight: 1}
			if a := mustSync(t, l, other); !a.Paused {
				t.Error("a newcomer is not told")
			}
			c, err := l.Census(t.Context())
			if err != nil || c.Config.Paused.Since.Before(rest.Since) || lost != "config" && c.Config.Paused != rest {
				t.Errorf("the census says %+v, %v", c.Config.Paused, err)
			}
			if err := l.Pause(t.Context(), partition.Pause{}); err != nil {
				t.Fatal(err)
			}
			if mustSync(t, l, r).Paused || mustSync(t, l, other).Paused {
				t.Error("it is resumed, and peers are told that it rests")
			}
			s.client.Del(t.Context(), "{"+s.name+"}:config")
			if c, err := l.Census(t.Context()); err != nil || c.Config.Paused != (partition.Pause{}) {
				t.Errorf("resumed, the census says %+v, %v", c.Config.Paused, err)
			}
		})
	}
}

// A pause or its end that is said where one of the two keys lacks it stands in both; and who says it is no
// peer: a store that forgot is for a peer to begin, whose lease the grace has to outlast.
func TestAPauseIsSaidWhereHalfOfItIsLost(t *testing.T) {
	s, _ := miniStage(t)
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 4}, Timing: someTiming})
	makeName(t, s.client, s.name, partition.Config{Total: 4})
	r := machine.Request{Session: session(1), Peer: "ann", Weight: 1}
	mustSync(t, l, r)
	say := func(p partition.Pause) machine.Answer {
		t.Helper()
		if err := l.Pause(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return mustSync(t, l, r)
	}
	lose := func(key, field string) {
		t.Helper()
		if n := s.client.HDel(t.Context(), "{"+s.name+"}:"+key, field).Val(); n != 1 {
			t.Fatal("nothing was lost")
		}
	}
	say(rest)
	lose("config", "paused")
	if say(partition.Pause{}).Paused {
		t.Error("it is resumed while the configuration does not say that it rests, and rests on")
	}
	say(rest)
	lose("meta", "paused")
	if !say(partition.Pause{Since: rest.Since.Add(time.Hour)}).Paused {
		t.Error("it is paused again, and works")
	}
	if c, err := l.Census(t.Context()); err != nil || c.Config.Paused != rest {
		t.Errorf("the census says %+v, %v", c.Config.Paused, err)
	}
	s.client.Del(t.Context(), "{"+s.name+"}:meta")
	if err := l.Pause(t.Context(), rest); err != nil || s.client.Exists(t.Context(), "{"+s.name+"}:meta").Val() != 0 {
		t.Errorf("who pauses a store that forgot begins it: %v", err)
	}
	if !mustSync(t, l, r).Paused {
		t.Error("paused in a store that forgot, it works")
	}
}

package ledgertest

import (
	"errors"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// clockClauses are about the store's own clock, leases and the configuration.
var clockClauses = []clause{
	{"a forward jump of the clock counts for at most one clock step", Abilities{Jump: true}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.h.Advance(time.Hour)
		if got, want := tb.census().Silence, time.Hour-tb.timing.ClockStep(); got < want-tb.slack() || got > want+tb.slack() {
			tb.Errorf("of an hour without a call the census says %v, want %v", got, want)
		}
		tb.tick()
		if left, want := tb.seat(a).Lease, tb.timing.Lease-tb.timing.ClockStep(); left < want {
			tb.Fatalf("%v of the lease are left after a jump of an hour, want at least %v", left, want)
		}
	}},
	{"a Seal that is refused lets the store look at its clock", Abilities{}, func(tb *table) {
		tb.peer("a").join()
		before := tb.census().Clock
		for range 4 {
			tb.h.Advance(tb.timing.ClockStep() / 2)
			tb.tick()
		}
		if d, want := tb.census().Clock-before, 2*tb.timing.ClockStep()-tb.slack(); d < want {
			tb.Fatalf("with a Seal each half of a clock step, all refused, two clock steps came to %v, want %v", d, want)
		}
	}},
	{"after a jump of the clock time passes on", Abilities{Jump: true}, func(tb *table) {
		for _, jump := range []time.Duration{time.Hour, -2 * time.Hour} {
			a := tb.peer("a")
			a.join()
			tb.h.Advance(jump)
			tb.tick()
			tb.pass(tb.timing.Lease + tb.timing.ClockStep()/2)
			if s := tb.seat(a); s.State != 0 {
				tb.Fatalf("after a jump of %v and a lease without a word, %v of the lease are left", jump, s.Lease)
			}
		}
	}},
	{"the clock never goes back", Abilities{Jump: true}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		before := tb.seat(a).Lease
		tb.h.Advance(-time.Hour)
		tb.tick()
		if left := tb.seat(a).Lease; left != before {
			tb.Fatalf("%v of the lease are left after the clock was set back, want %v", left, before)
		}
	}},
	{"the least clock step of all counts", Abilities{Jump: true}, func(tb *table) {
		brief := tb.timing
		brief.Lease, brief.CancelGrace, brief.Settle = tb.timing.Lease/4, 0, 0
		brief = brief.WithDefaults()
		a, b := tb.peerWith("a", brief), tb.peer("b")
		a.join()
		b.join()
		tb.h.Advance(time.Hour)
		b.join() // with its greater clock step
		if left, want := tb.seat(a).Lease, brief.Lease-brief.ClockStep(); left < want {
			tb.Fatalf("a jump under the clock step of another took the lease down to %v, want at least %v", left, want)
		}
	}},
	{"the least clock step counts for as long as who sent it is known", Abilities{Jump: true}, func(tb *table) {
		brief := tb.timing
		brief.Lease, brief.CancelGrace, brief.Settle = tb.timing.Lease/4, 0, 0
		brief = brief.WithDefaults()
		a, b, c := tb.peerWith("a", brief), tb.peerWith("b", brief), tb.peer("c")
		outlive := func(dead *peer, alive ...*peer) {
			for range 3 {
				for _, p := range alive {
					p.join()
				}
				tb.pass(brief.Lease) // of which half counts, as long as a or b is known
			}
			if s := tb.seat(dead); s.State != 0 {
				tb.Fatalf("%v of the lease of %s are left", s.Lease, dead.name)
			}
		}
		counts := func(want time.Duration) {
			before := tb.census().Clock
			tb.h.Advance(tb.timing.ClockStep())
			tb.tick()
			if d := tb.census().Clock - before; d.Round(tb.slack()) != want.Round(tb.slack()) {
				tb.Fatalf("of %v the clock counts %v, want %v", tb.timing.ClockStep(), d, want)
			}
		}
		a.join()
		outlive(a, b, c) // b spoke before a was removed
		counts(brief.ClockStep())
		outlive(b, c)
		counts(tb.timing.ClockStep())
	}},
	{"a session is removed once its lease has run out, and not before", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.pass(tb.timing.Lease - tb.timing.ClockStep()/2 - tb.slack())
		if tb.seat(a).State == 0 {
			tb.Fatal("the session was removed before its lease had run out")
		}
		tb.pass(tb.timing.ClockStep()/2 + 2*tb.slack())
		if s := tb.seat(a); s.State != 0 {
			tb.Fatalf("the session is still there, %v of the lease are left", s.Lease)
		}
	}},
	{"a Sync extends the lease", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		for range 3 {
			tb.pass(tb.timing.Lease / 2)
			a.join()
		}
		if left := tb.seat(a).Lease; left < tb.timing.Lease-tb.slack() {
			tb.Fatalf("%v of the lease are left after a Sync, want %v", left, tb.timing.Lease)
		}
	}},
	{"each session has the lease it asks for", Abilities{}, func(tb *table) {
		patient := tb.timing
		patient.Lease *= 2
		a := tb.peerWith("a", patient)
		a.join()
		tb.pass(tb.timing.Lease + tb.timing.ClockStep())
		if tb.seat(a).State == 0 {
			tb.Fatal("a session with twice the lease was removed with the others")
		}
	}},
	{"one call removes at most eight sessions", Abilities{}, func(tb *table) {
		const many = 20
		for i := range many {
			tb.peer(string(rune('a' + i))).join()
		}
		for range 3 {
			tb.h.Advance(tb.timing.ClockStep())
			tb.tick()
		}
		before := len(tb.census().Sessions)
		tb.h.Advance(tb.timing.ClockStep() / 2) // a lease may be over at its end, or right after
		for i := range many {
			tb.tick()
			now := len(tb.census().Sessions)
			if before-now > 8 {
				tb.Fatalf("a call removed %d sessions", before-now)
			}
			before = now
			if i == 0 { // where time really passes the first to join may have gone by now
				tb.h.Advance(tb.timing.ClockStep())
			}
		}
		if before != 0 {
			tb.Fatalf("%d sessions are still there", before)
		}
	}},
	{"an answer says when the next lease runs out", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		tb.pass(tb.timing.Lease / 2)
		got := b.join().Expiry
		if want := tb.timing.Lease / 2; got < want-tb.slack() || got > want+tb.slack() {
			tb.Fatalf("the answer says the next lease runs out in %v, want %v", got, want)
		}
		tb.pass(got + tb.slack())
		b.join()
		if s := tb.seat(a); s.State != 0 {
			tb.Fatalf("a Sync after the time that the answer named did not remove the session, its lease has %v", s.Lease)
		}
	}},
	{"another configuration is refused and changes nothing", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		for _, other := range []partition.Config{
			{Total: tb.cfg.Total * 2, Units: tb.cfg.Units},
			{Total: tb.cfg.Total, Hash: partition.ByID, Units: tb.cfg.Units},
			{Total: tb.cfg.Total, Units: []string{"inbox"}},
		} {
			ledger := tb.ledger(other.WithDefaults(), tb.timing)
			b := tb.peer("b")
			_, err := ledger.Sync(tb.Context(), machine.Request{Session: b.session, Peer: "b", Weight: 1, State: machine.Live})
			if !errors.Is(err, partition.ErrConfig) {
				tb.Fatalf("sync with %+v: got %v, want ErrConfig", other, err)
			}
			if err := ledger.Seal(tb.Context(), machine.Roll{Version: noVersion}); err == nil || errors.Is(err, transition.ErrStale) {
				tb.Fatalf("seal with %+v: got %v, want ErrConfig", other, err)
			}
			if tb.seat(b).State != 0 {
				tb.Fatalf("a session with %+v was let in", other)
			}
		}
	}},
	{"a census says everything", Abilities{}, func(tb *table) {
		other := tb.long() // than those of who reads the census
		a, b := tb.peerWith("a", other), tb.peer("b")
		a.sync(machine.Request{Weight: 3})
		g := a.gets(5)
		b.sync(machine.Request{Claim: []partition.ID{5}})
		version := tb.seal(a, b)
		a.sync(machine.Request{State: machine.Leaving, Weight: 3})
		c := tb.census()
		if c.Config.Total != tb.cfg.Total || c.Config.Hash != tb.cfg.Hash || !slices.Equal(c.Config.Units, tb.cfg.Units) {
			tb.Errorf("configuration: got %+v", c.Config)
		}
		if c.Count == 0 || c.Membership == 0 || c.Membership > c.Count || c.Roll.Version > c.Count {
			tb.Errorf("count %d, membership %d, roll %d", c.Count, c.Membership, c.Roll.Version)
		}
		if s := tb.seat(a); s.Peer != "a" || s.Weight != 3 || s.State != machine.Leaving || s.Lease <= 0 {
			tb.Errorf("seat: got %+v", s)
		} else if got, want := transition.TimingOf(s.Terms), transition.TimingOf(other.Terms("")); got != want {
			tb.Errorf("its times are %+v, want %+v", got, want)
		}
		if s := tb.seat(b); s.Weight != 0 {
			tb.Errorf("who claims nothing by its weight of 0 has weight %d", s.Weight)
		}
		if o := tb.owner(5); o.Grant != g || o.Session != a.session || o.Waiter != b.session {
			tb.Errorf("ownership: got %+v", o)
		}
		if c.Roll.Version != version || len(c.Roll.Members) != 2 {
			tb.Fatalf("roll: got %+v", c.Roll)
		}
		for i, p := range []*peer{a, b} {
			m := c.Roll.Members[i]
			if m.Session != p.session || m.Peer != p.name || m.Index != i || m.Weight != i+1 ||
				len(m.Partitions) != 1 || m.Partitions[0] != partition.ID(i) {
				tb.Errorf("roll member %d: got %+v", i, m)
			}
		}
	}},
}

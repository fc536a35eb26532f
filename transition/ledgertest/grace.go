package ledgertest

import (
	"errors"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

var (
	canRestart = Abilities{Restart: true}
	canForget  = Abilities{Forget: true}
)

// graceClauses are about the time after the store restarted or forgot.
var graceClauses = []clause{
	{"a store that forgot begins with a grace in which nobody gains", canForget, func(tb *table) {
		a := tb.peer("a")
		tb.restart(false)
		got := a.sync(machine.Request{Claim: []partition.ID{3}})
		tb.wantGrants(got)
		if got.Grace < tb.timing.Grace()-tb.timing.ClockStep() || got.Grace > tb.timing.Grace() {
			tb.Fatalf("the grace lasts %v, want %v", got.Grace, tb.timing.Grace())
		}
	}},
	{"a restart begins with a grace in which nobody gains", canRestart, func(tb *table) {
		a := tb.peer("a")
		g := a.gets(1)
		tb.restart(true)
		got := a.sync(machine.Request{Hold: []partition.Grant{g}, Claim: []partition.ID{3}})
		tb.wantGrants(got, g)
		if got.Grace <= 0 {
			tb.Fatal("there is no grace")
		}
	}},
	{"a grace is never cut short", canRestart, func(tb *table) {
		long := tb.long()
		a, b := tb.peerWith("a", long), tb.peer("b")
		tb.h.Restart(true)
		a.join()
		tb.h.Restart(true)
		if got := b.join().Grace; got < long.Grace()-long.ClockStep() {
			tb.Fatalf("%v are left of a grace of %v after another restart", got, long.Grace())
		}
	}},
	{"a grace lasts as long as the longest lease of all who are known", canRestart, func(tb *table) {
		long := tb.long()
		a, b := tb.peerWith("a", long), tb.peer("b")
		g := a.gets(3)
		b.join()
		tb.restart(true) // one with a short lease is the first to notice
		tb.wantGrace(b.sync(machine.Request{Claim: []partition.ID{3}}), long)
		tb.wantGrants(a.sync(machine.Request{Hold: []partition.Grant{g}}), g)
	}},
	{"a grace lasts as long as the longest lease that was heard of before", canForget, func(tb *table) {
		long := tb.long()
		a, b := tb.peerWith("a", long), tb.peer("b")
		a.gets(3)
		longest := b.join().Longest
		if longest != long.Lease {
			tb.Fatalf("the longest lease is said to be %v, want %v", longest, long.Lease)
		}
		tb.restart(false)
		if got := tb.peer("c").join(); got.Grace > tb.timing.Grace() {
			tb.Fatalf("nobody has told of a longer lease, and the grace has %v left", got.Grace)
		}
		for range 2 { // the second time it is nothing new
			tb.wantGrace(b.sync(machine.Request{Longest: longest, Claim: []partition.ID{3}}), long)
		}
		tb.pass(long.Lease / 2)
		if got := b.sync(machine.Request{Longest: longest}); got.Grace > long.Grace()/2+tb.slack() {
			tb.Fatalf("%v of the grace are left after half of it", got.Grace)
		}
	}},
	{"the longest lease counts for as long as who keeps it is known", canRestart, func(tb *table) {
		long := tb.long()
		a, b := tb.peerWith("a", long), tb.peer("b")
		a.join()
		for range 3 { // a says nothing for longer than its lease
			tb.pass(long.Lease / 2)
			b.join()
		}
		// What b has heard is old: only one whom the store has forgotten could make it true.
		if got := b.sync(machine.Request{Longest: long.Lease}).Longest; got != tb.timing.Lease {
			tb.Fatalf("the longest lease is said to be %v, want %v", got, tb.timing.Lease)
		}
		tb.restart(true)
		tb.wantGrace(b.join(), tb.timing)
	}},
	{"a longer lease than that of who removes a session counts on", canRestart, func(tb *table) {
		long := tb.long()
		a, b := tb.peerWith("a", long), tb.peer("b")
		a.join()
		tb.peer("c").join()
		for range 3 { // a and c say nothing, c for longer than its lease
			tb.pass(tb.timing.Lease / 2)
			b.join()
		}
		if got := b.join().Longest; got != long.Lease {
			tb.Fatalf("the longest lease is said to be %v, want %v", got, long.Lease)
		}
		tb.restart(true)
		tb.wantGrace(b.join(), long)
	}},
	{"who waited for what was given up in a grace may die", canRestart, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(5)
		b.claims(5)
		tb.restart(true)
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{g}}))
		if o := tb.owner(5); o.Session != "" {
			tb.Fatalf("partition 5 went to %q in a grace", o.Session)
		}
		tb.pass(tb.timing.Lease/2 + tb.slack())
		a.join()
		tb.pass(tb.timing.Lease/2 + tb.slack())
		tb.wantGrants(a.sync(machine.Request{Claim: []partition.ID{5}}), tb.owner(5).Grant)
		if s := tb.seat(b); s.Session != "" {
			tb.Fatalf("b is still known: %+v", s)
		}
	}},
	{"nobody is asked to come before the end of a grace", canRestart, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.pass(tb.timing.Lease / 2)
		tb.restart(true)
		if got := tb.peer("b").join(); got.Expiry < got.Grace {
			tb.Fatalf("a lease has run out in %v, and for %v nobody is removed", got.Expiry, got.Grace)
		}
	}},
	{"the grace ends", canForget, func(tb *table) {
		a := tb.peer("a")
		tb.restart(false)
		tb.pass(tb.timing.Grace() + tb.slack())
		if got := a.join(); got.Grace != 0 {
			tb.Fatalf("%v of the grace are left", got.Grace)
		}
		a.gets(3)
	}},
	{"the grace lasts", canForget, func(tb *table) {
		a := tb.peer("a")
		tb.restart(false)
		tb.pass(tb.timing.Grace() - tb.timing.ClockStep()/2 - tb.slack())
		tb.wantGrants(a.sync(machine.Request{Claim: []partition.ID{3}}))
	}},
	{"a jump of the clock does not end the grace", Abilities{Jump: true, Forget: true}, func(tb *table) {
		a := tb.peer("a")
		tb.restart(false)
		tb.h.Advance(tb.timing.Grace() * 10)
		tb.wantGrants(a.sync(machine.Request{Claim: []partition.ID{3}}))
	}},
	{"holds are honoured in a grace", canForget, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		tb.restart(false)
		tb.wantGrants(b.sync(machine.Request{Claim: []partition.ID{3}}))
		tb.wantGrants(a.sync(machine.Request{Hold: []partition.Grant{g}}), g)
	}},
	{"numbers go on above all that anybody saw", canForget, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		tb.restart(false)
		a.sync(machine.Request{Hold: []partition.Grant{g}})
		tb.pass(tb.timing.Grace() + tb.slack())
		if got := b.gets(4); got.Epoch <= g.Epoch {
			tb.Fatalf("granted %v after %v", got, g)
		}
	}},
	{"a claim in a grace does not wait", canRestart, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		tb.restart(true)
		b.claims(3)
		if m, _ := find(a.sync(machine.Request{Hold: []partition.Grant{g}}), 3); m.Wanted {
			tb.Fatal("somebody waits")
		}
	}},
	{"a release in a grace frees, and hands over to nobody", canRestart, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		b.claims(3)
		tb.restart(true)
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{g}}))
		if o := tb.owner(3); o.Grant.Epoch != 0 {
			tb.Fatalf("the partition stands as %+v", o)
		}
	}},
	{"no roll is due in a grace, and none can be sealed", canRestart, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.restart(true)
		if got := a.join(); got.Sealing {
			tb.Fatalf("a roll is due in %v", got.Due)
		}
		if err := tb.main.Seal(tb.Context(), tb.roll(tb.census(), a)); !errors.Is(err, transition.ErrStale) {
			tb.Fatalf("seal: got %v, want ErrStale", err)
		}
		tb.pass(tb.timing.Grace() + tb.slack())
		if !a.join().Sealing {
			tb.Fatal("no roll is due after the grace")
		}
		tb.seal(a)
	}},
	{"nobody is removed in a grace", canRestart, func(tb *table) {
		a := tb.peer("a")
		a.gets(3)
		tb.pass(tb.timing.Lease / 2)
		tb.restart(true)
		tb.pass(tb.timing.Lease/2 + tb.slack()) // past its lease, inside the grace
		if tb.seat(a).State == 0 {
			tb.Fatal("the session was removed")
		}
		tb.pass(tb.timing.Lease/2 + tb.slack())
		if tb.seat(a).State != 0 {
			tb.Fatal("the session is still there after the grace")
		}
	}},
	{"a grace is not announced twice for one restart", canRestart, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.restart(true)
		tb.pass(tb.timing.Grace() / 2)
		if got := a.join().Grace; got > tb.timing.Grace()/2+tb.slack() {
			tb.Fatalf("%v of the grace are left after half of it", got)
		}
	}},
}

// long returns times with twice the lease of the others.
func (tb *table) long() transition.Timing {
	long := tb.timing
	long.Lease *= 2
	return long
}

// wantGrace wants a grace that has just begun, in which nobody with such times is forgotten.
func (tb *table) wantGrace(a machine.Answer, t transition.Timing) {
	tb.Helper()
	tb.wantGrants(a)
	if a.Grace < t.Grace()-t.ClockStep() || a.Grace > t.Grace() {
		tb.Fatalf("the grace has %v left, want %v", a.Grace, t.Grace())
	}
	if got := tb.census().Grace; got < a.Grace-t.ClockStep() || got > a.Grace+tb.slack() {
		tb.Fatalf("the census says that the grace has %v left, and an answer %v", got, a.Grace)
	}
}

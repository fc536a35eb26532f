package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// rollClauses are about when a roll is due and how it is sealed.
var rollClauses = []clause{
	{"a roll is due a settle time after the first change it does not know", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		tb.wantDue(a.join(), tb.timing.Settle)
		half := tb.timing.Settle / 2
		tb.pass(half)
		tb.wantDue(b.join(), tb.timing.Settle-half)
		tb.pass(tb.timing.Settle)
		tb.wantDue(a.join(), -half)
		tb.seal(a, b)
		if got := a.join(); got.Sealing {
			tb.Fatalf("after a roll was sealed the next is due in %v", got.Due)
		}
		tb.wantDue(a.sync(machine.Request{State: machine.Leaving}), tb.timing.Settle)
	}},
	{"another weight, other tags, and being unwell, make a roll due, once", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.sync(machine.Request{Weight: 2})
		b.join()
		tb.seal(a, b)
		for _, r := range []machine.Request{
			{Weight: 3}, {Weight: 3, Unwell: true}, {Weight: 4, Unwell: true}, {Weight: 4},
			{Weight: 4, Tags: "eu gpu"}, {Weight: 4, Tags: "gpu", Unwell: true},
		} {
			tb.wantDue(a.sync(r), tb.timing.Settle)
			if s := tb.seat(a); s.Weight != r.Weight || s.Unwell != r.Unwell || s.Tags != r.Tags {
				tb.Fatalf("said %+v, the seat is %+v", r, s)
			}
			tb.seal(a, b)
			if got := a.sync(r); got.Sealing {
				tb.Fatalf("said again it makes another roll due in %v", got.Due)
			}
		}
	}},
	{"another strategy is told, and makes no roll due", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.seal(a)
		for _, strategy := range []string{"jump", "ring", ""} {
			got := a.sync(machine.Request{Strategy: strategy})
			if s := tb.seat(a); s.Strategy != strategy || got.Sealing {
				tb.Fatalf("said %q, the seat says %q, a roll is due: %v", strategy, s.Strategy, got.Sealing)
			}
		}
	}},
	{"a peer may take another id: the next roll has it", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		a.name = "c"
		a.join()
		if s := tb.seat(a); s.Peer != "c" {
			tb.Fatalf("it said c, its seat says %q", s.Peer)
		}
		b.join()
		tb.seal(a, b)
		for _, m := range tb.census().Roll.Members {
			if m.Session == a.session && m.Peer != "c" {
				tb.Fatalf("the roll calls it %q", m.Peer)
			}
		}
	}},
	{"what flips does not put the roll off", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.sync(machine.Request{Weight: 1})
		tb.seal(a)
		a.sync(machine.Request{Weight: 1, Unwell: true})
		half := tb.timing.Settle / 2
		tb.pass(half)
		tb.wantDue(a.sync(machine.Request{Weight: 1}), tb.timing.Settle-half)
		tb.wantDue(a.sync(machine.Request{Weight: 1, Unwell: true}), tb.timing.Settle-half)
	}},
	{"what a peer says of itself ends with its lease", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.sync(machine.Request{Weight: 2, Unwell: true})
		tb.pass(tb.timing.Lease / 2)
		b.join()
		tb.pass(tb.timing.Lease/2 + tb.slack())
		b.join()
		tb.seal(b)
		tb.wantDue(a.sync(machine.Request{Weight: 1}), tb.timing.Settle)
		if s := tb.seat(a); s.Weight != 1 || s.Unwell {
			tb.Fatalf("it came back as %+v", s)
		}
	}},
	{"the removal of a live session makes a roll due at once", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		b.join()
		tb.pass(tb.timing.Lease / 2)
		a.join()
		tb.seal(a, b)
		tb.pass(tb.timing.Lease/2 + tb.slack())
		got := a.join()
		if tb.seat(b).State != 0 {
			tb.Fatal("the dead session is still there")
		}
		if !got.Sealing || got.Due > 0 {
			tb.Fatalf("sealing %v, due %v, want due now", got.Sealing, got.Due)
		}
	}},
	{"a roll is sealed on top of the newest only", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		old := tb.census()
		tb.seal(a)
		before := tb.census().Roll
		if err := tb.main.Seal(tb.Context(), tb.roll(old, a)); !errors.Is(err, transition.ErrStale) {
			tb.Fatalf("a second roll on top of the same one: got %v, want ErrStale", err)
		}
		if now := tb.census().Roll; now.Version != before.Version {
			tb.Fatalf("roll %d was replaced by %d", before.Version, now.Version)
		}
	}},
	{"of many that seal at once one does", Abilities{}, func(tb *table) {
		const peers = 8
		a := tb.peer("a")
		a.join()
		for range 3 {
			next := tb.roll(tb.census(), a)
			errs := make([]error, peers)
			var wg sync.WaitGroup
			for i := range peers {
				ledger := tb.peer(fmt.Sprint("p", i)).ledger
				wg.Go(func() { errs[i] = ledger.Seal(tb.Context(), next) })
			}
			wg.Wait()
			sealed := 0
			for _, err := range errs {
				switch {
				case err == nil:
					sealed++
				case !errors.Is(err, transition.ErrStale):
					tb.Fatal(err)
				}
			}
			if sealed != 1 {
				tb.Fatalf("%d peers sealed a roll on top of roll %d", sealed, next.Version)
			}
		}
	}},
	{"a roll built on an older membership is stored and the next stays due", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		old := tb.census()
		b.join()
		tb.pass(tb.timing.Settle)
		if err := tb.main.Seal(tb.Context(), tb.roll(old, a)); err != nil {
			tb.Fatal(err)
		}
		c := tb.census()
		if len(c.Roll.Members) != 1 || c.Roll.Membership != old.Membership {
			tb.Fatalf("stored was %+v", c.Roll)
		}
		tb.wantDue(a.join(), tb.timing.Settle) // b is in none
	}},
	{"a roll replaces the whole of the one before", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		b.join()
		tb.seal(a, b)
		tb.seal(b)
		if c := tb.census(); len(c.Roll.Members) != 1 || c.Roll.Members[0].Session != b.session {
			tb.Fatalf("the roll has %+v, want b alone", c.Roll.Members)
		}
	}},
	{"an answer brings the sender's line of a roll it does not know", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		if a.join().Line != nil {
			tb.Fatal("a line without a roll")
		}
		b.join()
		membership := tb.census().Membership
		version := tb.seal(a, b)
		l := b.join().Line
		if l == nil || l.Version != version || l.Membership != membership || l.Replicas != 2 ||
			l.Index != 1 || !slices.Equal(l.Partitions, []partition.ID{1}) {
			tb.Fatalf("b's line of roll %d on membership %d is %+v", version, membership, l)
		}
		if l := b.sync(machine.Request{View: version - 1}).Line; l == nil || l.Version != version {
			tb.Fatalf("who knows an older roll gets %+v", l)
		}
		if l := b.sync(machine.Request{View: version}).Line; l != nil {
			tb.Fatalf("who knows the newest roll gets %+v", l)
		}
	}},
	{"who is not in the roll is told so", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		b.join()
		version := tb.seal(a)
		l := b.join().Line
		if l == nil || l.Version != version || l.Index != -1 || l.Replicas != 1 || len(l.Partitions) != 0 {
			tb.Fatalf("got %+v", l)
		}
	}},
	{"a line lists all its partitions in ascending order", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		c := tb.census()
		next := tb.roll(c, a)
		want := []partition.ID{0, 1, 2, 3, 5, 7, 8, 15, partition.FirstUnit, partition.FirstUnit + 1}
		next.Members[0].Partitions = want
		if err := tb.main.Seal(tb.Context(), next); err != nil {
			tb.Fatal(err)
		}
		if l := a.join().Line; l == nil || !slices.Equal(l.Partitions, want) {
			tb.Fatalf("sealed %v, the line is %+v", want, l)
		}
	}},
	{"the seats of a roll come back with the census", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		next := tb.roll(tb.census(), a)
		next.Chairs = []machine.Chair{
			{Seat: 0, Session: "gone", Peer: "a peer", Tags: "eu gpu", Since: 1234 * time.Millisecond},
			{Seat: 2, Session: a.session, Peer: a.name},
		}
		if err := tb.main.Seal(tb.Context(), next); err != nil {
			tb.Fatal(err)
		}
		c := tb.census()
		if !slices.Equal(c.Roll.Chairs, next.Chairs) || len(c.Roll.Members) != 1 || c.Clock <= 0 {
			tb.Fatalf("stored was %+v, %d members, clock %v", c.Roll.Chairs, len(c.Roll.Members), c.Clock)
		}
		tb.pass(tb.timing.ClockStep())
		if d := tb.census().Clock - c.Clock; d < tb.timing.ClockStep()/2 {
			tb.Fatalf("a clock step later the clock shows %v more", d)
		}
		tb.seal(a)
		if got := tb.census().Roll.Chairs; len(got) != 0 {
			tb.Fatalf("a roll without seats has %+v", got)
		}
	}},
	{"a roll of nobody can be sealed", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.seal(a)
		a.sync(machine.Request{State: machine.Leaving})
		version := tb.seal()
		l := a.sync(machine.Request{State: machine.Leaving}).Line
		if l == nil || l.Version != version || l.Replicas != 0 || l.Index != -1 {
			tb.Fatalf("got %+v of roll %d", l, version)
		}
	}},
}

// wantDue fails unless a says that a roll is due in d, give or take the slack.
func (tb *table) wantDue(a machine.Answer, d time.Duration) {
	tb.Helper()
	if !a.Sealing || a.Due < d-tb.slack() || a.Due > d+tb.slack() {
		tb.Fatalf("sealing %v, due in %v, want in %v", a.Sealing, a.Due, d)
	}
}

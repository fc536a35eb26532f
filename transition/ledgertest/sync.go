package ledgertest

import (
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// syncClauses are about sessions, their states and the membership.
var syncClauses = []clause{
	{"a Sync lifts the count to the highest number its sender saw", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		if got := a.sync(machine.Request{Top: 1000}).Count; got < 1000 {
			tb.Fatalf("count %d after a Sync that had seen 1000", got)
		}
		if got := tb.census().Membership; got <= 1000 {
			// A roll built on it would else be taken for one built on an older membership.
			tb.Fatalf("the change of membership has number %d, want one above 1000", got)
		}
		if g := a.gets(3); g.Epoch <= 1000 {
			tb.Fatalf("got %v, want an epoch above 1000", g)
		}
	}},
	{"every number given out is greater than all before", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		var last uint64
		rises := func(what string, n uint64) {
			tb.Helper()
			if n <= last {
				tb.Fatalf("%s has number %d, not above %d", what, n, last)
			}
			last = n
		}
		a.join()
		rises("the first member", tb.census().Membership)
		rises("a grant", uint64(a.gets(1).Epoch))
		b.join()
		rises("the second member", tb.census().Membership)
		rises("a roll", tb.seal(a, b))
		rises("another grant", uint64(b.gets(2).Epoch))
		b.sync(machine.Request{State: machine.Leaving})
		rises("a leaver", tb.census().Membership)
		rises("another roll", tb.seal(a))
	}},
	{"an unknown session enters in the state it says", Abilities{}, func(tb *table) {
		for _, state := range []machine.State{machine.Live, machine.Leaving, machine.Gone} {
			p := tb.peer(state.String())
			before := tb.census().Membership
			g := partition.Grant{ID: partition.ID(state), Epoch: 1}
			a := p.sync(machine.Request{State: state, Hold: []partition.Grant{g}})
			if got := tb.seat(p).State; got != state {
				tb.Errorf("entered %v, is %v", state, got)
			}
			if _, has := find(a, g.ID); has == (state == machine.Gone) {
				tb.Errorf("%v, and says that it holds %v: has it: %v", state, g, has)
			}
			if changed := tb.census().Membership != before; changed != (state == machine.Live) {
				tb.Errorf("%v: membership changed: %v", state, changed)
			}
		}
	}},
	{"the same Sync again changes nothing", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		g := a.gets(4)
		before := tb.census()
		for range 3 {
			tb.wantGrants(a.sync(machine.Request{Hold: []partition.Grant{g}}), g)
			tb.wantGrants(a.sync(machine.Request{Claim: []partition.ID{4}}), g)
		}
		if now := tb.census(); now.Count != before.Count || now.Membership != before.Membership {
			tb.Fatalf("count %d -> %d, membership %d -> %d", before.Count, now.Count, before.Membership, now.Membership)
		}
		if o := tb.owner(4); o.Waiter != "" {
			tb.Fatalf("%s waits for what it has", o.Waiter)
		}
	}},
	{"the same question gets another answer once something changed", Abilities{}, func(tb *table) {
		// For ledgers that answer an unchanged question without looking.
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		b.join()
		c.join()
		g := a.gets(4)
		ask := func() machine.Held {
			tb.Helper()
			m, ok := find(a.sync(machine.Request{Hold: []partition.Grant{g}}), 4)
			if !ok {
				tb.Fatal("the answer does not list the grant any more")
			}
			return m
		}
		wanted := func(want bool, when string) {
			tb.Helper()
			ask()
			if got := ask().Wanted; got != want {
				tb.Fatalf("wanted is %v %s", got, when)
			}
		}
		wanted(false, "at first")
		b.claims(4)
		wanted(true, "when b waits")
		b.sync(machine.Request{State: machine.Leaving})
		wanted(false, "when b left")
		c.claims(4)
		wanted(true, "when c waits")
		step := tb.timing.Lease / 4
		for range 6 { // c says nothing for longer than its lease
			tb.pass(step)
			ask()
		}
		wanted(false, "when c is dead")
		version := tb.seal(a)
		if a.sync(machine.Request{Hold: []partition.Grant{g}}).Line == nil {
			tb.Fatalf("the answer does not bring roll %d", version)
		}
	}},
	{"the state only moves forward", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		a.sync(machine.Request{State: machine.Leaving})
		before := tb.census().Membership
		tb.wantGrants(a.sync(machine.Request{State: machine.Live, Claim: []partition.ID{1}}))
		if got := tb.seat(a).State; got != machine.Leaving {
			tb.Fatalf("a late call made a leaving session %v", got)
		}
		if now := tb.census().Membership; now != before {
			tb.Fatal("a late call of a leaving session changed the membership")
		}
	}},
	{"leaving changes the membership, going after it does not", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		before := tb.census().Membership
		a.sync(machine.Request{State: machine.Leaving})
		left := tb.census().Membership
		if left <= before {
			tb.Fatal("leaving did not change the membership")
		}
		a.sync(machine.Request{State: machine.Gone})
		if now := tb.census().Membership; now != left {
			tb.Fatal("going changed the membership once more")
		}
	}},
	{"a late call does not revive a session that is gone, nor extend it", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		a.sync(machine.Request{State: machine.Gone})
		before := tb.census().Membership
		tb.pass(tb.timing.Lease / 2)
		late := machine.Request{Claim: []partition.ID{1}, Hold: []partition.Grant{{ID: 2, Epoch: 1}}}
		tb.wantGrants(a.sync(late))
		if s := tb.seat(a); s.State != machine.Gone || s.Lease > tb.timing.Lease/2+tb.slack() {
			tb.Fatalf("after a late call the session is %v with a lease of %v", s.State, s.Lease)
		}
		if now := tb.census().Membership; now != before {
			tb.Fatal("a late call changed the membership")
		}
		b.gets(1)
		b.gets(2)
		tb.pass(tb.timing.Lease/2 + tb.slack())
		if tb.seat(a).State != 0 {
			tb.Fatal("the row of a session that is gone outlives its lease")
		}
	}},
	{"who is first heard of as gone stays gone", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.sync(machine.Request{State: machine.Gone})
		tb.pass(tb.timing.Lease / 2)
		tb.wantGrants(a.sync(machine.Request{Claim: []partition.ID{1}})) // a late call of its life
		if got := tb.seat(a).State; got != machine.Gone {
			tb.Fatalf("a late call made it %v", got)
		}
	}},
	{"a census shows how time passes", Abilities{Jump: true}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		before, step := tb.seat(a).Lease, tb.timing.ClockStep()/2
		tb.h.Advance(step) // and nobody says anything
		if got := before - tb.seat(a).Lease; got != step {
			tb.Fatalf("the lease is %v shorter after %v", got, step)
		}
	}},
	{"an answer says when a lease has run out", Abilities{Jump: true}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		b.join()
		tb.pass(tb.timing.Lease / 2)
		wait := a.join().Expiry
		tb.pass(wait - time.Millisecond)
		if tb.seat(b).State == 0 {
			tb.Fatalf("removed before the %v were over", wait)
		}
		tb.pass(time.Millisecond)
		if tb.seat(b).State != 0 {
			tb.Fatalf("still there after %v", wait)
		}
	}},
	{"removing a session that was not live does not change the membership", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		a.sync(machine.Request{State: machine.Leaving})
		before := tb.census().Membership
		tb.pass(tb.timing.Lease + tb.slack())
		if tb.seat(a).State != 0 {
			tb.Fatal("the session is still there")
		}
		if now := tb.census().Membership; now != before {
			tb.Fatal("its removal changed the membership")
		}
	}},
	{"a store behind the sender's roll makes the next one due", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		version := tb.seal(a)
		if a.sync(machine.Request{View: version}).Sealing {
			tb.Fatal("a roll is due right after one was sealed")
		}
		got := a.sync(machine.Request{View: version + 100, Top: version + 100})
		if !got.Sealing {
			tb.Fatal("no roll is due although the sender knows a newer one than the store")
		}
		if got.Line != nil {
			tb.Fatalf("it is told of roll %d, which is older", got.Line.Version)
		}
		before := tb.census().Membership
		a.sync(machine.Request{View: version + 100})
		if tb.census().Membership != before {
			tb.Fatal("the membership changed again while a roll was due")
		}
		if next := tb.seal(a); next <= version+100 {
			tb.Fatalf("the next roll is %d, not above what the sender knows", next)
		}
	}},
	{"a peer that comes back under its id is another session", Abilities{}, func(tb *table) {
		a, again := tb.peer("a"), tb.peer("b")
		again.name = "a"
		g := a.gets(1)
		tb.wantGrants(again.sync(machine.Request{
			Hold:    []partition.Grant{g},
			Release: []partition.Grant{g},
			Claim:   []partition.ID{1},
		}))
		if o := tb.owner(1); o.Session != a.session || o.Grant != g {
			tb.Fatalf("partition 1 went to %+v", o)
		}
	}},
}

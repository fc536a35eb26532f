package ledgertest

import (
	"errors"
	"fmt"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// barrierClauses are about peers that go from roll to roll by the barrier.
var barrierClauses = []clause{
	{"an answer says how many are behind the newest roll", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.at(0)
		b.at(0)
		first := tb.seal(a, b)
		tb.wantBehind(a.at(first), 0)
		tb.wantBehind(b.at(first), 0)
		second := tb.seal(a, b)
		tb.wantBehind(a.at(first), 2)
		tb.wantBehind(a.at(second), 1)
		tb.wantBehind(a.at(second), 1)
		tb.wantBehind(b.at(second), 0)
		// For ledgers that answer an unchanged question without looking.
		tb.wantBehind(a.at(second), 0)
		tb.wantBehind(a.at(second), 0)
		for _, p := range []*peer{a, b} {
			if s := tb.seat(p); s.Arrived != second {
				tb.Fatalf("the seat of %s has arrived at %d, want %d", p.name, s.Arrived, second)
			}
		}
		if n := len(tb.census().Grants); n != 0 {
			tb.Fatalf("%d grants, although nobody claimed any", n)
		}
	}},
	{"arrivals and grants stand beside each other", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		version := tb.seal(a, b)
		a.at(version)
		g := a.barrier(machine.Request{Arrived: version, Claim: []partition.ID{3}}).Mine[0].Grant
		b.at(version)
		tb.wantGrants(a.at(version), g) // not said to be held: it is looked for
		if s, o := tb.seat(b), tb.owner(3); s.Arrived != version || o.Grant != g {
			tb.Fatalf("b has arrived at %d, partition 3 is %+v", s.Arrived, o)
		}
	}},
	{"while anybody is behind no roll is due, and a settle time after", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		a.at(0)
		b.at(0)
		first := tb.seal(a, b)
		a.at(first)
		b.at(first)
		second := tb.seal(a, b)
		c.at(0)
		tb.pass(2 * tb.timing.Settle)
		if got := a.at(second); got.Sealing {
			tb.Fatalf("a roll is due in %v while b is behind", got.Due)
		}
		if err := tb.main.Seal(tb.Context(), tb.roll(tb.census(), a, b, c)); !errors.Is(err, transition.ErrStale) {
			tb.Fatalf("a roll was sealed while b is behind: got %v, want ErrStale", err)
		}
		tb.wantDue(b.at(second), tb.timing.Settle)
		tb.seal(a, b, c)
	}},
	{"who has arrived nowhere is not waited for", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.at(0)
		b.at(0)
		version := tb.seal(a, b)
		tb.wantBehind(a.at(version), 0)
		tb.wantBehind(a.at(tb.seal(a)), 0)
	}},
	{"who is leaving is waited for, who is gone is not", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		first := tb.seal(a, b)
		a.at(first)
		b.at(first)
		b.barrier(machine.Request{State: machine.Leaving, Arrived: first})
		second := tb.seal(a)
		tb.wantBehind(a.at(second), 1)
		b.barrier(machine.Request{State: machine.Gone, Arrived: first})
		tb.wantBehind(a.at(second), 0)
		b.at(first) // a late call of its earlier life
		tb.wantBehind(a.at(second), 0)
	}},
	{"who goes or dies and was not waited for leaves others waited for", Abilities{}, func(tb *table) {
		a, b, goes, dies := tb.peer("a"), tb.peer("b"), tb.peer("c"), tb.peer("d")
		all := []*peer{a, b, goes, dies}
		first := tb.seal(all...)
		for _, p := range all {
			p.at(first)
		}
		second := tb.seal(all...)
		goes.at(second)
		dies.at(second)
		tb.wantBehind(a.at(second), 1)
		goes.barrier(machine.Request{State: machine.Gone, Arrived: second})
		tb.wantBehind(a.at(second), 1)
		tb.pass(tb.timing.Lease / 2)
		b.at(first)
		a.at(second)
		tb.pass(tb.timing.Lease/2 + tb.slack())
		tb.wantBehind(a.at(second), 1)
		tb.wantBehind(b.at(second), 0)
	}},
	{"who died is waited for no longer than its lease", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		first := tb.seal(a, b)
		a.at(first)
		b.barrier(machine.Request{Arrived: first, Claim: []partition.ID{5}}) // which it leaves behind
		second := tb.seal(a, b)
		tb.pass(tb.timing.Lease / 2)
		tb.wantBehind(a.at(second), 1)
		tb.pass(tb.timing.Lease/2 + tb.slack())
		tb.wantBehind(a.at(second), 0)
	}},
	{"who died and was waited for holds up no Seal", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		first := tb.seal(a, b)
		a.at(first)
		b.at(first)
		second := tb.seal(a, b)
		tb.pass(tb.timing.Lease / 2)
		a.at(second)
		tb.pass(tb.timing.Lease/2 + tb.slack())
		tb.seal(a) // nobody has asked since
	}},
	{"the first decides on a barrier in a store that forgot", canForget, func(tb *table) {
		tb.restart(false)
		a, b := tb.peer("a"), tb.peer("b")
		a.at(0)
		b.at(0)
	}},
	{"who may still live without a barrier is not ended by one in a grace", canRestart, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.sync(machine.Request{Weight: 1})
		tb.pass(tb.timing.Lease / 2)
		tb.restart(true)
		tb.pass(tb.timing.Lease/2 + tb.slack()) // past its lease, inside the grace
		eager := machine.Request{Weight: 1, Barrier: true}
		if _, err := b.try(tb.Context(), eager); !errors.Is(err, transition.ErrUnsure) {
			tb.Fatalf("got %v, want ErrUnsure", err)
		}
		a.sync(machine.Request{Weight: 1})
		if _, err := b.try(tb.Context(), eager); !errors.Is(err, partition.ErrConfig) {
			tb.Fatalf("got %v, want ErrConfig", err)
		}
	}},
	{"who has not called since a restart may be dead, whatever is left of its lease", canRestart, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.sync(machine.Request{Weight: 1})
		tb.pass(tb.timing.Beat())
		tb.restart(true) // what killed the store has killed a, or came back with what stood when a was there
		eager := machine.Request{Weight: 1, Barrier: true}
		for range 5 {
			if _, err := b.try(tb.Context(), eager); !errors.Is(err, transition.ErrUnsure) {
				tb.Fatalf("got %v, want ErrUnsure", err)
			}
			tb.h.Advance(tb.timing.Beat())
		}
		tb.h.Advance(tb.slack())
		b.at(0)
	}},
	{"where nobody is left a barrier is decided on when the grace is over", canRestart, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.sync(machine.Request{Weight: 1})
		a.sync(machine.Request{Weight: 1, State: machine.Gone})
		tb.restart(true)
		eager := machine.Request{Weight: 1, Barrier: true}
		for range 5 { // its calls alone let the grace end
			if _, err := b.try(tb.Context(), eager); !errors.Is(err, transition.ErrUnsure) {
				tb.Fatalf("got %v, want ErrUnsure", err)
			}
			tb.h.Advance(tb.timing.Beat())
		}
		tb.h.Advance(tb.slack())
		b.at(0)
	}},
	{"an arrival is never taken back", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		first := tb.seal(a, b)
		a.at(first)
		b.at(first)
		second := tb.seal(a, b)
		b.at(second)
		b.at(first) // a late call
		b.at(0)
		tb.wantBehind(a.at(second), 0)
		third := tb.seal(a, b)
		tb.wantBehind(a.at(third), 1)
	}},
	{"who knows a roll that the store does not is told to wait", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		version := tb.seal(a)
		for range 3 { // also by a ledger that answers an unchanged question without looking
			tb.wantBehind(a.barrier(machine.Request{View: version + 100, Arrived: version + 100}), 1)
		}
	}},
	{"nobody goes on while somebody has arrived at a roll that the store does not know", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		version := tb.seal(a, b)
		b.at(version)
		tb.wantBehind(b.at(version), 0)
		a.barrier(machine.Request{View: version + 100, Arrived: version + 100, Top: version + 100})
		for range 3 { // also by a ledger that answers an unchanged question without looking
			tb.wantBehind(b.at(version), 1)
		}
		tb.pass(tb.timing.Settle)
		if got := b.at(version); !got.Sealing || got.Due > 0 {
			tb.Fatalf("sealing %v, due in %v: nobody would ever go on", got.Sealing, got.Due)
		}
		next := tb.seal(a, b)
		tb.wantBehind(b.at(next), 1) // a, where it was
		a.barrier(machine.Request{View: next, Arrived: next})
		tb.wantBehind(b.at(next), 0)
	}},
	{"who arrives at a roll that the store does not know leaves others waited for", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		first := tb.seal(a, b, c)
		a.at(first)
		b.at(first)
		c.at(first)
		second := tb.seal(a, b, c)
		a.at(second)
		tb.wantBehind(b.at(second), 1)
		a.barrier(machine.Request{View: second + 100, Arrived: second + 100, Top: second + 100})
		tb.wantBehind(b.at(second), 2) // c, and a
		tb.wantBehind(c.at(second), 1)
	}},
	{"peers of a name have a barrier all or none", Abilities{}, func(tb *table) {
		eager, other, index := tb.peer("a"), tb.peer("b"), tb.peer("c")
		eager.at(0)
		refused := func(p *peer, r machine.Request) {
			tb.Helper()
			r.Weight = 1
			before := tb.census()
			if _, err := p.try(tb.Context(), r); !errors.Is(err, partition.ErrConfig) {
				tb.Fatalf("got %v, want ErrConfig", err)
			}
			if now := tb.census(); now.Count != before.Count || len(now.Sessions) != len(before.Sessions) {
				tb.Fatal("a refused call changed the ledger")
			}
		}
		refused(other, machine.Request{})
		index.join() // claims nothing, and has no part in it
		eager.barrier(machine.Request{State: machine.Gone})
		other.sync(machine.Request{Weight: 1})
		refused(tb.peer("d"), machine.Request{Barrier: true})
		tb.pass(tb.timing.Lease + tb.slack())
		tb.peer("e").at(0)
	}},
	{"the dead have no say about a barrier, however many they are", Abilities{}, func(tb *table) {
		heir := tb.peer("heir")
		for i := range 20 { // more than one call removes
			tb.peer(fmt.Sprint("dead", i)).sync(machine.Request{Weight: 1})
		}
		tb.pass(tb.timing.Lease - tb.slack())
		tb.h.Advance(3 * tb.slack())
		heir.at(0)
	}},
}

// at syncs as one that has arrived at the roll version, and knows it.
func (p *peer) at(version uint64) machine.Answer {
	p.tb.Helper()
	return p.barrier(machine.Request{View: version, Arrived: version})
}

func (p *peer) barrier(r machine.Request) machine.Answer {
	p.tb.Helper()
	r.Barrier, r.Weight = true, 1
	return p.sync(r)
}

func (tb *table) wantBehind(a machine.Answer, n int) {
	tb.Helper()
	if a.Behind != n {
		tb.Fatalf("%d are behind, want %d", a.Behind, n)
	}
}

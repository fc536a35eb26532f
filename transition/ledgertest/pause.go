package ledgertest

import (
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// pauseClauses are for ledgers that are a transition.Pauser.
var pauseClauses = []clause{
	{"a paused name grants nothing and hands nothing over", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		b.claims(3)
		tb.pause(pause)
		if got := a.sync(machine.Request{Hold: []partition.Grant{g}, Claim: []partition.ID{4}}); len(got.Mine) != 1 || got.Mine[0].Grant != g {
			tb.Errorf("the answer lists %+v, want %v, which is worked on, and nothing that is new", got.Mine, g)
		}
		tb.wantGrants(b.sync(machine.Request{Claim: []partition.ID{3, 5}}))
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{g}}))
		if o := tb.owner(3); o.Grant.Epoch != 0 {
			tb.Errorf("what was given up went to %+v", o)
		}
		tb.wantGrants(b.sync(machine.Request{Claim: []partition.ID{3}}))
		held := partition.Grant{ID: 6, Epoch: g.Epoch + 100} // its owner drains it, and the store has forgotten
		tb.wantGrants(a.sync(machine.Request{Hold: []partition.Grant{held}, Top: uint64(held.Epoch)}), held)
		tb.pause(partition.Pause{})
		if got := b.gets(3); got.Epoch <= g.Epoch {
			tb.Errorf("after the pause it was granted as %v, and before as %v", got, g)
		}
	}},
	{"a pause is told to all, also to who has nothing new to say", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		for range 3 {
			a.sync(machine.Request{Hold: []partition.Grant{g}})
			b.join()
		}
		told := func(want bool) {
			tb.Helper()
			if got := a.sync(machine.Request{Hold: []partition.Grant{g}}).Paused; got != want {
				tb.Errorf("the owner of a partition is told %v, want %v", got, want)
			}
			if got := b.join().Paused; got != want {
				tb.Errorf("who has nothing is told %v, want %v", got, want)
			}
		}
		for range 2 { // the second pause is news as well
			told(false)
			tb.pause(pause)
			told(true)
			told(true)
			tb.pause(partition.Pause{})
		}
		told(false)
		tb.pause(pause)
		if !tb.peer("c").join().Paused {
			tb.Error("a newcomer is not told")
		}
	}},
	{"a pause and its end are hinted to everybody", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		b.join()
		pauses := []partition.Pause{pause, {}}
		for _, p := range []*peer{a, b} {
			tb.wantHint(p, func() {
				tb.pause(pauses[0])
				pauses[0], pauses[1] = pauses[1], pauses[0]
			})
		}
	}},
	{"of two pauses the first counts, and the census tells it", Abilities{}, func(tb *table) {
		tb.peer("a").join()
		for _, p := range []partition.Pause{pause, {Since: pause.Since.Add(time.Hour), Why: "another"}} {
			tb.pause(p)
			if got := tb.census().Config.Paused; got != pause {
				tb.Errorf("the census says %+v, want %+v", got, pause)
			}
		}
		tb.pause(partition.Pause{})
		tb.pause(partition.Pause{})
		if got := tb.census().Config.Paused; got != (partition.Pause{}) {
			tb.Errorf("resumed, the census says %+v", got)
		}
	}},
	{"a pause outlives a restart of the store", Abilities{Restart: true}, func(tb *table) {
		a := tb.peer("a")
		g := a.gets(3)
		tb.pause(pause)
		tb.restart(true)
		if !a.sync(machine.Request{Hold: []partition.Grant{g}}).Paused {
			tb.Error("it is forgotten")
		}
	}},
	{"a pause that cannot be written down is refused", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		if err := tb.pauser().Pause(tb.Context(), partition.Pause{Since: pause.Since, Why: "two\nlines"}); err == nil {
			tb.Error("two lines are let through")
		}
		if a.join().Paused {
			tb.Error("and the name is paused")
		}
	}},
}

var pause = partition.Pause{Since: time.Unix(1_790_000_000, 0).UTC(), Why: "the database moves"}

func (tb *table) pauser() transition.Pauser {
	tb.Helper()
	p, ok := tb.main.(watched).Ledger.(transition.Pauser)
	if !ok {
		tb.Skip("not checked: the ledger is no transition.Pauser")
	}
	return p
}

func (tb *table) pause(p partition.Pause) {
	tb.Helper()
	if err := tb.pauser().Pause(tb.Context(), p); err != nil {
		tb.Fatal(err)
	}
}

package ledgertest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// grantClauses are about holds, releases and claims.
var grantClauses = []clause{
	{"a claim of a free partition is granted with a new number", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		before := a.join().Count
		got := a.claims(3, 1)
		if len(got) != 2 || got[0].Epoch == got[1].Epoch ||
			uint64(min(got[0].Epoch, got[1].Epoch)) <= before {
			tb.Fatalf("claimed 3 and 1 at count %d, got %v", before, got)
		}
	}},
	{"units are granted like partitions", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.gets(partition.FirstUnit + 1)
	}},
	{"a claim of what another holds makes the claimant wait for it", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		if m, _ := find(a.join(), 3); m.Wanted {
			tb.Fatal("somebody waits although nobody asked")
		}
		tb.wantGrants(b.sync(machine.Request{Claim: []partition.ID{3}}))
		if m, _ := find(a.join(), 3); m.Grant != g || !m.Wanted {
			tb.Fatalf("the owner sees %+v, want %v and that somebody waits", m, g)
		}
	}},
	{"only the claims of a live session count", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		b.join()
		g := b.gets(1)
		for _, state := range []machine.State{machine.Leaving, machine.Gone} {
			tb.wantGrants(a.sync(machine.Request{State: state, Claim: []partition.ID{1, 2}}))
			if m, _ := find(b.join(), 1); m.Wanted {
				tb.Fatalf("a session that is %v waits for %v", state, g)
			}
		}
	}},
	{"nobody waits once the waiter is no longer live", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		a.gets(3)
		a.gets(4)
		b.claims(3)
		b.sync(machine.Request{State: machine.Leaving, Claim: []partition.ID{3}})
		if m, _ := find(a.join(), 3); m.Wanted {
			tb.Error("the owner is told that somebody waits, who leaves")
		}
		if o := tb.owner(3); o.Waiter != "" {
			tb.Errorf("the partition stands as %+v, and b leaves", o)
		}
		c.claims(4)
		for range 3 { // c says nothing for longer than its lease
			tb.pass(tb.timing.Lease / 2)
			a.join()
		}
		if m, _ := find(a.join(), 4); m.Wanted {
			tb.Error("the owner is told that somebody waits, who is dead")
		}
	}},
	{"an answer lists all that is the sender's, asked for or not", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		lost := a.claims(1, 2, 3) // as if this answer had been lost
		tb.wantGrants(a.join(), lost...)
	}},
	{"a release gives up exactly its grant", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		for _, other := range []partition.Grant{{ID: 3, Epoch: g.Epoch - 1}, {ID: 3, Epoch: g.Epoch + 1}, {ID: 4, Epoch: g.Epoch}} {
			tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{other}}), g)
		}
		b.sync(machine.Request{Release: []partition.Grant{g}})
		tb.wantGrants(a.join(), g)
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{g}}))
		if o := tb.owner(3); o.Grant.Epoch != 0 {
			tb.Fatalf("after its release the partition stands as %+v", o)
		}
	}},
	{"a late release does not touch a later grant of the same session", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		old := a.gets(3)
		a.sync(machine.Request{Release: []partition.Grant{old}})
		g := a.gets(3)
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{old}}), g)
	}},
	{"a release hands over to the live peer that waits, in the same step", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		b.claims(3)
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{g}}))
		o := tb.owner(3)
		if o.Session != b.session || o.Grant.Epoch <= g.Epoch || o.Waiter != "" {
			tb.Fatalf("after the release the partition stands as %+v, want a greater epoch of b", o)
		}
		tb.wantGrants(b.join(), o.Grant)
	}},
	{"the last to ask is who waits", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		g := a.gets(3)
		b.claims(3)
		c.claims(3)
		a.sync(machine.Request{Release: []partition.Grant{g}})
		if o := tb.owner(3); o.Session != c.session {
			tb.Fatalf("the partition went to %+v, want c", o)
		}
	}},
	{"who claims no longer what it asked for waits no longer", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		g, other := a.gets(3), a.gets(4)
		b.claims(3, 4)
		c.claims(3)
		b.claims(4) // 3 is what c waits for now: that is not b's to take back
		a.join()
		if m, _ := find(a.join(), 3); !m.Wanted {
			tb.Fatalf("the owner is not told that c waits for %v", g)
		}
		c.join()
		if o := tb.owner(3); o.Grant != g || o.Session != a.session || o.Waiter != "" {
			tb.Fatalf("the partition stands as %+v, want %v of a, for which nobody waits", o, g)
		}
		for _, m := range a.join().Mine {
			if m.Wanted != (m.Grant == other) {
				tb.Errorf("the owner is told %+v; b waits for %v alone", m, other)
			}
		}
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{g, other}}))
		if o := tb.owner(3); o.Grant.Epoch != 0 {
			tb.Errorf("partition 3 went to %+v, and nobody waited", o)
		}
		if o := tb.owner(4); o.Session != b.session {
			tb.Errorf("partition 4 went to %+v, want b", o)
		}
	}},
	{"a late claim is taken back by the next Sync", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.gets(3)
		b.join()
		b.join() // as quiet as can be
		late := *b
		late.ledger = tb.peer("who carries it").ledger
		late.claims(3)
		b.join()
		if o := tb.owner(3); o.Waiter != "" {
			tb.Errorf("the partition stands as %+v, and b does not ask for it", o)
		}
	}},
	{"nothing is handed to a waiter that is no longer live", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		first, second := a.gets(3), a.gets(4)
		b.claims(3)
		b.sync(machine.Request{State: machine.Leaving, Claim: []partition.ID{3}})
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{first}}), second)
		if o := tb.owner(3); o.Grant.Epoch != 0 {
			tb.Errorf("partition 3 went to %+v, who leaves", o)
		}
		tb.pass(tb.timing.Lease / 2)
		a.join()
		c.claims(4)
		for range 3 { // c says nothing for longer than its lease
			tb.pass(tb.timing.Lease / 2)
			a.join()
		}
		a.sync(machine.Request{Release: []partition.Grant{second}})
		if o := tb.owner(4); o.Grant.Epoch != 0 {
			tb.Errorf("partition 4 went to %+v, who is dead", o)
		}
	}},
	{"releases come before claims", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		g := a.gets(3)
		got := grants(a.sync(machine.Request{Release: []partition.Grant{g}, Claim: []partition.ID{3}}))
		if len(got) != 1 || got[0].ID != 3 || got[0].Epoch <= g.Epoch {
			tb.Fatalf("released and claimed %v in one Sync, got %v", g, got)
		}
	}},
	{"the grant of a session that is no longer known is free", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		tb.pass(tb.timing.Lease + tb.slack())
		if got := b.gets(3); got.Epoch <= g.Epoch {
			tb.Fatalf("b got %v after %v", got, g)
		}
		tb.wantGrants(a.sync(machine.Request{Release: []partition.Grant{g}}))
		if o := tb.owner(3); o.Session != b.session {
			tb.Fatalf("the dead session took it back: %+v", o)
		}
	}},
	{"a hold is honoured where the partition is free", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		g := partition.Grant{ID: 3, Epoch: 41}
		tb.wantGrants(a.sync(machine.Request{Hold: []partition.Grant{g}, Top: 41}), g)
		dead := b.gets(4)
		for range 3 { // b says nothing for longer than its lease
			tb.pass(tb.timing.Lease / 2)
			a.sync(machine.Request{Hold: []partition.Grant{g}})
		}
		held := partition.Grant{ID: 4, Epoch: dead.Epoch - 1}
		tb.wantGrants(c.sync(machine.Request{Hold: []partition.Grant{held}}), held)
	}},
	{"a hold takes the partition from a smaller epoch only", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		for _, e := range []partition.Epoch{g.Epoch - 1, g.Epoch} {
			tb.wantGrants(b.sync(machine.Request{Hold: []partition.Grant{{ID: 3, Epoch: e}}}))
		}
		greater := partition.Grant{ID: 3, Epoch: g.Epoch + 5}
		tb.wantGrants(b.sync(machine.Request{Hold: []partition.Grant{greater}, Top: uint64(greater.Epoch)}), greater)
		tb.wantGrants(a.join())
	}},
	{"epochs are compared as numbers, of more than 32 bits", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		at := func(p *peer, e partition.Epoch) machine.Answer {
			return p.sync(machine.Request{Hold: []partition.Grant{{ID: 3, Epoch: e}}, Top: uint64(e)})
		}
		const large = 1 << 40
		for _, step := range [][2]partition.Epoch{{99, 100}, {large + 1, large + 2}} {
			at(a, step[0])
			tb.wantGrants(at(b, step[1]), partition.Grant{ID: 3, Epoch: step[1]})
			tb.wantGrants(at(c, 20)) // the greater text, and the smaller number
		}
		if g := c.gets(4); g.Epoch <= large+2 {
			tb.Fatalf("after %d another is granted as %v", large+2, g)
		}
	}},
	{"one Sync may be about all partitions", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		all := tb.cfg.IDs()
		held := a.claims(all...)
		if len(held) != len(all) {
			tb.Fatalf("%d were claimed, and %d granted", len(all), len(held))
		}
		next := tb.roll(tb.census(), a)
		next.Members[0].Partitions = all
		if err := tb.main.Seal(tb.Context(), next); err != nil {
			tb.Fatal(err)
		}
		b.claims(all...)
		got := a.sync(machine.Request{Hold: held})
		if len(got.Mine) != len(all) || slices.ContainsFunc(got.Mine, func(m machine.Held) bool { return !m.Wanted }) {
			tb.Fatalf("%d are held, and another waits for all; the answer lists %d", len(all), len(got.Mine))
		}
		if got.Line == nil || !slices.Equal(got.Line.Partitions, all) {
			tb.Fatalf("the line is not of all: %+v", got.Line)
		}
		tb.wantGrants(a.sync(machine.Request{Release: held}))
		if got := b.join(); len(got.Mine) != len(all) {
			tb.Fatalf("%d were handed over, the answer lists %d", len(all), len(got.Mine))
		}
	}},
	{"a late hold of a session that is gone takes nothing", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		g := b.gets(3)
		a.sync(machine.Request{State: machine.Gone})
		greater := partition.Grant{ID: 3, Epoch: g.Epoch + 5}
		a.sync(machine.Request{Hold: []partition.Grant{greater}, Top: uint64(greater.Epoch)})
		tb.wantGrants(b.join(), g)
	}},
	{"gone yields everything the session holds", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.claims(1, 2, 3)
		b.claims(2)
		tb.wantGrants(a.sync(machine.Request{State: machine.Gone}))
		for _, id := range []partition.ID{1, 3} {
			if o := tb.owner(id); o.Grant.Epoch != 0 {
				tb.Errorf("partition %d still stands as %+v", id, o)
			}
		}
		if o := tb.owner(2); o.Session != b.session {
			tb.Errorf("partition 2 went to %+v, want b, who waited", o)
		}
	}},
	{"what was handed over at the moment of leaving is yielded too", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		g := a.gets(3)
		b.claims(3)
		a.sync(machine.Request{Release: []partition.Grant{g}})
		c.claims(3)
		b.sync(machine.Request{State: machine.Gone}) // knows nothing of the grant
		if o := tb.owner(3); o.Session != c.session {
			tb.Fatalf("the partition stands as %+v, want c, who waited", o)
		}
	}},
	{"of many that ask at once one gets it", Abilities{}, func(tb *table) {
		const peers, ids = 8, 16
		var all []partition.ID
		for id := range partition.ID(ids) {
			all = append(all, id)
		}
		answers := make([]machine.Answer, peers)
		errs := make([]error, peers)
		var wg sync.WaitGroup
		for i := range peers {
			p := tb.peer(fmt.Sprint("p", i))
			wg.Go(func() {
				answers[i], errs[i] = p.try(tb.Context(), machine.Request{Claim: all})
			})
		}
		wg.Wait()
		owners, epochs := make(map[partition.ID]int), make(map[partition.Epoch]bool)
		for i, a := range answers {
			if errs[i] != nil {
				tb.Fatal(errs[i])
			}
			for _, g := range grants(a) {
				owners[g.ID]++
				if epochs[g.Epoch] {
					tb.Errorf("epoch %d was given twice", g.Epoch)
				}
				epochs[g.Epoch] = true
			}
		}
		for _, id := range all {
			if owners[id] != 1 {
				tb.Errorf("partition %d was granted to %d peers", id, owners[id])
			}
		}
	}},
}

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

// drainClauses are for ledgers that are a transition.Drainer.
var drainClauses = []clause{
	{"a drain makes a roll due, once, and so does its end", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		b.join()
		tb.seal(a, b)
		for range 2 { // the second is news as well
			for _, say := range []func(){func() { tb.drain(drainOf(a)) }, func() { tb.recall(a.name) }} {
				say()
				tb.wantDue(b.join(), tb.timing.Settle)
				tb.seal(a, b)
				say()
				if got := b.join(); got.Sealing {
					tb.Fatalf("said again it makes another roll due in %v", got.Due)
				}
			}
		}
	}},
	{"the census says who is drained, since when and why, and of two drains of one the first counts", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		b.join()
		first := drainOf(a)
		tb.drain(first)
		tb.drain(partition.Drain{Peer: a.name, Since: first.Since.Add(time.Hour), Why: "another"})
		second := partition.Drain{Peer: "c d", Since: first.Since.Add(time.Minute)} // nobody, yet
		tb.drain(second)
		if got := tb.census().Config.Drained; !slices.Equal(got, []partition.Drain{first, second}) {
			tb.Errorf("the census says %+v", got)
		}
		if !tb.seat(a).Drained || tb.seat(b).Drained {
			tb.Errorf("of the seats, a is drained: %v, b: %v", tb.seat(a).Drained, tb.seat(b).Drained)
		}
		tb.recall(b.name)
		tb.recall(a.name)
		if got := tb.census().Config.Drained; !slices.Equal(got, []partition.Drain{second}) || tb.seat(a).Drained {
			tb.Errorf("after a was recalled, the census says %+v", got)
		}
	}},
	{"a drain is told to the peer, also if it has nothing new to say, and to nobody else", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		g := a.gets(3)
		hold := machine.Request{Hold: []partition.Grant{g}}
		tb.seal(a, b)
		for range 2 {
			a.sync(hold)
			b.join()
		}
		for _, want := range []bool{true, false, true} {
			if want {
				tb.drain(drainOf(a))
			} else {
				tb.recall(a.name)
			}
			if got := a.sync(hold); got.Drained != want || len(got.Mine) != 1 {
				tb.Errorf("told to be drained: %v, want %v; it has %v", got.Drained, want, got.Mine)
			}
			if b.join().Drained {
				tb.Error("somebody else is told that it is drained")
			}
		}
	}},
	{"a drain goes by the id of the peer, under whatever session", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		b.join()
		tb.drain(drainOf(a))
		a.sync(machine.Request{State: machine.Gone})
		again := tb.peer("again")
		again.name = a.name
		if !again.join().Drained || !tb.seat(again).Drained {
			tb.Error("who comes back under the id is not drained")
		}
		tb.seal(again, b)
		again.name = "other"
		if got := again.join(); got.Drained || !got.Sealing {
			tb.Errorf("with another id it is drained: %v, a roll is due: %v", got.Drained, got.Sealing)
		}
		tb.seal(again, b)
		again.name = "another"
		if got := again.join(); got.Sealing {
			tb.Error("a roll is due because of an id that nothing goes by")
		}
		again.name = a.name
		if got := again.join(); !got.Drained || !got.Sealing {
			tb.Errorf("with the id again it is drained: %v, a roll is due: %v", got.Drained, got.Sealing)
		}
	}},
	{"a drain of nobody makes no roll due", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.seal(a)
		tb.drain(partition.Drain{Peer: "nobody", Since: pause.Since})
		tb.recall("nobody")
		if got := a.join(); got.Sealing {
			tb.Error("a roll is due")
		}
	}},
	{"a drain and its end are hinted to everybody", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		b.join()
		drained := false
		for _, p := range []*peer{a, b} {
			tb.wantHint(p, func() {
				if drained = !drained; drained {
					tb.drain(drainOf(b))
				} else {
					tb.recall(b.name)
				}
			})
		}
	}},
	{"drains that are said at once, beside other calls, are all kept, and so are those", Abilities{}, func(tb *table) {
		const peers = 8
		a := tb.peer("a")
		a.join()
		tb.drain(drainOf(a)) // skips who cannot
		errs := make([]error, 2*peers)
		answers := make([]machine.Answer, peers)
		var wg sync.WaitGroup
		for i := range peers {
			p := tb.peer(fmt.Sprint("p", i))
			wg.Go(func() { errs[i] = tb.drainer().Drain(tb.Context(), drainOf(p)) })
			wg.Go(func() {
				answers[i], errs[peers+i] = p.try(tb.Context(), machine.Request{Claim: []partition.ID{partition.ID(i)}})
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				tb.Fatal(err)
			}
		}
		if got := tb.census().Config.Drained; len(got) != peers+1 {
			tb.Errorf("%d peers were drained, of them stand %+v", peers+1, got)
		}
		for i, a := range answers {
			if o := tb.owner(partition.ID(i)); len(a.Mine) != 1 || o.Grant != a.Mine[0].Grant {
				tb.Errorf("peer p%d was answered %+v, and the ledger has %+v", i, a.Mine, o)
			}
		}
	}},
	{"a drain outlives a restart of the store", Abilities{Restart: true}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		tb.drain(drainOf(a))
		tb.restart(true)
		if !a.join().Drained {
			tb.Error("it is forgotten")
		}
	}},
	{"drains that cannot be written down, or are too many, are refused", Abilities{}, func(tb *table) {
		a := tb.peer("a")
		a.join()
		for _, d := range []partition.Drain{{Since: pause.Since}, {Peer: a.name}, {Peer: a.name, Since: pause.Since, Why: "two\nlines"}} {
			if err := tb.drainer().Drain(tb.Context(), d); err == nil {
				tb.Errorf("%+v is let through", d)
			}
		}
		for i := range partition.MaxDrains {
			tb.drain(partition.Drain{Peer: fmt.Sprint("p", i), Since: pause.Since})
		}
		if err := tb.drainer().Drain(tb.Context(), drainOf(a)); !errors.Is(err, partition.ErrDrains) {
			tb.Errorf("one more: %v", err)
		}
		tb.drain(partition.Drain{Peer: "p0", Since: pause.Since}) // it is already
		if a.join().Drained {
			tb.Error("who was refused is drained")
		}
	}},
}

func drainOf(p *peer) partition.Drain {
	return partition.Drain{Peer: p.name, Since: pause.Since, Why: "its disk is slow"}
}

func (tb *table) drainer() transition.Drainer {
	tb.Helper()
	d, ok := tb.main.(watched).Ledger.(transition.Drainer)
	if !ok {
		tb.Skip("not checked: the ledger is no transition.Drainer")
	}
	return d
}

func (tb *table) drain(d partition.Drain) {
	tb.Helper()
	if err := tb.drainer().Drain(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
}

func (tb *table) recall(peer string) {
	tb.Helper()
	if err := tb.drainer().Recall(tb.Context(), peer); err != nil {
		tb.Fatal(err)
	}
}

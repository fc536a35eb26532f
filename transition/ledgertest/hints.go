package ledgertest

import (
	"context"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// hintClauses are about Hints. They cause what should be hinted again and again
// until a hint comes, since a subscription may take a while and a hint may be lost.
var hintClauses = []clause{
	{"a roll is hinted to everybody", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		a.join()
		b.join()
		tb.wantHint(a, func() { tb.seal(b) })
		tb.wantHint(b, func() { tb.seal(b) })
	}},
	{"a waiter is hinted to the owner", Abilities{}, func(tb *table) {
		a, b, c := tb.peer("a"), tb.peer("b"), tb.peer("c")
		a.gets(3)
		tb.wantHint(a, func() {
			b.claims(3)
			c.claims(3)
		})
	}},
	{"a hand-over is hinted to whom it went to", Abilities{}, func(tb *table) {
		a, b := tb.peer("a"), tb.peer("b")
		tb.wantHint(b, func() {
			g := a.gets(3)
			b.claims(3)
			a.sync(machine.Request{Release: []partition.Grant{g}})
			if g := tb.owner(3).Grant; g.Epoch != 0 {
				b.sync(machine.Request{Release: []partition.Grant{g}})
			}
		})
	}},
	{"hints end with their context", Abilities{}, func(tb *table) {
		ctx, cancel := context.WithCancel(tb.Context())
		cancel()
		_ = tb.main.Hints(ctx, "nobody", func() {})
	}},
}

// wantHint fails unless p is hinted after cause, again and again: a subscription, or each channel of
// one, may be a hint as well.
func (tb *table) wantHint(p *peer, cause func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	hints, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.ledger.Hints(ctx, p.session, func() {
			select {
			case hints <- struct{}{}:
			default:
			}
		})
	}()
	defer func() {
		cancel()
		<-ended
	}()
	more := 5
	for range 100 {
		cause()
		select {
		case <-hints:
			if more--; more == 0 {
				return
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	tb.Fatalf("%s got no hint, or none but for its subscription", p.name)
}

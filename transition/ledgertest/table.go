package ledgertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// noVersion is the version of no roll: a Seal on top of it is refused, but lets the
// store look at its clock.
const noVersion = 999_999_999

// total is the number of partitions, of which all but one clause use the first: so many that what a
// store takes or gives at once does not do for them.
const total = 1024

// table is the ledger of a clause with the peers that sit around it.
type table struct {
	testing.TB
	h      Harness
	cfg    partition.Config
	timing transition.Timing
	main   transition.Ledger
}

func newTable(t testing.TB, h Harness) *table {
	tb := &table{TB: t, h: h, cfg: partition.Config{Total: total, Units: []string{"mail", "sms"}}.WithDefaults()}
	if !h.Can().Jump {
		tb.timing.Lease = 3 * time.Second // it is really waited for
	}
	tb.timing = tb.timing.WithDefaults()
	tb.main = tb.ledger(tb.cfg, tb.timing)
	if !h.Can().Fresh {
		tb.tick()
		tb.pass(tb.timing.Grace() + tb.timing.ClockStep())
	}
	return tb
}

func (tb *table) ledger(cfg partition.Config, timing transition.Timing) transition.Ledger {
	return watched{tb.h.Ledger(cfg, timing), tb}
}

// tick lets the store look at its clock.
func (tb *table) tick() {
	tb.Helper()
	err := tb.main.Seal(tb.Context(), machine.Roll{Version: noVersion})
	if !errors.Is(err, transition.ErrStale) {
		tb.Fatalf("seal on top of a roll that never was: got %v, want ErrStale", err)
	}
}

// pass lets d pass in steps that the store believes.
func (tb *table) pass(d time.Duration) {
	tb.Helper()
	for d > 0 {
		step := min(d, tb.timing.ClockStep()/2)
		tb.h.Advance(step)
		tb.tick()
		d -= step
	}
}

// slack is what a duration may differ by where time really passes.
func (tb *table) slack() time.Duration {
	if tb.h.Can().Jump {
		return 100 * time.Millisecond
	}
	return tb.timing.Lease / 8
}

func (tb *table) census() machine.Census {
	tb.Helper()
	c, err := tb.main.Census(tb.Context())
	if err != nil {
		tb.Fatalf("census: %v", err)
	}
	return c
}

// seat returns what the census says of session; State 0 if it is unknown.
func (tb *table) seat(p *peer) machine.Seat {
	tb.Helper()
	for _, s := range tb.census().Sessions {
		if s.Session == p.session {
			return s
		}
	}
	return machine.Seat{}
}

func (tb *table) owner(id partition.ID) machine.Ownership {
	tb.Helper()
	for _, o := range tb.census().Grants {
		if o.Grant.ID == id {
			return o
		}
	}
	return machine.Ownership{}
}

// seal makes a roll in which the peers stand in this order, with partition i for
// peer i, and returns its version.
func (tb *table) seal(peers ...*peer) uint64 {
	tb.Helper()
	c := tb.census()
	if err := tb.main.Seal(tb.Context(), tb.roll(c, peers...)); err != nil {
		tb.Fatalf("seal on top of roll %d: %v", c.Roll.Version, err)
	}
	return tb.census().Roll.Version
}

func (tb *table) roll(c machine.Census, peers ...*peer) machine.Roll {
	next := machine.Roll{Version: c.Roll.Version, Membership: c.Membership}
	for i, p := range peers {
		next.Members = append(next.Members, machine.RollMember{
			Member:     partition.Member{Session: p.session, Peer: p.name, Index: i, Weight: i + 1},
			Partitions: []partition.ID{partition.ID(i)},
		})
	}
	return next
}

// restart restarts the store and lets it notice.
func (tb *table) restart(keepMemory bool) {
	tb.Helper()
	tb.h.Restart(keepMemory)
	tb.tick()
}

// peer is a session of a clause. It remembers the highest number it saw, as every
// peer does.
type peer struct {
	tb      *table
	ledger  transition.Ledger
	name    string
	session partition.Session
	top     uint64
}

func (tb *table) peer(name string) *peer {
	return tb.peerWith(name, tb.timing)
}

func (tb *table) peerWith(name string, timing transition.Timing) *peer {
	return &peer{
		tb:      tb,
		ledger:  tb.ledger(tb.cfg, timing),
		name:    name,
		session: partition.Session(name + strings.Repeat("0", 32-len(name))),
	}
}

// sync sends r with what is the same in all requests of the peer filled in.
func (p *peer) sync(r machine.Request) machine.Answer {
	p.tb.Helper()
	a, err := p.try(p.tb.Context(), r)
	if err != nil {
		p.tb.Fatalf("sync of %s: %v", p.name, err)
	}
	return a
}

func (p *peer) try(ctx context.Context, r machine.Request) (machine.Answer, error) {
	r.Session, r.Peer = p.session, p.name
	r.State = max(r.State, machine.Live)
	r.Top = max(r.Top, p.top)
	a, err := p.ledger.Sync(ctx, r)
	if err == nil {
		p.top = max(p.top, r.Top, a.Count)
	}
	return a, err
}

func (p *peer) join() machine.Answer {
	p.tb.Helper()
	return p.sync(machine.Request{})
}

// claims asks for ids and returns the grants of the answer.
func (p *peer) claims(ids ...partition.ID) []partition.Grant {
	p.tb.Helper()
	return grants(p.sync(machine.Request{Claim: ids}))
}

// gets claims a free id and returns its grant.
func (p *peer) gets(id partition.ID) partition.Grant {
	p.tb.Helper()
	g, ok := find(p.sync(machine.Request{Claim: []partition.ID{id}}), id)
	if !ok {
		p.tb.Fatalf("%s claimed partition %d, which was free, and did not get it", p.name, id)
	}
	return g.Grant
}

func grants(a machine.Answer) []partition.Grant {
	var gs []partition.Grant
	for _, m := range a.Mine {
		gs = append(gs, m.Grant)
	}
	return gs
}

func find(a machine.Answer, id partition.ID) (machine.Held, bool) {
	i := slices.IndexFunc(a.Mine, func(m machine.Held) bool { return m.Grant.ID == id })
	if i < 0 {
		return machine.Held{}, false
	}
	return a.Mine[i], true
}

// wantGrants fails unless a lists exactly these grants, in any order.
func (tb *table) wantGrants(a machine.Answer, want ...partition.Grant) {
	tb.Helper()
	got := grants(a)
	byID := func(x, y partition.Grant) int { return int(x.ID - y.ID) }
	slices.SortFunc(got, byID)
	slices.SortFunc(want, byID)
	if !slices.Equal(got, want) {
		tb.Fatalf("the answer lists %v, want %v", got, want)
	}
}

package redisledger_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
	"github.com/countoff/countoff/transition/redisledger"
)

var seed = flag.Uint64("ledger.seed", 0, "compare with the reference under this seed only")

// TestSameAsReference sends random calls of several sessions with several leases, repeated and late ones
// among them, to Redis and to the reference, whose clocks, restarts, losses and setbacks are the
// same, and wants the same answers.
func TestSameAsReference(t *testing.T) {
	s, _ := miniStage(t)
	compareAll(t, s, 60, func(ctx context.Context) {
		if err := s.client.ScriptFlush(ctx).Err(); err != nil { // its runs have no ids
			t.Fatal(err)
		}
	})
}

func TestSameAsReferenceOnAServer(t *testing.T) {
	t.Parallel()
	s := realStage(t, ownTime(redistest.Server(t).Client()))
	compareAll(t, s, 60, func(ctx context.Context) {
		if err := s.client.HSet(ctx, "{"+s.name+"}:meta", "run", "another").Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func compareAll(t *testing.T, s *stage, seeds int, restart func(context.Context)) {
	if *seed != 0 {
		compare(t, s, *seed, restart)
		return
	}
	for i := range seeds {
		if compare(t, s, uint64(i+1), restart); t.Failed() {
			t.Logf("again: go test -run '%s$' -ledger.seed %d", t.Name(), i+1)
			return
		}
	}
}

// A comparison is the state of one random run.
type comparison struct {
	*testing.T
	*rand.Rand
	stage   *stage
	ledgers map[time.Duration]*redisledger.Ledger // by lease
	ref     *memledger.Store
	run     int
	restart func(context.Context)
	barrier bool // the sessions go from roll to roll by it

	ids      []partition.ID
	sessions []*caller
	sent     []sent           // to be repeated
	kept     *memledger.Store // what a setback goes back to
	log      []string
}

// sent is a request of one with such times.
type sent struct {
	machine.Request
	times transition.Timing
}

// otherTimings are what a deployment that changes the lease leaves beside someTiming.
var otherTimings = []transition.Timing{
	someTiming, transition.Timing{Lease: 3 * time.Second}.WithDefaults(), transition.Timing{Lease: 40 * time.Second}.WithDefaults(),
}

type caller struct {
	session partition.Session
	times   transition.Timing
	longest time.Duration
	peer    string
	state   machine.State
	view    uint64
	top     uint64
	arrived uint64
	mine    []partition.Grant
	last    machine.Request
}

func compare(t *testing.T, s *stage, seed uint64, restart func(context.Context)) {
	t.Helper()
	ctx := t.Context()
	cfg := partition.Config{Total: 8, Units: []string{"inbox"}}
	c := &comparison{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), stage: s, restart: restart, ref: &memledger.Store{}}
	c.barrier = seed%2 == 0
	c.ids = cfg.WithDefaults().IDs()
	c.drop()
	c.ledgers = make(map[time.Duration]*redisledger.Ledger)
	for _, times := range otherTimings {
		c.ledgers[times.Lease] = newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: times})
	}
	for i := range 5 {
		c.sessions = append(c.sessions, c.newcomer(i))
	}
	for range 120 {
		c.step(ctx)
		if t.Failed() {
			t.Logf("seed %d, after:\n%s", seed, strings.Join(c.log[max(0, len(c.log)-25):], "\n"))
			return
		}
	}
}

func (c *comparison) newcomer(i int) *caller {
	return &caller{
		session: partition.Session(fmt.Sprintf("%032x", c.Uint64())),
		times:   c.times(),
		peer:    fmt.Sprintf("peer %d", i), // a space is legal
		state:   machine.Live,
	}
}

// times are the same for most.
func (c *comparison) times() transition.Timing {
	return otherTimings[max(c.IntN(5)-2, 0)]
}

func (c *comparison) call(times transition.Timing) memledger.Call {
	return memledger.Call{
		Now:    c.stage.now.UnixMilli(),
		Run:    fmt.Sprint(c.run),
		Config: partition.Config{Total: 8, Units: []string{"inbox"}}.WithDefaults(),
		Timing: times,
	}
}

func (c *comparison) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *comparison) step(ctx context.Context) {
	c.pass()
	switch n := c.IntN(200); {
	case n < 160:
		c.sync(ctx, c.request())
	case n < 175 && len(c.sent) > 0:
		c.note("again:")
		c.sync(ctx, c.sent[c.IntN(len(c.sent))])
	case n < 188:
		c.seal(ctx)
	case n < 192:
		c.sessions[c.IntN(len(c.sessions))] = c.newcomer(c.IntN(6))
	case n < 193:
		c.note("restart")
		c.run++
		c.restart(ctx)
	case n < 194:
		c.note("forget")
		c.run++
		c.restart(ctx)
		c.drop()
		c.ref = &memledger.Store{}
	case n < 196:
		c.keep(ctx)
	case n < 197 && c.kept != nil:
		c.setBack(ctx)
	}
	if c.IntN(3) == 0 {
		c.census(ctx)
	}
}

// pass lets time go on: mostly so little that leases stand, sometimes longer, and
// rarely the store's clock jumps.
func (c *comparison) pass() {
	d := time.Duration(c.IntN(400)) * time.Millisecond
	switch n := c.IntN(100); {
	case n < 3:
		d = time.Hour
	case n < 6:
		d = -time.Hour
	case n < 30:
		d *= 10
	}
	c.note("%v pass", d)
	c.stage.Advance(d)
}

func (c *comparison) request() sent {
	p := c.sessions[c.IntN(len(c.sessions))]
	if c.IntN(2) == 0 && p.last.Session != "" {
		p.last.Top, p.last.Longest = p.top, p.longest
		return sent{p.last, p.times} // most beats have nothing new to say
	}
	if c.IntN(20) == 0 && p.state < machine.Gone {
		p.state++
	}
	r := machine.Request{
		Session: p.session, Peer: p.peer, Weight: c.IntN(3), Unwell: c.IntN(4) == 0, Tags: []partition.Tags{"", "", "eu gpu"}[c.IntN(3)], State: p.state, View: p.view, Top: p.top, Longest: p.longest,
	}
	if c.IntN(10) == 0 {
		r.View += uint64(c.IntN(3))
	}
	if c.barrier {
		r.Barrier = c.IntN(50) != 0 // or it is refused
		if c.IntN(3) > 0 {
			p.arrived = p.view
		}
		r.Arrived = p.arrived
	}
	if c.IntN(20) == 0 {
		r.Top += uint64(c.IntN(50))
	}
	for _, g := range p.mine {
		switch c.IntN(20) {
		case 0:
			r.Release = append(r.Release, g)
		case 1: // says nothing of it
		default:
			r.Hold = append(r.Hold, g)
		}
	}
	if c.IntN(8) == 0 {
		g := partition.Grant{ID: c.id(), Epoch: partition.Epoch(1 + c.Uint64N(p.top+3))}
		r.Hold = append(r.Hold, g)
	}
	if c.IntN(2) == 0 {
		for range c.IntN(4) {
			r.Claim = append(r.Claim, c.id())
		}
	}
	p.last = r
	return sent{r, p.times}
}

func (c *comparison) id() partition.ID { return c.ids[c.IntN(len(c.ids))] }

func (c *comparison) sync(ctx context.Context, r sent) {
	c.Helper()
	c.note("sync with a lease of %v %+v", r.times.Lease, r.Request)
	c.sent = append(c.sent, r)
	got, err := c.ledgers[r.times.Lease].Sync(ctx, r.Request)
	want, _, refused := c.ref.Sync(c.call(r.times), r.Request)
	if errors.Is(refused, partition.ErrConfig) && errors.Is(err, partition.ErrConfig) ||
		errors.Is(refused, transition.ErrUnsure) && errors.Is(err, transition.ErrUnsure) {
		c.note("  refused")
		return
	}
	if err != nil || refused != nil {
		c.Errorf("sync: redis says %v, the reference %v", err, refused)
		return
	}
	c.note("  answered %+v", want)
	if !reflect.DeepEqual(got, want) {
		c.Errorf("redis answers     %+v %+v\nthe reference says %+v %+v", got, got.Line, want, want.Line)
	}
	for _, p := range c.sessions {
		if p.session != r.Session {
			continue
		}
		p.top, p.longest, p.mine = max(p.top, want.Count), want.Longest, nil
		for _, h := range want.Mine {
			p.mine = append(p.mine, h.Grant)
		}
		if want.Line != nil {
			p.view = want.Line.Version
		}
	}
}

func (c *comparison) seal(ctx context.Context) {
	times := c.times()
	seen, err := c.ref.Census(c.call(times))
	if err != nil {
		c.Fatal(err)
	}
	next := machine.Roll{Version: seen.Roll.Version, Membership: seen.Membership}
	if c.IntN(5) == 0 {
		next.Version -= uint64(c.IntN(2))
		next.Membership -= uint64(c.IntN(2))
	}
	for i, s := range seen.Sessions {
		if s.State != machine.Live || c.IntN(8) == 0 {
			continue
		}
		m := machine.RollMember{Member: partition.Member{
			Session: s.Session, Peer: s.Peer, Index: len(next.Members), Weight: s.Weight, Down: i == 3,
		}}
		for _, id := range c.ids {
			if c.IntN(4) == 0 {
				m.Partitions = append(m.Partitions, id)
			}
		}
		next.Members = append(next.Members, m)
	}
	c.note("seal with a lease of %v %+v", times.Lease, next)
	got := c.ledgers[times.Lease].Seal(ctx, next)
	_, want := c.ref.Seal(c.call(times), next)
	if !errors.Is(got, want) || (got == nil) != (want == nil) {
		c.Errorf("seal: redis says %v, the reference %v", got, want)
	}
}

func (c *comparison) census(ctx context.Context) {
	c.Helper()
	ledger := c.ledgers[someTiming.Lease]
	got, err := ledger.Census(ctx)
	if err != nil {
		c.Errorf("census: %v", err)
		return
	}
	want, err := c.ref.Census(c.call(someTiming))
	if err != nil {
		c.Fatal(err)
	}
	past, err := ledger.History(ctx, machine.HistoryKept)
	if err != nil {
		c.Errorf("history: %v", err)
		return
	}
	if h := c.ref.History(); !reflect.DeepEqual(past, h) && len(past)+len(h) > 0 {
		i := 0
		for i < len(past) && i < len(h) && reflect.DeepEqual(past[i], h[i]) {
			i++
		}
		c.Errorf("history, from entry %d: redis says  %+v\nthe reference says %+v", i, past[i:], h[i:])
	}
	if got.Config.UnitsHash() == want.Config.UnitsHash() {
		got.Config = want.Config // nil and empty lists
	}
	got.Refused = nil // the reference keeps none
	if !reflect.DeepEqual(got, want) {
		c.Errorf("census: redis says  %+v\nthe reference says %+v", got, want)
	}
}

func (c *comparison) keys() []string {
	var keys []string
	for _, k := range []string{"config", "meta", "sessions", "leases", "roll", "transition", "history", "peers"} {
		keys = append(keys, "{"+c.stage.name+"}:"+k)
	}
	return keys
}

func (c *comparison) drop() {
	if err := c.stage.client.Del(context.Background(), c.keys()...).Err(); err != nil {
		c.Fatal(err)
	}
}

// keep notes what the store knows, as a replica or a disk does.
func (c *comparison) keep(ctx context.Context) {
	c.note("keep")
	c.kept = c.ref.Clone()
	for _, k := range c.keys() {
		c.copyKey(ctx, k, k+":kept")
	}
}

// setBack makes the store what it was when it was kept: a fail-over.
func (c *comparison) setBack(ctx context.Context) {
	c.note("set back")
	c.ref = c.kept.Clone()
	for _, k := range c.keys() {
		c.copyKey(ctx, k+":kept", k)
	}
	c.run++
	c.restart(ctx)
}

func (c *comparison) copyKey(ctx context.Context, from, to string) {
	err := c.stage.client.Del(ctx, to).Err()
	if err == nil {
		err = c.stage.client.Copy(ctx, from, to, 0, true).Err()
	}
	if err != nil {
		c.Fatal(err)
	}
}

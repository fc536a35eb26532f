package framework_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

// A town has a list of units, peers that share them, and a memory of who worked on what.
type town struct {
	t      *testing.T
	layout partition.Config
	ledger *memledger.Ledger
	slow   time.Duration // what a handler needs to return

	mu     sync.Mutex
	list   []string
	busy   map[string]string          // unit -> who works on it
	epochs map[string]partition.Epoch // unit -> the newest
	starts map[string]int
	causes map[string][]error
}

func newTown(t *testing.T, units ...string) *town {
	layout := partition.Config{Total: 64}
	return &town{
		t: t, layout: layout, ledger: memledger.New(layout, transition.Timing{}, memledger.Options{}),
		list: units, busy: map[string]string{}, epochs: map[string]partition.Epoch{}, starts: map[string]int{}, causes: map[string][]error{},
	}
}

func (w *town) Layout(context.Context) (partition.Config, error) { return w.layout, nil }

func (w *town) Units(context.Context) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list), nil
}

func (w *town) set(units ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = units
}

// A severable ledger can be cut off from its peer.
type severable struct {
	transition.Ledger
	cut atomic.Bool
}

var errCut = errors.New("cut off")

func (l *severable) Sync(ctx context.Context, r machine.Request) (machine.Answer, error) {
	if l.cut.Load() {
		return machine.Answer{}, errCut
	}
	return l.Ledger.Sync(ctx, r)
}

func (l *severable) Census(ctx context.Context) (machine.Census, error) {
	if l.cut.Load() {
		return machine.Census{}, errCut
	}
	return l.Ledger.Census(ctx)
}

// enter starts a peer.
func (w *town) enter(peer string, more ...func(*framework.UnitsConfig)) (*framework.Units, *severable) {
	w.t.Helper()
	ledger := &severable{Ledger: w.ledger}
	cfg := framework.UnitsConfig{
		Source: w, Peer: peer,
		Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) { return ledger, nil, nil },
		Handler: func(ctx context.Context, u framework.Unit) error { return w.work(ctx, peer, u) },
	}
	for _, m := range more {
		m(&cfg)
	}
	units, err := framework.NewUnits("town", cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := units.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return units, ledger
}

func (w *town) leave(all ...*framework.Units) {
	w.t.Helper()
	for _, u := range all {
		if err := u.Stop(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
}

// work holds a unit for as long as its owner may, and tells if it is not alone.
func (w *town) work(ctx context.Context, peer string, u framework.Unit) error {
	w.mu.Lock()
	if other := w.busy[u.Name]; other != "" {
		w.t.Errorf("%s and %s work on %s at once", peer, other, u.Name)
	}
	if before := w.epochs[u.Name]; u.Token.Epoch < before || u.Token.Epoch != u.Grant.Epoch {
		w.t.Errorf("%s works on %s under %v, after epoch %v", peer, u.Name, u.Token, before)
	}
	w.busy[u.Name], w.epochs[u.Name] = peer, u.Token.Epoch
	w.starts[u.Name]++
	w.mu.Unlock()
	<-ctx.Done()
	time.Sleep(w.slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, u.Name)
	w.causes[u.Name] = append(w.causes[u.Name], context.Cause(ctx))
	return ctx.Err()
}

func (w *town) table() (table map[string]string, starts map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.busy), maps.Clone(w.starts)
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("unit-%02d", i)
	}
	return all
}

// The same peers and units give the same table, in whatever order either came; when a peer is
// lost its units move and the others' are not even touched; they come back with it.
func TestUnitsTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 30
		var first map[string]string
		for round, order := range [][]string{{"ann", "bob", "eve"}, {"eve", "ann", "bob"}} {
			units := names(n)
			if round == 1 {
				slices.Reverse(units)
			}
			w := newTown(t, units[:n/2]...)
			var all []*framework.Units
			ledgers := map[string]*severable{}
			for _, peer := range order {
				u, ledger := w.enter(peer)
				all, ledgers[peer] = append(all, u), ledger
				time.Sleep(20 * time.Second)
			}
			w.set(units...)
			time.Sleep(20 * time.Second)
			table, starts := w.table()
			if len(table) != n {
				t.Fatalf("%d of %d units are owned: %v", len(table), n, table)
			}
			if round == 0 {
				first = table
			} else if !maps.Equal(first, table) {
				t.Fatalf("other order, other table:\n%v\n%v", first, table)
			}
			for unit, n := range starts {
				if round == 0 && unit >= "unit-15" && n != 1 {
					t.Errorf("%s was started %d times", unit, n)
				}
			}

			ledgers["bob"].cut.Store(true)
			time.Sleep(30 * time.Second)
			without, again := w.table()
			for unit, owner := range table {
				switch {
				case owner == "bob" && (without[unit] == "bob" || without[unit] == ""):
					t.Errorf("%s, which was bob's, is %q's", unit, without[unit])
				case owner != "bob" && (without[unit] != owner || again[unit] != starts[unit]):
					t.Errorf("%s moved from %s to %q, or was started anew", unit, owner, without[unit])
				}
				if owner == "bob" && !slices.ContainsFunc(w.causes[unit], func(err error) bool { return errors.Is(err, transition.ErrLapsed) }) {
					t.Errorf("bob's %s ended with %v", unit, w.causes[unit])
				}
			}
			ledgers["bob"].cut.Store(false)
			time.Sleep(30 * time.Second)
			if back, _ := w.table(); !maps.Equal(back, table) {
				t.Errorf("bob is back, and the table another:\n%v\n%v", table, back)
			}
			w.leave(all...)
		}
	})
}

// Even shares of few units: to one, whoever comes or goes and whatever is added or removed;
// nothing moves between those who stay that need not.
func TestUnitsAreEven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		even := func(c *framework.UnitsConfig) { c.Even = true }
		peers, ledgers := map[string]*framework.Units{}, map[string]*severable{}
		enter := func(peer string) { peers[peer], ledgers[peer] = w.enter(peer, even) }
		shares := func(what string, want ...int) map[string]string {
			t.Helper()
			time.Sleep(30 * time.Second)
			table, _ := w.table()
			count := map[string]int{}
			for _, owner := range table {
				count[owner]++
			}
			if got := slices.Sorted(maps.Values(count)); !slices.Equal(got, want) {
				t.Errorf("%s: shares %v, want %v", what, count, want)
			}
			return table
		}
		moved := func(before, after map[string]string) (n int) {
			for unit, owner := range before {
				if after[unit] != "" && after[unit] != owner {
					n++
				}
			}
			return n
		}
		for _, peer := range []string{"ann", "bob", "eve"} {
			enter(peer)
		}
		time.Sleep(30 * time.Second)
		all := names(10)
		w.set(all...) // after the roll of the three was sealed
		table := shares("ten over three", 3, 3, 4)
		calm := table
		if table = shares("nothing happens", 3, 3, 4); moved(calm, table) != 0 {
			t.Error("and yet something moves")
		}

		ledgers["bob"].cut.Store(true)
		without := shares("bob is lost", 5, 5)
		for unit, owner := range table {
			if owner != "bob" && without[unit] != owner {
				t.Errorf("%s moved from %s to %s because bob was lost", unit, owner, without[unit])
			}
		}
		ledgers["bob"].cut.Store(false)
		back := shares("bob is back", 3, 3, 4)
		if n := moved(without, back); n > 4 {
			t.Errorf("%d units moved for a share of at most 4", n)
		}
		enter("dan")
		four := shares("dan joins", 2, 2, 3, 3)
		if n := moved(back, four); n > 3 {
			t.Errorf("%d units moved for dan's share of at most 3", n)
		}
		w.set(names(12)...)
		more := shares("two are added", 3, 3, 3, 3)
		for unit, owner := range four {
			if more[unit] != owner {
				t.Errorf("%s moved from %s to %s because others were added", unit, owner, more[unit])
			}
		}
		w.set(names(12)[4:]...)
		shares("four are removed", 2, 2, 2, 2)
		w.leave(peers["dan"])
		shares("dan leaves", 2, 3, 3)
		w.leave(peers["ann"], peers["bob"], peers["eve"])
	})
}

// A list that changes during a grace, in which nothing is shared out, is shared out after it:
// nobody comes or goes, and no roll would be due.
func TestUnitsAreEvenAfterAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		even := func(c *framework.UnitsConfig) { c.Even = true }
		ann, _ := w.enter("ann", even)
		bob, _ := w.enter("bob", even)
		time.Sleep(30 * time.Second)
		w.ledger.Restart()
		time.Sleep(3 * time.Second) // somebody has called, and the grace has begun
		w.set(names(6)...)
		time.Sleep(40 * time.Second)
		table, _ := w.table()
		count := map[string]int{}
		for _, owner := range table {
			count[owner]++
		}
		if count["ann"] != 3 || count["bob"] != 3 {
			t.Errorf("shares %v, want 3 and 3", count)
		}
		w.leave(ann, bob)
	})
}

// A member for the index alone may have index 0, as one that came first. The first of those
// that work does what the peer with index 0 does otherwise: it keeps the shares of units even, writes the
// table, and tells of holes in the coverage.
func TestBesideAnIndexAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		roster, err := transition.NewRoster(transition.Config{Ledger: w.ledger, Config: w.layout, Peer: "index"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var place partition.View
		gone := make(chan error)
		go func() { gone <- roster.Index(ctx, func(v partition.View) { place = v }) }()
		time.Sleep(10 * time.Second)
		var mu sync.Mutex
		told, written := map[string]int{}, map[string]int{}
		count := func(of map[string]int, peer string) {
			mu.Lock()
			defer mu.Unlock()
			of[peer]++
		}
		enter := func(peer string) *framework.Units {
			u, _ := w.enter(peer, func(c *framework.UnitsConfig) {
				c.Even = true
				c.Publish = func(context.Context, []string) error { count(written, peer); return nil }
				c.Observer = framework.ObserverFunc(func(e framework.Event) {
					if e, ok := e.(framework.Uncovered); ok && e.Finding.Kind == coverage.NoneEligible {
						count(told, peer)
					}
				})
			})
			return u
		}
		ann, bob := enter("ann"), enter("bob")
		time.Sleep(30 * time.Second)
		w.set(names(6)...)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if place.Index != 0 || place.Replicas != 3 {
			t.Fatalf("the member for the index alone has %d of %d", place.Index, place.Replicas)
		}
		first, second := ann, bob
		if bob.View().Index == 1 {
			first, second = bob, ann
		}
		if a, b := len(first.Owned()), len(second.Owned()); a != 3 || b != 3 {
			t.Errorf("of 6 units the peers have %d and %d", a, b)
		}
		w.ledger.Require(partition.Requirement{First: 0, Last: 63, Tags: "gpu"})
		time.Sleep(30 * time.Second)
		mu.Lock()
		clear(written)
		mu.Unlock()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		mu.Lock()
		if len(told) != 1 || len(written) != 1 {
			t.Errorf("that nobody has the tags was told by %v, and the table written by %v: want one peer each", told, written)
		}
		mu.Unlock()
		w.leave(ann, bob)
		cancel()
		if err := <-gone; err != nil {
			t.Error(err)
		}
	})
}

// Shares of units follow weights, units that ask for tags are given to those who have them,
// and that nobody has is told; who is unwell keeps its seat, and its units go to others.
func TestUnitsOfPeersThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, names(12)...)
		var mu sync.Mutex
		told := map[coverage.Kind]int{}
		listen := func(c *framework.UnitsConfig) {
			c.Even = true
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				mu.Lock()
				defer mu.Unlock()
				switch e := e.(type) {
				case framework.Uncovered:
					told[e.Finding.Kind]++
				case framework.Covered:
					told[e.Kind] = 0
				}
			})
		}
		tells := func(kind coverage.Kind) bool {
			mu.Lock()
			defer mu.Unlock()
			return told[kind] > 0
		}
		var ill atomic.Bool
		ann, _ := w.enter("ann", listen, func(c *framework.UnitsConfig) {
			c.Weight = 2
			c.Health = func(context.Context) error {
				if ill.Load() {
					return errors.New("the disk is full")
				}
				return nil
			}
		})
		bob, _ := w.enter("bob", listen)
		time.Sleep(30 * time.Second)
		if a, b := len(ann.Owned()), len(bob.Owned()); a != 8 || b != 4 {
			t.Errorf("of 12 units the peer of weight 2 has %d, the other %d", a, b)
		}
		ill.Store(true)
		time.Sleep(30 * time.Second)
		if a, b := len(ann.Owned()), len(bob.Owned()); a != 0 || b != 12 || ann.View().Replicas != 2 || ann.Ready() == nil {
			t.Errorf("ann is unwell and has %d, bob %d, of %d replicas; ready: %v", a, b, ann.View().Replicas, ann.Ready())
		}
		ill.Store(false)
		time.Sleep(60 * time.Second)
		if a, b := len(ann.Owned()), len(bob.Owned()); a != 8 || b != 4 {
			t.Errorf("ann is well again and has %d, bob %d", a, b)
		}

		id, err := w.layout.Hash.Of("unit-00", w.layout.Total)
		if err != nil {
			t.Fatal(err)
		}
		w.ledger.Require(partition.Requirement{First: id, Last: id, Tags: "gpu"})
		w.set(names(11)...) // a roll is not due by itself: the reference does not say so
		time.Sleep(60 * time.Second)
		if !tells(coverage.NoneEligible) {
			t.Errorf("nobody has what a unit asks for, and it is not told: %v", told)
		}
		eve, _ := w.enter("eve", listen, func(c *framework.UnitsConfig) { c.Tags = "gpu" })
		time.Sleep(30 * time.Second)
		if table, _ := w.table(); table["unit-00"] != "eve" {
			t.Errorf("what asks for a tag is %s's, eve has it", table["unit-00"])
		}
		if tells(coverage.NoneEligible) {
			t.Error("somebody has what is asked for, and it is not told")
		}
		w.leave(ann, bob, eve)
	})
}

// Units come and go while peers work; one that is removed and comes back at once begins
// again only when its handler has returned.
func TestUnitsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b")
		w.slow = 5 * time.Second
		var changes [2][]framework.UnitsChanged
		told := func(of *[]framework.UnitsChanged) func(*framework.UnitsConfig) {
			return func(c *framework.UnitsConfig) {
				c.Observer = framework.ObserverFunc(func(e framework.Event) {
					if e, ok := e.(framework.UnitsChanged); ok {
						*of = append(*of, e)
					}
				})
			}
		}
		ann, _ := w.enter("ann", told(&changes[0]))
		bob, _ := w.enter("bob", told(&changes[1]))
		time.Sleep(30 * time.Second)
		w.set("b", "c")
		time.Sleep(2 * time.Second) // noticed; the handler of a still has to return
		w.set("a", "b", "c")
		time.Sleep(30 * time.Second)
		table, _ := w.table()
		if table["a"] == "" || table["b"] == "" || table["c"] == "" {
			t.Errorf("not all units are owned: %v", table)
		}
		w.set()
		time.Sleep(10 * time.Second)
		if table, _ = w.table(); len(table) != 0 {
			t.Errorf("there are no units, and these run: %v", table)
		}
		for _, unit := range []string{"a", "b", "c"} {
			if cause := w.causes[unit]; len(cause) == 0 || !errors.Is(cause[len(cause)-1], framework.ErrRemoved) {
				t.Errorf("%s ended with %v", unit, cause)
			}
		}
		w.leave(ann, bob)
		want := []framework.UnitsChanged{{"town", 2, 2, 0}, {"town", 2, 1, 1}, {"town", 3, 1, 0}, {"town", 0, 0, 3}}
		for i, got := range changes { // that of the handler which returns late, too
			if !slices.Equal(got, want) {
				t.Errorf("peer %d was told of %v, want %v", i, got, want)
			}
		}
	})
}

// A lastOf gives all to the last of the members.
type lastOf struct{}

func (lastOf) Name() string { return "last" }

func (lastOf) Assign(ids []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
	table := partition.Table{}
	for _, id := range ids {
		table[id] = members[len(members)-1].Session
	}
	return table
}

// Units are shared out by the strategy that was given.
func TestUnitsHaveTheirStrategy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, names(10)...)
		last := func(c *framework.UnitsConfig) { c.Strategy = lastOf{} }
		ann, _ := w.enter("ann", last)
		time.Sleep(20 * time.Second)
		bob, _ := w.enter("bob", last)
		time.Sleep(30 * time.Second)
		if n := len(bob.Owned()); n != 10 {
			t.Errorf("the last has %d of 10", n)
		}
		for i, u := range bob.Owned() {
			if want := names(10)[i]; u.Name != want {
				t.Errorf("number %d of those owned is %s, want %s", i, u.Name, want)
			}
		}
		w.leave(ann, bob)
	})
}

// A quietLedger counts how often it is read.
type quietLedger struct {
	transition.Ledger
	read atomic.Int32
}

func (l *quietLedger) Census(ctx context.Context) (machine.Census, error) {
	l.read.Add(1)
	return l.Ledger.Census(ctx)
}

// Even shares cost nothing while nothing happens: who leads finds once of each roll that it is even.
func TestEvenUnitsAtRestReadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, names(10)...)
		ledger := &quietLedger{Ledger: w.ledger}
		even := func(c *framework.UnitsConfig) {
			c.Even = true
			c.Control = func(partition.Config) (transition.Ledger, partition.Indexer, error) { return ledger, nil, nil }
		}
		ann, _ := w.enter("ann", even)
		bob, _ := w.enter("bob", even)
		time.Sleep(time.Minute)
		before := ledger.read.Load()
		time.Sleep(time.Minute)
		if n := ledger.read.Load() - before; before == 0 || n != 0 {
			t.Errorf("read %d times until it came to rest, and %d times in the minute after that", before, n)
		}
		w.leave(ann, bob)
	})
}

// A peer that stops hands over: its handlers learn why, and the next begins only when they
// have returned.
func TestUnitsAreHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, names(20)...)
		w.slow = 3 * time.Second
		ann, _ := w.enter("ann")
		time.Sleep(20 * time.Second)
		bob, _ := w.enter("bob")
		time.Sleep(20 * time.Second)
		table, _ := w.table()
		handed := 0
		for unit, causes := range w.causes {
			handed++
			if table[unit] != "bob" || len(causes) != 1 || !errors.Is(causes[0], framework.ErrHandedOver) || errors.Is(causes[0], framework.ErrLeaving) {
				t.Errorf("%s is %s's, ended with %v", unit, table[unit], causes)
			}
		}
		if handed == 0 || ann.Ready() != nil || len(ann.Owned())+len(bob.Owned()) != 20 {
			t.Errorf("%d handed over; %v; %v and %v", handed, ann.Ready(), ann.Owned(), bob.Owned())
		}
		w.leave(bob)
		time.Sleep(20 * time.Second)
		for unit, owner := range table {
			if causes := w.causes[unit]; owner == "bob" && !errors.Is(causes[len(causes)-1], framework.ErrLeaving) {
				t.Errorf("%s ended with %v", unit, causes)
			}
		}
		if table, _ = w.table(); len(table) != 20 {
			t.Errorf("%d units are owned", len(table))
		}
		w.leave(ann)
	})
}

// An error or a panic is tried again, ever later; nil means that nothing is left to do.
func TestUnitsReturnEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "done", "fails", "panics")
		var mu sync.Mutex
		calls := map[string]int{}
		var failed int
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Handler = func(_ context.Context, u framework.Unit) error {
				mu.Lock()
				calls[u.Name]++
				mu.Unlock()
				switch u.Name {
				case "fails":
					return errors.New("no")
				case "panics":
					panic("no")
				}
				return nil
			}
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if ended, ok := e.(framework.UnitEnded); ok && ended.Err != nil && ended.Again > 0 {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			})
		})
		time.Sleep(60 * time.Second)
		mu.Lock()
		if calls["done"] != 1 {
			t.Errorf("a unit that was done ran %d times", calls["done"])
		}
		for _, unit := range []string{"fails", "panics"} {
			if n := calls[unit]; n < 4 || n > 8 { // 1 + 2 + 4 + … s
				t.Errorf("%s was called %d times in a minute", unit, n)
			}
		}
		if failed != calls["fails"]+calls["panics"] {
			t.Errorf("%d failures were told, of %v", failed, calls)
		}
		mu.Unlock()
		w.set("fails")
		time.Sleep(5 * time.Second)
		w.set("done", "fails")
		time.Sleep(5 * time.Second)
		mu.Lock()
		if calls["done"] != 2 {
			t.Errorf("removed and added again it ran %d times in all", calls["done"])
		}
		mu.Unlock()
		w.leave(ann)
	})
}

// A nil pointer is no observer: nobody listens.
func TestUnitsWithoutAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b")
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) { c.Observer = (*tally)(nil) })
		until(t, time.Minute, func() bool { busy, _ := w.table(); return len(busy) == 2 })
		w.leave(ann)
	})
}

// A list that cannot be read stops nobody, and is told once.
func TestUnitsOutliveTheirList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		list := &brokenList{town: w}
		var told atomic.Int32
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Source = list
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if _, ok := e.(framework.UnitsTroubled); ok {
					told.Add(1)
				}
			})
		})
		time.Sleep(20 * time.Second)
		list.broken.Store(true)
		time.Sleep(20 * time.Second)
		if table, starts := w.table(); table["a"] != "ann" || starts["a"] != 1 || told.Load() != 1 {
			t.Errorf("%v %v, told %d times", table, starts, told.Load())
		}
		w.leave(ann)
	})
}

// What somebody wrote into the list by mistake is nobody's, and told; the rest is worked on.
func TestUnitsThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b")
		var told []string
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.UnitsTroubled); ok {
					told = append(told, e.Err.Error())
				}
			})
		})
		time.Sleep(20 * time.Second)
		w.set("a", "b", "two\nlines", "", "nul\x00", "cr\r", strings.Repeat("x", 1<<17))
		time.Sleep(5 * time.Second)
		w.set("a", "b", "two\nlines")
		time.Sleep(5 * time.Second)
		w.set("a", "b")
		time.Sleep(5 * time.Second)
		if _, starts := w.table(); len(starts) != 2 || starts["a"] != 1 || starts["b"] != 1 {
			t.Errorf("started %v", starts)
		}
		if len(told) != 2 || !strings.HasPrefix(told[0], "5 in the list") || !strings.HasPrefix(told[1], "1 in the list") || !strings.Contains(told[1], `"two\nlines"`) {
			t.Errorf("told %q", told)
		}
		w.leave(ann)
	})
}

// A table that cannot be written hides nothing: neither what of the list is no unit, nor that the
// list cannot be read. And after an outage of both it is told that one of them stays broken.
func TestUnitsTroublesHideNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "two\nlines")
		list := &brokenList{town: w}
		list.broken.Store(true)
		var mu sync.Mutex
		var told []string
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Source = list
			c.Publish = func(context.Context, []string) error { return errors.New("no right to write") }
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.UnitsTroubled); ok {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, e.Err.Error())
				}
			})
		})
		time.Sleep(20 * time.Second)
		list.broken.Store(false)
		time.Sleep(20 * time.Second)
		check := func(want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.EqualFunc(told, want, strings.HasPrefix) {
				t.Errorf("told %q, want %q", told, want)
			}
		}
		check("read the list", "1 in the list", "write the table")
		list.broken.Store(true)
		time.Sleep(20 * time.Second)
		check("read the list", "1 in the list", "write the table", "read the list")
		w.leave(ann)
	})
}

// Who need not write the table has not written it: that nobody may is not told with each change anew.
func TestUnitsTroubleIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a")
		told := 0
		var mayWrite atomic.Bool
		never := func(c *framework.UnitsConfig) {
			c.Publish = func(context.Context, []string) error {
				if mayWrite.Load() {
					return nil
				}
				return errors.New("no right to write")
			}
		}
		ann, _ := w.enter("ann", never)
		time.Sleep(20 * time.Second)
		bob, _ := w.enter("bob", never, func(c *framework.UnitsConfig) {
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if _, ok := e.(framework.UnitsTroubled); ok {
					told++
				}
			})
		})
		change := func() {
			for i := range 4 {
				w.set(names(i + 1)...)
				time.Sleep(20 * time.Second)
			}
		}
		change()
		synctest.Wait()
		if bob.View().Index != 1 || told != 1 {
			t.Errorf("with index %d it told %d times", bob.View().Index, told)
		}
		mayWrite.Store(true)
		change()
		mayWrite.Store(false)
		change()
		synctest.Wait()
		if told != 2 {
			t.Errorf("after it had written the table it told %d times", told)
		}
		w.leave(ann, bob)
	})
}

type brokenList struct {
	*town
	broken atomic.Bool
}

func (l *brokenList) Units(ctx context.Context) ([]string, error) {
	if l.broken.Load() {
		return nil, errCut
	}
	return l.town.Units(ctx)
}

// One process has several names, and each of them all of its own.
func TestUnitsOfSeveralNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTown(t, "same"), newTown(t, "same")
		var all []*framework.Units
		for name, w := range map[string]*town{"a": a, "b": b} {
			u, err := framework.NewUnits(name, framework.UnitsConfig{
				Source: w, Peer: "ann",
				Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) { return w.ledger, nil, nil },
				Handler: func(ctx context.Context, u framework.Unit) error { return w.work(ctx, name, u) },
			})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, u)
		}
		r, err := framework.RuntimeOf(nil, all)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(20 * time.Second)
		for name, w := range map[string]*town{"a": a, "b": b} {
			if table, _ := w.table(); table["same"] != name {
				t.Errorf("%s: %v", name, table)
			}
		}
		if err := r.Ready(); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := framework.RuntimeOf(nil, []*framework.Units{all[0], all[0]}); err == nil {
			t.Error("two of one name were taken")
		}
	})
}

// The platform's grace is that of the process: peers of units must be out by then, as consumers must.
func TestAStopOfUnitsFitsIntoTheGrace(t *testing.T) {
	cfg := framework.UnitsConfig{
		Source: fixedUnits{}, Handler: func(context.Context, framework.Unit) error { return nil },
		Control: func(partition.Config) (transition.Ledger, partition.Indexer, error) { return nil, nil, nil },
	}
	for grace, want := range map[string]string{"": "", "30": "", "28s": "", "27": "pod grace 27s", "soon": `COUNTOFF_GRACE="soon"`} {
		t.Setenv(framework.GraceVariable, grace)
		_, err := framework.NewUnits("town", cfg)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("with a grace of %q: %v, want %q", grace, err, want)
		}
	}
}

type fixedUnits struct{}

func (fixedUnits) Layout(context.Context) (partition.Config, error) { return partition.Config{}, nil }
func (fixedUnits) Units(context.Context) ([]string, error)          { return nil, nil }

// otherUnits are a list of another name.
type otherUnits struct{ framework.UnitSource }

func (otherUnits) Name() string { return "other" }

func TestUnitsConfigIsChecked(t *testing.T) {
	_, err := framework.NewUnits("no such {name}", framework.UnitsConfig{Every: -1, Weight: -1, Peer: "two\nlines", Tags: "gpu,gpü"})
	if _, err := framework.NewUnits("mine", framework.UnitsConfig{Source: otherUnits{}}); !errors.Is(err, partition.ErrName) {
		t.Errorf("a list of another name: %v", err)
	}
	if err == nil {
		t.Fatal("taken")
	}
	if _, err := framework.NewUnits("mine", framework.UnitsConfig{Even: true, Strategy: partition.Rendezvous{}}); err == nil || !strings.Contains(err.Error(), "choose one") {
		t.Errorf("even, and by a strategy: %v", err)
	}
	for _, want := range []string{"name", "source of units", "ledger", "handler", "Every -", "weight", `peer id "two\nlines"`, `tag "gpü"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not speak of %q: %v", want, err)
		}
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, `units "no such {name}": `) {
			t.Errorf("%q does not say whose it is", line)
		}
	}
}

// A weight is changed while peers work on units, before a run and while it begins: the shares follow.
func TestTheWeightOfUnitsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, names(12)...)
		even := func(c *framework.UnitsConfig) { c.Even = true }
		ann, _ := w.enter("ann", even)
		bob, _ := w.enter("bob", even)
		shares := func(a, b int) {
			t.Helper()
			until(t, time.Minute, func() bool { return len(ann.Owned()) == a && len(bob.Owned()) == b })
		}
		set := func(weight int) {
			t.Helper()
			if err := ann.SetWeight(weight); err != nil {
				t.Error(err)
			}
		}
		shares(6, 6)
		set(2)
		shares(8, 4)
		if err := ann.SetWeight(0); err == nil || !strings.Contains(err.Error(), `units "town": weight 0`) {
			t.Errorf("a weight of 0: %v", err)
		}
		// It keeps the weight when it starts again.
		again := func() {
			t.Helper()
			if err := ann.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.leave(ann)
		again()
		shares(8, 4)
		// Of one that does not run the weight is that of its next run.
		w.leave(ann)
		set(3)
		again()
		shares(9, 3)
		w.leave(ann, bob)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, names(12)...)
		strategy := &named{Strategy: partition.Rendezvous{}}
		var ann *framework.Units
		entered := make(chan struct{})
		strategy.during = func() {
			<-entered
			if err := ann.SetWeight(3); err != nil {
				t.Error(err)
			}
		}
		ann, _ = w.enter("ann", func(c *framework.UnitsConfig) { c.Strategy = strategy })
		close(entered)
		until(t, time.Minute, func() bool {
			census, err := w.ledger.Census(t.Context())
			return err == nil && len(census.Sessions) == 1 && census.Sessions[0].Weight == 3
		})
		w.leave(ann)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, names(12)...)
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Control = func(partition.Config) (transition.Ledger, partition.Indexer, error) {
				return w.ledger, noIndexer{}, nil
			}
		})
		synctest.Wait()
		if err := ann.SetWeight(2); err == nil || !strings.Contains(err.Error(), "counts every peer once") {
			t.Errorf("a weight of 2: %v", err)
		}
		if err := ann.SetWeight(1); err != nil {
			t.Errorf("a weight of 1: %v", err)
		}
		w.leave(ann)
	})
}

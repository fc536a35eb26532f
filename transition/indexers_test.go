package transition_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// jittery is a counter on a network: a call takes up to 20 ms.
type jittery struct{ intervalindexer.Counter }

func (j jittery) Incr(ctx context.Context, key string, expire time.Duration) (int64, error) {
	time.Sleep(rand.N(20 * time.Millisecond)) // virtual: in a bubble
	return j.Counter.Incr(ctx, key, expire)
}

// An audience hears what the indexers of several peers say.
type audience struct {
	total int
	mu    sync.Mutex
	views map[int]partition.View // by peer
	heard map[int]time.Time      // the first view with an index
	stops map[int]context.CancelFunc
	all   sync.WaitGroup
}

func (a *audience) start(t *testing.T, i int, x partition.Indexer) {
	ctx, stop := context.WithCancel(t.Context())
	a.mu.Lock()
	a.stops[i] = stop
	a.mu.Unlock()
	a.all.Go(func() {
		if err := x.Index(ctx, func(v partition.View) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.views[i] = v
			if _, ok := a.heard[i]; !ok && v.Index >= 0 {
				a.heard[i] = time.Now()
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

func (a *audience) stop(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stops[i]()
	delete(a.views, i)
}

// owners returns who wishes for each partition: -1 nobody, -2 several.
func (a *audience) owners() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	owners := slices.Repeat([]int{-1}, a.total)
	for i, v := range a.views {
		for _, id := range v.Wish {
			if owners[id] != -1 {
				i = -2
			}
			owners[id] = i
		}
	}
	return owners
}

// agreed waits until each partition is wished for by one, and returns how long it took.
func (a *audience) agreed(t *testing.T) time.Duration {
	began := time.Now()
	for slices.Min(a.owners()) < 0 {
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("they do not agree: %v", a.owners())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// TestIndexersBesideEachOther measures what an indexer costs: how long a newcomer waits for its
// first result, how long it takes until the others have a dead peer's share, how much a
// join moves, and how much moves while nobody comes or goes. With -v it prints the table of
// docs/strategies.md. What it wants is what is promised: nothing moves by itself where
// indexes are kept.
func TestIndexersBesideEachOther(t *testing.T) {
	const interval, total, quiet = 5 * time.Second, 256, 40
	timing := transition.Timing{}.WithDefaults()
	cfg := partition.Config{Total: total}
	counted := func(c intervalindexer.Config) func(*testing.T) func() partition.Indexer {
		return func(t *testing.T) func() partition.Indexer {
			memory := new(intervalindexer.Memory)
			c.Interval, c.Partitions = interval, cfg
			return func() partition.Indexer {
				// Skews closer together than the jitter: the worst case for orders of arrival.
				x, err := intervalindexer.New(jittery{memory}, "n", c, intervalindexer.WithSkew(func(time.Duration) time.Duration {
					return time.Second + rand.N(10*time.Millisecond)
				}))
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
		}
	}
	var table strings.Builder
	for _, c := range []struct {
		name  string
		make  func(*testing.T) func() partition.Indexer
		still bool
	}{
		{"roster, `sticky`", func(t *testing.T) func() partition.Indexer {
			ledger, peers := memledger.New(cfg, timing, memledger.Options{}), 0
			return func() partition.Indexer {
				peers++
				x, err := transition.NewRoster(transition.Config{Ledger: ledger, Config: cfg, Timing: timing, Peer: fmt.Sprint("p", peers)})
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
		}, true},
		{"interval, kept, `modulo`", counted(intervalindexer.Config{}), true},
		{"interval, kept, `jump`", counted(intervalindexer.Config{Strategy: partition.Jump{}}), true},
		{"interval by arrival, `modulo`", counted(intervalindexer.Config{Arrival: true}), false},
		{"interval by arrival and hasty, `modulo`", counted(intervalindexer.Config{Arrival: true, Hasty: true}), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &audience{total: total, views: map[int]partition.View{}, heard: map[int]time.Time{}, stops: map[int]context.CancelFunc{}}
			next := c.make(t)
			const n = 5
			for i := range n {
				a.start(t, i, next())
			}
			a.agreed(t)
			time.Sleep(10 * interval)
			moved := 0
			before := a.owners()
			for range quiet {
				time.Sleep(interval)
				now := a.owners()
				moved += differences(before, now)
				before = now
			}
			if c.still && moved > 0 {
				t.Errorf("%s: %d partitions moved while nobody came or went", c.name, moved)
			}
			began := time.Now()
			a.start(t, n, next())
			time.Sleep(10 * interval)
			joined := differences(before, a.owners())
			a.mu.Lock()
			first := a.heard[n].Sub(began)
			a.mu.Unlock()
			a.stop(0)
			time.Sleep(time.Millisecond)
			gone := a.agreed(t)
			fmt.Fprintf(&table, "| %s | %.1f s | %.1f s | %d %% | %.1f %% |\n", c.name, first.Seconds(), gone.Seconds(),
				100*joined/total, 100*float64(moved)/float64(quiet*total))
			for i := 1; i <= n; i++ {
				a.stop(i)
			}
			a.all.Wait()
		})
	}
	t.Logf("\n| indexer | first result of a newcomer | the others have the share of one that left | moved by a join of 1 to 5 | moved in each quiet interval |\n|---|---|---|---|---|\n%s", table.String())
}

func differences(a, b []int) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// TestIndexersAreTold: peers that count off tell how they do it, since those that do it differently leave
// partitions to nobody, and neither has a strategy of the rolls to tell it by.
func TestIndexersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		memory := new(intervalindexer.Memory)
		counted := func(c intervalindexer.Config) func(*peer, *transition.Config) {
			c.Partitions = partition.Config{Total: total}
			x, err := intervalindexer.New(memory, "n", c)
			if err != nil {
				t.Fatal(err)
			}
			return func(_ *peer, cfg *transition.Config) { cfg.Indexer = x }
		}
		want := map[string]string{
			"ann": "interval 5s, modulo",
			"ben": "interval 2s, jump",
			"cid": "interval 5s, modulo, by arrival",
			"dan": "sticky", // by the rolls
		}
		peers := []*peer{
			n.peer("ann", counted(intervalindexer.Config{})).start(t.Context()),
			n.peer("ben", counted(intervalindexer.Config{Interval: 2 * time.Second, Strategy: partition.Jump{}})).start(t.Context()),
			n.peer("cid", counted(intervalindexer.Config{Arrival: true})).start(t.Context()),
			n.peer("dan", nil).start(t.Context()),
		}
		pass(5 * time.Second)
		census, err := n.ledger.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range census.Sessions {
			if s.Strategy != want[s.Peer] {
				t.Errorf("%s says %q, want %q", s.Peer, s.Strategy, want[s.Peer])
			}
			delete(want, s.Peer)
		}
		if len(want) > 0 {
			t.Errorf("nothing is known of %v", want)
		}
		for _, p := range peers {
			p.co.Stop()
			p.ends()
		}
	})
}

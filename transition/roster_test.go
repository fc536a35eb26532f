package transition_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/indexertest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

func TestRoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := memledger.New(partition.Config{Total: total}, transition.Timing{}, memledger.Options{})
		type member struct {
			views []partition.View
			leave context.CancelFunc
			ended chan error
		}
		join := func(peer string) *member {
			r, err := transition.NewRoster(transition.Config{Ledger: ledger, Config: partition.Config{Total: total}, Peer: peer})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			m := &member{leave: cancel, ended: make(chan error, 1)}
			go func() {
				m.ended <- r.Index(ctx, func(v partition.View) { m.views = append(m.views, v) })
			}()
			return m
		}
		a, b, c := join("a"), join("b"), join("c")
		pass(3 * time.Second)
		var indexes []int
		var wishes []partition.ID
		for _, m := range []*member{a, b, c} {
			last := m.views[len(m.views)-1]
			if last.Replicas != 3 {
				t.Errorf("a member sees %+v, want 3 replicas", last)
			}
			indexes = append(indexes, last.Index)
			wishes = append(wishes, last.Wish...)
		}
		slices.Sort(indexes)
		slices.Sort(wishes)
		if !slices.Equal(indexes, []int{0, 1, 2}) || !slices.Equal(wishes, partition.Config{Total: total}.IDs()) {
			t.Errorf("indexes %v, wishes %v", indexes, wishes)
		}
		b.leave()
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
		pass(3 * time.Second)
		if v := a.views[len(a.views)-1]; v.Replicas != 2 || v.Index > 1 {
			t.Errorf("after one left a sees %+v", v)
		}
		for _, m := range []*member{a, c} {
			for i := 1; i < len(m.views); i++ {
				if m.views[i].Version <= m.views[i-1].Version {
					t.Errorf("versions do not rise: %+v", m.views)
				}
			}
		}
		census, err := ledger.Census(t.Context())
		if err != nil || len(census.Grants) != 0 {
			t.Errorf("members for the index alone hold %v, %v", census.Grants, err)
		}
		for _, s := range census.Sessions {
			if s.Peer == "b" && s.State != machine.Gone {
				t.Errorf("b is %v", s.State)
			}
		}
		a.leave()
		c.leave()
		if err := errors.Join(<-a.ended, <-c.ended); err != nil {
			t.Error(err)
		}
	})
}

func TestRosterOfAnotherConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := memledger.New(partition.Config{Total: total}, transition.Timing{}, memledger.Options{})
		other := partition.Config{Total: 2 * total}
		r, err := transition.NewRoster(transition.Config{Ledger: ledger.As(other, transition.Timing{}), Config: other})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Index(t.Context(), func(partition.View) {}); !errors.Is(err, partition.ErrConfig) {
			t.Errorf("got %v, want ErrConfig", err)
		}
	})
}

// TestRosterIsAnIndexer holds the roster to what every indexer promises.
func TestRosterIsAnIndexer(t *testing.T) {
	indexertest.Run(t, indexertest.Harness{
		Bubble: true,
		New: func(t *testing.T) indexertest.Group {
			cfg := partition.Config{Total: total}
			ledger := memledger.New(cfg, transition.Timing{}, memledger.Options{})
			return indexertest.Group{
				Peer: func(id string) (partition.Indexer, func()) {
					own := &faulty{Ledger: ledger}
					r, err := transition.NewRoster(transition.Config{Ledger: own, Config: cfg, Peer: id})
					if err != nil {
						t.Fatal(err)
					}
					return r, func() { own.fail(errors.New("cut off")) }
				},
				Settle: transition.Timing{}.WithDefaults().Takeover() + 5*time.Second,
				IDs:    cfg.IDs(),
			}
		},
	})
}

// Members for the index alone stand beside peers that work: whoever came first, the
// partitions are all those peers', and shared out as those peers do it.
func TestRosterBesidePeers(t *testing.T) {
	for i := range 32 { // who would seal is chance
		rosterFirst := i%2 == 0
		synctest.Test(t, func(t *testing.T) {
			n := newName(t)
			var last partition.View
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			roster := func() {
				r, err := transition.NewRoster(transition.Config{Ledger: n.ledger, Config: partition.Config{Total: total}, Peer: "i", Weight: 5})
				if err != nil {
					t.Fatal(err)
				}
				go func() { ended <- r.Index(ctx, func(v partition.View) { last = v }) }()
				pass(3 * time.Second)
			}
			ring := func(_ *peer, cfg *transition.Config) { cfg.Strategy = partition.Ring{} }
			if rosterFirst {
				roster()
				if len(last.Wish) != total {
					t.Errorf("alone it is to have %v", last.Wish)
				}
			}
			a := n.peer("a", ring).start(t.Context())
			if !rosterFirst {
				pass(3 * time.Second)
				roster()
			}
			b := n.peer("b", ring).start(t.Context())
			pass(3 * time.Second)
			if last.Replicas != 3 || len(last.Wish) > 0 {
				t.Errorf("the member for the index alone sees %+v, want 3 replicas and no wish", last)
			}
			n.shares(a, b)
			census, err := n.ledger.Census(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// What the peers that work would have without it, by the ring.
			var works []partition.Member
			for _, m := range census.Roll.Members {
				if m.Weight > 0 {
					works = append(works, m.Member)
				}
			}
			table := partition.Ring{}.Assign(census.Config.IDs(), works, nil)
			for _, p := range []*peer{a, b} {
				for id := range p.holds() {
					if table[id] != p.co.Session() {
						t.Errorf("%v is %s's: another strategy than the peers' shared it out", id, p.id)
					}
				}
			}
			leave()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			pass(3 * time.Second)
			n.shares(a, b)
		})
	}
}

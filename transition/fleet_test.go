package transition_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// fleet seals a roll of n sessions that nobody keeps alive.
func (n *name) fleet(size int) (all []machine.Request) {
	n.Helper()
	for i := range size {
		id := fmt.Sprintf("peer%04d", i)
		all = append(all, machine.Request{Session: partition.Session(id), Peer: id, Weight: 1, State: machine.Live})
		if _, err := n.ledger.Sync(n.Context(), all[i]); err != nil {
			n.Fatal(err)
		}
	}
	census, err := n.ledger.Census(n.Context())
	if err != nil {
		n.Fatal(err)
	}
	next, _, _ := machine.NextRoll(census, partition.Sticky{})
	if err := n.ledger.Seal(n.Context(), next); err != nil {
		n.Fatal(err)
	}
	return all
}

// within fails unless the peers serve everything within most.
func (n *name) within(most time.Duration, peers ...*peer) {
	n.Helper()
	began := time.Now()
	for {
		all := 0
		for _, p := range peers {
			all += len(p.holds())
		}
		took := time.Since(began)
		if took > most {
			n.Fatalf("after %v %d of %d partitions are served", took, all, total)
		}
		if all == total {
			break
		}
		pass(50 * time.Millisecond)
	}
	for _, p := range peers {
		p.co.Stop()
		p.ends()
	}
}

// takeover is the published bound.
var takeover = transition.Timing{}.WithDefaults().Takeover()

// TestFleetReplaced: a fleet dies as one, and others come in its place.
func TestFleetReplaced(t *testing.T) {
	for _, size := range []int{10, 100, 1000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newName(t)
				n.fleet(size)
				var peers []*peer
				for i := range 3 {
					peers = append(peers, n.peer(fmt.Sprint("new", i), nil).start(t.Context()))
				}
				n.within(takeover, peers...)
			})
		})
	}
}

// TestFleetRestartedInOrder: all leave, and one comes back.
func TestFleetRestartedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		for _, r := range n.fleet(500) {
			r.State = machine.Gone
			if _, err := n.ledger.Sync(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		n.within(3*time.Second, n.peer("new", nil).start(t.Context()))
	})
}

// TestLowIndexesDie: of a fleet the one with the highest index is left.
func TestLowIndexesDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newName(t)
		all := n.fleet(300)
		last := all[len(all)-1]
		n.within(takeover, n.peer(last.Peer, func(_ *peer, cfg *transition.Config) { cfg.Session = last.Session }).start(t.Context()))
	})
}

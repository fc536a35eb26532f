package indexertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
)

// A Harness makes groups of peers for the suite.
type Harness struct {
	// New returns a group that nobody is a member of yet. What it needs ends with t.
	New func(t *testing.T) Group
	// Bubble runs each clause in a testing/synctest bubble: New is called inside, and
	// everything must live in memory.
	Bubble bool
}

// A Group is the peers of one name.
type Group struct {
	// Peer returns the indexer of a peer of the group. cut takes the store away from
	// it: from then on its calls fail or hang until their context ends, and nothing
	// it says arrives. A peer that is cut and then stopped has crashed.
	Peer func(id string) (x partition.Indexer, cut func())
	// Settle bounds how long after a join, a leave or a crash all views agree.
	Settle time.Duration
	// IDs is all that the wishes of agreeing peers must add up to, each once.
	IDs []partition.ID
}

// Run holds an indexer to its promises, one subtest for each.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		clause string
		check  func(*testing.T, Group)
	}{
		{"one peer alone is index 0 of 1 and wishes for everything", alone},
		{"peers that start together agree", together},
		{"a peer that joins is counted by all", joins},
		{"a peer whose context ends is counted no more", leaves},
		{"a peer that crashes is counted no more", crashes},
		{"peers that come and go, and then calm: all agree", comeAndGo},
		{"in calm nothing changes", calm},
		{"a slow emit is not called again meanwhile, and costs nobody's place", slowEmit},
		{"Index returns nil when its context ends, whatever state it is in, and emits no more", ends},
	} {
		t.Run(c.clause, func(t *testing.T) {
			if h.Bubble {
				synctest.Test(t, func(t *testing.T) { c.check(t, h.New(t)) })
				return
			}
			t.Parallel()
			c.check(t, h.New(t))
		})
	}
}

func alone(t *testing.T, g Group) {
	f := newFleet(t, g)
	f.start("a")
	f.agree()
}

func together(t *testing.T, g Group) {
	f := newFleet(t, g)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		f.start(id)
	}
	f.agree()
}

func joins(t *testing.T, g Group) {
	f := newFleet(t, g)
	for _, id := range []string{"a", "b", "c"} {
		f.start(id)
		f.agree()
	}
}

func leaves(t *testing.T, g Group) {
	f := newFleet(t, g)
	for _, id := range []string{"a", "b", "c"} {
		f.start(id)
	}
	f.agree()
	// The lowest index goes: someone else must take it.
	f.holder(0).stop()
	f.agree()
}

func crashes(t *testing.T, g Group) {
	f := newFleet(t, g)
	for _, id := range []string{"a", "b", "c"} {
		f.start(id)
	}
	f.agree()
	f.holder(1).crash()
	f.agree()
}

func comeAndGo(t *testing.T, g Group) {
	f := newFleet(t, g)
	f.start("a")
	f.start("b")
	f.pass(g.Settle / 3)
	f.start("c")
	f.start("d")
	f.peers["a"].crash()
	f.pass(g.Settle / 5)
	f.start("e")
	f.peers["b"].stop()
	f.pass(g.Settle / 2)
	f.start("a") // the id comes back, with a life of its own
	f.agree()
	f.peers["c"].crash()
	f.start("f")
	f.peers["d"].stop()
	f.agree()
}

func calm(t *testing.T, g Group) {
	f := newFleet(t, g)
	for _, id := range []string{"a", "b", "c", "d"} {
		f.start(id)
	}
	f.agree()
	before := f.changes()
	f.pass(2 * g.Settle)
	for id, now := range f.changes() {
		if now != before[id] {
			t.Errorf("%s was told another place %d times although nobody came or went", id, now-before[id])
		}
	}
}

func slowEmit(t *testing.T, g Group) {
	f := newFleet(t, g)
	release := f.startHeld("slow")
	f.start("b")
	f.start("c")
	// While one hangs in its first emit the others count it and agree.
	f.until(func() error { return f.counted(3, "b", "c") })
	f.peers["c"].stop()
	f.until(func() error { return f.counted(2, "b") })
	release()
	f.agree()
}

func ends(t *testing.T, g Group) {
	f := newFleet(t, g)
	f.start("newborn").stop() // before it can know anything
	f.start("a")
	f.start("b")
	f.agree()
	f.peers["a"].stop()
	cut := f.peers["b"]
	cut.cut()
	f.pass(g.Settle)
	cut.stop()
	release := f.startHeld("held")
	held := f.peers["held"]
	f.until(held.emitting)
	held.cancel()
	f.pass(g.Settle / 20) // for one that returns while emit runs
	release()
	held.stop()
}

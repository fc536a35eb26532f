package framework_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// The others take over what a drained peer has, which stays ready and gets nothing, also when it is stopped and comes back
// under its id, until it is recalled: nothing is lost, doubled or out of order.
func TestADrainedPeerHasNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 8)
		want := f.push(3000, 40)
		start := func(peer string) *framework.Consumer {
			t.Helper()
			c := f.consumer(peer, f.handler(peer, 300*time.Millisecond))
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			return c
		}
		a, b := start("a"), start("b")
		has := func(peer string) int {
			t.Helper()
			census, err := f.ledger.Census(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, s := range census.Sessions {
				for _, g := range census.Grants {
					if g.Session == s.Session && s.Peer == peer {
						n++
					}
				}
			}
			return n
		}
		until(t, time.Minute, func() bool { return a.Ready() == nil && b.Ready() == nil && has("a") == 4 && has("b") == 4 })
		if err := f.ledger.Drain(t.Context(), partition.Drain{Peer: "a", Since: time.Now(), Why: "test"}); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Second, func() bool { return has("a") == 0 && has("b") == 8 })
		time.Sleep(5 * time.Second)
		if a.Ready() != nil || b.Ready() != nil || has("a") != 0 || f.open() == 0 {
			t.Errorf("drained; ready: %v, %v; it has %d, %d tasks are left", a.Ready(), b.Ready(), has("a"), f.open())
		}
		// It goes and comes back under its id.
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		a = start("a")
		until(t, time.Minute, func() bool { return a.Ready() == nil })
		time.Sleep(5 * time.Second)
		if has("a") != 0 || f.open() == 0 {
			t.Errorf("back under its id it has %d; %d tasks are left", has("a"), f.open())
		}
		if err := f.ledger.Recall(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Second, func() bool { return has("a") == 4 && has("b") == 4 })
		until(t, 10*time.Minute, func() bool { return f.open() == 0 })
		f.checkOnceInOrder(want)
		var told []bool
		for _, e := range eventsOf[framework.Coordinated](f, "a") {
			switch e.Event.(type) {
			case transition.Dismissed:
				told = append(told, true)
			case transition.Recalled:
				told = append(told, false)
			}
		}
		if !slices.Equal(told, []bool{true, true, false}) { // by both of its sessions
			t.Errorf("a is told %v", told)
		}
		if n := len(eventsOf[framework.Uncovered](f, "a")) + len(eventsOf[framework.Uncovered](f, "b")); n != 0 {
			t.Errorf("%d things are told to be wrong", n)
		}
		// Who is alone keeps what nobody else can have.
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		until(t, time.Minute, func() bool { return has("a") == 8 })
		if err := f.ledger.Drain(t.Context(), partition.Drain{Peer: "a", Since: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if has("a") != 8 {
			t.Errorf("drained and alone it has %d", has("a"))
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

package framework_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
)

// A paused name ends what runs and begins nothing, with peers that are ready and may come and go, until
// it is resumed: nothing is lost, doubled or out of order.
func TestAPausedNameRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 8)
		want := f.push(3000, 40)
		a, b := f.consumer("a", f.handler("a", 300*time.Millisecond)), f.consumer("b", f.handler("b", 300*time.Millisecond))
		for _, c := range []*framework.Consumer{a, b} {
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ran := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			n := 0
			for _, ids := range f.runs {
				n += len(ids)
			}
			return n
		}
		until(t, time.Minute, func() bool { return a.Ready() == nil && b.Ready() == nil && ran() > 200 })
		if err := f.ledger.Pause(t.Context(), partition.Pause{Since: time.Now(), Why: "test"}); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Second, func() bool {
			census, err := f.ledger.Census(t.Context())
			return err == nil && len(census.Grants) == 0
		})
		done := ran()
		if left := f.open(); left != 3000-done || left == 0 {
			t.Errorf("%d tasks ran and %d of 3000 are left: what ended is not settled", done, left)
		}
		time.Sleep(5 * time.Minute)
		if ran() != done || a.Ready() != nil || b.Ready() != nil {
			t.Errorf("paused: %d more ran; ready: %v, %v", ran()-done, a.Ready(), b.Ready())
		}
		if n := len(eventsOf[framework.Uncovered](f, "a")) + len(eventsOf[framework.Uncovered](f, "b")); n != 1 {
			t.Errorf("%d things are told to be wrong, want the pause", n)
		}
		// One goes and another comes meanwhile.
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		c := f.consumer("c", f.handler("c", 300*time.Millisecond))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return c.Ready() == nil })
		time.Sleep(10 * time.Second) // one of the two tells of the pause now
		if ran() != done {
			t.Error("a newcomer begins")
		}
		if err := f.ledger.Pause(t.Context(), partition.Pause{}); err != nil {
			t.Fatal(err)
		}
		until(t, 10*time.Second, func() bool { return ran() > done+100 })
		until(t, 10*time.Minute, func() bool { return f.open() == 0 })
		f.checkOnceInOrder(want)
		for peer, is := range map[string]*framework.Consumer{"a": a, "c": c} {
			var told []bool
			for _, e := range eventsOf[framework.Coordinated](f, peer) {
				switch e.Event.(type) {
				case transition.Paused:
					told = append(told, true)
				case transition.Resumed:
					told = append(told, false)
				}
			}
			if len(told) != 2 || !told[0] || told[1] {
				t.Errorf("%s is told %v", peer, told)
			}
			if err := is.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		over := false
		for _, peer := range []string{"a", "c"} {
			for _, e := range eventsOf[framework.Covered](f, peer) {
				over = over || e.Kind == coverage.Paused
			}
		}
		if !over {
			t.Error("that the pause is over is not told")
		}
	})
}

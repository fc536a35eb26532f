package framework_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/coverage"
)

// Partitions that ask for tags are served by peers that have them, by no other ever, and
// where nobody has them it is told.
func TestGroupsOfPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		f.ledger.Require(partition.Requirement{First: 0, Last: 3, Tags: "gpu"}, partition.Requirement{First: 2, Last: 5, Tags: "eu"})
		survey := framework.WithSurvey(func(context.Context, []partition.ID) ([]coverage.Datum, error) { return nil, nil })
		a := f.moody("a", survey)
		b := f.moody("b", survey, framework.WithTags("gpu"))
		until(t, time.Minute, func() bool { return a.served()+b.served() == 12 })
		told := func(kind coverage.Kind) (n int) {
			for _, e := range append(eventsOf[framework.Uncovered](f, "a"), eventsOf[framework.Uncovered](f, "b")...) {
				if e.Finding.Kind == kind {
					n += len(e.Finding.Partitions)
				}
			}
			return n
		}
		until(t, time.Minute, func() bool { return told(coverage.NoneEligible) == 4 }) // 2 to 5
		c := f.moody("c", survey, framework.WithTags("eu", "gpu"))
		until(t, time.Minute, func() bool { return a.served()+b.served()+c.served() == 16 })
		until(t, time.Minute, func() bool {
			return len(eventsOf[framework.Covered](f, "a"))+len(eventsOf[framework.Covered](f, "b")) > 0
		})
		for _, p := range []*moody{a, b, c} {
			has := map[string]partition.Tags{"a": "", "b": "gpu", "c": "eu gpu"}[p.peer]
			asks := partition.Config{Requires: []partition.Requirement{{First: 0, Last: 3, Tags: "gpu"}, {First: 2, Last: 5, Tags: "eu"}}}
			for _, e := range eventsOf[framework.Opened](f, p.peer) {
				if !has.Has(asks.Asks(e.Grant.ID)) {
					t.Errorf("%s has %q and served %v, which asks for %q", p.peer, has, e.Grant, asks.Asks(e.Grant.ID))
				}
			}
		}
		// The last one that has eu is unwell: it keeps what only it may have.
		c.unwell.Store(true)
		time.Sleep(10 * time.Second)
		if got := c.served(); got != 4 {
			t.Errorf("it is unwell and serves %d, want the 4 that nobody else may have", got)
		}
		a.stop()
		b.stop()
		c.stop()
	})
}

// Where a source has no survey the ledger is watched all the same, and work that waits and is
// handed over is not taken for a fault.
func TestWithoutASurveyTheLedgerIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.ledger.Require(partition.Requirement{First: 0, Last: 0, Tags: "gpu"})
		f.push(300, 8)
		a := f.moody("a")
		told := func() map[coverage.Kind]bool {
			kinds := map[coverage.Kind]bool{}
			for _, e := range append(eventsOf[framework.Uncovered](f, "a"), eventsOf[framework.Uncovered](f, "b")...) {
				kinds[e.Finding.Kind] = true
			}
			return kinds
		}
		until(t, time.Minute, func() bool { return told()[coverage.NoneEligible] })
		b := f.moody("b")
		until(t, time.Minute, func() bool { return b.served() > 0 })
		time.Sleep(5 * time.Minute)
		if kinds := told(); len(kinds) != 1 {
			t.Errorf("told: %v, want %s alone", kinds, coverage.NoneEligible)
		}
		a.stop()
		b.stop()
	})
}

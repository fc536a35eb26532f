package framework

import (
	"context"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// idleShare is a share of one partition that takes no part: its coordinator has no lease.
func idleShare(t *testing.T) *Share {
	layout := partition.Config{Total: 1}
	s, err := NewShare("rows", ShareConfig{
		Ledger: memledger.New(layout, transition.Timing{}, memledger.Options{}), Partitions: layout,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A process that was stopped past its lease goes on with partitions that it is still said to
// serve: nothing of them is admitted, although nobody has taken them away yet.
func TestNothingIsAdmittedWithoutALease(t *testing.T) {
	s := idleShare(t)
	(*tenancy)(s).Serve(partition.Grant{ID: 0, Epoch: 1})
	s.coordinator.Filter().Publish(s.cfg.Partitions, []partition.ID{0})
	if _, ok := s.Admit(t.Context(), "row"); ok {
		t.Error("admitted")
	}
	if s.Has("row") {
		t.Error("said to be ours")
	}
	if (Unit{share: s, place: s.serving[0]}).Owned() {
		t.Error("a handler that goes on is told that its unit is ours")
	}
}

// So is a handler whose pause after an error has ended meanwhile: it is not called anew.
func TestNoHandlerOfUnitsIsCalledWithoutALease(t *testing.T) {
	s := idleShare(t)
	(*tenancy)(s).Serve(partition.Grant{ID: 0, Epoch: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	u := &Units{cfg: UnitsConfig{Handler: func(context.Context, Unit) error {
		t.Error("called")
		cancel()
		return nil
	}}}
	(&unitsSession{u: u}).serve(&Admission{share: s, place: s.serving[0], ctx: ctx}, Unit{Name: "row", share: s, place: s.serving[0]})
}

// Each Drain and each Abort of the coordinator is answered once: what is served under another
// epoch is not meant, what has ended is over, and an abort takes the place of a drain.
func TestHowASharesPartitionsEnd(t *testing.T) {
	s := idleShare(t)
	tenancy := (*tenancy)(s)
	old, g := partition.Grant{ID: 0, Epoch: 1}, partition.Grant{ID: 0, Epoch: 2}
	drained, aborted := 0, 0
	told := func(when string, d, a int) {
		t.Helper()
		if drained != d || aborted != a {
			t.Errorf("%s: the drain is answered %d times, want %d, the abort %d times, want %d", when, drained, d, aborted, a)
		}
		drained, aborted = 0, 0
	}
	end := func(g partition.Grant) {
		tenancy.Drain(g, func() { drained++ })
		tenancy.Abort(g, transition.ErrLapsed, func() { aborted++ })
	}
	end(g)
	told("what was never served", 1, 1)
	tenancy.Serve(g)
	end(old)
	told("what is served since with a greater epoch", 1, 1)
	p := s.serving[0]
	if p == nil || p.ctx.Err() != nil {
		t.Fatal("the partition was ended under the epoch of another")
	}
	p.running++ // as Admit does
	end(g)
	told("while something runs", 0, 0)
	if p.ctx.Err() == nil {
		t.Error("what runs is not told")
	}
	s.release(p)
	told("when it has returned", 0, 1)
	end(g)
	told("afterwards", 1, 1)
	if len(s.serving) != 0 || len(s.ending) != 0 {
		t.Errorf("kept: %v is served, %v ends", s.serving, s.ending)
	}
}

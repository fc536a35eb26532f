package redisledger_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// Of a name that nobody made, or whose configuration was lost, there is nothing to be raised: whoever looks at the broker
// is told of no error, and the first peer says how many there are.
func TestGrowOfANameThatNobodyMade(t *testing.T) {
	s, _ := miniStage(t)
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 2}, Timing: someTiming, Grows: true})
	if err := l.Grow(t.Context(), 5); err != nil {
		t.Error(err)
	}
	if keys := s.client.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("it made %v", keys)
	}
}

// A name that grows while a peer works gets a roll with the new partitions, and the
// peers that say the smaller number are behind, not in error. Nothing of what is held
// changes.
func TestGrow(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{Total: 2})
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 2}, Timing: someTiming, Grows: true})
	r := machine.Request{Session: session(1), Peer: "ann", Claim: []partition.ID{0, 1}}
	a := mustSync(t, l, r)
	r.Hold, r.Claim = held(a), nil
	s.Advance(2 * time.Second)
	// due seals what is due and returns which partitions it shares out, nil: nothing is.
	due := func() []partition.ID {
		t.Helper()
		c, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		roll, _, ok := machine.NextRoll(c, partition.Sticky{})
		if !ok {
			return nil
		}
		if err := l.Seal(t.Context(), roll); err != nil {
			t.Fatal(err)
		}
		return roll.Members[0].Partitions
	}
	if got := due(); len(got) != 2 {
		t.Fatalf("the first roll has %v", got)
	}
	before := mustSync(t, l, r)
	for _, total := range []int{5, 5, 3} { // only the first changes anything
		if err := l.Grow(t.Context(), total); err != nil {
			t.Fatal(err)
		}
	}
	after := mustSync(t, l, r)
	if !slices.Equal(held(before), held(after)) {
		t.Errorf("it held %v and holds %v", held(before), held(after))
	}
	if before.Sealing || !after.Sealing {
		t.Errorf("a roll was due: %v, is due: %v, want false and true", before.Sealing, after.Sealing)
	}
	s.Advance(2 * time.Second)
	if got := due(); len(got) != 5 {
		t.Errorf("the next roll has %v, want 5 partitions", got)
	}
	if err := l.Grow(t.Context(), 5); err != nil { // of a peer that hears of it now
		t.Fatal(err)
	}
	if got := due(); got != nil {
		t.Errorf("another roll is due, with %v", got)
	}
}

// A name that grows while the next roll is made: what the roll was made of is old, so the one
// after it is due.
func TestGrowWhileARollIsMade(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{Total: 2})
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 2}, Timing: someTiming, Grows: true})
	r := machine.Request{Session: session(1), Peer: "ann"}
	mustSync(t, l, r)
	s.client.AddHook(&between{do: func() {
		if err := l.Grow(t.Context(), 5); err != nil {
			t.Error(err)
		}
	}})
	for i := range 2 {
		c, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		roll, _, _ := machine.NextRoll(c, partition.Sticky{})
		if err := l.Seal(t.Context(), roll); err != nil {
			t.Fatal(err)
		}
		if a := mustSync(t, l, r); a.Sealing != (i == 0) {
			t.Errorf("after roll %d, of %v, another is due: %v", i+1, roll.Members[0].Partitions, a.Sealing)
		}
	}
}

// between does something once, right after the first command that succeeds.
type between struct {
	do func()
}

func (h *between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if do := h.do; do != nil && err == nil {
			h.do = nil
			do()
		}
		return err
	}
}

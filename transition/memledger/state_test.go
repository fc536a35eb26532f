package memledger_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

// A store that is put away and restored between any two calls decides as one that is not.
func TestStateIsAllThatAStoreKnows(t *testing.T) {
	call := memledger.Call{Now: 1, Run: "a", Config: partition.Config{Total: 4}.WithDefaults(), Timing: transition.Timing{}.WithDefaults()}
	if _, known := new(memledger.Store).State(); known {
		t.Error("a store that knows nothing has a state")
	}
	whole := memledger.NewStore(call)
	parted := whole.Clone()
	again := func() {
		t.Helper()
		state, known := parted.State()
		if !known {
			t.Fatal("it knows nothing")
		}
		parted = memledger.Restore(state)
	}
	for i, r := range []machine.Request{
		{Session: "a", Peer: "pa", Weight: 2, State: machine.Live, Claim: []partition.ID{0, 1, 2}},
		{Session: "b", Peer: "pb", Weight: 1, State: machine.Live, Unwell: true, Tags: "eu gpu", Strategy: "jump", Claim: []partition.ID{1, 3}},
		{Session: "a", Peer: "pa", Weight: 2, State: machine.Leaving},
		{Session: "c", Peer: "pc", Weight: 1, State: machine.Live, Claim: []partition.ID{1}, Top: 100},
		{Session: "a", Peer: "pa", Weight: 2, State: machine.Gone},
		{Session: "c", Peer: "pc", Weight: 1, State: machine.Live},
		{Session: "c", Peer: "pc", Weight: 1, State: machine.Live},
		{Session: "c", Peer: "pc", Weight: 1, State: machine.Live, Claim: []partition.ID{3}},
	} {
		call.Now += 2000
		if i == 5 {
			call.Run = "b"
		}
		again()
		want, _, _ := whole.Sync(call, r)
		if got, _, _ := parted.Sync(call, r); !reflect.DeepEqual(got, want) {
			t.Errorf("call %d: got  %+v\nwant %+v", i, got, want)
		}
		if i == 3 {
			c, _ := whole.Census(call)
			roll := machine.Roll{Version: c.Roll.Version, Membership: c.Membership, Members: []machine.RollMember{{Partitions: []partition.ID{1}}}}
			again()
			if _, err := parted.Seal(call, roll); err != nil {
				t.Error(err)
			}
			_, _ = whole.Seal(call, roll)
		}
		again()
		want2, _ := whole.Census(call)
		if got, _ := parted.Census(call); !reflect.DeepEqual(got, want2) {
			t.Errorf("census %d: got  %+v\nwant %+v", i, got, want2)
		}
	}
}

// An older build keeps no longest lease: it is that of the sessions.
func TestStateOfAnOlderBuild(t *testing.T) {
	long := transition.Timing{Lease: time.Minute}.WithDefaults()
	call := memledger.Call{Now: 1, Run: "a", Config: partition.Config{Total: 4}.WithDefaults(), Timing: long}
	s := memledger.NewStore(call)
	if _, _, err := s.Sync(call, machine.Request{Session: "a", Weight: 1}); err != nil {
		t.Fatal(err)
	}
	state, _ := s.State()
	state.Longest = 0
	call.Run, call.Timing = "b", transition.Timing{}.WithDefaults()
	a, _, err := memledger.Restore(state).Sync(call, machine.Request{Session: "b", Weight: 1})
	if err != nil || a.Grace != long.Grace() {
		t.Errorf("the grace has %v left, error %v; want %v", a.Grace, err, long.Grace())
	}
}

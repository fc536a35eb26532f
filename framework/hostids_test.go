package framework

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// A host may be called what no peer may: its peers work all the same.
func TestHostsWhoseNameIsNoID(t *testing.T) {
	if first, second := hostIDs("vm-17", nil); first != "vm-17" || !strings.HasPrefix(second, "vm-17-") {
		t.Errorf("%q, %q", first, second)
	}
	for _, host := range []string{"", "_", "\x1b[2J", strings.Repeat("x", 254), strings.Repeat("x", 300)} {
		first, second := hostIDs(host, nil)
		if first != "peer" || !strings.HasPrefix(second, "peer-") || partition.CheckPeer(second) != nil {
			t.Errorf("%q: %q, %q", host, first, second)
		}
	}
	if first, _ := hostIDs("", errors.New("no name")); first != "peer" {
		t.Errorf("without a name: %q", first)
	}
}

// seenLedger is a ledger of which a census can be taken.
type seenLedger struct {
	transition.Ledger
	census machine.Census
	err    error
}

func (c seenLedger) Census(context.Context) (machine.Census, error) { return c.census, c.err }

// A peer takes the name of its host unless somebody who lives has it: who is gone, or whose lease is
// over, leaves it the name and the seat, and neighbours of other names have no part in it.
func TestTheHostsNameIsTakenByWhoLives(t *testing.T) {
	host, own := hostIDs(os.Hostname())
	seat := func(peer string, state machine.State, lease time.Duration) machine.Seat {
		return machine.Seat{Session: partition.Session(peer), Peer: peer, State: state, Lease: lease}
	}
	others := []machine.Seat{seat("ann", machine.Live, time.Second), seat(host, machine.Gone, time.Second), seat(host, machine.Live, 0)}
	for _, c := range []struct {
		seats      []machine.Seat
		configured string
		want       string
	}{
		{others, "", host},
		{append(others[:3:3], seat(host, machine.Live, time.Second)), "", own},
		{append(others[:3:3], seat(host, machine.Leaving, time.Second)), "", own},
		{append(others[:3:3], seat("ann", machine.Live, time.Second)), "ann", "ann"},
	} {
		if got, err := peerID(t.Context(), c.configured, seenLedger{census: machine.Census{Sessions: c.seats}}); err != nil || got != c.want {
			t.Errorf("among %+v it is %q, %v: want %q", c.seats, got, err, c.want)
		}
	}
	if _, err := peerID(t.Context(), "", seenLedger{err: transition.ErrStale}); err == nil {
		t.Error("a ledger that did not answer")
	}
}

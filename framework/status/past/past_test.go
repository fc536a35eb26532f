package past

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/transition/machine"
)

func TestARollOfOne(t *testing.T) {
	for n, want := range map[int]string{1: "roll 7 was sealed, of 1 peer", 2: "roll 7 was sealed, of 2 peers"} {
		if got := sentence(machine.Entry{What: machine.RollMade, Version: 7, Replicas: n}, ""); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What is given up for a pause, and not for another peer, a script reads as well as people do.
func TestAMoveForAPause(t *testing.T) {
	m := machine.Move{Entry: machine.Entry{What: machine.GivenUp, Peer: "p"}, Paused: true}
	if line := MoveLine(m); !strings.Contains(line, "paused") {
		t.Errorf("the line is %q", line)
	}
	if !MoveOf(m).Paused || MoveOf(machine.Move{Entry: m.Entry}).Paused {
		t.Errorf("the JSON is of %+v", MoveOf(m))
	}
}

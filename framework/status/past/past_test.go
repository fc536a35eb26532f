package past

import (
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

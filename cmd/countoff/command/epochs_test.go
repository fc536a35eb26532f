package command

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
)

func TestEpochsWantsMasters(t *testing.T) {
	if said := newShell(t).fails(exit.Usage, "epochs n"); !strings.Contains(said, "want --masters") {
		t.Errorf("it says %q", said)
	}
}

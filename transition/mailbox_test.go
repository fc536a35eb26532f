package transition

import (
	"testing"

	"github.com/countoff/countoff/transition/machine"
)

func TestAHintLeavesReportsAlone(t *testing.T) {
	b := newMailbox()
	b.put(mail{event: machine.Hinted{}})
	b.put(mail{event: machine.Hinted{}, report: []Event{HintsLost{}}})
	b.put(mail{event: machine.Hinted{}})
	if all := b.take(); len(all) != 2 || len(all[1].report) != 1 {
		t.Errorf("a hint ate a report: %+v", all)
	}
}

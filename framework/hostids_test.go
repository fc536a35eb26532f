package framework

import (
	"errors"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition"
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

package transition

import (
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
)

func TestALateEndIsOfItsGrantAlone(t *testing.T) {
	c := &Coordinator{cfg: Config{Observer: func(Event) {}}, grants: map[partition.ID]*holding{3: {grant: partition.Grant{ID: 3, Epoch: 9}, ends: true}}, released: map[partition.Grant]time.Time{}}
	c.drained(partition.Grant{ID: 3, Epoch: 7}) // late, of a grant that was aborted meanwhile
	if c.grants[3] == nil {
		t.Error("a late end of 3@7 forgets 3@9, and its abort or overdue finds nothing")
	}
	c.drained(partition.Grant{ID: 3, Epoch: 9})
	c.sinceDrained(partition.Grant{ID: 3, Epoch: 9})
	if len(c.released) != 0 {
		t.Errorf("what the ledger has taken back is remembered for ever: %v", c.released)
	}
}

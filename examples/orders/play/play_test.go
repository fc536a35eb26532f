package play

import (
	"testing"
	"time"
)

// Nothing can be removed before the leases of the peers that were killed at the end are over.
func TestItRemovesNotBeforeTheLeaseIsOver(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, time.Hour} {
		p := &Play{cfg: Config{Lease: lease}}
		if got := p.ending(); got <= lease {
			t.Errorf("a lease of %v: it tries for %v", lease, got)
		}
	}
}

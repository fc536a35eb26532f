package etcdledger

import "time"

// SetClock lets l measure time by now instead of the process's clock.
func (l *Ledger) SetClock(now func() time.Duration) { l.memory.now = now }

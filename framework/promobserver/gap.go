package promobserver

import (
	"sync/atomic"
	"time"
)

// A gap measures how long a partition that is kept over a new view stands still. It may
// be used concurrently.
type gap struct {
	hand  atomic.Int64 // tasks fetched and not handled, about: a retry in place is fetched once
	last  atomic.Int64 // when a handler ended or tasks came into an empty hand, in ns
	armed atomic.Bool
}

// opened begins anew: what an earlier grant had in hand is gone.
func (g *gap) opened() {
	g.hand.Store(0)
	g.armed.Store(false)
}

func (g *gap) fetched(tasks int) {
	if tasks > 0 && g.hand.Add(int64(tasks)) <= int64(tasks) {
		g.hand.Store(int64(tasks))
		g.last.Store(time.Now().UnixNano())
	}
}

// kept says that there is a new view and the partition stays.
func (g *gap) kept() {
	if g.hand.Load() > 0 {
		g.armed.Store(true)
	}
}

// handled returns the gap over the newest view, if this was the first handler to end
// after it.
func (g *gap) handled() (time.Duration, bool) {
	g.hand.Add(-1)
	now := time.Now().UnixNano()
	last := g.last.Swap(now)
	if last == 0 || !g.armed.Load() || !g.armed.Swap(false) {
		return 0, false
	}
	return time.Duration(now - last), true
}

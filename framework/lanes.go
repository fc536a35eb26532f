package framework

import (
	"slices"

	"github.com/countoff/countoff/partition"
)

// A LaneStatus is what a consumer has of one grant right now.
type LaneStatus struct {
	Grant partition.Grant
	State string // "opening", "serving", "draining" or "lost"
	// Tasks that were fetched: with a handler, ready to start, waiting behind
	// their key or for a retry, and finished but not settled.
	Running, Ready, Waiting, Unsettled int
}

// Lanes returns what the consumer has of each grant, by partition: for metrics and
// people. It takes the lock of the hot path for a moment.
func (c *Consumer) Lanes() []LaneStatus {
	s, ok := c.sessions.now()
	if !ok {
		return nil
	}
	s.mu.Lock()
	p := s.pool
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	all := make([]LaneStatus, 0, len(p.lanes))
	for _, l := range p.lanes {
		all = append(all, l.status())
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b LaneStatus) int { return int(a.Grant.ID - b.Grant.ID) })
	return all
}

func (l *lane) status() LaneStatus {
	state := "serving"
	switch {
	case l.phase.lost:
		state = "lost"
	case l.phase.draining:
		state = "draining"
	case l.stream == nil:
		state = "opening"
	}
	b := &l.book
	return LaneStatus{
		Grant: l.where.Grant, State: state,
		Running: b.active, Ready: b.ready.n, Waiting: b.held - b.active - b.ready.n,
		Unsettled: l.sheet.unsettled(),
	}
}

package framework

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
)

// ready says what is missing until the peer is a member and every partition of its
// share is served or waited for.
func (s *session) ready() error {
	s.mu.Lock()
	p, co, asked, troubled := s.pool, s.coordinator, s.asked, s.troubled
	s.mu.Unlock()
	switch {
	case closed(s.done) && s.err != nil:
		return fmt.Errorf("ended: %w", s.err)
	case closed(s.done):
		return errors.New("stopped")
	case !asked.IsZero():
		return errors.New("stopping")
	case co == nil && troubled != nil:
		return fmt.Errorf("starting: %w", troubled)
	case co == nil:
		return errors.New("starting")
	}
	view := co.View()
	switch {
	case !co.Valid(time.Now()):
		return errors.New("no lease: the ledger has not answered in time")
	case view.Index < 0:
		return errors.New("not a member of a roll yet")
	}
	if err := s.checkup.healthy(); err != nil {
		return err
	}
	if bad := p.unready(view.Wish); len(bad) > 0 {
		return fmt.Errorf("index %d of %d: %d of %d partitions are neither served nor waited for: %s",
			view.Index, view.Replicas, len(bad), len(view.Wish), few(bad))
	}
	return nil
}

// unready returns which of wish are here but not being served: their stream is not
// open yet, or they were lost and their handlers still run. What is not here at all
// is waited for: each Sync claims it.
func (p *pool) unready(wish []partition.ID) []partition.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var bad []partition.ID
	for _, id := range wish {
		if l := p.lanes[id]; l != nil && (l.stream == nil || l.phase.lost) {
			bad = append(bad, id)
		}
	}
	return bad
}

func few(ids []partition.ID) string {
	const most = 8
	if len(ids) <= most {
		return fmt.Sprint(ids)
	}
	return fmt.Sprintf("%v and %d more", ids[:most], len(ids)-most)
}

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

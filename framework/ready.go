package framework

import (
	"errors"
	"fmt"
	"time"

	"github.com/countoff/countoff/partition"
)

// ready says what is missing until the peer is a member and every partition of its
// share is served or waited for.
func (s *session) ready() error {
	s.mu.Lock()
	p, co, asked := s.pool, s.coordinator, s.asked
	s.mu.Unlock()
	if err := s.absent(!asked.IsZero(), co != nil); err != nil {
		return err
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

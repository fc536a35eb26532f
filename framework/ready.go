package framework

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
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
		return s.heard.noLease()
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

// A hearing keeps what the ledger has said last.
type hearing struct{ failed atomic.Pointer[error] }

// before has h listen to what a coordinator tells, before others; nil: there are none.
func (h *hearing) before(others func(transition.Event)) func(transition.Event) {
	return func(e transition.Event) {
		switch e := e.(type) {
		case transition.Synced:
			h.failed.Store(nil)
		case transition.SyncFailed:
			h.failed.Store(&e.Err)
		}
		if others != nil {
			others(e)
		}
	}
}

// noLease says why there is none: the ledger may well have answered, and refused.
func (h *hearing) noLease() error {
	if err := h.failed.Load(); err != nil {
		return fmt.Errorf("no lease: %w", *err)
	}
	return errors.New("no lease: the ledger has not answered in time")
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

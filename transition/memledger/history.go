package memledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// History returns the last entries, oldest first. It must not be changed.
func (s *Store) History() machine.History { return s.history }

// History implements [transition.Historian].
func (l *Ledger) History(_ context.Context, limit int) (machine.History, error) {
	if limit < 1 {
		return nil, fmt.Errorf("memledger: a history of %d entries: want at least 1", limit)
	}
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	h := l.shared.store.history
	return slices.Clone(h[max(0, len(h)-limit):]), nil
}

// told appends e, at this moment, to what this call tells.
func (s *Store) told(e machine.Entry) {
	e.At, e.Clock = time.UnixMilli(s.raw), duration(s.clock)
	s.notes = append(s.notes, e)
}

// keep moves what the call told into the history.
func (s *Store) keep() {
	s.history = append(s.history, s.notes...)
	s.history = s.history[max(0, len(s.history)-machine.HistoryKept):]
	s.notes = nil
}

// passed tells of one partition; from is who had it. What one call does alike is one
// entry, up to a number of grants.
func (s *Store) passed(what machine.Change, id partition.ID, session partition.Session, epoch partition.Epoch, from grant) {
	p := machine.Passed{Grant: partition.Grant{ID: id, Epoch: epoch}, Former: from.epoch}
	for i := len(s.notes) - 1; i >= 0; i-- {
		e := &s.notes[i]
		if e.What == what && e.Session == session && e.Other == from.session {
			if len(e.Grants) == machine.HistoryGrants {
				break
			}
			e.Grants = append(e.Grants, p)
			return
		}
	}
	s.told(machine.Entry{
		What: what, Session: session, Peer: s.peer(session), Other: from.session, OtherPeer: s.peer(from.session),
		Grants: []machine.Passed{p},
	})
}

// give makes session the owner of id, which was old's.
func (s *Store) give(id partition.ID, session partition.Session, epoch partition.Epoch, what machine.Change, old grant) {
	s.passed(what, id, session, epoch, old)
	s.grants[id] = grant{session: session, epoch: epoch}
	s.lay(old.session)
}

// entered tells how the state of a session changed.
func (s *Store) entered(session partition.Session, known bool, was machine.State, now seat) {
	if !known {
		delete(s.ghosts, session)
		s.told(machine.Entry{What: machine.Came, Session: session, Peer: now.peer})
	}
	if known && was == now.state {
		return
	}
	switch now.state {
	case machine.Leaving:
		s.told(machine.Entry{What: machine.Leaves, Session: session, Peer: now.peer})
	case machine.Gone:
		s.told(machine.Entry{What: machine.Went, Session: session, Peer: now.peer})
	case machine.Live:
	}
}

// expired tells that the lease of session ran out.
func (s *Store) expired(session partition.Session) {
	seat := s.sessions[session]
	if seat.state != machine.Gone {
		s.told(machine.Entry{
			What: machine.Expired, Session: session, Peer: seat.peer,
			Silent: duration(s.clock-seat.deadline) + seat.terms.Lease,
		})
	}
	if len(s.held(session)) > 0 {
		s.ghosts[session] = seat.peer
	}
}

// lay forgets a session that ran out once it holds nothing any more.
func (s *Store) lay(session partition.Session) {
	if _, ghost := s.ghosts[session]; ghost && len(s.held(session)) == 0 {
		delete(s.ghosts, session)
	}
}

// peer returns the peer of a session that is known, or was when it ran out.
func (s *Store) peer(session partition.Session) string {
	if seat, ok := s.sessions[session]; ok {
		return seat.peer
	}
	return s.ghosts[session]
}

package framework

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// A unitsSession is one run of a Units, from Start until the last goroutine has returned.
type unitsSession struct {
	course
	u *Units

	run, hard         context.Context // end with a stop; with a hard stop
	stopRun, stopHard context.CancelFunc

	poke chan struct{} // what this peer owns has changed, or a keeper has ended
	all  sync.WaitGroup

	busy  atomic.Pointer[[]partition.ID] // of the units, in the order in which they were seen first
	order []string                       // of the units; the follower's
	fair  uint64                         // version of the roll that was found even; the follower's
	lead  lead                           // the follower's

	// Guarded by mu.
	share   *Share // nil before it takes part
	listed  bool   // the list was read
	units   []string
	keepers map[string]*keeper
}

// A keeper waits for one unit to be this peer's, and runs its handler while it is.
type keeper struct {
	remove  context.CancelCauseFunc
	removed bool
	owned   *Unit // nil: it is not
}

func newUnitsSession(u *Units) *unitsSession {
	s := &unitsSession{course: newCourse(u.name), u: u, poke: make(chan struct{}, 1), keepers: map[string]*keeper{}}
	s.observer = guard(u.cfg.Observer, s.fail)
	s.run, s.stopRun = context.WithCancel(context.Background())
	s.hard, s.stopHard = context.WithCancel(context.Background())
	go s.live()
	return s
}

// stopping reports whether the session was asked to stop, or could not go on and waits for its
// last handlers.
func (s *unitsSession) stopping() bool { return s.run.Err() != nil }

func (s *unitsSession) part() (co *transition.Coordinator, counted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.share == nil {
		return nil, false
	}
	return s.share.coordinator, s.share.cfg.Indexer != nil
}

// fail ends the session because of err.
func (s *unitsSession) fail(err error) {
	s.fails(err)
	s.stopRun()
}

func (s *unitsSession) live() {
	err := s.work()
	s.stopRun()
	s.mu.Lock()
	if s.hard.Err() != nil { // a stop that turns hard later cuts nothing
		s.left = errHard
	}
	told := s.conclude(err)
	s.mu.Unlock()
	s.end(Stopped{Consumer: s.name, Err: told}, s.u.sessions.tell)
}

// stop asks to stop and waits for it. It turns hard with ctx.
func (s *unitsSession) stop(ctx context.Context) error {
	s.stopRun()
	return s.outlast(ctx, s.stopHard)
}

// work takes part until it is stopped or cannot go on.
func (s *unitsSession) work() error {
	share, err := s.begin()
	if err != nil || share == nil {
		return err
	}
	looking, enough := context.WithCancel(context.Background())
	s.all.Go(func() { s.follow(looking, share) })
	if s.u.cfg.Observer != nil {
		s.all.Go(func() { s.patrol(looking, share) })
	}
	err = share.runUntil(s.run, s.hard)
	s.stopRun() // whoever starts it again waits for handlers that have not returned
	// Every keeper ends: what it had was taken away, and what it waits for will not come.
	enough()
	s.all.Wait()
	s.farewell()
	return err
}

// begin makes the share, once the source and the ledger have answered. It returns none after a
// stop.
func (s *unitsSession) begin() (*Share, error) {
	cfg := s.u.cfg
	found, err := question{
		name: s.name, layout: cfg.Source.Layout, control: cfg.Control, peer: cfg.Peer, within: cfg.Timing.Lease, failed: s.notYet,
	}.ask(s.run)
	if err != nil || s.run.Err() != nil {
		return nil, err
	}
	strategy := cfg.Strategy
	if cfg.Even {
		strategy = evenly{&s.busy}
	}
	share, err := newShare(s.name, ShareConfig{
		Ledger: found.ledger, Partitions: found.layout, Timing: cfg.Timing, Peer: found.peer, Weight: s.u.sessions.nextWeight(),
		Tags: cfg.Tags, Health: cfg.Health, Strategy: strategy, Indexer: found.indexer, Observer: s.observer,
	}, cfg.Peer == "")
	if err != nil {
		return nil, err
	}
	s.lead = lead{ledger: found.ledger, rolls: found.indexer == nil}
	s.mu.Lock()
	s.share = share
	s.mu.Unlock()
	s.u.sessions.weigh(share.coordinator)
	s.observe(Started{
		Consumer: s.name, Peer: found.peer, Session: share.coordinator.Session(),
		Config: found.layout, Takeover: cfg.Timing.Takeover(),
	})
	return share, nil
}

// follow keeps as many keepers as there are units, until ctx ends.
func (s *unitsSession) follow(ctx context.Context, share *Share) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	poked := false
	var failing [stages]bool // that it does was told
	var odd string           // what of the list is no unit, as it was told last
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
			if !poked { // several come together, and the first says when
				poked = true
				timer.Reset(min(s.u.cfg.Every, publishSoon))
			}
			continue
		case <-timer.C:
		}
		refused, at, err := s.look(ctx, share, poked)
		poked = false
		if at > listing && refused != odd {
			if odd = refused; odd != "" {
				s.observe(UnitsTroubled{Consumer: s.name, Err: errors.New(odd)})
			}
		}
		clear(failing[:at])
		if err != nil && !failing[at] && ctx.Err() == nil {
			s.observe(UnitsTroubled{Consumer: s.name, Err: err})
		}
		failing[at] = err != nil // whether a later stage works is not known
		timer.Reset(s.u.cfg.Every)
	}
}

// The stages of a look at the list, each of which may fail by itself.
const (
	listing    = iota // to read it
	sharing           // to share the units out evenly
	publishing        // to write the table
	stages
)

// publishSoon is how long after a change the table is written.
const publishSoon = 50 * time.Millisecond

// look reads the list and follows it. It returns what of it is no unit, in words, and the stage
// that failed; without an error the last that it came to.
func (s *unitsSession) look(ctx context.Context, share *Share, changed bool) (refused string, at int, err error) {
	inner, cancel := context.WithTimeout(ctx, s.u.cfg.Timing.Lease)
	defer cancel()
	var units []string
	if err := <-apart("the list of units", func() (err error) {
		units, err = s.u.cfg.Source.Units(inner)
		return err
	}); err != nil {
		return "", listing, fmt.Errorf("read the list of units: %w", err) // what runs goes on
	}
	units = slices.Sorted(slices.Values(units)) // a copy: what the source returned is its own
	units, refused = onlyUnits(slices.Compact(units), share.cfg.Partitions)
	added, removed := s.adopt(share, units)
	if added+removed > 0 {
		changed = true
		s.observe(UnitsChanged{Consumer: s.name, Units: len(units), Added: added, Removed: removed})
	}
	if err := s.even(inner, share, added+removed > 0); err != nil {
		return refused, sharing, err
	}
	if s.u.cfg.Publish == nil || !changed && !s.lead.leads(inner, share.View()) {
		return refused, sharing, nil
	}
	return refused, publishing, s.publish(inner, units)
}

// publish has the table written.
func (s *unitsSession) publish(ctx context.Context, units []string) error {
	if err := <-apart("the table of units", func() error { return s.u.cfg.Publish(ctx, units) }); err != nil {
		return fmt.Errorf("write the table of units: %w", err)
	}
	return nil
}

// onlyUnits returns those of names that are units, and says what the others are. One line that
// somebody wrote by mistake is to cost that line, and not the work of all peers.
func onlyUnits(names []string, layout partition.Config) (units []string, refused string) {
	var first error
	n := 0
	units = slices.DeleteFunc(names, func(name string) bool {
		err := partition.CheckUnit(name)
		if err == nil {
			_, err = layout.Hash.Of(name, layout.Total)
		}
		if err == nil {
			return false
		}
		n++
		if first == nil {
			first = err
		}
		return true
	})
	if n == 0 {
		return units, ""
	}
	return units, fmt.Sprintf("%d in the list of units can be nobody's, and should be removed from it: the first is %v", n, first)
}

// evenly is partition.Even of the units there are at the moment.
type evenly struct {
	busy *atomic.Pointer[[]partition.ID]
}

// Name implements partition.Strategy.
func (evenly) Name() string { return partition.Even{}.Name() }

// Assign implements partition.Strategy.
func (e evenly) Assign(ids []partition.ID, members []partition.Member, previous partition.Table) partition.Table {
	var busy []partition.ID
	if known := e.busy.Load(); known != nil {
		busy = *known
	}
	return partition.Even{Busy: busy}.Assign(ids, members, previous)
}

// even has the peer that leads share the units out anew when the list has changed, and when
// somebody sealed a roll who may not have known of it.
func (s *unitsSession) even(ctx context.Context, share *Share, changed bool) error {
	if !s.u.cfg.Even {
		return nil
	}
	if changed || s.busy.Load() == nil {
		s.locate(share.cfg.Partitions)
		s.fair = 0
	}
	v := share.View()
	if !s.lead.leads(ctx, v) || v.Version == s.fair {
		return nil
	}
	err := share.coordinator.Reshare(ctx)
	switch {
	case errors.Is(err, transition.ErrStale): // the next look asks again
		return nil
	case err != nil:
		return err
	}
	s.fair = v.Version
	return nil
}

// locate takes note of where the units are, in the order in which they were seen first.
func (s *unitsSession) locate(layout partition.Config) {
	s.order = slices.DeleteFunc(s.order, func(name string) bool {
		_, there := slices.BinarySearch(s.units, name)
		return !there
	})
	known := make(map[string]bool, len(s.order))
	for _, name := range s.order {
		known[name] = true
	}
	for _, name := range s.units {
		if !known[name] {
			s.order = append(s.order, name)
		}
	}
	busy := make([]partition.ID, 0, len(s.order))
	for _, name := range s.order {
		if id, err := layout.Hash.Of(name, layout.Total); err == nil {
			busy = append(busy, id)
		}
	}
	s.busy.Store(&busy)
}

// patrol tells of holes in the coverage, as where nobody has what a unit asks for.
func (s *unitsSession) patrol(ctx context.Context, share *Share) {
	p := patrol{
		name: s.name, timing: s.u.cfg.Timing, layout: share.cfg.Partitions,
		view: share.View, observe: s.observe,
		lead:   lead{ledger: share.cfg.Ledger, rolls: share.cfg.Indexer == nil},
		survey: dataless, // units have no data
	}
	p.run(ctx)
}

// adopt starts keepers of what is new and removes those of what is gone.
func (s *unitsSession) adopt(share *Share, units []string) (added, removed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.units = true, units
	for _, name := range units {
		if s.keepers[name] != nil {
			continue // if it was removed, its handler has to return before it begins anew
		}
		added++
		ctx, remove := context.WithCancelCause(context.Background())
		k := &keeper{remove: remove}
		s.keepers[name] = k
		s.all.Go(func() { s.keep(ctx, share, name, k) })
	}
	for _, name := range slices.Collect(maps.Keys(s.keepers)) {
		if _, ok := slices.BinarySearch(units, name); ok || s.keepers[name].removed {
			continue
		}
		removed++
		s.keepers[name].removed = true
		s.keepers[name].remove(ErrRemoved)
	}
	return added, removed
}

// keep is the life of a keeper.
func (s *unitsSession) keep(ctx context.Context, share *Share, name string, k *keeper) {
	defer s.nudge()
	defer func() {
		k.remove(nil)
		s.mu.Lock()
		delete(s.keepers, name)
		s.mu.Unlock()
	}()
	for {
		a, err := share.Await(ctx, name)
		if err != nil {
			return // it was removed, or the peer has left
		}
		unit := Unit{Name: name, Grant: a.Grant, Token: a.Token, share: share, place: a.place}
		s.own(k, &unit)
		s.serve(a, unit)
		s.own(k, nil)
		a.Release()
	}
}

func (s *unitsSession) own(k *keeper, unit *Unit) {
	s.mu.Lock()
	k.owned = unit
	s.mu.Unlock()
	s.nudge()
}

func (s *unitsSession) nudge() { poke(s.poke) }

// serve runs the handler for as long as the admission stands, and returns when the handler
// has. After a process stood still the pause before the next call may end before it is found out
// that the ownership has: then it is not called, and the unit is awaited anew.
func (s *unitsSession) serve(a *Admission, unit Unit) {
	where := Where{Consumer: s.name, Grant: unit.Grant}
	for tries := 1; a.Context().Err() == nil && unit.Owned(); tries++ {
		s.observe(UnitStarted{Where: where, Unit: unit.Name})
		began := time.Now()
		err := <-apart("the handler", func() error { return s.u.cfg.Handler(a.Context(), unit) })
		ended := UnitEnded{Where: where, Unit: unit.Name, Err: err, Took: time.Since(began)}
		switch {
		case a.Context().Err() != nil:
			ended.Cause = context.Cause(a.Context())
		case err != nil:
			if ended.Took >= s.u.cfg.Retry.Max {
				tries = 1
			}
			ended.Again = s.u.delay(tries)
		}
		s.observe(ended)
		switch {
		case ended.Cause != nil:
		case err == nil:
			<-a.Context().Done() // nothing more to do; it stays ours
		default:
			sleep(a.Context(), ended.Again)
		}
	}
}

// farewell takes what this peer had out of the table: nobody else may be there to do so.
func (s *unitsSession) farewell() {
	if s.u.cfg.Publish == nil || !s.listed {
		return
	}
	ctx, cancel := context.WithTimeout(s.hard, s.u.cfg.Timing.CallTimeout())
	defer cancel()
	if err := s.publish(ctx, s.units); err != nil && s.hard.Err() == nil {
		s.observe(UnitsTroubled{Consumer: s.name, Err: err})
	}
}

// ready says what is missing until the peer is a member that knows the list.
func (s *unitsSession) ready() error {
	s.mu.Lock()
	share, listed := s.share, s.listed
	s.mu.Unlock()
	if err := s.absent(s.run.Err() != nil, share != nil); err != nil {
		return err
	}
	switch {
	case share.ValidFor() == 0:
		return share.heard.noLease()
	case share.checkup.healthy() != nil:
		return share.checkup.healthy()
	case share.View().Index < 0:
		return errors.New("not a member of a roll yet")
	case !listed:
		return errors.New("the list of units was not read yet")
	}
	return nil
}

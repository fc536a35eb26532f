package memledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// reapAtOnce bounds what one call removes, so that no call is slow.
const reapAtOnce = 8

// A Call is what every operation carries beside its arguments: who asks with which
// configuration, and what the store knows of itself at that moment.
type Call struct {
	Now     int64  // the store's wall clock, milliseconds; may jump
	Run     string // id of the store's run: a restart or a fail-over changes it
	Suspect bool   // the caller has just reconnected and cannot tell the run
	Config  partition.Config
	Timing  transition.Timing
	// Deployment is what the caller belongs to; see machine.Terms.
	Deployment string
}

// Hints says whom an operation may concern beside its sender.
type Hints struct {
	All      bool // a new roll
	Sessions []partition.Session
}

// A Store is the record of a name. The zero value is a store that knows nothing,
// which is the same as one that forgot everything: its first call opens a grace.
// A Store is not safe for concurrent use.
type Store struct {
	// meta
	known      bool // false: meta is missing
	config     partition.Config
	run        string
	raw        int64 // wall clock at the last call
	clock      int64 // the store's own clock: integrated, never back, no jumps
	step       int64 // most the clock advances in one call
	longest    int64 // lease of all; 0: nobody has one
	count      uint64
	membership uint64 // number of the last membership change
	changed    int64  // clock at the first change the roll does not know
	grace      int64  // clock at which the grace is over
	barrier    string // how the peers go from roll to roll: "yes", "no", or unknown, which is no
	barred     bool   // somebody is behind the newest roll, as was found last
	clear      int64  // clock at which nobody was any more
	farthest   uint64 // the newest roll that anybody has arrived at; newer than the roll in a store that was set back

	sessions map[partition.Session]seat
	grants   map[partition.ID]grant
	roll     machine.Roll
	history  machine.History
	notes    machine.History              // what the call under way has told
	ghosts   map[partition.Session]string // peers of those whose lease ran out while they held something
}

type seat struct {
	peer     string
	weight   int
	unwell   bool
	tags     partition.Tags
	state    machine.State
	arrived  uint64
	deadline int64
	terms    machine.Terms
	strategy string
}

type grant struct {
	session partition.Session
	epoch   partition.Epoch
	waiter  partition.Session // who asked last and is live, or nobody
}

// NewStore returns a store that was made just now, so that there is nothing it
// could have forgotten: no grace.
func NewStore(c Call) *Store {
	s := &Store{}
	s.init(c)
	s.grace, s.longest = s.clock, 0 // nobody has a lease yet
	s.notes = nil
	s.told(machine.Entry{What: machine.Made})
	s.keep()
	return s
}

// Clone returns a copy that shares nothing which either changes.
func (s *Store) Clone() *Store {
	c := *s
	c.sessions = maps.Clone(s.sessions)
	c.grants = maps.Clone(s.grants)
	c.ghosts = maps.Clone(s.ghosts)
	c.history = slices.Clip(s.history) // entries are never changed
	return &c                          // rolls are replaced, never changed
}

func (s *Store) init(c Call) {
	s.known = true
	s.config = c.Config
	s.run = c.Run
	s.raw, s.clock = c.Now, c.Now
	s.step = millis(c.Timing.ClockStep())
	s.sessions = make(map[partition.Session]seat)
	s.grants = make(map[partition.ID]grant)
	s.ghosts = make(map[partition.Session]string)
	s.longest = millis(c.Timing.Lease)
	s.grace = s.clock + millis(c.Timing.Grace())
	s.told(machine.Entry{What: machine.Forgot})
}

// prologue is what every changing operation begins with: the clock, the grace and
// the reaping. It reports whether a barrier has opened, because a dead peer was waited for.
func (s *Store) prologue(c Call) (opened bool, err error) {
	if !s.known {
		s.init(c)
		return false, nil
	}
	if err := agree(s.config, c.Config); err != nil {
		return false, err
	}
	// A peer trusts its lease for a time that leaves room for one jump of its own
	// clock step. With peers of different leases, one with a long lease would allow
	// a jump that expires one with a short lease while that still works. So the
	// least step counts, until whoever sent it was removed: see reap. A clock that is
	// too slow expires the dead late, which is safe.
	s.step = min(s.step, millis(c.Timing.ClockStep()))
	s.clock += min(max(c.Now-s.raw, 0), s.step)
	s.raw = c.Now
	s.hear(c.Timing.Lease)
	if c.Run != s.run || c.Suspect {
		s.run = c.Run
		// What was forgotten may be a grant of whoever has the longest lease.
		s.grace = max(s.grace, s.clock+s.longest)
		s.told(machine.Entry{What: machine.Restarted})
	}
	if !s.inGrace() {
		s.reap(c.Timing)
	}
	return s.look(), nil
}

// look finds out whether the barrier before the newest roll is still closed. It reports
// whether it has just opened.
func (s *Store) look() (opened bool) {
	barred := s.behind() > 0
	opened = s.barred && !barred
	if opened {
		s.clear = s.clock
	}
	s.barred = barred
	return opened
}

// behind counts those who may work under an older roll than the newest.
func (s *Store) behind() int {
	n := 0
	for _, seat := range s.sessions {
		if seat.arrived != 0 && seat.arrived < s.roll.Version {
			n++
		}
	}
	return n
}

// hear takes in that a peer has such a lease. If the store may have forgotten the peer, the
// grace must last for as long as the peer trusts its lease.
func (s *Store) hear(lease time.Duration) {
	if millis(lease) <= s.longest {
		return
	}
	s.longest = millis(lease)
	if s.inGrace() {
		s.grace = max(s.grace, s.clock+s.longest)
	}
}

// agreeOn lets the peers of a name go from roll to roll in one way: by the barrier, or
// each partition for itself. The first decides, and again when all have left. Who claims
// nothing has no part in it.
func (s *Store) agreeOn(r machine.Request) error {
	want := "no"
	if r.Barrier {
		want = "yes"
	}
	if r.Weight <= 0 {
		return nil
	}
	if cmp.Or(s.barrier, "no") == want {
		s.barrier = want
		return nil
	}
	unsure, until := s.barrier != "" && s.inGrace(), s.clock
	if unsure {
		until = s.grace // only those live for certain who have called in it: their leases outlast it
	}
	used := false
	for id, seat := range s.sessions {
		used = used || id != r.Session && seat.weight > 0 && seat.state != machine.Gone && seat.deadline >= until
	}
	if used {
		return fmt.Errorf("the name has peers that go from roll to roll with barrier %v, this peer wants %v (to change it, stop all peers first): %w",
			!r.Barrier, r.Barrier, partition.ErrConfig)
	}
	if unsure { // others may not have said so yet
		return fmt.Errorf("the name had peers that go from roll to roll with barrier %v, this peer wants %v: %w",
			!r.Barrier, r.Barrier, transition.ErrUnsure)
	}
	s.barrier = want
	return nil
}

// reap removes sessions past their deadline. Their grants stay where they are: a
// grant whose session is unknown is free. Nobody trusts a lease that is over: the least clock
// step and the longest lease become those of the caller, who keeps t, and of all that are left.
func (s *Store) reap(t transition.Timing) {
	var over []partition.Session
	for id, seat := range s.sessions {
		if seat.deadline < s.clock {
			over = append(over, id)
		}
	}
	slices.SortFunc(over, func(a, b partition.Session) int {
		if d := s.sessions[a].deadline - s.sessions[b].deadline; d != 0 {
			return int(min(max(d, -1), 1))
		}
		if a < b {
			return -1
		}
		return 1
	})
	for _, id := range over[:min(len(over), reapAtOnce)] {
		if s.sessions[id].state == machine.Live {
			// The lease was patience enough: a roll without the dead is due at once,
			// as if the change had happened a settle time ago.
			s.memberChange(s.clock - millis(t.Settle))
		}
		s.expired(id)
		delete(s.sessions, id)
		s.waitFor(id, nil)
	}
	if len(over) > 0 {
		s.step, s.longest = millis(t.ClockStep()), millis(t.Lease)
		for _, seat := range s.sessions {
			s.step = min(s.step, millis(transition.TimingOf(seat.terms).ClockStep()))
			s.longest = max(s.longest, millis(seat.terms.Lease))
		}
	}
}

// memberChange numbers a change of membership that counts from at.
func (s *Store) memberChange(at int64) {
	if s.dirty() {
		s.changed = min(s.changed, at)
	} else {
		s.changed = at
	}
	s.membership = s.next()
}

// Sync is transition.Ledger.Sync.
func (s *Store) Sync(c Call, r machine.Request) (machine.Answer, Hints, error) {
	opened, err := s.prologue(c)
	if err != nil {
		return machine.Answer{}, Hints{}, err
	}
	defer s.keep()
	if s.inGrace() { // else all who trust their lease are known, and what was heard of others is old
		s.hear(r.Longest)
	}
	if err := s.agreeOn(r); err != nil {
		return machine.Answer{}, Hints{}, err
	}
	var h Hints
	s.count = max(s.count, r.Top)
	state := s.enter(c, r)
	if r.View > s.roll.Version && !s.dirty() {
		// The sender knows a roll that the store does not: it was set back. Only a
		// new roll, with a number above all that was seen, makes them agree again.
		s.memberChange(s.clock)
	}
	if state != machine.Gone {
		for _, g := range r.Hold {
			if old := s.grants[g.ID]; s.free(g.ID) || old.epoch < g.Epoch {
				s.give(g.ID, r.Session, g.Epoch, machine.HeldAgain, old)
			}
		}
	}
	for _, g := range r.Release {
		if old, ok := s.grants[g.ID]; ok && old.session == r.Session && old.epoch == g.Epoch {
			s.yield(g.ID, &h)
		}
	}
	switch state {
	case machine.Gone:
		for _, id := range s.held(r.Session) {
			s.yield(id, &h)
		}
	case machine.Live:
		for _, id := range r.Claim {
			s.claim(id, r.Session, &h)
		}
	}
	if state != machine.Live {
		r.Claim = nil
	}
	s.waitFor(r.Session, r.Claim)
	h.All = s.look() || opened
	return s.answer(c, r), h, nil
}

// waitFor takes session off all that it waits for but ids. It is done here and not by the
// peer, who may have given up what an earlier call of its, late or carried out twice, asks
// for once more: the next Sync puts that right, as all else.
func (s *Store) waitFor(session partition.Session, ids []partition.ID) {
	for id, g := range s.grants {
		if g.waiter == session && !slices.Contains(ids, id) {
			s.grants[id] = grant{session: g.session, epoch: g.epoch}
		}
	}
}

// enter makes the sender known, moves its state forward and extends its lease.
func (s *Store) enter(c Call, r machine.Request) machine.State {
	old, known := s.sessions[r.Session]
	now := old
	now.peer, now.weight, now.unwell, now.state = r.Peer, max(r.Weight, 0), r.Unwell, max(old.state, r.State, machine.Live)
	now.tags, now.strategy = r.Tags, r.Strategy
	other := old.weight != now.weight || old.unwell != now.unwell || old.tags != now.tags || known && s.drains(old.peer) != s.drains(now.peer)
	if (old.state == machine.Live) != (now.state == machine.Live) || now.state == machine.Live && other {
		s.memberChange(s.clock) // who is there, or what of the work is for whom
	}
	// The row of a session that is gone stays for the rest of its lease, so that a
	// late call of its earlier life finds it gone instead of unknown.
	if now.state != machine.Gone || !known {
		now.deadline = s.clock + millis(c.Timing.Lease)
	}
	// A late call of its earlier life takes nobody back; who is gone works under no roll.
	if r.Barrier {
		now.arrived = max(old.arrived, r.Arrived)
		s.farthest = max(s.farthest, r.Arrived)
	}
	if now.state == machine.Gone {
		now.arrived = 0
	}
	now.terms = c.Timing.Terms(c.Deployment)
	s.sessions[r.Session] = now
	s.entered(r.Session, known, old.state, now)
	return now.state
}

// claim gives id to session if it is free, else notes that session waits for it.
func (s *Store) claim(id partition.ID, session partition.Session, h *Hints) {
	old := s.grants[id]
	switch {
	case s.inGrace(), s.paused():
		// An owner that has not come back yet may be working on it; or nobody is to.
	case s.free(id):
		what := machine.Granted
		if old.session != "" {
			what = machine.Took
		}
		s.give(id, session, partition.Epoch(s.next()), what, old)
	case old.session != session && old.waiter != session:
		s.grants[id] = grant{session: old.session, epoch: old.epoch, waiter: session}
		s.passed(machine.Asked, id, session, old.epoch, grant{session: old.session})
		h.Sessions = append(h.Sessions, old.session)
	}
}

// yield takes id from its owner and hands it to whoever waits for it.
func (s *Store) yield(id partition.ID, h *Hints) {
	old := s.grants[id]
	w := old.waiter
	if s.inGrace() || s.paused() || w == "" {
		s.passed(machine.GivenUp, id, old.session, old.epoch, grant{})
		delete(s.grants, id)
		return
	}
	s.give(id, w, partition.Epoch(s.next()), machine.Handed, old)
	h.Sessions = append(h.Sessions, w)
}

func (s *Store) answer(c Call, r machine.Request) machine.Answer {
	a := machine.Answer{Count: s.count, Expiry: s.expiry(), Longest: duration(s.longest), Paused: s.paused(), Drained: s.drains(r.Peer)}
	for _, id := range s.held(r.Session) {
		g := s.grants[id]
		a.Mine = append(a.Mine, machine.Held{
			Grant:  partition.Grant{ID: id, Epoch: g.epoch},
			Wanted: g.waiter != "" && g.waiter != r.Session,
		})
	}
	if s.roll.Version > r.View {
		a.Line = line(s.roll, r.Session)
	}
	a.Behind = s.behind()
	// Whoever knows of a newer roll than the store, or works under one, is under another than the
	// store's: nobody goes on before the next, which is due.
	if max(r.View, s.farthest) > s.roll.Version {
		a.Behind++
	}
	if s.inGrace() {
		a.Grace = duration(s.grace - s.clock)
	} else if s.dirty() && !s.barred {
		a.Sealing = true
		a.Due = duration(max(s.changed, s.clear) + millis(c.Timing.Settle) - s.clock)
	}
	return a
}

// expiry is how long until a call could reap something.
func (s *Store) expiry() time.Duration {
	var next int64
	for _, seat := range s.sessions {
		if next == 0 || seat.deadline < next {
			next = seat.deadline
		}
	}
	return duration(max(next+1-s.clock, s.grace-s.clock, 1)) // reaped when past its deadline, not at it
}

func line(roll machine.Roll, session partition.Session) *machine.Line {
	l := &machine.Line{
		Version:    roll.Version,
		Membership: roll.Membership,
		Replicas:   len(roll.Members),
		Index:      -1,
	}
	for _, m := range roll.Members {
		if m.Session == session {
			l.Index, l.Partitions = m.Index, slices.Clone(m.Partitions)
		}
	}
	return l
}

// Seal is transition.Ledger.Seal.
func (s *Store) Seal(c Call, next machine.Roll) (Hints, error) {
	if _, err := s.prologue(c); err != nil {
		return Hints{}, err
	}
	defer s.keep()
	if s.inGrace() || s.barred || next.Version != s.roll.Version {
		return Hints{}, transition.ErrStale
	}
	next.Version = s.next()
	s.roll = next
	s.told(machine.Entry{What: machine.RollMade, Version: next.Version, Replicas: len(next.Members)})
	s.changed = s.clock // matters if the membership moved on: then the roll is due again
	s.look()
	return Hints{All: true}, nil
}

// Require says which tags partitions and units ask of their owners, in place of all that was
// said before, and makes a roll due that goes by it; said again it changes nothing. Whoever
// says it is no peer, and has no times: it leaves the clock alone, and that the store was
// restarted is for a peer to find out, who knows how long to wait then.
func (s *Store) Require(requires []partition.Requirement) Hints {
	if slices.Equal(s.config.Requires, requires) {
		return Hints{}
	}
	s.config.Requires = requires
	if s.known {
		s.memberChange(s.clock)
	}
	return Hints{All: true}
}

// Pause says that nobody is to work under the name, or, with the zero Pause, that they may again.
// Said again it changes nothing. Like [Store.Require] it leaves the clock alone.
func (s *Store) Pause(p partition.Pause) Hints {
	if s.paused() == (p != partition.Pause{}) {
		return Hints{}
	}
	s.config.Paused = p
	what := machine.GoesOn
	if s.paused() {
		what = machine.Rests
	}
	s.told(machine.Entry{What: what})
	s.keep()
	return Hints{All: true}
}

// Drain says that a peer is to have nothing, and Recall that it is to have its share again. A roll that goes by
// it is due where the peer is there. Said again they change nothing; like [Store.Require] they leave the clock alone.
func (s *Store) Drain(d partition.Drain) (Hints, error) {
	if s.drains(d.Peer) {
		return Hints{}, nil
	}
	all, err := partition.WithDrain(s.config.Drained, d)
	if err != nil {
		return Hints{}, err
	}
	return s.drain(all, machine.Entry{What: machine.Dismissal, Peer: d.Peer}), nil
}

// Recall is described at [Store.Drain].
func (s *Store) Recall(peer string) Hints {
	if !s.drains(peer) {
		return Hints{}
	}
	return s.drain(partition.WithoutDrain(s.config.Drained, peer), machine.Entry{What: machine.Recall, Peer: peer})
}

func (s *Store) drain(all []partition.Drain, e machine.Entry) Hints {
	s.config.Drained = all
	for _, seat := range s.sessions {
		if seat.peer == e.Peer && seat.state == machine.Live {
			s.memberChange(s.clock)
			break
		}
	}
	s.told(e)
	s.keep()
	return Hints{All: true}
}

func (s *Store) drains(peer string) bool {
	_, drains := s.config.Drains(peer)
	return drains
}

func (s *Store) paused() bool { return s.config.Paused != partition.Pause{} }

// ReadConfig is transition.ConfigReader.ReadConfig.
func (s *Store) ReadConfig(c Call) (partition.Config, error) {
	if !s.known {
		return c.Config, nil
	}
	return s.config, agree(s.config, c.Config)
}

// Census is transition.Ledger.Census. It changes nothing, not even the clock.
func (s *Store) Census(c Call) (machine.Census, error) {
	cfg, err := s.ReadConfig(c)
	if err != nil || !s.known {
		return machine.Census{Config: cfg}, err
	}
	passed := max(c.Now-s.raw, 0)
	reckoned := min(passed, s.step)
	clock := s.clock + reckoned
	census := machine.Census{
		Silence:    duration(passed - reckoned),
		Config:     cfg,
		Count:      s.count,
		Clock:      duration(clock),
		Membership: s.membership,
		Roll:       s.roll,
		Grace:      duration(max(s.grace-clock, 0)),
	}
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		seat := s.sessions[id]
		census.Sessions = append(census.Sessions, machine.Seat{
			Session: id,
			Peer:    seat.peer,
			Weight:  seat.weight,
			Unwell:  seat.unwell,
			Drained: s.drains(seat.peer),
			Tags:    seat.tags,
			State:   seat.state,
			Arrived: seat.arrived,
			Lease:   duration(seat.deadline - clock),
			Terms:   seat.terms,

			Strategy: seat.strategy,
		})
	}
	for _, id := range slices.Sorted(maps.Keys(s.grants)) {
		g := s.grants[id]
		census.Grants = append(census.Grants, machine.Ownership{
			Grant:   partition.Grant{ID: id, Epoch: g.epoch},
			Session: g.session,
			Waiter:  g.waiter,
		})
	}
	return census, nil
}

func (s *Store) next() uint64 {
	s.count++
	return s.count
}

func (s *Store) inGrace() bool { return s.clock < s.grace }

// dirty reports whether the membership is another than the roll was built on.
func (s *Store) dirty() bool { return s.membership != s.roll.Membership }

// free reports whether nobody known holds id.
func (s *Store) free(id partition.ID) bool {
	g, ok := s.grants[id]
	if !ok {
		return true
	}
	_, known := s.sessions[g.session]
	return !known
}

// held returns what session holds, ascending.
func (s *Store) held(session partition.Session) []partition.ID {
	var ids []partition.ID
	for id, g := range s.grants {
		if g.session == session {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// agree says what of want differs from what the name has.
func agree(have, want partition.Config) error {
	if have.Total == want.Total && have.Hash == want.Hash && have.UnitsHash() == want.UnitsHash() {
		return nil
	}
	return fmt.Errorf("the name has %d partitions, hash %s and units %q, asked for were %d, %s and %q: %w",
		have.Total, have.Hash, have.Units, want.Total, want.Hash, want.Units, partition.ErrConfig)
}

func millis(d time.Duration) int64 { return d.Milliseconds() }

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

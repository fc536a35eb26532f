package memledger

import (
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// A State is all that a [Store] knows, but for its history: what a ledger keeps that lets
// a Store decide and a database remember. All instants are of the store's own clock, in
// milliseconds.
type State struct {
	Config     partition.Config
	Run        string // the run of the database that was the last to be seen
	Clock      int64
	Step       int64 // most the clock advances in one call
	Longest    int64 // lease of all
	Count      uint64
	Membership uint64
	Changed    int64  // the first change that the roll does not know
	Grace      int64  // its end
	Barrier    string // how the peers go from roll to roll: "yes", "no", or unknown
	Barred     bool   // somebody is behind the newest roll
	Clear      int64  // when nobody was any more
	Farthest   uint64 // the newest roll that anybody has arrived at
	Sessions   map[partition.Session]Seat
	Grants     map[partition.ID]Grant
	Roll       machine.Roll
}

// A Seat is a session of a [State].
type Seat struct {
	Peer     string
	Weight   int
	Unwell   bool
	Tags     partition.Tags
	State    machine.State
	Arrived  uint64
	Deadline int64
	Terms    machine.Terms
	Strategy string
}

// A Grant is what stands of a partition in a [State].
type Grant struct {
	Session partition.Session
	Epoch   partition.Epoch
	Waiter  partition.Session // who asked last, or nobody
}

// Restore returns a store that knows what state says. Its wall clock was state.Clock when
// it was last called: the Now of the next call is that and the time that has passed since, as
// far as that is known. A wall clock is not it, since the jumps of one would stay for ever.
func Restore(state State) *Store {
	s := &Store{
		known:  true,
		config: state.Config, run: state.Run,
		raw: state.Clock, clock: state.Clock, step: state.Step, longest: state.Longest,
		count: state.Count, membership: state.Membership, changed: state.Changed, grace: state.Grace,
		barrier: state.Barrier, barred: state.Barred, clear: state.Clear, farthest: state.Farthest,
		sessions: make(map[partition.Session]seat, len(state.Sessions)),
		grants:   make(map[partition.ID]grant, len(state.Grants)),
		ghosts:   make(map[partition.Session]string),
		roll:     state.Roll,
	}
	for id, x := range state.Sessions {
		s.longest = max(s.longest, millis(x.Terms.Lease)) // older builds do not keep it
		s.sessions[id] = seat{peer: x.Peer, weight: x.Weight, unwell: x.Unwell, tags: x.Tags, state: x.State, arrived: x.Arrived, deadline: x.Deadline, terms: x.Terms, strategy: x.Strategy}
	}
	for id, g := range state.Grants {
		s.grants[id] = grant{session: g.Session, epoch: g.Epoch, waiter: g.Waiter}
	}
	return s
}

// State returns what the store knows; false if that is nothing. The roll is shared and
// must not be changed.
func (s *Store) State() (State, bool) {
	if !s.known {
		return State{}, false
	}
	state := State{
		Config: s.config, Run: s.run,
		Clock: s.clock, Step: s.step, Longest: s.longest,
		Count: s.count, Membership: s.membership, Changed: s.changed, Grace: s.grace,
		Barrier: s.barrier, Barred: s.barred, Clear: s.clear, Farthest: s.farthest,
		Sessions: make(map[partition.Session]Seat, len(s.sessions)),
		Grants:   make(map[partition.ID]Grant, len(s.grants)),
		Roll:     s.roll,
	}
	for id, x := range s.sessions {
		state.Sessions[id] = Seat{Peer: x.peer, Weight: x.weight, Unwell: x.unwell, Tags: x.tags, State: x.state, Arrived: x.arrived, Deadline: x.deadline, Terms: x.terms, Strategy: x.strategy}
	}
	for id, g := range s.grants {
		state.Grants[id] = Grant{Session: g.session, Epoch: g.epoch, Waiter: g.waiter}
	}
	return state, true
}

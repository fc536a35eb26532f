package machine

import (
	"maps"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
)

// A State is how far a session is on its way out. It only moves forward.
type State uint8

// The states of a session.
const (
	Live    State = iota + 1 // takes part and wants its share
	Leaving                  // hands over what it has, wants nothing
	Gone                     // works on nothing; its last word
)

func (s State) String() string {
	switch s {
	case Live:
		return "live"
	case Leaving:
		return "leaving"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// A Request is the one question a peer asks the ledger. It says everything about
// its sender, so that a lost or a late one is repaired by the next.
type Request struct {
	Session partition.Session
	Peer    string // the peer's id, for people and for getting an index back
	Weight  int    // share of the work; 0: the sender claims nothing, ever
	Unwell  bool   // the sender claims nothing for now
	Tags    partition.Tags
	State   State
	View    uint64 // version of the newest roll known; 0 knows none
	Top     uint64 // highest number ever seen: the ledger lifts its count to it
	// Longest is what the last answer said of it: a ledger that may have forgotten somebody
	// lets nobody gain anything for as long. 0: not known.
	Longest time.Duration
	Hold    []partition.Grant // worked on now
	Release []partition.Grant // given up
	Claim   []partition.ID    // wished and not held; whoever claims waits for no other partition
	// Barrier says that the sender goes from roll to roll by the barrier, and Arrived is
	// where it stands: the roll that it works under, or has stopped for. All that was
	// under an older one has ended here and is in no Hold. 0: it has begun nothing yet.
	Barrier bool
	Arrived uint64
	// Strategy names how the sender shares out the partitions when it seals a roll; "" says
	// nothing of it. All peers should agree, since any of them may seal.
	Strategy string
}

// An Answer says all that is the sender's. What it does not list is lost.
type Answer struct {
	// Count is the one number of the name: grants, membership changes and rolls
	// take the next. It only rises.
	Count uint64
	Mine  []Held
	// Line is the sender's line of the newest roll, if that is newer than the
	// request's View; otherwise nil.
	Line *Line
	// Due is how long until a new roll should be sealed, zero and less: now.
	// Sealing says whether one is due at all (never in grace).
	Sealing bool
	Due     time.Duration
	// Expiry is how long until the lease in the ledger that runs out next does
	// (whoever's it is), but no sooner than the end of a grace: a Sync right after
	// it reaps a peer that died. At least 1 ms; 0: unknown.
	Expiry time.Duration
	// Behind is how many sessions have arrived at an older roll than the newest and at no
	// newer one, and may work under it. While there are any no roll is due. If the newest is older
	// than the request's View, or than what anybody has arrived at, it is one more.
	Behind int
	// Grace is what is left of the time in which nobody gains a partition,
	// because the store restarted, failed over or lost its memory.
	Grace time.Duration
	// Longest is the longest lease of all sessions, as far as the ledger knows; 0: it does
	// not say.
	Longest time.Duration
	// Paused says that nobody is to work on anything for now: no claim is granted, and what
	// the sender has it is to drain and give up.
	Paused bool
	// Drained says that the sender is to have nothing until it is recalled. It need not do anything:
	// the next roll gives its share to others, who ask for it.
	Drained bool
}

// Held is a grant of the sender, and whether a live peer waits for it.
type Held struct {
	Grant  partition.Grant
	Wanted bool
}

// A Line is what a roll says to one peer.
type Line struct {
	Version    uint64
	Membership uint64 // the membership change the roll was built on
	Replicas   int
	Index      int // -1: not in this roll
	Partitions []partition.ID
}

// A Roll is a sealed membership with its table: who has which index and which
// partitions. Whoever finds one due seals the next; nobody computes it alone.
type Roll struct {
	Version    uint64 // 0: there is none yet
	Membership uint64 // the membership change it was built on
	Members    []RollMember
	Chairs     []Chair // by seat
}

// A RollMember is one line of a roll.
type RollMember struct {
	partition.Member
	Partitions []partition.ID // ascending
}

// A Census is what the sealer and people look at: everything the ledger knows. It
// is read on demand and never part of a Sync.
type Census struct {
	Config partition.Config
	Count  uint64
	Clock  time.Duration // the ledger's own
	// Silence is for how long nobody has called the ledger, beyond what Clock reckons of it: its
	// clock goes on with calls, and by a step at most.
	Silence    time.Duration
	Membership uint64
	Roll       Roll
	Sessions   []Seat
	Grants     []Ownership
	Grace      time.Duration
	// Refused are the last who wanted another configuration, the latest first.
	Refused []Refusal
}

// Shared returns the sessions of each peer id that more than one has which lives, ascending.
func (c Census) Shared() map[string][]partition.Session {
	of := make(map[string][]partition.Session)
	for _, s := range c.Sessions {
		if s.State != Gone && s.Lease > 0 {
			of[s.Peer] = append(of[s.Peer], s.Session)
		}
	}
	maps.DeleteFunc(of, func(_ string, all []partition.Session) bool { return len(all) < 2 })
	for _, all := range of {
		slices.Sort(all)
	}
	return of
}

// Apart returns c for people and scripts, to whom peers are their ids: those that share one
// have "#" and the beginning of their session after it, as in "host#3f9a1c20". Who is gone, or
// whose lease is over, keeps the bare id.
func (c Census) Apart() Census {
	shared := c.Shared()
	if len(shared) == 0 {
		return c
	}
	c.Sessions, c.Roll.Members = slices.Clone(c.Sessions), slices.Clone(c.Roll.Members)
	name := func(peer *string, session partition.Session) {
		if slices.Contains(shared[*peer], session) {
			*peer = apart(*peer, session)
		}
	}
	for i := range c.Sessions {
		name(&c.Sessions[i].Peer, c.Sessions[i].Session)
	}
	for i := range c.Roll.Members {
		name(&c.Roll.Members[i].Peer, c.Roll.Members[i].Session)
	}
	return c
}

// apart names a session of several that share the id peer.
func apart(peer string, session partition.Session) string {
	return peer + "#" + string(session[:min(len(session), 8)])
}

// A Refusal says that a program was turned away because it wanted another
// configuration than the one that stands under the name, or that a peer may not open
// a partition as it is configured.
type Refusal struct {
	Who  string // for people
	What string // it wanted instead, for people
	Ago  time.Duration
}

// A Seat is a session the ledger knows.
type Seat struct {
	Session partition.Session
	Peer    string
	Weight  int
	Unwell  bool // has its place, and partitions are for others if any of them is well
	Drained bool // its peer is one of Config.Drained: as if it were unwell
	Tags    partition.Tags
	State   State
	Arrived uint64        // the roll at whose barrier it stands or stood; see Request
	Lease   time.Duration // what is left of it
	Terms   Terms
	// Strategy is how it shares out the partitions; see Request. "": it did not say.
	Strategy string
	// Replicas of the store must have what the ledger changed before it counts for the peer. 0: none, or it did not say.
	Replicas int
}

// Terms are what a peer says of itself once: the times it keeps, and what it is part
// of. Zero fields are unknown.
type Terms struct {
	Lease, CancelGrace, Settle, Drain, Shutdown time.Duration
	// Deployment tells deployments apart that were given one name by mistake.
	Deployment string
}

// An Ownership is one entry of the key where the grants stand.
type Ownership struct {
	Grant   partition.Grant
	Session partition.Session
	Waiter  partition.Session // who asked for it last, or nobody
}

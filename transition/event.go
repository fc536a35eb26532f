package transition

import (
	"time"

	"github.com/countoff/countoff/partition"
)

// An Event is something that happened to a peer, for logs, metrics and tests: one of
// the types that [Events] lists, always by value.
type Event interface{ event() }

// Events of a peer and its lease.
type (
	// Joined: the ledger has answered for the first time.
	Joined struct {
		Session partition.Session
		Peer    string
		Took    time.Duration // since the start
	}
	// Renamed: another peer had Former already, the id under which this one joined; it is Peer
	// from now on. Only with Config.Yield.
	Renamed struct{ Former, Peer string }
	// Synced: the ledger has answered.
	Synced struct {
		Count uint64 // the number of the name
		Mine  int    // grants that the ledger lists
		Took  time.Duration
	}
	// SyncFailed: a call failed or timed out. Whether the ledger carried it out is
	// unknown. It is repeated. If Err wraps ErrRenewed the lease was renewed.
	SyncFailed struct {
		Err  error
		Took time.Duration
	}
	// ConfigRefused: the name is in use with another configuration. The peer ends.
	ConfigRefused struct{ Err error }
	// Lapsed: the lease may have run out, because the ledger has not answered for
	// too long. Everything in work is aborted.
	Lapsed struct{ Grants int }
	// GraceOpened: the ledger restarted or forgot; nobody gains a partition for the
	// time Left.
	GraceOpened struct{ Left time.Duration }
	// Paused: nobody is to work under the name until it is resumed, see [Pauser]. The peer drains what
	// it has; it keeps its place.
	Paused struct{}
	// Resumed: the pause is over, and the peer asks for its share.
	Resumed struct{}
	// Dismissed: the peer is to have nothing until it is recalled, see [Drainer]. Others take over what
	// it has; it keeps its place.
	Dismissed struct{}
	// Recalled: it is to have its share again.
	Recalled struct{}
	// HintsLost: the ledger's hints ended; they are asked for again after Again.
	// Until then changes are noticed with the next beat.
	HintsLost struct {
		Err   error
		Again time.Duration
	}
	// Declared: the peer says another weight, or that it is unwell or well again. A roll
	// that goes by it is due.
	Declared struct {
		Weight int
		Well   bool
	}
	// Left: the peer is out. Stuck are grants whose handlers, or calls of the source, have not
	// returned: they were not given up. Unheard are those that were given up without an answer of
	// the ledger. For both the lease has to run out.
	Left struct {
		Stuck, Unheard []partition.Grant
		Took           time.Duration // since it was asked to stop
	}
)

// Events of views and rolls.
type (
	// RollSeen: the peer has a new view, of a roll or of another indexer.
	RollSeen struct{ View partition.View }
	// BarrierClosed: the peer knows of the roll Version and stops everything; with RollSeen
	// it goes on. Only with Config.Barrier.
	BarrierClosed struct{ Version uint64 }
	// Sealed: this peer sealed a roll on top of another.
	Sealed struct {
		On       uint64 // version of the roll before
		Replicas int
		Took     time.Duration
	}
	// SealFailed: a roll was due and could not be sealed. Another peer does, or this
	// one tries again.
	SealFailed struct{ Err error }
	// StrategyFailed: the strategy broke its contract while this peer sealed a roll: it panicked,
	// or gave partitions to nobody who lives. partition.Sticky shared those out instead. What
	// says what it did. It comes right after Sealed.
	StrategyFailed struct{ Strategy, What string }
)

// Events of a grant, in the order in which they come.
type (
	// Served: the work on it begins.
	Served struct{ Grant partition.Grant }
	// Draining: somebody waits for it, the peer leaves, or the name is paused.
	Draining struct{ Grant partition.Grant }
	// DrainOverdue: its drain takes longer than Timing.Drain. Said once.
	DrainOverdue struct {
		Grant partition.Grant
		Took  time.Duration // up to now
	}
	// Aborted: it was taken away.
	Aborted struct {
		Grant partition.Grant
		Cause error
	}
	// Drained: nothing of it runs here any more.
	Drained struct {
		Grant partition.Grant
		Took  time.Duration // since Draining or Aborted, whichever came first
	}
	// Released: the ledger has taken it back.
	Released struct {
		Grant partition.Grant
		Took  time.Duration // since Drained; 0 if it was never served
	}
)

func (Joined) event()         {}
func (Renamed) event()        {}
func (Synced) event()         {}
func (SyncFailed) event()     {}
func (ConfigRefused) event()  {}
func (Lapsed) event()         {}
func (GraceOpened) event()    {}
func (Paused) event()         {}
func (Resumed) event()        {}
func (Dismissed) event()      {}
func (Recalled) event()       {}
func (HintsLost) event()      {}
func (Declared) event()       {}
func (Left) event()           {}
func (RollSeen) event()       {}
func (BarrierClosed) event()  {}
func (Sealed) event()         {}
func (SealFailed) event()     {}
func (StrategyFailed) event() {}
func (Served) event()         {}
func (Draining) event()       {}
func (DrainOverdue) event()   {}
func (Aborted) event()        {}
func (Drained) event()        {}
func (Released) event()       {}

// Events returns one zero value of every type of Event, so that a listener can be
// tested for having forgotten none.
func Events() []Event {
	return []Event{
		Joined{}, Renamed{}, Synced{}, SyncFailed{}, ConfigRefused{}, Lapsed{}, GraceOpened{}, Paused{}, Resumed{}, Dismissed{}, Recalled{}, HintsLost{}, Declared{}, Left{},
		RollSeen{}, BarrierClosed{}, Sealed{}, SealFailed{}, StrategyFailed{},
		Served{}, Draining{}, DrainOverdue{}, Aborted{}, Drained{}, Released{},
	}
}

package machine

import (
	"time"

	"github.com/countoff/countoff/partition"
)

// An Event is something that happened to a peer: [Ticked], [Hinted], [Synced], [SyncFailed],
// [SealEnded], [Viewed], [Drained], [Lost], [Rename], [Weigh], [Health] or [Stop].
type Event interface{ event() }

type (
	// Ticked says only that time has passed.
	Ticked struct{}
	// Hinted says that a Sync may be worth while.
	Hinted struct{}
	// Synced brings the answer to the Sync with this number.
	Synced struct {
		Call   uint64
		Answer Answer
	}
	// SyncFailed says that the Sync with this number failed or timed out. Whether
	// the ledger carried it out is unknown.
	SyncFailed struct{ Call uint64 }
	// SealEnded says that the Seal with this number is over. OK means that a new
	// roll stands now or none was needed, whoever sealed it.
	SealEnded struct {
		Call uint64
		OK   bool
	}
	// Viewed brings the view of an indexer other than the ledger's rolls.
	Viewed struct{ View partition.View }
	// Drained says that nothing of the grant runs here any more, after a Drain or
	// an Abort.
	Drained struct{ Grant partition.Grant }
	// Lost says that the data of the grant refused or forgot this peer. Stored is
	// the epoch that stands at the data, 0 if it is not known.
	Lost struct {
		Grant  partition.Grant
		Stored partition.Epoch
	}
	// Rename gives the peer another id, which the next Sync tells.
	Rename struct{ Peer string }
	// Weigh says that the peer wants another share of the work, at least 1.
	Weigh struct{ Weight int }
	// Health brings how the peer is. It counts once it has lasted; see Declared.
	Health struct{ Well bool }
	// Stop asks the peer to leave: hand over what is waited for, give up the rest.
	// Now means without draining.
	Stop struct{ Now bool }
)

func (Ticked) event()     {}
func (Hinted) event()     {}
func (Synced) event()     {}
func (SyncFailed) event() {}
func (SealEnded) event()  {}
func (Viewed) event()     {}
func (Drained) event()    {}
func (Lost) event()       {}
func (Rename) event()     {}
func (Weigh) event()      {}
func (Health) event()     {}
func (Stop) event()       {}

// An Effect is something to be done, or to be told of, in the order of the list it comes in: [Sync],
// [Seal], [Serve], [Drain], [Abort], [Adopt] or [Waits]; [Released], [Overdue], [Lapsed],
// [GraceOpened], [Paused], [Resumed], [Dismissed], [Recalled], [Declared] or [Left].
type Effect interface{ effect() }

type (
	// Sync asks the ledger. Answer with Synced or SyncFailed of the same number.
	Sync struct {
		Call    uint64
		Request Request
	}
	// Seal makes and stores the next roll, if one is due. Answer with SealEnded of
	// the same number.
	Seal struct{ Call uint64 }
	// Serve begins the work on a grant.
	Serve struct{ Grant partition.Grant }
	// Drain ends the work on a grant in good order. Answer with Drained.
	Drain struct{ Grant partition.Grant }
	// Abort ends it at once, also a Drain. Answer with Drained when its handlers
	// have returned.
	Abort struct {
		Grant partition.Grant
		Cause Cause
	}
	// Adopt says that this is the peer's view from now on.
	Adopt struct{ View partition.View }
	// Waits says that the peer knows of a newer roll and has no view until all others have
	// stopped for it too; then comes Adopt. It is of a peer with a barrier.
	Waits struct{ Version uint64 }
	// Released says that the ledger has taken the grant back.
	Released struct{ Grant partition.Grant }
	// Overdue says that a drain takes longer than it may.
	Overdue struct{ Grant partition.Grant }
	// Lapsed says that the lease may have run out: the ledger has not answered for
	// too long.
	Lapsed struct{}
	// GraceOpened says that the ledger restarted or forgot and lets nobody gain a
	// partition for the time Left.
	GraceOpened struct{ Left time.Duration }
	// Paused says that the name is paused: the peer claims nothing and drains what it has.
	Paused struct{}
	// Resumed says that it no longer is.
	Resumed struct{}
	// Dismissed says that the peer is drained: the rolls give it nothing, if anybody else can have it.
	Dismissed struct{}
	// Recalled says that it no longer is.
	Recalled struct{}
	// Declared says what the peer says of itself from now on, because it changed. Who is
	// not well keeps its index, claims nothing and hands over what others wait for.
	Declared struct {
		Weight int
		Well   bool
	}
	// Left is the last effect. Stuck is what still runs: it was not given up. Unheard is
	// what was given up without an answer. For both the lease has to run out.
	Left struct{ Stuck, Unheard []partition.Grant }
)

func (Sync) effect()        {}
func (Seal) effect()        {}
func (Serve) effect()       {}
func (Drain) effect()       {}
func (Abort) effect()       {}
func (Adopt) effect()       {}
func (Waits) effect()       {}
func (Released) effect()    {}
func (Overdue) effect()     {}
func (Lapsed) effect()      {}
func (GraceOpened) effect() {}
func (Paused) effect()      {}
func (Resumed) effect()     {}
func (Dismissed) effect()   {}
func (Recalled) effect()    {}
func (Declared) effect()    {}
func (Left) effect()        {}

// A Cause says why a grant was aborted.
type Cause uint8

// The causes.
const (
	LeaseLapsed  Cause = iota + 1 // the lease may have run out
	NotMine                       // the ledger does not list the grant any more
	DataLost                      // the data refused or forgot this peer
	ShutdownOver                  // the shutdown took too long, or was to be at once
)

func (c Cause) String() string {
	switch c {
	case LeaseLapsed:
		return "lease lapsed"
	case NotMine:
		return "not mine"
	case DataLost:
		return "data lost"
	case ShutdownOver:
		return "shutdown over"
	}
	return "unknown"
}

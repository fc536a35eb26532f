package sources

import (
	"context"

	"github.com/countoff/countoff/partition"
)

// A Source hands out the tasks of the partitions a peer was granted.
//
// Its methods may be called concurrently.
type Source interface {
	// Layout returns the partitions of the source and what else is granted beside
	// them. It is fixed for a name, except that Total may grow where the broker's
	// does.
	Layout(ctx context.Context) (partition.Config, error)
	// Open starts the one ownership g of a partition: it installs tok as the
	// fence, so that every older owner is refused from now on. It returns a
	// [FencedError] if the same or a newer epoch stands under another token;
	// opening again with the token that stands changes nothing. The caller must
	// Close the stream.
	//
	// The stream of a unit (partition.ID.IsUnit) does the unit's work by itself:
	// its Fetch returns no tasks and only ends with an error.
	Open(ctx context.Context, g partition.Grant, tok partition.Token) (Stream, error)
}

// A Stream is one ownership of one partition: it lives from a grant to its
// release. No state of an earlier ownership is in it.
//
// Fetch must not be called concurrently with itself, nor Close with anything;
// Settle may overlap Fetch and other Settles.
type Stream interface {
	// Fetch waits until there is a task that may start, then returns at most
	// limit of them, in the order of the log, leftovers of earlier owners first.
	// limit is what the caller can start soon: everything returned may be started
	// at once, or from its NotBefore on, and counts as started if the process dies. It returns no tasks only
	// with an error: that of ctx, ErrFenced, ErrForgot, or one worth a retry. The
	// slice is the caller's from then on; one fetched task may end long after the
	// others.
	Fetch(ctx context.Context, limit int) ([]Task, error)
	// Settle records outcomes of tasks this stream returned. It returns nil once
	// the store has answered. It is idempotent: what was settled before changes
	// nothing. After an error other than ErrFenced and ErrForgot the outcome is
	// unknown, and the caller says it again. Until it is answered the framework starts
	// nothing more of the partition after a tenth of the lease.
	Settle(ctx context.Context, done ...Settlement) error
	// Close ends the ownership. What was not settled stays where it is, in order,
	// for the next owner. After it returned nil (also where the fence is another's
	// already) nothing this stream sent can change the partition any more. After
	// another error it may be called again. It must be called while nothing
	// fetched runs.
	//
	// Called with a ctx that has ended it sends nothing and only gives back what
	// the stream holds in this process: so ends an ownership that was lost.
	Close(ctx context.Context) error
}

package partition

import "context"

// A Member is a peer as a strategy sees it.
type Member struct {
	Session Session
	Peer    string // the peer's id: a name for people, kept over restarts
	Index   int    // 0-based place in the roll
	Weight  int    // share of the work relative to the others; 0 and less count as 1
	Down    bool   // keeps its place but must get nothing now
	Tags    Tags   // what it has; see Assign
	Seat    int    // as Index, but kept for a while for a peer that is gone: it is Down until it is back, and nobody else moves
}

// A View is what an indexer tells one peer. All of it is of the same version: an
// index is never paired with the number of replicas of another moment.
type View struct {
	Version  uint64
	Index    int  // 0-based, below Replicas; -1 if the peer is not a member
	Replicas int  // live peers
	Wish     []ID // what this peer should have, ascending
}

// An Indexer tells a peer its place among the live peers of a name.
type Indexer interface {
	// Index takes part under the indexer's name until ctx ends and calls emit
	// with each new view, one call at a time, versions rising. It returns when
	// nothing of it runs any more: nil after ctx ended, otherwise the reason why
	// it cannot go on.
	Index(ctx context.Context, emit func(View)) error
}

// A Table says who should have what: the previous answer of a strategy, and its
// next.
type Table map[ID]Session

// A Strategy shares ids out over members. It is a pure function: the same
// arguments, which it does not change, give the same table, in whatever order ids
// and members come. Each id gets exactly one member that is not Down; with no such
// member the table is empty.
type Strategy interface {
	// Name is what flags and configuration call the strategy, as in "sticky".
	Name() string
	// Assign returns the table. previous is the table that was in force, nil at
	// first; strategies that do not look back ignore it.
	Assign(ids []ID, members []Member, previous Table) Table
}

// Package intervalindexer lets peers count themselves with nothing but a counter
// that can be incremented (Distributed Peer Indexing).
//
// Time is cut into intervals, the same for everybody: number = ceil(now / interval).
// Once in each, at its own constant random skew, a peer increments {name}:{number}.
// What an interval's counter says when it is over is the number of replicas; the
// peer's index is the place it had in that same interval. So a change shows one
// interval after it happened, to everybody alike.
//
// Two things are added to that, each of which can be switched off:
//
//   - Memory. By order of arrival indexes would reshuffle whenever two skews are
//     closer together than the network's jitter. So a peer asks for the index it had,
//     by incrementing {name}:{number}:{index}: who reads 1 has it. A newcomer, and one
//     whose index is not below the count any more, looks for an index that nobody had
//     in the interval before.
//   - Patience. A count that differs is adopted when two intervals in a row show it,
//     so that a late or a repeated increment, or one missed interval, moves nothing.
//
// Indexes are dense and agreed within three intervals after a join, and within four
// after a crash: one to see it, one to see it again, one for the highest to fill the
// hole, one to show it.
//
// What comes out are wishes: that two peers wish for one partition for a moment, or
// nobody does, is possible (a pause, a clock that differs, a lost call) and harmless,
// because the ledger grants. Clocks of peers should agree to a tenth of the interval.
//
//	turn.go, peer.go    the decisions, pure
//	indexer.go          the loop around them
//	counter.go          what is asked of the store, and one in memory; rediscounter, natscounter,
//	                    etcdcounter
package intervalindexer

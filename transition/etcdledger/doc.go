// Package etcdledger keeps the record of who holds which partition in etcd: a
// transition.Ledger for fleets that have an etcd and want no Redis to decide, whose tasks may
// be anywhere. It is a module of its own, so that nobody links etcd's client who does not use
// it. Versions 3.4 and later of etcd will do; it is tested on 3.7.
//
// The rules are those of memledger.Store, the same code. An operation reads the name at one
// revision, lets a Store decide, and writes what changed in one transaction that is guarded
// by the revisions of what was read; when somebody was faster it begins anew with what
// stands then. The keys of a name, below prefix/name/:
//
//	config         what all peers agree on
//	meta           the one count, the grace, the run, what config says of tags; the lock word: it changes with all below
//	roll           who has which index and which partitions
//	transition     a line per session: session partition@epoch…, >waiter behind what is asked for
//	sessions/ID    what the peer says of itself
//	leases/ID      the clock at which its lease ends; no part of what meta locks
//	clock          the clock on which leases are counted, in milliseconds; no part of it either
//	seen           when the clock was written last, by the wall clock of who did: for who looks, and no part of it either
//	history/N      what the last calls changed; written with meta, and read by nobody who decides
//
// So Syncs of peers that have nothing new to say do not get into each other's way: each is a
// read of clock and leases and a write of one lease.
//
// etcd has no clock that its clients can ask, and its own leases last whole seconds and end
// without asking the rules. The clock of a name is lent by its peers instead: whoever has
// known a value of it to stand for some time, by a clock of its own that never goes back, may
// add that time. No moment is added twice, so that the clock never runs faster than time; it
// stands while nobody is there. See docs/decisions/110-ledger-on-etcd.md, also for why a lease
// that is counted on it is as long as transition.Timing wants.
//
// A restart or a change of leader loses nothing in etcd and opens no grace. A grace opens when
// the cluster is another one (as after a backup was restored), when it shows less than was
// seen before, and when a key of the name is missing that nobody can put back.
package etcdledger

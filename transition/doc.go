// Package transition is one peer's part in a name: it counts off, is granted partitions,
// hands them over in good order and drops them before its lease can run out.
//
// What to do is decided by package machine, which is pure. The [Coordinator] is the
// thin shell around it: one goroutine that waits, steps the machine and carries out
// its effects, on the [Ledger] (the store's record of who holds what) and on the
// [Tenant] (what works on a partition while it is granted). The decisions of the
// store are those of package memledger, the reference; redisledger and etcdledger have
// them in real stores. A program that wants no partitions, only its place among the peers,
// needs less: a [Roster].
package transition

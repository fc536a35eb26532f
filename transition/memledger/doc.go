// Package memledger is the reference of transition.Ledger: the rules of who holds
// which partition, in plain Go.
//
// [Store] is the rules alone: a value with no clock, lock or I/O, which is told the
// time and the run of the store with each call, as a script inside a real store
// finds them. Other ledgers are compared with it, and the simulation drives it
// directly; one that is put away between two calls is a [State]. [Ledger] is a thin
// shell around one: a mutex, a clock and hints, for tests, demos and services of a
// single process.
package memledger

// Package machine decides for one peer what to ask of the ledger and what to do
// with each partition: when to serve, when to drain, when to abort. It is pure:
// events go in with the instant they happened, effects come out. It has no
// clock, no lock, no context and no goroutine; transition.Coordinator is the thin
// shell that waits, steps it and carries its effects out.
package machine

// Package memsource is a source in memory: the reference that other sources are
// compared with, and the store of tests that need none.
//
// A [Store] holds a log per partition. It is a [sources.Source] itself; every
// peer of the process that uses the same Store shares its tasks, its fences and
// its dead letters, as processes share a Redis. [Store.Via] gives a peer a way to
// the store that loses, delays or refuses calls.
//
// The store does little: it compares the token with every call, it keeps
// positions, and it ties every effect to a position that is still open, so that a
// call may be lost, repeated or late. What to hand out next is decided by the
// stream, which alone knows what its caller has. That is how a source over a real
// store has to be cut, too.
//
// It keeps nothing over the end of the process, and a log is not bounded: a task
// that never ends keeps the places of all that came after it.
package memsource

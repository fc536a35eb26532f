// Package redissource is countoff's own queue in Redis: a log of tasks for each
// partition of a name.
//
// A partition is a list ({name:17}:pending) whose elements have absolute positions,
// and beside it the record of which are finished, under a fence. Fetching is a plain read whose
// result counts only if the fenced script in the same pipeline finds what the read
// reckoned with; settling trims the list ([Source]). Tasks come from a [Producer], or
// from a plain list that any program fills ([Ingress]). [Stats], [Peek] and
// [DeadLetters] show people what a partition holds; [Resize] and [Destroy] change or
// remove a name.
//
// The keys, the bytes and the argument why it is safe are in docs/protocol.md.
package redissource

// Package redisprogress keeps in Redis what of a log is done: who may work on it
// (the fence), the base below which everything is finished, what is finished
// behind it, what was lifted out of its way, and how often each open task was
// tried.
//
// Every call is one script and safe to repeat: each effect is tied to a position
// that is still open, and happens before the base moves. The rules and why each of
// them is needed are in docs/protocol.md; package progress is the client's half.
package redisprogress

// Package logstream is the sources.Stream over any log that package progress keeps. It has the
// waiting callers, the goroutine that does the round trips, what follows from failed ones, when
// a full log is read on, the end, and the permit to run a task that is suspected of a crash.
//
// A source embeds a Stream in its own, which is the Stream's Driver: it knows what the
// tasks are and how the store is asked.
package logstream

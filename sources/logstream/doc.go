// Package logstream is the stream of every log that package progress keeps: those who wait
// for it, the goroutine that does its round trips, what a row of failed ones leads to, when
// a full log is read on, its end, and the permit to run the task that is accused of a crash.
//
// A source embeds a Stream in its own, which is the Stream's Driver: it knows what the
// tasks are and how the store is asked.
package logstream

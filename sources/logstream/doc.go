// Package logstream has what the streams of all logs share around package progress: the
// callers that wait for a round trip, what a row of failed round trips leads to, and the
// permit to run the task that is accused of a crash.
//
// A stream keeps its state under one lock and has one goroutine that does the round trips;
// what is here follows that shape. See sources/redissource for the model of one.
package logstream

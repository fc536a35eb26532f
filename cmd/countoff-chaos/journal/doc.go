// Package journal is what the processes of a chaos run write down, each into a file
// of its own, so that a checker that trusts none of them can join it afterwards.
//
// A record is one line, written by one write(2) with O_APPEND: a process that is
// killed leaves whole lines, all that it had said. Times are CLOCK_MONOTONIC, which
// all processes of a machine share.
package journal

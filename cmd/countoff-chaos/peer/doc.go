// Package peer is the process that a chaos run starts, stops, freezes and kills: a
// consumer like any other, whose handler and source say in a journal what they do.
package peer

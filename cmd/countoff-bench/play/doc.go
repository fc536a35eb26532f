// Package play runs the contestants: a store of its own, round after round each
// contestant once, in an order that is another each round, each in a process of its own.
package play

// Package quorum makes numbers that only rise, over several stores that know nothing
// of each other, whatever minority of them fails.
//
// Each store keeps one number, its [Register], with one operation: raise it to n if it
// is less, and say what it was. Whoever has raised a majority of the registers to n owns
// the numbers from the largest that they held before up to n. Two owners share a register
// that both have raised, one after the other, so that the later one found there what the
// earlier one had written: no number is given twice, and a number that is asked for after
// another was given is larger.
//
// A [Counter] gives such numbers to callers. A [Ledger] uses it as a witness of another
// ledger's epochs: no epoch is worked before a majority has heard of it, and a free
// partition is claimed only under what a majority has heard of. Then epochs rise even if the
// ledger's own store comes back with nothing.
//
// The algorithm is that of the monotonic ids over N Redis masters, a majority read and a
// majority set-if-less-than, in one phase instead of two: the answer of the write says what
// was there before.
package quorum

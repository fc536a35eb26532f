// Package coverage finds out whether every partition of a name has exactly one owner who
// works on it, and whether all who use the name mean the same.
//
// Its one idea: most of what looks wrong for a moment is a hand-over or a take-over under
// way. So a [Condition] is what can be seen in one look at the store, with how long it
// may last, and a [Finding] is one that has lasted longer. It decides only, like package
// machine: who looks, how often, and what becomes of the findings is the caller's.
package coverage

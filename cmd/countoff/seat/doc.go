// Package seat holds a place among the peers of a name for a command in any language, and
// hands the command the units that this peer owns. docs/units.md has what the command sees.
//
// The command runs under a guard, a second process of the same program, which ends it when
// the ownership may be over: also when the peer itself is killed or stands still.
package seat

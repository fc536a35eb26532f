// Package seat makes a command in any language a peer of a name, and hands it the units that
// this peer owns. docs/units.md has what the command sees.
//
// The command runs under a guard, a second process of the same program, which ends it when
// the ownership may be over: also when the peer itself is killed or stands still.
package seat

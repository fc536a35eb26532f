// Package cast is what the plays of the examples share: peers that are processes of the example's
// own program, so that a kill is a kill, and the store they play on.
package cast

// Package ticks decides which instants of a schedule are due. It is pure: what it knows of
// the time it is told.
package ticks

// Package owning is how a context that is none of a handler, but stands for those of several, answers framework.Owned.
package owning

// Key is that of a func() bool in a context: whether all that it stands for is this peer's at this moment.
type Key struct{}

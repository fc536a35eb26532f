package progresstest

import (
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// A Store keeps one log. Each method is one atomic step, executed at once.
type Store interface {
	// Push appends an element to the list.
	Push(element string)
	// Move appends the delayed elements to the list and returns them.
	Move() []string
	// Open installs the fence and returns what earlier owners left.
	Open(tok partition.Token) Opened
	// Read returns n elements of the list, the first of them from places after its
	// head.
	Read(from, n int64) []string
	// Settle carries out r. content goes with r.Others, one by one.
	Settle(tok partition.Token, r *progress.Request, content []string) progress.Answer
	// Close clears the fence if it is tok.
	Close(tok partition.Token)
	// State returns all that is kept.
	State() State
}

// A Snapshotter is a Store that can lose its last writes.
type Snapshotter interface {
	Snapshot() (restore func())
}

// An Opened is what Open found. Refused: the same or a greater epoch stands under
// another token, and nothing was done.
type Opened struct {
	Refused bool
	progress.Opened
	Tried  map[int64]Tried
	Lifted []Lifted // by position
}

// A Tried is what is known of the runs of an open task.
type Tried struct{ Tries, Crashes int }

// A Lifted is an open task that the base has passed. The element is empty if the
// store keeps no list.
type Lifted struct {
	Position int64
	Element  string
}

// A State is all that a store keeps.
type State struct {
	Base    int64
	Gate    int64    // what is below may be started
	Pending []string // the list: its first element is at Base
	Done    []int64
	Lifted  []Lifted
	Tries   int // entries
	Delayed []string
	Dead    []string
}

package progress

import (
	"slices"
	"time"
)

// A Tried is what the store knows of the runs of an open task.
type Tried struct {
	Tries      int
	Crashes    int
	NotBefore  time.Time // by this process's clock; zero: at once
	FirstError string
}

// A Content is what the store is to keep of a verdict.
type Content struct {
	Delay time.Duration // of Retry and Requeue
	Error string        // of Retry; kept if it is the first
	Body  []byte        // of Requeue the new envelope, of Dead the letter
}

// Found is what an owner finds of a log whose elements lie elsewhere.
type Found struct {
	Opened
	Tried  map[int64]Tried
	Lifted []int64 // ascending
	// Life names the log that the positions are of; empty if nobody has said so yet.
	// A log that was deleted and made again has another one.
	Life string
}

// Ended takes out a position that was settled since.
func (f *Found) Ended(pos int64) {
	delete(f.Tried, pos)
	f.Lifted = slices.DeleteFunc(f.Lifted, func(x int64) bool { return x == pos })
	if i, found := slices.BinarySearch(f.Done, pos); pos >= f.Base && !found {
		f.Done = slices.Insert(f.Done, i, pos)
	}
}

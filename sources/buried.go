package sources

import "github.com/countoff/countoff/partition"

// Buried says that a source has made dead letters of tasks that it handed to nobody, since
// they can be read by nobody or have ended their peers too often. The store has answered
// for it. After a crash it may be said again.
type Buried struct {
	Grant partition.Grant
	Tasks int // how many at once
	// Of the first of them. ID is empty where none is known, and Position zero where the
	// source counts none; in an ingress it is that of the line.
	ID       string
	Position int64
	Reason   string
}

// Add counts another one.
func (b *Buried) Add(other Buried) {
	if b.Tasks == 0 {
		*b = other
		return
	}
	b.Tasks += other.Tasks
}

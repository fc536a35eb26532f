package checker

import (
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
)

// A Span is a stretch of time.
type Span struct{ From, Until journal.Time }

// A History is everything that is known of a run.
type History struct {
	Pushes    []Push
	Processes []Process
	Losses    []Loss
	Left      Store
	Gaps      []Gap
	Faults    []Fault
	// Troubles are what the director saw with its own eyes, such as a peer that
	// ended by itself.
	Troubles []string
	// Margin is how long a process may be kept from running before what it does is
	// its scheduler's fault: the margin of the lease.
	Margin time.Duration
	// Patience is how long after a fault a peer may still lose something by it.
	Patience time.Duration
}

// A Push is one task as who enqueued it knows it.
type Push struct {
	Task  string
	Key   string
	Seq   int          // number in the key, from 1
	Sent  journal.Time // before the call
	Acked journal.Time // after its answer; 0: whether it was enqueued is unknown
	// Refused says that the producer gave its word that it was not enqueued.
	Refused bool
	Dead    bool // its handler asks for a dead letter
}

// A Process is one process of a peer.
type Process struct {
	Name    string
	Records []journal.Record // in the order of the file
	Killed  journal.Time     // before the signal was sent; 0: it was not
	Frozen  []Span           // stopped by a signal, or seen not to run
	Struck  []Span           // a fault was done to it, or to the store
}

// A Loss is a time when the store forgot. What it acknowledged before From stands;
// what it acknowledged between From and Until may be gone.
type Loss struct {
	Span
	// At is when it forgot, at the earliest: until then it knew everything, and what was
	// seen of it is judged so.
	At  journal.Time
	Why string
	// Held is what stood in it at At, before it was emptied: of the tasks that were
	// acknowledged by then no other is gone. Nil: nobody looked.
	Held *Store
}

// A Store is what stands in the store in the end.
type Store struct {
	Open map[string]string // task -> where: pending, lifted, delayed, inbox
	Dead map[string]int    // task -> how many letters
}

// A Gap is a time in which a partition had no owner that could work.
type Gap struct {
	Part  int
	Fault string // the kind of what took its owner away; empty: nobody knows
	Span         // Until 0: to the end
	Moved bool   // another owner has it now
	Bound time.Duration
}

// A Fault is one thing the director did.
type Fault struct {
	Kind string
	Span
}

// A Violation is one promise that was not kept.
type Violation struct {
	Rule     string
	What     string
	Evidence []string // records, pushes, faults
}

// A Report is what a check came to.
type Report struct {
	Enqueued, Acked   int
	Runs              int
	Completed         int // tasks
	DeadLetters       int
	Retries           int // runs that asked to be repeated
	Forgotten         int // tasks the store forgot by definition
	Doubled           int // second runs, all excused or among the violations
	Crashed, Expired  int // runs that were in flight in peers that were killed, or lost the partition
	ExcusedOverlaps   int // of a handler in a process that was not running
	Buried            int // dead letters because of crashes
	LostGrants        int
	LostForNothing    int // in processes that nothing was done to, and that ran
	StaleSettlesTried int // refused by the fence
	StaleSettles      int // accepted
	Violations        []Violation
	ViolationsByRule  map[string]int
	Pauses            map[string]time.Duration // hand-over: the worst, by kind of fault
}

package progress

// None is no position.
const None = -1

// An Outcome is what became of a task, as far as the log is concerned.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota + 1
	Retry           // stays where it is, open
	Requeue         // goes to the end, as another element
	Dead            // becomes a dead letter
)

// A Verdict is one outcome on its way to the store.
type Verdict struct {
	// Seq numbers the verdicts of a log from 1.
	Seq      uint64
	Position int64
	Outcome  Outcome
	// Attempt is how often the task has run.
	Attempt int
}

// A Request is what the store is told in one atomic step. The same content may be
// told again, merged with newer content, and may arrive late: each effect is tied
// to a position that is open at the store.
type Request struct {
	// Seen is the store's number of writes as last answered: if it has fewer, it
	// forgot something.
	Seen int64
	// Read is the first position that was not read. A log that ends before it was
	// cut.
	Read int64
	// Base is the new base: everything below is finished, in Others or Done, or
	// carried along in Lift.
	Base int64
	// Gate is the position below which tasks may be started.
	Gate int64
	// Alone is the position that is about to run with nothing beside it, or None.
	// AloneTries is its number of tries: after another the record is void.
	Alone      int64
	AloneTries int
	// Done are the finished positions that Base does not imply.
	Done []int64
	// Others are the verdicts that carry content, in the order they were given.
	Others []Verdict
	// Lift are the open positions below Base, ascending.
	Lift []int64
	// Fetch is how many elements to read from Read on, 0: none. The read counts
	// only if the store admitted the request at the base Before.
	Fetch  int
	Before int64
	// Upto is the Seq of the last verdict in the request.
	Upto uint64

	queued int
}

// A Status says whether the store admitted a request.
type Status uint8

// The statuses.
const (
	Admitted Status = iota + 1
	Stale           // the fence is another's
	Forgot          // the store lost something it had answered
)

// An Answer is what the store says to a Request it has definitely seen.
type Answer struct {
	Status Status
	Before int64 // base before
	Base   int64 // base now
	Writes int64 // number of writes now
	Gate   int64 // the position below which tasks may be started, as recorded
}

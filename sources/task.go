package sources

import (
	"time"

	"github.com/countoff/countoff/partition"
)

// A Task is one delivery of one piece of work. Handlers must not change it.
type Task struct {
	ID        string // unique within the name; the same in every delivery
	Type      string // picks the handler; may be empty
	Key       string // tasks of one key run one at a time, in order; empty: unordered
	Payload   []byte
	Headers   map[string]string // nil if there are none
	Born      time.Time         // when it was enqueued, by the producer's clock
	Attempt   int               // 1 for the first run; crashes do not count
	Crashes   int               // runs that a crash of their peer ended, as far as that is known
	NotBefore time.Time         // must not start earlier, by this process's clock; zero: at once

	Grant   partition.Grant // the partition and its epoch
	Token   partition.Token // the fence; give it to your sink, so that it can refuse smaller epochs
	Receipt Receipt
	// FirstError is the first error a run of it ended with, empty if none did.
	FirstError string
}

// A Receipt names one task to the stream that returned it, and to no other. In a
// log it is the absolute position.
type Receipt int64

// An Outcome is what became of a run.
type Outcome uint8

// The outcomes.
const (
	// Done: the task is finished.
	Done Outcome = iota + 1
	// Retry: the run failed and the task stays where it is, open. The caller
	// keeps it and runs it again after Delay; the stream does not return it again.
	// Attempt and Delay are kept for the next owner.
	Retry
	// Requeue: the run failed and the task goes to the end; the stream returns it
	// again, as a new delivery, after Delay. It gives up its place among the tasks
	// of its key.
	Requeue
	// Dead: the task becomes a dead letter, whole, with Reason.
	Dead
)

func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Retry:
		return "retry"
	case Requeue:
		return "requeue"
	case Dead:
		return "dead"
	}
	return "unknown"
}

// A Settlement tells the stream what became of a task.
type Settlement struct {
	Task    *Task // as Fetch returned it; the stream may keep it
	Outcome Outcome
	// Attempt is how often the task has run now; Retry, Requeue and Dead record
	// it. A smaller one never overwrites a greater.
	Attempt int
	// Delay is how long Retry and Requeue wait, counted by the store from when it
	// hears of it.
	Delay time.Duration
	// Reason is why it failed: Retry keeps the first one, Dead keeps it whole.
	Reason string
}

package sources

import (
	"time"

	"github.com/countoff/countoff/partition"
)

// A Task is one delivery of one piece of work. Handlers must not change it.
//
// It is small, because there are many: what it has in common with most others is in
// its [Delivery], whose fields are read as if they were its own, as in t.Attempt or
// t.Headers["trace"]. In a literal they are not. A test that gives a task to a
// handler writes
//
//	&framework.Task{Payload: p, Delivery: &framework.Delivery{Attempt: 1}}
//
// or lets frameworktest.Handle fill it in.
type Task struct {
	ID      string // unique within the name; the same in every delivery
	Type    string // picks the handler; may be empty
	Key     string // tasks of one key run one at a time, in order; empty: unordered
	Payload []byte // may lie in one piece of memory with those of many others: who keeps it for long copies it
	Born    Moment // when it was enqueued, by the producer's clock; zero: not known
	Receipt Receipt

	// What most tasks have in common. It is never nil in a task that a [Stream]
	// returned; without it, reading one of its fields through the task panics.
	*Delivery
}

// Copy returns a copy of t with a Delivery of its own, which is zero if t has none: both
// may be changed. Payload and Headers are still those of t.
func (t *Task) Copy() *Task {
	c := &struct {
		task Task
		own  Delivery
	}{task: *t}
	if t.Delivery != nil {
		c.own = *t.Delivery
	}
	c.task.Delivery = &c.own
	return &c.task
}

// A Delivery is what a task has in common with most others of its grant: those that run
// for the first time and have no headers may share one. So nobody changes one that was
// handed out: who needs another has [Task.Copy].
type Delivery struct {
	Grant      partition.Grant   // the partition and its epoch
	Token      partition.Token   // the fence; give it to your sink, so that it can refuse smaller epochs
	Attempt    int               // 1 for the first run; crashes do not count, nor do Waits
	Waits      int               // runs that waited ([Waits]) since the task got its place
	Crashes    int               // runs that a crash of their peer ended, as far as that is known
	FirstError string            // the first error a run of it ended with, empty if none did
	NotBefore  time.Time         // must not start earlier, by this process's clock; zero: at once
	Headers    map[string]string // nil if there are none
}

// Run is the number of the run: those that Attempt counts and those of Waits.
func (d *Delivery) Run() int { return d.Attempt + d.Waits }

// A Moment is a time to the microsecond in eight bytes: microseconds since 1970-01-01
// 00:00 UTC. 0 means that it is not known: the very first microsecond of 1970 has no
// Moment.
type Moment int64

// MomentOf returns t cut off to the microsecond, and 0 of the zero time.
func MomentOf(t time.Time) Moment {
	if t.IsZero() {
		return 0
	}
	return Moment(t.UnixMicro())
}

// Time returns m in the local time zone, as [time.UnixMicro] does, and the zero time
// if m is not known.
func (m Moment) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(m))
}

// IsZero reports whether m is not known.
func (m Moment) IsZero() bool { return m.Time().IsZero() }

// String is m in UTC as in "2026-07-01T03:00:00.000000Z", and "unknown" if it is not
// known.
func (m Moment) String() string {
	if m.IsZero() {
		return "unknown"
	}
	return m.Time().UTC().Format("2006-01-02T15:04:05.000000Z07:00")
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
	// Task is as Fetch returned it, or after a Retry the copy that the last run had, which
	// says the first error. The stream may keep it.
	Task    *Task
	Outcome Outcome
	// Attempt is how often the task has run now; Retry, Requeue and Dead record
	// it. A smaller one never overwrites a greater.
	Attempt int
	// Waits is how many of those runs waited ([Waits]): they are no attempts of the next
	// [Delivery]. Retry records it with Attempt.
	Waits int
	// Delay is how long Retry and Requeue wait, counted by the store from when it
	// hears of it.
	Delay time.Duration
	// Reason is why it failed: Retry keeps the first one, which is that of the Task if it
	// has one, for an earlier retry may never have been said. Dead keeps it whole, or
	// in Kafka its first 16 KiB.
	Reason string
}

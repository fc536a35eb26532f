package sourcetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A Harness is an empty store and what the suite needs to do with it. Zero fields
// but Peer and Push are fine.
type Harness struct {
	// Peer returns a handle on the store as one more peer has it: with nothing
	// shared in the process with the handles before, if the source can do that.
	Peer func() Peer
	// Push appends tasks to a partition, in order: their ID, Type, Key, Payload,
	// Headers and Born. All of them have a Delivery. The suite uses keys that belong
	// to the partition. The layout must have at least two partitions. It may be called
	// concurrently, as by several producers.
	Push func(ctx context.Context, id partition.ID, tasks ...sources.Task) error
	// Dead returns the dead letters of a partition, oldest first. Nil: they cannot
	// be read.
	Dead func(ctx context.Context, id partition.ID) ([]DeadLetter, error)
	// Buried is what the sources of all peers tell of dead letters that no handler was given.
	// Nil: they tell nobody.
	Buried *Burials
	// Snapshot returns a function that makes the store again what it is now: what
	// was written in between is lost, as in a fail-over to a replica that lags.
	// Nil: the store cannot be set back.
	Snapshot func(ctx context.Context) (restore func(ctx context.Context) error, err error)
	// Cancel has the tasks ids cancelled from outside; why is what owners are told of each. Nil: nobody
	// can, and the streams need not be a sources.Cancelable.
	Cancel func(ctx context.Context, why string, ids ...string) error
	// PushesStay says that Snapshot does not take back what was pushed, since tasks
	// lie elsewhere than what is done of them.
	PushesStay bool

	// Lacks lists what the source does not do, each by its constant.
	Lacks []Ability
	// Payload is the length of the longest payload that Push takes, of a task with an ID and a
	// key. The suite takes it at its word. Default 2 MiB.
	Payload int
	// Redelivery is how long after a fetch the broker hands out again, by itself, what was
	// not settled (a visibility timeout, an ack wait): made short for the test, some tenths of a
	// second. Zero: it never does.
	Redelivery time.Duration
	// Patience is how long anything may take before it counts as never: a call has so long
	// until its context ends, and once more to return then. Default 30 s.
	Patience time.Duration
	// Moment is how long a Fetch is watched that must return nothing. Default
	// 50 ms.
	Moment time.Duration
	// Goroutines are functions whose goroutines may outlive a stream, because they
	// belong to the client or to a server in this process: each as a stack names it,
	// as in "net/http.(*persistConn).readLoop".
	Goroutines []string
}

// A Peer is one process' handle on the store.
type Peer struct {
	Source sources.Source
	// Inject makes the next request of this peer for op suffer a fault. Nil: the
	// harness injects none.
	Inject func(op Op, kind Kind) Fault
	// Kill ends the peer as kill -9 does: nothing more of it reaches the store, and
	// its calls return. Nil: its streams are used no more, which does for a source
	// that sends nothing by itself.
	Kill func()
}

// Burials are what sources tell of dead letters that no handler was given. Its methods may
// be called concurrently.
type Burials struct {
	mu  sync.Mutex
	all []sources.Buried
}

// Tell takes in what a source tells.
func (b *Burials) Tell(of sources.Buried) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, of)
}

// All returns what was told.
func (b *Burials) All() []sources.Buried {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// A DeadLetter is a task that will not run again.
type DeadLetter struct {
	Task   sources.Task // its Delivery may be nil if nothing is known of it
	Reason string
}

// An Ability is something that not every broker can give.
type Ability string

// The abilities.
const (
	// RetryInPlace: a retried task keeps its place for the next owner, with its
	// attempt, its first error and the time before which it must not start.
	RetryInPlace Ability = "keep a retried task in its place"
	// RequeueToEnd: a requeued task goes behind the others.
	RequeueToEnd Ability = "put a requeued task behind the others"
	// RequeueDelay: a requeued task comes back after its delay and not before.
	RequeueDelay Ability = "delay a requeued task"
	// CountCrashes: what was started when an owner died is handed out alone, and a
	// task that keeps killing its owner becomes a dead letter. The limit must be
	// between 2 and 10 crashes.
	CountCrashes Ability = "find out which task killed its peer"
	// DeadInOrder: dead letters stand in the order in which their tasks were given up.
	DeadInOrder Ability = "keep dead letters in order"
	// KeepBytes: ID, Type, Key, Headers and Born arrive as they were pushed; the
	// payload does in any case.
	KeepBytes Ability = "keep more than the payload"
)

var abilities = []Ability{RetryInPlace, RequeueToEnd, RequeueDelay, CountCrashes, DeadInOrder, KeepBytes}

// An Op is what a request to the store is for.
type Op string

// The operations. A request that fetches and settles at once counts as both, and one that
// only reads what an open needs as none: Open is the one that installs the fence.
const (
	Open   Op = "open"
	Fetch  Op = "fetch"
	Settle Op = "settle"
	Close  Op = "close"
)

// A Kind is what happens to a request.
type Kind string

// The kinds of faults.
const (
	Lost   Kind = "the reply is lost"      // executed; the sender gets an error
	Failed Kind = "the request fails"      // not executed; the sender gets an error
	Late   Kind = "the request comes late" // the sender gets an error; executed by Fault.Release
	Hung   Kind = "no answer comes"        // not executed; the sender waits until its context ends, or for Fault.Release
)

// A Fault is one that was asked for.
type Fault interface {
	// Hit reports whether a request has suffered it.
	Hit() bool
	// Release executes the late request, if there is one and it was not yet, and
	// returns when that is done. A hung one fails then.
	Release()
}

package framework

import (
	"context"
	"errors"
	"time"

	"github.com/countoff/countoff/framework/internal/owning"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A Task is one delivery of one piece of work. What it has in common with others is in
// its Delivery, whose fields are read as t.Attempt, t.Headers, t.Token and so on.
type Task = sources.Task

// A Delivery is what a task has in common with most others of its grant.
type Delivery = sources.Delivery

// A Moment is a time to the microsecond in eight bytes, as in [Task].Born; its Time
// method returns the time.Time.
type Moment = sources.Moment

// A Handler does the work of a task. It is called from many goroutines at once, but never twice
// at a time for one key of a consumer's name.
//
// Returning nil settles the task as done. [RetryAfter] and [Dead] say what they want. After any
// other error the task runs again as the [RetryPolicy] says, and after the last try it becomes a
// dead letter. A panic counts as an error, and one with an error as that one.
//
// ctx ends when the partition is lost ([ErrLost]), its drain time is over ([ErrDrainOver]), the
// process stops hard ([ErrStopped]), the task is cancelled ([ErrCancelled]) or the handler's own
// time is over ([ErrTimeout]): context.Cause(ctx) says which. The handler must then return within
// the cancel grace; one that does not may run beside the next owner's. Without a handler timeout
// ctx does not end when Handle returns: what a handler has begun with it, it must end itself. It
// may end with that of a later task, which it is as well.
//
// After ErrLost and ErrStopped nothing that Handle returns counts. After ErrDrainOver nil and
// Dead do, unless Dead wraps an error of the context. Otherwise the task stays where it is, for
// the next owner, and the run does not count as a try. After ErrCancelled nil counts, and any
// error makes the task a dead letter. [HandOver] tells a handler earlier that it is to end.
//
// What a handler writes elsewhere should carry t.Token, whose epoch only rises, so that the place
// it writes to can refuse a late writer. The task must not be changed.
type Handler interface {
	Handle(ctx context.Context, t *Task) error
}

// Owned reports whether the task of the handler that was given ctx, or one made of it, is known to be this peer's at
// this moment. A process that was suspended goes on in the middle of its handlers, a moment before it finds out that
// their contexts have to end: ask before each step that could harm another owner. Of that of a batch it reports whether
// all of its tasks are, and of any other ctx whether that has not ended. It costs some 100 ns, for each task of a batch,
// and may be called concurrently.
func Owned(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	if t, of := ctx.Value(tenureKey{}).(*tenure); of {
		return t.valid(time.Now())
	}
	all, of := ctx.Value(owning.Key{}).(func() bool)
	return !of || all()
}

// HandOver returns a channel that is closed once the partition of the handler that was given ctx, or one made of it, is to
// change hands, its peer or its name is to rest, or the process is to stop. A stopping peer with others beside it works on
// until one asks for the partition, for 5 s at most. The partition begins no other task once it is closed, and waits for
// those that run, until their contexts end with [ErrDrainOver]. A handler of a long job that saves how far it has come
// should then return [ErrHandedOver]: the next owner runs the task again, and the run does not count as a try.
// One that ends soon needs to do nothing.
//
// Of any other ctx, such as that of a batch, it returns nil, which is never closed. It may be called concurrently.
func HandOver(ctx context.Context) <-chan struct{} {
	if t, of := ctx.Value(tenureKey{}).(*tenure); of {
		return t.handOver
	}
	return nil
}

// A tenure is the context of a lane's handlers, with what they may ask of the ownership that they run under.
type tenure struct {
	context.Context
	valid    func(time.Time) bool // the lease stands
	handOver <-chan struct{}
}

type tenureKey struct{}

func (t *tenure) Value(key any) any {
	if key == (tenureKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// A HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, t *Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, t *Task) error { return f(ctx, t) }

// missing reports whether h is nil, also inside: it would panic for each task.
func missing(h Handler) bool {
	f, is := h.(HandlerFunc)
	return is && f == nil || partition.Absent(h)
}

// RetryAfter is what a handler returns to have its task run again after d instead
// of after the delay of the retry policy. It counts as a try like any other
// failure. A d of zero or less means at once.
//
// A nil err says that nothing failed, as where something is waited for. Then it is no try, however often it comes
// ([Task.Attempt] stays), and package zapobserver writes no warning. If another error is joined with it, that failed. A
// handler that has waited for too long returns [Dead].
func RetryAfter(d time.Duration, err error) error {
	return &sources.RetryError{After: max(d, 0), Err: err}
}

// Dead is what a handler returns if running the task again cannot help: it becomes
// a dead letter, whole, with err as the reason; a nil err says that the handler gave it up.
func Dead(err error) error { return &sources.DeadError{Err: err} }

// Why a handler's context ended; see context.Cause.
var (
	// ErrLost means that the partition is another's now, or may be. What the
	// handler still does is void.
	ErrLost = errors.New("the partition is lost")
	// ErrDrainOver means that the partition is to move, or the peer to stop, and
	// the handler took longer than the drain time.
	ErrDrainOver = errors.New("the drain time is over")
	// ErrStopped means that the consumer was stopped hard. What the handler still does is void.
	ErrStopped = errors.New("the consumer was stopped")
	// ErrCancelled means that somebody wants the task out of the way: countoff cancel. It becomes
	// a dead letter whatever error the handler returns.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrTimeout means that the handler's own time is over.
	ErrTimeout = errors.New("the handler's time is over")
)

package sources

import (
	"errors"
	"slices"
	"time"
)

// A RetryError asks that the task be run again After instead of after the delay of
// the retry policy. Handlers make one with framework.RetryAfter.
type RetryError struct {
	After time.Duration // zero: at once
	Err   error         // why; nil: nothing failed, it is to be run again all the same
	// Counted says that whoever made it counts the tries itself: the number of tries
	// of the retry policy does not bound it.
	Counted bool
}

func (e *RetryError) Error() string {
	if e.Err == nil {
		return "the handler asked for a retry"
	}
	return e.Err.Error()
}

func (e *RetryError) Unwrap() error { return e.Err }

// A DeadError says that running the task again cannot help: it becomes a dead
// letter. Handlers make one with framework.Dead.
type DeadError struct {
	Err error // why, kept with the dead letter; nil: the handler does not say
}

func (e *DeadError) Error() string {
	if e.Err == nil {
		return "the handler gave the task up"
	}
	return e.Err.Error()
}

func (e *DeadError) Unwrap() error { return e.Err }

// Waits reports whether err asks for another run although nothing failed: a [RetryError] without
// a cause, of a handler that waits for something. If anything else is joined with it, that failed.
func Waits(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the chain is walked here, all of it
	case *RetryError:
		return e.Err == nil && !e.Counted
	case interface{ Unwrap() error }:
		return Waits(e.Unwrap())
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(err error) bool { return !Waits(err) })
	}
	return false
}

// Asked says what a handler's error asks for: [Done] for nil, [Dead] for a
// [DeadError], [Retry] with its delay for a [RetryError], and 0 for any other
// error, which is up to the retry policy. If both are in the chain, Dead counts.
func Asked(err error) (o Outcome, after time.Duration) {
	if err == nil {
		return Done, 0
	}
	if _, ok := errors.AsType[*DeadError](err); ok {
		return Dead, 0
	}
	if e, ok := errors.AsType[*RetryError](err); ok {
		return Retry, e.After
	}
	return 0, 0
}

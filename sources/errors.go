package sources

import (
	"errors"
	"fmt"

	"github.com/countoff/countoff/partition"
)

var (
	// ErrFenced means that the partition was granted since with a greater epoch,
	// or that the fence is not the caller's. What the caller holds of it is void;
	// retrying cannot help.
	ErrFenced = errors.New("fenced: the partition has another owner")
	// ErrForgot means that the store has lost something it had answered (a
	// fail-over, a cut log, a list deleted by hand). The partition is lost for
	// this owner, as with ErrFenced, and opened anew.
	ErrForgot = errors.New("the store forgot what it had acknowledged")
	// ErrClosed means that the stream was closed.
	ErrClosed = errors.New("the stream is closed")
)

// A FencedError is the ErrFenced that Open returns: it names the epoch that
// stands, so that the next grant can be made greater.
type FencedError struct {
	Grant  partition.Grant
	Stored partition.Epoch
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("open %v: refused, epoch %v stands", e.Grant, e.Stored)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// An Error says which operation failed on which grant. It wraps the cause.
type Error struct {
	Op    string // "open", "fetch", "settle" or "close"
	Grant partition.Grant
	Err   error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %v: %v", e.Op, e.Grant, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

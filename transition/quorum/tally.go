package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A tally counts what the registers answered to one Raise(n).
type tally struct {
	n        uint64 // what they were to be raised to
	of       int    // how many there are
	answered int
	raised   int
	before   uint64 // the largest number that a raised register held
	largest  uint64 // the largest number heard of
	failed   []failure
	ended    error // why nobody waited for the rest
}

type failure struct {
	register Register
	err      error
}

// said takes in an answer.
func (t *tally) said(before uint64) {
	t.answered++
	t.largest = max(t.largest, before)
	if before < t.n {
		t.raised++
		t.before = max(t.before, before)
		t.largest = max(t.largest, t.n)
	}
}

// silent takes in that a register did not answer.
func (t *tally) silent(register Register, err error) {
	t.failed = append(t.failed, failure{register, err})
}

func (t *tally) majority() int { return t.of/2 + 1 }

// heard reports whether a majority has answered: then no number that was given before
// is larger than the largest.
func (t *tally) heard() bool { return t.answered >= t.majority() }

// won reports whether a majority was raised: then the numbers after before, up to n, are
// the caller's.
func (t *tally) won() bool { return t.raised >= t.majority() }

// over reports whether nothing that is still to come can change who has won.
func (t *tally) over() bool {
	left := t.of - t.answered - len(t.failed)
	return t.won() || t.raised+left < t.majority() && (t.heard() || t.answered+left < t.majority())
}

// A MajorityError says that less than a majority of the registers answered: no number
// can be given.
type MajorityError struct {
	Answered, Of int
	failed       []failure
	admits       bool  // it was Admit that asked
	ended        error // the time that the caller had was over before all had answered or failed
}

func (e *MajorityError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "quorum: %d of %d registers answer, %d are needed", e.Answered, e.Of, e.Of/2+1)
	for _, f := range e.failed {
		fmt.Fprintf(&b, "; %s: %v", f.register, f.err)
	}
	if silent := e.Of - e.Answered - len(e.failed); e.ended != nil && silent > 0 {
		fmt.Fprintf(&b, "; %d silent: %v", silent, e.ended)
	}
	switch {
	case !errors.Is(e, ErrEmpty):
	case e.admits:
		b.WriteString(" (none was admitted: at first all must answer and be empty, later a majority must answer with numbers)")
	default:
		b.WriteString(" (countoff epochs NAME --masters URL,URL,URL --admit sets up those that are empty)")
	}
	return b.String()
}

// Unwrap returns what the registers failed with.
func (e *MajorityError) Unwrap() []error {
	errs := make([]error, len(e.failed), len(e.failed)+1)
	for i, f := range e.failed {
		errs[i] = f.err
	}
	if e.ended != nil {
		errs = append(errs, e.ended)
	}
	return errs
}

func (t *tally) err() error {
	switch {
	case t.heard():
		return nil
	case t.ended != nil && !errors.Is(t.ended, context.DeadlineExceeded): // says nothing about the registers
		return t.ended
	}
	return &MajorityError{Answered: t.answered, Of: t.of, failed: t.failed, ended: t.ended}
}

package sources_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/countoff/countoff/sources"
)

func TestAsked(t *testing.T) {
	plain := errors.New("connection refused")
	dead := &sources.DeadError{Err: plain}
	again := &sources.RetryError{After: time.Minute, Err: plain}
	for _, c := range []struct {
		name  string
		err   error
		want  sources.Outcome
		after time.Duration
	}{
		{"nil is done", nil, sources.Done, 0},
		{"a plain error is up to the policy", plain, 0, 0},
		{"dead", dead, sources.Dead, 0},
		{"dead, wrapped", fmt.Errorf("send: %w", dead), sources.Dead, 0},
		{"retry", again, sources.Retry, time.Minute},
		{"retry, joined", errors.Join(plain, again), sources.Retry, time.Minute},
		{"dead beats retry", fmt.Errorf("%w, %w", again, dead), sources.Dead, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, after := sources.Asked(c.err)
			if o != c.want || after != c.after {
				t.Errorf("Asked(%v) = %v, %v; want %v, %v", c.err, o, after, c.want, c.after)
			}
			if c.err != nil && !errors.Is(c.err, plain) {
				t.Error("the cause got lost")
			}
		})
	}
}

// A handler may make them by themselves, and a consumer asks for the text where a panic of it would be the handler's.
func TestWithoutACause(t *testing.T) {
	for err, want := range map[error]string{
		&sources.DeadError{}:  "the handler gave the task up",
		&sources.RetryError{}: "the handler asked for a retry",
	} {
		if got := fmt.Sprint(err); got != want || errors.Unwrap(err) != nil {
			t.Errorf("%T says %q and wraps %v, want %q and nothing", err, got, errors.Unwrap(err), want)
		}
	}
}

// A wait hides no failure: with as many runs as it likes such a task would never be a dead letter.
func TestWaits(t *testing.T) {
	plain := errors.New("connection refused")
	wait := &sources.RetryError{After: time.Minute}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"nil", nil, false},
		{"a plain error", plain, false},
		{"a wait", wait, true},
		{"a wait, wrapped", fmt.Errorf("quota: %w", wait), true},
		{"waits, joined", errors.Join(wait, nil, wait), true},
		{"a wait joined with a failure", errors.Join(wait, plain), false},
		{"a failure joined with a wait", errors.Join(plain, wait), false},
		{"a wait and a failure, wrapped", fmt.Errorf("%w, and no rollback: %w", wait, plain), false},
		{"a retry with a cause", &sources.RetryError{Err: plain}, false},
		{"a retry because of a wait", &sources.RetryError{Err: wait}, false},
		{"what was counted elsewhere", &sources.RetryError{Counted: true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := sources.Waits(c.err); got != c.want {
				t.Errorf("Waits(%v) = %v", c.err, got)
			}
		})
	}
}

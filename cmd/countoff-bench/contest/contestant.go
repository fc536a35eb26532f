package contest

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
)

// A Kind says what a contestant shows.
type Kind uint8

// The kinds.
const (
	Drain   Kind = iota // handles what was put there before
	Enqueue             // puts tasks there
	Latency             // handles one task at a time, as soon as it can
	Idle                // has nothing to do, for as long as the span
	Tool                // measures itself
)

// A Contestant is one way of handling tasks, or of enqueueing them.
type Contestant struct {
	Tag  string // names it in the tables and in goals
	What string // one line for people
	Kind Kind
	// Tasks is how many tasks a run has, Quick how many in a quick one.
	Tasks, Quick int
	// Preload puts n tasks into an empty store, in the contestant's format; it is not
	// measured. Nil: there is nothing to preload.
	Preload func(ctx context.Context, client *redis.Client, n int) error
	// Run is called in a process of its own. It makes the contestant handle all tasks,
	// tells the meter of each, waits for them by [Run.Wait], stops it, and returns what
	// else it has measured.
	Run func(ctx context.Context, r *Run) (report.Measures, error)
	// Check is called when that process has ended, and is not measured. Nil: the store has
	// nothing to say.
	Check Check
}

// A Run is what a contestant is given.
type Run struct {
	Addr  string // of the store, host:port
	Meter *meter.Meter
	Quick bool
}

// Client returns a client of the store with the defaults of its library.
func (r *Run) Client() *redis.Client { return redis.NewClient(&redis.Options{Addr: r.Addr}) }

// Wait waits until the last task was handled.
func (r *Run) Wait(ctx context.Context) error {
	select {
	case <-r.Meter.Ended():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the last task was not handled in time: %w", context.Cause(ctx))
	}
}

// Find returns the contestant with a tag.
func Find(tag string) (Contestant, bool) {
	for _, c := range All() {
		if c.Tag == tag {
			return c, true
		}
	}
	return Contestant{}, false
}

// work is what a handler does besides telling the meter.
func work(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}

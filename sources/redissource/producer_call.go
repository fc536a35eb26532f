package redissource

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
)

// A call is one Enqueue that waits for its answers.
type call struct {
	items []item

	mu      sync.Mutex
	results []Result
	left    int           // items without an answer
	over    bool          // Enqueue has gone: answers come too late
	done    chan struct{} // closed when left is 0
}

// An item is one message on its way.
type item struct {
	call     *call
	n        int // in call.results
	lane     *lane
	part     partition.ID
	body     []byte // the envelope
	deadline time.Time
	special  *special // nil: the end of the log, at once
	// Guarded by call.mu:
	answered bool
	few      *ReplicasError // the master has it, and had too few replicas
	last     error          // why the last attempt does not count
	// Guarded by lane.mu:
	sent    bool // it may have reached the store, or is about to
	dropped bool // its caller has gone
}

// A standing is how it stood with an item when it was given up.
type standing struct {
	sent    bool  // it may have reached the store
	answers bool  // the store does
	silent  error // why what was sent last for the partition does not count; nil: it does
}

// left is why it was given up by its caller, whose context ended with cause: also what the attempts met, without which
// nobody knows what to mend.
func (it *item) left(cause error, s standing) error {
	switch {
	case it.few != nil: // which says it
		return cause
	case it.last != nil:
		return fmt.Errorf("%w: %w", cause, it.last)
	case s.silent != nil: // by others: whether they are in doubt is no word about it
		return fmt.Errorf("%w: %s", cause, s.silent.Error())
	}
	return cause
}

// A special is what push.lua is told of a message that is not plain.
type special struct {
	what   string // now, after, at
	ms     int64
	ttl    int64 // milliseconds the lock lives once the task is due, 0: not unique
	lock   string
	unique string // id
}

func specialOf(m *Message, e *envelope) *special {
	s := &special{what: "now"}
	switch {
	case m.Delay > 0:
		s.what, s.ms = "after", roundUp(m.Delay)
	case !m.At.IsZero():
		s.what, s.ms = "at", m.At.UnixMilli()
		if m.At.Nanosecond()%1e6 != 0 {
			s.ms++
		}
		s.ms = max(s.ms, 0)
	}
	if m.Unique {
		s.ttl, s.lock, s.unique = roundUp(cmp.Or(m.UniqueFor, defaultUnique)), e.lockValue(), e.id
	}
	return s
}

// roundUp returns d in milliseconds: never earlier than was asked for.
func roundUp(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// finish records what became of it, the first time.
func (c *call) finish(it *item, duplicate bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || it.answered {
		return
	}
	c.results[it.n].Duplicate, c.results[it.n].Err = duplicate, err
	it.answered = true
	c.left--
	if c.left == 0 {
		close(c.done)
	}
}

// miss notes why an attempt does not count. That the master has it is not forgotten for what a later one met.
func (c *call) miss(it *item, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if few, ok := errors.AsType[*ReplicasError](err); ok {
		it.few = few
	}
	it.last = err
}

// abandon gives up what is not answered: what was not sent yet never will be, of the
// rest nobody knows.
func (c *call) abandon(why func(it *item, s standing) error) {
	for i := range c.items {
		it := &c.items[i]
		var s standing
		if it.lane != nil {
			s = it.lane.drop(it)
		}
		c.mu.Lock()
		if !it.answered {
			cause := why(it, s)
			switch {
			case it.few != nil:
				c.results[i].Err = fmt.Errorf("%w: %w", it.few, cause)
			case s.sent:
				c.results[i].Err = fmt.Errorf("%w: %w", ErrUnknown, cause)
			default:
				c.results[i].Err = cause
			}
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
}

// answer returns what Enqueue returns. Nothing is written to the results any more. Its error is of one
// in doubt if there is any: who may enqueue them again is not told that all may.
func (c *call) answer() ([]Result, error) {
	failed, doubts := 0, 0
	var told error
	for i := range c.results {
		err := c.results[i].Err
		if err == nil {
			continue
		}
		failed++
		doubt := errors.Is(err, ErrUnknown)
		if doubt {
			doubts++
		}
		if told == nil || doubt && doubts == 1 {
			told = err
		}
	}
	if failed == 0 {
		return c.results, nil
	}
	what := "were not enqueued"
	switch doubts {
	case 0:
	case failed:
		what = "are in doubt"
	default:
		what = fmt.Sprintf("were not enqueued, %d of which are in doubt", doubts)
	}
	return c.results, fmt.Errorf("redissource: %d of %d messages %s: %w", failed, len(c.results), what, told)
}

package framework

import (
	"errors"
	"fmt"
	"time"

	"github.com/countoff/countoff/transition"
)

// A Config holds the numbers of a consumer. The zero value is ready. None of its times may be
// longer than a year.
type Config struct {
	// Concurrency is how many handlers run at once, over all partitions; of one
	// partition 8,192 at most. Default 16, at most 65,536.
	Concurrency int
	// Rate bounds how many handlers start, over all peers of the name together; the tasks wait in
	// their partitions meanwhile, and take no worker. Default: no bound.
	Rate Rate
	// HandlerTimeout is how long one run of a handler may take; then its context ends with
	// ErrTimeout. What the handler returns after that counts as usual, so an error is a failed
	// run. Default 0: no limit.
	HandlerTimeout time.Duration
	// Retry says what becomes of a failed run.
	Retry RetryPolicy
	// Pass lets the later tasks of a key pass one that waits for its retry: the
	// retry goes to the end of the queue and the order within the key is given
	// up. Default false: the key is parked. Tasks without a key always go to the
	// end.
	Pass bool
	// Timing holds the times of the protocol; all peers of a name use the same.
	Timing transition.Timing
	// StopTimeout is how long Stop may take in all, unless its context ends earlier. The stop
	// turns hard early enough for the handlers that it cancels to have the cancel grace, but not
	// before those that were cancelled at the end of the shutdown have had it. Default
	// Timing.Shutdown + Timing.CancelGrace + 2 s.
	StopTimeout time.Duration
	// PodGrace is how long the platform waits between SIGTERM and SIGKILL.
	// Default: the environment variable COUNTOFF_GRACE, in seconds or as a
	// duration; unknown if that is not set either, which is worth a warning.
	PodGrace time.Duration
}

const (
	defaultConcurrency = 16
	maxConcurrency     = 1 << 16
	stopMargin         = 2 * time.Second // from the last handler's end to the last word of the peer
)

// WithDefaults returns c with zero fields filled in, except PodGrace.
func (c Config) WithDefaults() Config {
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	c.Retry = c.Retry.WithDefaults()
	c.Timing = c.Timing.WithDefaults()
	if c.StopTimeout == 0 {
		c.StopTimeout = c.Timing.Shutdown + c.Timing.CancelGrace + stopMargin
	}
	return c
}

// Validate says all that is wrong with c, after defaults: each number for itself,
// and the budgets against each other (see [Config.Budgets]).
func (c Config) Validate() error {
	stop := c.StopTimeout // one that follows from others is not said to be wrong
	c = c.WithDefaults()
	var errs []error
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"handler timeout", c.HandlerTimeout},
		{"stop timeout", stop},
		{"pod grace", c.PodGrace},
	} {
		if f.d < 0 {
			errs = append(errs, fmt.Errorf("framework: %s %v: must not be negative", f.name, f.d))
		}
		if f.d > longestWait {
			errs = append(errs, fmt.Errorf("framework: %s %v: at most a year", f.name, f.d))
		}
	}
	errs = append(errs, c.Timing.Validate())
	if errors.Join(errs...) == nil { // budgets of faulty times say nothing
		errs = c.Budgets()
	}
	errs = append(errs, c.Retry.Validate(), c.Rate.Validate())
	if c.Concurrency < 1 || c.Concurrency > maxConcurrency {
		errs = append(errs, fmt.Errorf("framework: concurrency %d: want 1 to %d", c.Concurrency, maxConcurrency))
	}
	return errors.Join(errs...)
}

// Budgets returns what does not fit in what: handler timeout ≤ drain, handler timeout ≤ shutdown,
// shutdown + cancel grace ≤ stop timeout ≤ pod grace. A drain longer than the shutdown is no
// finding: it is cut to it while stopping. An unknown pod grace is not checked.
//
// A stopping peer goes on starting tasks of partitions that nobody waits for yet, for a settle
// time and two beats (5 s by default) and at most half the shutdown. The last of them have only
// the rest of the shutdown: 20 s by default. A handler timeout that is longer than that is no
// finding either, but is told as [Warned] at each start.
func (c Config) Budgets() []error {
	c = c.WithDefaults()
	t := c.Timing
	var errs []error
	if c.HandlerTimeout > t.Drain {
		errs = append(errs, fmt.Errorf("framework: handler timeout %v is longer than the drain %v: "+
			"a partition that moves would cancel healthy handlers", c.HandlerTimeout, t.Drain))
	}
	if c.HandlerTimeout > t.Shutdown {
		errs = append(errs, fmt.Errorf("framework: handler timeout %v is longer than the shutdown %v: "+
			"each stop would cancel healthy handlers", c.HandlerTimeout, t.Shutdown))
	}
	if need := t.Shutdown + t.CancelGrace; need > c.StopTimeout {
		errs = append(errs, fmt.Errorf("framework: shutdown %v and cancel grace %v do not fit in the stop timeout %v: "+
			"a stop would turn hard before its time", t.Shutdown, t.CancelGrace, c.StopTimeout))
	}
	if c.PodGrace > 0 && c.StopTimeout > c.PodGrace {
		errs = append(errs, fmt.Errorf("framework: stop timeout %v is longer than the pod grace %v: "+
			"the platform would kill the process while it drains (raise its grace, and COUNTOFF_GRACE with it, or shorten the shutdown)", c.StopTimeout, c.PodGrace))
	}
	return errs
}

// cut says how a stop may cancel handlers that keep to their time; empty: it does not. c has
// its defaults.
func (c Config) cut() string {
	room := func(t transition.Timing) time.Duration { return t.Shutdown - t.Times().Linger() }
	if c.HandlerTimeout <= room(c.Timing) {
		return ""
	}
	most := c.Timing
	most.Shutdown = 2 * c.HandlerTimeout // of which half is room at least
	return fmt.Sprintf("handler timeout %v: what a stopping peer starts last has %v of the shutdown, is cancelled then and runs again "+
		"at the next owner: a shutdown of %v has room for it", c.HandlerTimeout, room(c.Timing), most.Shutdown-room(most)+c.HandlerTimeout)
}

// A RetryPolicy says what becomes of a failed run: the task runs again after First,
// then after twice as long each time, at most Max, each time ± 20 % so that what
// failed together does not come back together. After Tries runs it becomes a dead
// letter.
type RetryPolicy struct {
	Tries int           // runs in all. Default 5; 1: never run again
	First time.Duration // Default 1 s
	Max   time.Duration // Default 1 min, or First if that is longer; at most a year
}

const (
	retryJitter = 0.2
	longestWait = 365 * 24 * time.Hour
)

// WithDefaults returns p with zero fields filled in.
func (p RetryPolicy) WithDefaults() RetryPolicy {
	if p.Tries == 0 {
		p.Tries = 5
	}
	if p.First == 0 {
		p.First = time.Second
	}
	if p.Max == 0 {
		p.Max = max(time.Minute, p.First)
	}
	return p
}

// Validate says all that is wrong with p, after defaults.
func (p RetryPolicy) Validate() error {
	p = p.WithDefaults()
	var errs []error
	if p.Tries < 1 {
		errs = append(errs, fmt.Errorf("framework: Retry.Tries %d: want at least 1", p.Tries))
	}
	if p.First < 0 {
		errs = append(errs, fmt.Errorf("framework: Retry.First %v: must not be negative", p.First))
	}
	if p.Max < p.First {
		errs = append(errs, fmt.Errorf("framework: Retry.Max %v: less than Retry.First, %v", p.Max, p.First))
	}
	if p.Max > longestWait {
		errs = append(errs, fmt.Errorf("framework: Retry.Max %v: at most a year", p.Max))
	}
	return errors.Join(errs...)
}

// Delay is how long to wait after a task has failed in its tries-th run. random is
// in [0,1) and spreads it over ± 20 %. It fills in no defaults.
func (p RetryPolicy) Delay(tries int, random float64) time.Duration {
	d := min(p.First, p.Max)
	for i := 1; i < tries && d < p.Max; i++ {
		d = min(d, p.Max-d) + d // doubled, without an overflow
	}
	return time.Duration(float64(d) * (1 + retryJitter*(2*random-1)))
}

package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A Config is what a [Counter] may be told. Zero is ready to use.
type Config struct {
	// Timeout is how long one register may take to answer before it counts as one
	// that does not. Default 500 ms.
	Timeout time.Duration
	// Patience is how long a number is tried for while less than a majority answers,
	// or others are faster. Default 5 s.
	Patience time.Duration
}

const (
	defaultTimeout  = 500 * time.Millisecond
	defaultPatience = 5 * time.Second
	firstPause      = time.Millisecond
	lastPause       = 200 * time.Millisecond
	// inFlight is how many calls one register may have to answer at once. One that is
	// slower than the others is left out for a while instead of piling them up; so many
	// callers at once are no sign of that.
	inFlight = 32
)

// A Counter gives numbers that only rise: each is larger than every number that was given
// before it was asked for, by whatever process, and no number is given twice. There may be
// holes. Its methods may be called concurrently; calls of Next that overlap share a round
// of the registers.
type Counter struct {
	cfg       Config
	registers []slot
	calls     sync.WaitGroup
	run       context.Context // of the calls
	stop      context.CancelFunc

	mu      sync.Mutex
	closed  bool
	known   uint64    // the largest number heard of
	waiting []*waiter // for a number, in the order they came
	serving bool
}

type slot struct {
	Register
	free chan struct{} // holds a value for each call that may begin
}

type waiter struct {
	done chan struct{}
	gone bool // its caller has left; guarded by Counter.mu
	n    uint64
	err  error
}

// ErrClosed says that the counter was closed.
var ErrClosed = errors.New("quorum: closed")

var errBusy = errors.New("still busy with earlier calls")

// New returns a counter over an odd number of registers, 3 or 5 as a rule; 1 has no
// minority to lose. The caller must Close it.
func New(registers []Register, cfg Config) (*Counter, error) {
	var errs []error
	if len(registers)%2 == 0 {
		errs = append(errs, fmt.Errorf("quorum: %d registers: want an odd number, such as 3 or 5", len(registers)))
	}
	for i, r := range registers {
		if r == nil {
			errs = append(errs, fmt.Errorf("quorum: register %d of %d is nil", i+1, len(registers)))
		}
	}
	if cfg.Timeout < 0 || cfg.Patience < 0 {
		errs = append(errs, fmt.Errorf("quorum: timeout %v and patience %v: must not be negative", cfg.Timeout, cfg.Patience))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	c := &Counter{cfg: cfg, registers: make([]slot, len(registers))}
	for i, r := range registers {
		free := make(chan struct{}, inFlight)
		for range inFlight {
			free <- struct{}{}
		}
		c.registers[i] = slot{r, free}
	}
	c.run, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the calls that are under way and waits for them. Callers that wait are told
// ErrClosed.
func (c *Counter) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.calls.Wait()
	return nil
}

// Next returns a number. It returns a [MajorityError] when less than a majority of the
// registers has answered for Patience; the number is lost then, and never given.
func (c *Counter) Next(ctx context.Context) (uint64, error) {
	w := &waiter{done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, ErrClosed
	}
	c.waiting = append(c.waiting, w)
	if !c.serving {
		c.serving = true
		c.calls.Go(c.serve)
	}
	c.mu.Unlock()
	select {
	case <-w.done:
		return w.n, w.err
	case <-ctx.Done():
		c.mu.Lock()
		w.gone = true
		c.mu.Unlock()
		return 0, ctx.Err()
	}
}

// serve gives numbers to those who wait, all who have come by the time a round begins in
// one round.
func (c *Counter) serve() {
	for {
		c.mu.Lock()
		batch := c.waiting[:0:0]
		for _, w := range c.waiting {
			if !w.gone {
				batch = append(batch, w)
			}
		}
		c.waiting = nil
		if len(batch) == 0 {
			c.serving = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		after, last, err := c.reserve(uint64(len(batch)))
		given := len(batch)
		for i, w := range batch {
			n := after + uint64(i) + 1
			if err == nil && n > last {
				given = i // somebody else has taken a part of them: the rest waits for another round
				break
			}
			w.n, w.err = n, err
			close(w.done)
		}
		c.mu.Lock()
		c.waiting = append(batch[given:], c.waiting...)
		c.mu.Unlock()
	}
}

// reserve makes numbers the caller's, those after the first it returns up to the last: at
// least one, and k as a rule.
func (c *Counter) reserve(k uint64) (after, last uint64, err error) {
	began, pause := time.Now(), firstPause
	for try := 0; ; try++ {
		c.mu.Lock()
		n := c.known + k
		c.mu.Unlock()
		if try > 1 {
			// Of two rounds at once the one for more wins everywhere. Who was slower than
			// others aims further ahead each time, or it would lose for ever.
			n += rand.Uint64N(k<<min(try, 20)) + 1
		}
		if n > Most {
			return 0, 0, fmt.Errorf("quorum: the numbers are used up: %d is the last", uint64(Most))
		}
		t := c.ask(c.run, n, (*tally).over)
		switch {
		case t.won():
			return t.before, n, nil
		case c.run.Err() != nil:
			return 0, 0, ErrClosed
		case time.Since(began) >= c.cfg.Patience:
			if err := t.err(); err != nil {
				return 0, 0, err
			}
			return 0, 0, fmt.Errorf("quorum: others were faster for %v", c.cfg.Patience)
		case t.heard() && try == 0:
			continue // as a rule the numbers had only gone on without us, and are known now
		}
		// Two that are as fast as each other would split the registers for ever.
		if !c.sleep(rand.N(pause) + 1) {
			return 0, 0, ErrClosed
		}
		pause = min(2*pause, lastPause)
	}
}

func (c *Counter) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.run.Done():
		return false
	}
}

// Read returns a number that is at least as large as every number that was given, or
// raised to, before.
func (c *Counter) Read(ctx context.Context) (uint64, error) {
	t := c.ask(ctx, 0, (*tally).heard)
	return t.largest, t.err()
}

// Raise makes every Read and every Next that begins after it return at least n, and more
// than n.
func (c *Counter) Raise(ctx context.Context, n uint64) error {
	if n > Most {
		return fmt.Errorf("quorum: %d is over %d", n, uint64(Most))
	}
	// Each register that answers holds n or more then, whether we have raised it or not.
	return c.ask(ctx, n, (*tally).heard).err()
}

// Admit lets registers take part that are empty: all of them in the beginning, one whose
// store has lost its memory, or a new one in its place. In the beginning all must be empty
// and must answer. Later a majority must answer with numbers, and the empty ones get the
// largest. It returns how many were admitted.
//
// A store that came back with an older number than it had answered cannot be told from one
// that was slow: it must keep what it answered (appendonly yes, appendfsync always).
func (c *Counter) Admit(ctx context.Context) (int, error) {
	all := func(t *tally) bool { return t.answered+len(t.failed) == t.of }
	t := c.ask(ctx, 0, all)
	var empty []Register
	for _, f := range t.failed {
		if errors.Is(f.err, ErrEmpty) {
			empty = append(empty, f.register)
		}
	}
	if len(empty) < t.of {
		if err := t.err(); err != nil {
			if less := (*MajorityError)(nil); errors.As(err, &less) {
				less.admits = true
			}
			return 0, err
		}
	}
	n := 0
	var errs []error
	for _, r := range empty {
		if err := r.Admit(ctx, t.largest); err != nil {
			errs = append(errs, fmt.Errorf("quorum: admit %s: %w", r, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// ask raises all registers to n at once, and returns what was answered when enough says
// so. Calls that are still under way then go on, so that slow registers keep up.
func (c *Counter) ask(ctx context.Context, n uint64, enough func(*tally) bool) *tally {
	type answer struct {
		register Register
		before   uint64
		err      error
	}
	t := &tally{n: n, of: len(c.registers)}
	answers := make(chan answer, len(c.registers))
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		t.ended = ErrClosed
		return t
	}
	for _, r := range c.registers {
		select {
		case <-r.free:
		default:
			t.silent(r.Register, errBusy)
			continue
		}
		c.calls.Go(func() {
			ctx, cancel := context.WithTimeout(c.run, c.cfg.Timeout)
			defer cancel()
			before, err := r.Raise(ctx, n)
			r.free <- struct{}{}
			answers <- answer{r.Register, before, err}
		})
	}
	c.mu.Unlock()
	for !enough(t) && t.answered+len(t.failed) < t.of {
		select {
		case a := <-answers:
			if a.err != nil {
				t.silent(a.register, a.err)
			} else {
				t.said(a.before)
			}
		case <-ctx.Done():
			t.ended = ctx.Err()
			return t
		}
	}
	c.mu.Lock()
	c.known = max(c.known, t.largest)
	c.mu.Unlock()
	return t
}

//go:build unix

package seat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
)

// A seat is a peer whose work is done by a command.
type seat struct {
	cfg   Config
	grace time.Duration // what the command has to end in when the ownership is lost
	units *framework.Units

	mu       sync.Mutex
	held     map[string]*hold
	view     partition.View // the last that the command was told
	child    *child         // nil: none runs
	first    time.Time      // since when units have come one soon after the other; zero: none have
	last     time.Time      // when the last one came
	signal   bool           // the child is to be signalled because of units that came
	again    time.Time      // not before a command is started; see postpone
	stopping bool
	stopBy   time.Time     // when the child of a peer that stops is to have ended
	free     bool          // everything was handed over
	changed  chan struct{} // something of the above may call for a child
}

// A hold is a unit that is this peer's, from its start until it was released.
type hold struct {
	unit     framework.Unit
	told     *child // which knows of it; nil: none does
	leaves   bool
	released chan struct{} // closed when the child has released it
}

// Run holds the seat until ctx ends or the command ends by itself, and then hands over.
// A second end, that of now, ends everything at once. The error is an *ExitError if the
// command failed, wraps ErrStart if there is none, ErrWrong if cfg is, framework.ErrStopped if not
// everything was handed over, or is why the peer cannot go on.
func Run(ctx, now context.Context, cfg Config) error {
	timing := cfg.Units.Timing.WithDefaults()
	s := &seat{cfg: cfg, grace: timing.CancelGrace / 2, held: map[string]*hold{}, changed: make(chan struct{}, 1)}
	s.cfg.Units.Handler = s.hold
	if cfg.Health.Command != "" {
		p := newProbe(cfg.Name, cfg.Health)
		s.cfg.Units.Health = p.check
		probing, enough := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { p.run(probing) })
		defer all.Wait()
		defer enough()
	}
	units, err := framework.NewUnits(cfg.Name, s.cfg.Units)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	s.units = units
	if err := units.Start(ctx); err != nil {
		if ctx.Err() != nil { // told to end before it had anything
			return nil
		}
		return err
	}
	ended := make(chan error, 1)
	tending, enough := context.WithCancel(context.Background())
	go func() { ended <- s.tend(tending, now) }()
	var cause error
	tended := false
	select {
	case <-ctx.Done():
	case <-units.Done():
	case cause = <-ended: // by itself
		tended = true
	}
	s.mu.Lock()
	s.stopping, s.stopBy = true, time.Now().Add(cfg.Drain)
	s.mu.Unlock()
	within, cancel := context.WithTimeout(now, units.StopTimeout())
	err = units.Stop(within)
	cancel()
	s.mu.Lock()
	s.free = err == nil
	s.mu.Unlock()
	enough()
	if !tended {
		if late := <-ended; late != nil && !errors.Is(late, context.Canceled) {
			cause = late
		}
	}
	if errors.Is(cause, errDone) {
		cause = nil
	}
	return errors.Join(cause, err, units.Err())
}

// hold is the handler of a unit.
func (s *seat) hold(ctx context.Context, u framework.Unit) error {
	h := &hold{unit: u, released: make(chan struct{})}
	s.mu.Lock()
	s.held[u.Name] = h
	if s.last = time.Now(); s.first.IsZero() {
		s.first = s.last
	}
	if s.child != nil {
		h.told = s.child
		s.child.say(line(wordAdded, u))
		s.signal = s.cfg.OnChange
	}
	s.mu.Unlock()
	s.nudge()

	<-ctx.Done()
	cause := context.Cause(ctx)
	s.mu.Lock()
	h.leaves = true
	c := h.told
	s.mu.Unlock()
	if c != nil {
		s.takeBack(c, h, cause)
	}
	s.mu.Lock()
	delete(s.held, u.Name)
	s.mu.Unlock()
	return cause
}

// Units come in numbers: a command is started, or signalled, when none has come for a moment.
const (
	settle     = 100 * time.Millisecond
	mostSettle = time.Second
)

// settled reports whether those that came are all, for now. If so, the next that comes is
// waited with anew, also where nobody was signalled because of these. The caller holds mu.
func (s *seat) settled() bool {
	if time.Since(s.last) < settle && time.Since(s.first) < mostSettle {
		return false
	}
	s.first = time.Time{}
	return true
}

// takeBack returns when the child does nothing for the unit any more: it has said so, or it
// has ended.
func (s *seat) takeBack(c *child, h *hold, cause error) {
	word := wordMoved
	switch {
	case errors.Is(cause, framework.ErrRemoved):
		word = wordRemoved
	case errors.Is(cause, framework.ErrHandedOver):
	default: // it may be another's now
		c.end(s.grace, fmt.Sprintf("%s is lost: %v", h.unit.Name, cause))
		<-c.ended
		return
	}
	c.await(1)
	c.say(line(word, h.unit))
	c.notify(s.cfg.Signal)
	overdue := time.NewTimer(s.cfg.Drain)
	defer overdue.Stop()
	select {
	case <-h.released:
		c.await(-1)
		return
	case <-c.ended:
		return
	case <-overdue.C:
	}
	c.end(s.grace, fmt.Sprintf("%s was not released within %v", h.unit.Name, s.cfg.Drain))
	<-c.ended
}

// heard takes in a line of the child c: what it releases.
func (s *seat) heard(c *child, text string) {
	word, rest, _ := strings.Cut(strings.TrimSuffix(text, "\r"), " ")
	token, name, ok := strings.Cut(rest, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[name]
	if word != wordReleased || !ok || h == nil || h.told != c || h.unit.Token.String() != token {
		return // of an ownership that is over
	}
	if !h.leaves {
		return // not asked for: it would be told of nothing any more
	}
	select {
	case <-h.released: // said again
	default:
		close(h.released)
	}
}

// tend keeps a command running while there are units, until ctx ends or the command ends by
// itself. When it returns no command runs. One that runs then is to end, and soon if now ends.
func (s *seat) tend(ctx, now context.Context) error {
	look := time.NewTicker(s.cfg.Units.Timing.WithDefaults().Beat() / 8)
	defer look.Stop()
	for {
		c, err := s.begin()
		if err != nil {
			return err
		}
		if c == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-s.changed:
			case <-look.C: // the lease stands again
			}
			continue
		}
		if err := s.watch(ctx, now, c, look); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// begin starts a command, if there is work for one and the lease stands.
func (s *seat) begin() (*child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || s.units.ValidFor() == 0 || time.Now().Before(s.again) || !s.settled() {
		return nil, nil
	}
	var holds []*hold
	var units []framework.Unit
	for _, h := range s.held {
		if !h.leaves {
			holds = append(holds, h)
		}
	}
	if len(holds) == 0 {
		return nil, nil
	}
	slices.SortFunc(holds, func(a, b *hold) int { return strings.Compare(a.unit.Name, b.unit.Name) })
	for _, h := range holds {
		units = append(units, h.unit)
	}
	s.view = s.units.View()
	c, err := start(s.cfg, environment(s.cfg.Name, s.view.Index, s.view.Replicas, units), s.grace, s.units.ValidFor, s.heard)
	if err != nil {
		return nil, s.postpone(err)
	}
	s.child, s.signal = c, false
	c.say(fmt.Sprintf("%s %d %d", wordPlace, s.view.Index, s.view.Replicas))
	for _, h := range holds {
		h.told = c
		c.say(line(wordAdded, h.unit))
	}
	return c, nil
}

// patience is how long a command that could not be started now is waited with.
const patience = time.Second

// postpone returns err, if it is not of a start that is to be tried again. The caller holds mu.
func (s *seat) postpone(err error) error {
	if !errors.Is(err, errNotNow) {
		return err
	}
	s.again = time.Now().Add(patience)
	fmt.Fprintf(s.cfg.Err, "countoff run: %v; it is tried again in %v\n", err, patience)
	return nil
}

// watch returns when c has ended: with an error if it did so by itself.
func (s *seat) watch(ctx, now context.Context, c *child, look *time.Ticker) error {
	over, hurry := ctx.Done(), (<-chan struct{})(nil)
	for {
		select {
		case <-over:
			over, hurry = nil, now.Done()
			s.mu.Lock()
			left, free := max(time.Until(s.stopBy), s.grace), s.free
			s.mu.Unlock()
			if free {
				c.free(left)
			} else {
				c.end(left, "")
			}
		case <-hurry:
			hurry = nil
			c.end(s.grace, "")
		case <-look.C:
			c.live()
			s.news(c)
		case <-c.ended:
			return s.buried(ctx, c)
		}
	}
}

// news tells the child where this peer stands, when that has changed, and that units came.
func (s *seat) news(c *child) {
	v := s.units.View()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled() && s.signal {
		s.signal = false
		c.notify(s.cfg.Signal)
	}
	if v.Index >= 0 && (v.Index != s.view.Index || v.Replicas != s.view.Replicas) {
		s.view = v
		c.say(fmt.Sprintf("%s %d %d", wordPlace, v.Index, v.Replicas))
	}
}

// buried says what the end of c means. One that was asked for is none of its own: what is
// left is for another.
func (s *seat) buried(ctx context.Context, c *child) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child = nil
	if c.late {
		fmt.Fprintln(s.cfg.Err, "countoff run: the guard of the command did not end it in time: both were killed")
	}
	left := 0
	for _, h := range s.held {
		if h.told == c {
			h.told = nil
		}
		if !h.leaves {
			left++
		}
	}
	switch {
	case c.failed != nil:
		return s.postpone(c.failed)
	case c.asked(), ctx.Err() != nil:
		return nil
	case c.unguarded() != nil:
		return c.unguarded()
	case c.mistook():
		if c.code != 0 && c.code != c.signalled() {
			fmt.Fprintf(s.cfg.Err, "countoff run: the command ended with code %d soon after it was signalled: it is started again with the %s left\n", c.code, partitionmap.Plural(left, "unit"))
		}
		return nil
	case c.code != 0:
		return &ExitError{Code: c.code}
	case left > 0:
		fmt.Fprintf(s.cfg.Err, "countoff run: the command ended by itself with code 0: this peer leaves, and others get the %s that it has\n", partitionmap.Plural(left, "unit"))
	}
	return errDone
}

// errDone is the end of a command that has nothing more to do.
var errDone = errors.New("done")

func (s *seat) nudge() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

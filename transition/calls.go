package transition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// Waits between two attempts to get hints.
const (
	firstHintsRetry = 100 * time.Millisecond
	mostHintsRetry  = 5 * time.Second
)

// sync asks the ledger. A call that timed out is unknown, not failed: the machine
// has forgotten it by then and asks again.
func (c *Coordinator) sync(ctx context.Context, e machine.Sync) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timing.CallTimeout())
	defer cancel()
	began := time.Now()
	a, err := c.cfg.Ledger.Sync(ctx, e.Request)
	took := time.Since(began)
	switch {
	case err == nil:
		c.mailbox.put(mail{
			event:  machine.Synced{Call: e.Call, Answer: a},
			report: []Event{Synced{Count: a.Count, Mine: len(a.Mine), Took: took}},
		})
	case errors.Is(err, ErrRenewed):
		c.mailbox.put(mail{event: machine.Synced{Call: e.Call, Answer: a}, report: []Event{SyncFailed{Err: err, Took: took}}})
	case errors.Is(err, partition.ErrConfig):
		c.mailbox.put(mail{event: machine.SyncFailed{Call: e.Call}, report: []Event{ConfigRefused{err}}})
		c.mailbox.put(mail{event: machine.Stop{Now: true}, fatal: err})
	default:
		c.mailbox.put(mail{event: machine.SyncFailed{Call: e.Call}, report: []Event{SyncFailed{Err: err, Took: took}}})
	}
}

// seal makes and stores the next roll, if one is due. A strategy may take longer than the
// machine waits: its roll counts all the same, if no other was sealed meanwhile, and until
// it is done no second one is begun beside it.
func (c *Coordinator) seal(ctx context.Context, e machine.Seal) {
	if !c.sealing.TryLock() {
		return
	}
	defer c.sealing.Unlock()
	began := time.Now()
	m := mail{event: machine.SealEnded{Call: e.Call, OK: true}}
	next, fault, due, err := c.nextRoll(ctx)
	if due {
		err = c.store(ctx, next)
	}
	switch {
	case errors.Is(err, ErrStale): // another peer was faster
	case err != nil:
		m.event = machine.SealEnded{Call: e.Call}
		m.report = []Event{SealFailed{err}}
	case due:
		m.report = c.sealed(next, fault, began)
	}
	c.mailbox.put(m)
}

// sealed returns what there is to tell of a roll that this peer has sealed: also that its strategy
// is broken, once for each roll, since whoever seals is who knows.
func (c *Coordinator) sealed(r Roll, fault string, began time.Time) []Event {
	events := []Event{Sealed{On: r.Version, Replicas: len(r.Members), Took: time.Since(began)}}
	if fault != "" {
		events = append(events, StrategyFailed{Strategy: c.cfg.Strategy.Name(), What: fault})
	}
	return events
}

func (c *Coordinator) store(ctx context.Context, next Roll) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Timing.CallTimeout())
	defer cancel()
	return c.cfg.Ledger.Seal(ctx, next)
}

func (c *Coordinator) nextRoll(ctx context.Context) (next Roll, fault string, due bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Timing.CallTimeout())
	defer cancel()
	census, err := c.cfg.Ledger.Census(ctx)
	if err != nil {
		return Roll{}, "", false, fmt.Errorf("read the ledger to seal a roll: %w", err)
	}
	if !c.claims && machine.Claimed(census) {
		return Roll{}, "", false, nil // those who work on the partitions may share them out by another strategy
	}
	c.sharing <- struct{}{} // a roll that is due waits for what is shared out anew
	defer func() { <-c.sharing }()
	next, fault, due = machine.NextRoll(census, c.cfg.Strategy)
	return next, fault, due, nil
}

// Reshare has the partitions shared out anew though nobody has come or gone, for strategies
// that look at more than the members. Nothing is done if nothing would move, or where a roll is
// due anyhow. An error that wraps ErrStale says that it is to be asked for again: in a grace,
// while a barrier is closed, while the strategy works on another roll, and if another was sealed
// meanwhile. It may be called at any time, also concurrently.
func (c *Coordinator) Reshare(ctx context.Context) error {
	began := time.Now()
	census, err := c.cfg.Ledger.Census(ctx)
	if err != nil {
		return fmt.Errorf("read the ledger to share out anew: %w", err)
	}
	if census.Grace > 0 {
		return fmt.Errorf("share out anew: %w", ErrStale)
	}
	select {
	case c.sharing <- struct{}{}:
	default:
		return fmt.Errorf("share out anew: %w", ErrStale)
	}
	next, fault, news := func() (Roll, string, bool) {
		defer func() { <-c.sharing }()
		return machine.Reshare(census, c.cfg.Strategy)
	}()
	if !news {
		return nil
	}
	if err := c.cfg.Ledger.Seal(ctx, next); err != nil {
		return fmt.Errorf("share out anew: %w", err)
	}
	c.mailbox.put(mail{event: machine.Hinted{}, report: c.sealed(next, fault, began)})
	return nil
}

// yield gives the peer another id if somebody else lives under its own. It looks when the
// ledger knows of this session: of two that join under one id in the same moment, the one whose
// first Sync came last finds the other. If both do, both yield.
func (c *Coordinator) yield(ctx context.Context) {
	for {
		inner, cancel := context.WithTimeout(ctx, c.cfg.Timing.CallTimeout())
		census, err := c.cfg.Ledger.Census(inner)
		cancel()
		if err == nil {
			if slices.ContainsFunc(census.Sessions, c.namesake) {
				id := c.cfg.Peer + "-" + string(c.cfg.Session[:min(len(c.cfg.Session), 8)])
				c.mailbox.put(mail{event: machine.Rename{Peer: id}, report: []Event{Renamed{Former: c.cfg.Peer, Peer: id}}})
			}
			return
		}
		select {
		case <-time.After(c.cfg.Timing.Beat()):
		case <-ctx.Done():
			return
		}
	}
}

// namesake reports whether s is another session that lives under this peer's id.
func (c *Coordinator) namesake(s machine.Seat) bool {
	return s.Peer == c.cfg.Peer && s.Session != c.cfg.Session && s.State != machine.Gone && s.Lease > 0
}

// listen passes hints on, and asks for them again when they end. After each break
// something may have been missed.
func (c *Coordinator) listen(ctx context.Context) {
	hint := func() { c.mailbox.put(mail{event: machine.Hinted{}}) }
	wait := firstHintsRetry
	for {
		began := time.Now()
		err := c.cfg.Ledger.Hints(ctx, c.cfg.Session, hint)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > mostHintsRetry {
			wait = firstHintsRetry
		}
		again := wait/2 + rand.N(wait/2)
		wait = min(2*wait, mostHintsRetry)
		c.mailbox.put(mail{event: machine.Hinted{}, report: []Event{HintsLost{Err: err, Again: again}}})
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

// index passes the views of another indexer on, without the partitions that ask for tags:
// this peer has none, or would have been refused. A peer without views must leave: it would
// sit on what it has.
func (c *Coordinator) index(ctx context.Context) {
	s := &sieve{layout: c.cfg.Config, put: func(v partition.View) { c.mailbox.put(mail{event: machine.Viewed{View: v}}) }}
	c.calls.Go(func() { c.followRequirements(ctx, s.requires) })
	err := c.cfg.Indexer.Index(ctx, s.views)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("it ended by itself")
	}
	c.mailbox.put(mail{event: machine.Stop{}, fatal: fmt.Errorf("the indexer cannot go on: %w", err)})
}

// A sieve takes what asks for tags out of views. The first view waits until it is known what
// does; each other is passed on at once by who brings it. If another goroutine were to do so, a
// peer that was stopped could ask, once it goes on, by an old view for what the newest has taken
// from it.
type sieve struct {
	put func(partition.View)

	mu            sync.Mutex
	layout        partition.Config
	latest        partition.View
	viewed, known bool
}

func (s *sieve) views(v partition.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest, s.viewed = v, true
	s.pass()
}

func (s *sieve) requires(r []partition.Requirement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layout.Requires, s.known = r, true
	s.pass()
}

// pass puts the latest view. The caller holds mu: views stay in order.
func (s *sieve) pass() {
	if !s.viewed || !s.known {
		return
	}
	v := s.latest
	v.Wish = slices.DeleteFunc(slices.Clone(v.Wish), func(id partition.ID) bool { return s.layout.Asks(id) != "" })
	s.put(v)
}

// followRequirements tells what partitions ask for, at first and when it changes: it looks
// once in a lease, and each beat as long as it does not know.
func (c *Coordinator) followRequirements(ctx context.Context, tell func([]partition.Requirement)) {
	var last []partition.Requirement
	known := false
	for {
		inner, cancel := context.WithTimeout(ctx, c.cfg.Timing.CallTimeout())
		cfg, err := ReadConfig(inner, c.cfg.Ledger)
		cancel()
		if found := cfg.Requires; err == nil && (!known || !slices.Equal(found, last)) {
			tell(found)
			last, known = found, true
		}
		again := c.cfg.Timing.Lease
		if !known {
			again = c.cfg.Timing.Beat()
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

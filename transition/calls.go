package transition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	case errors.Is(err, partition.ErrConfig):
		c.mailbox.put(mail{event: machine.SyncFailed{Call: e.Call}, report: []Event{ConfigRefused{err}}})
		c.mailbox.put(mail{event: machine.Stop{Now: true}, fatal: err})
	default:
		c.mailbox.put(mail{event: machine.SyncFailed{Call: e.Call}, report: []Event{SyncFailed{Err: err, Took: took}}})
	}
}

// seal makes and stores the next roll, if one is due.
func (c *Coordinator) seal(ctx context.Context, e machine.Seal) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Timing.CallTimeout())
	defer cancel()
	began := time.Now()
	m := mail{event: machine.SealEnded{Call: e.Call, OK: true}}
	next, due, err := c.nextRoll(ctx)
	if due {
		err = c.cfg.Ledger.Seal(ctx, next)
	}
	switch {
	case errors.Is(err, ErrStale): // another peer was faster
	case err != nil:
		m.event = machine.SealEnded{Call: e.Call}
		m.report = []Event{SealFailed{err}}
	case due:
		m.report = []Event{Sealed{On: next.Version, Replicas: len(next.Members), Took: time.Since(began)}}
	}
	c.mailbox.put(m)
}

func (c *Coordinator) nextRoll(ctx context.Context) (next Roll, due bool, err error) {
	census, err := c.cfg.Ledger.Census(ctx)
	if err != nil {
		return Roll{}, false, fmt.Errorf("read the ledger to seal a roll: %w", err)
	}
	if !c.claims && machine.Claimed(census) {
		return Roll{}, false, nil // those who work on the partitions may share them out by another strategy
	}
	next, due = machine.NextRoll(census, c.cfg.Strategy)
	return next, due, nil
}

// Reshare has the partitions shared out anew though nobody has come or gone, for strategies
// that look at more than the members. Nothing is done if nothing would move, where a roll is
// due anyhow, in a grace and while a barrier is closed; of several at once one counts. It
// may be called at any time, also concurrently.
func (c *Coordinator) Reshare(ctx context.Context) error {
	began := time.Now()
	census, err := c.cfg.Ledger.Census(ctx)
	if err != nil {
		return fmt.Errorf("read the ledger to share out anew: %w", err)
	}
	next, news := machine.Reshare(census, c.cfg.Strategy)
	if !news {
		return nil
	}
	switch err := c.cfg.Ledger.Seal(ctx, next); {
	case errors.Is(err, ErrStale): // another peer was faster
	case err != nil:
		return fmt.Errorf("share out anew: %w", err)
	default:
		c.mailbox.put(mail{event: machine.Hinted{}, report: []Event{Sealed{On: next.Version, Replicas: len(next.Members), Took: time.Since(began)}}})
	}
	return nil
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

// index passes the views of another indexer on. A peer without views must leave: it
// would sit on what it has.
func (c *Coordinator) index(ctx context.Context) {
	views := make(chan partition.View)
	c.calls.Go(func() { c.sift(ctx, views) })
	err := c.cfg.Indexer.Index(ctx, func(v partition.View) {
		select {
		case views <- v:
		case <-ctx.Done():
		}
	})
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("it ended by itself")
	}
	c.mailbox.put(mail{event: machine.Stop{}, fatal: fmt.Errorf("the indexer cannot go on: %w", err)})
}

// sift passes views on without the partitions that ask for tags: this peer has none, or would
// have been refused. A view waits for no call but the first: one that takes a wish back must
// not come after what is asked for by it.
func (c *Coordinator) sift(ctx context.Context, views <-chan partition.View) {
	changes := make(chan []partition.Requirement)
	c.calls.Go(func() { c.followRequirements(ctx, changes) })
	layout := c.cfg.Config
	var latest partition.View
	viewed, known := false, false
	for {
		select {
		case latest = <-views:
			viewed = true
		case layout.Requires = <-changes:
			known = true
		case <-ctx.Done():
			return
		}
		if viewed && known {
			v := latest
			v.Wish = slices.DeleteFunc(slices.Clone(v.Wish), func(id partition.ID) bool { return layout.Asks(id) != "" })
			c.mailbox.put(mail{event: machine.Viewed{View: v}})
		}
	}
}

// followRequirements tells what partitions ask for, at first and when it changes: it looks
// once in a lease, and each beat as long as it does not know.
func (c *Coordinator) followRequirements(ctx context.Context, changes chan<- []partition.Requirement) {
	var last []partition.Requirement
	known := false
	for {
		inner, cancel := context.WithTimeout(ctx, c.cfg.Timing.CallTimeout())
		census, err := c.cfg.Ledger.Census(inner)
		cancel()
		if found := census.Config.Requires; err == nil && (!known || !slices.Equal(found, last)) {
			select {
			case changes <- found:
				last, known = found, true
			case <-ctx.Done():
				return
			}
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

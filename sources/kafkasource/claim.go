package kafkasource

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A claim keeps two walks from passing the letters of a name at once: each would write all of them. It
// stands beside the offset of the first partition, and whoever has it changes it now and then: one that
// stands still is of a walk that was killed. Two that begin in the same instant may both find none:
// each looks once more before it begins, and then now and then, whether its claim was replaced.
type claim struct {
	every time.Duration // how often it is changed; less in tests
	pause func(context.Context, time.Duration) error

	mu   sync.Mutex
	id   string // empty: none
	turn int
	at   int64                   // the offset that it stands beside
	lost bool                    // another walk has it
	end  context.CancelCauseFunc // ends the walk that has lost it
}

const (
	claimPartition = 0
	claimMark      = "countoff-walk:"
	claimEvery     = time.Second
	// claimTurns is how many turns a claim must stand still to be that of nobody.
	claimTurns = 4
)

var errClaimed = errors.New("somebody else is requeueing or dropping the dead letters of this name at this moment: both would do so with each of them; " +
	"wait until that is over")

// vacant waits until nobody has a claim, and returns errClaimed if somebody has one that does not stand still.
func (w *walker) vacant(ctx context.Context) error {
	first := ""
	for turn := range claimTurns + 1 {
		if turn > 0 {
			if err := w.claim.pause(ctx, w.claim.every); err != nil {
				return err
			}
		}
		stands, err := w.stands(ctx)
		switch {
		case err != nil:
			return err
		case !strings.HasPrefix(stands, claimMark):
			return nil
		case turn == 0:
			first = stands
		case stands != first:
			return errClaimed
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stands returns what stands in the place of a claim.
func (w *walker) stands(ctx context.Context) (string, error) {
	known, err := w.known(ctx)
	o, _ := known.Lookup(w.cfg.DeadTopic, claimPartition)
	return o.Metadata, err
}

// hold claims the letters, of which the first partition was passed up to at. The context that it returns
// ends with errClaimed if another walk has replaced the claim. release gives it up.
func (w *walker) hold(ctx context.Context, at int64) (held context.Context, release func() error, err error) {
	c := &w.claim
	held, cancel := context.WithCancelCause(ctx)
	c.id, c.end = rand.Text(), cancel
	err = w.passed(ctx, claimPartition, at)
	if err == nil {
		err = c.pause(ctx, c.every/claimTurns) // who has found none has made its own by then
	}
	if err == nil {
		err = w.mine(ctx)
	}
	if err != nil {
		cancel(err)
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		turn := time.NewTicker(c.every)
		defer turn.Stop()
		for {
			select {
			case <-turn.C:
			case <-held.Done():
				return
			}
			if w.mine(held) == nil { // else the broker may be away, or held has ended
				_ = w.passed(held, claimPartition, 0)
			}
		}
	}()
	return held, func() error {
		cancel(nil)
		<-ended
		ctx, cancel := passing(ctx)
		defer cancel()
		if err := w.mine(ctx); err != nil {
			return err
		}
		c.mu.Lock()
		c.id = ""
		c.mu.Unlock()
		return w.passed(ctx, claimPartition, 0)
	}, nil
}

// came keeps how far a walk came, if the claim is still its own: one that slept may have been overtaken by another,
// which came further.
func (w *walker) came(ctx context.Context, p int32, upto int64) error {
	ctx, cancel := passing(ctx)
	defer cancel()
	if err := w.mine(ctx); err != nil {
		return err
	}
	return w.passed(ctx, p, upto)
}

// mine is errClaimed if the claim is another's, and ends the walk then.
func (w *walker) mine(ctx context.Context) error {
	stands, err := w.stands(ctx)
	if err == nil && !strings.HasPrefix(stands, claimMark+w.claim.id+":") {
		w.claim.mu.Lock()
		defer w.claim.mu.Unlock()
		w.claim.lost = true
		w.claim.end(errClaimed)
		return errClaimed
	}
	return err
}

// beside takes in that a partition was passed up to an offset, and returns what to commit: the offset, and
// what stands beside it. The caller holds the lock.
func (c *claim) beside(p int32, upto int64) (at int64, said string) {
	if p != claimPartition {
		return upto, ""
	}
	c.at = max(c.at, upto)
	if c.id == "" {
		return c.at, ""
	}
	c.turn++
	return c.at, fmt.Sprintf("%s%s:%d", claimMark, c.id, c.turn)
}

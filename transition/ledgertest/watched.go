package ledgertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/relay"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// patience is how long a call may take. A peer has given it up long before.
const patience = time.Minute

// watched is a ledger none of whose calls the suite waits for in vain: of one that does not return the test of its
// package would say nothing until its own time is over.
type watched struct {
	transition.Ledger
	tb testing.TB
}

func (w watched) Sync(ctx context.Context, r machine.Request) (machine.Answer, error) {
	return await(w.tb, fmt.Sprint("Sync of ", r.Peer), func() (machine.Answer, error) { return w.Ledger.Sync(ctx, r) })
}

func (w watched) Seal(ctx context.Context, next machine.Roll) error {
	_, err := await(w.tb, "Seal", func() (struct{}, error) { return struct{}{}, w.Ledger.Seal(ctx, next) })
	return err
}

func (w watched) Census(ctx context.Context) (machine.Census, error) {
	return await(w.tb, "Census", func() (machine.Census, error) { return w.Ledger.Census(ctx) })
}

// Hints lasts until its context ends.
func (w watched) Hints(ctx context.Context, session partition.Session, hint func()) error {
	ended := make(chan error, 1)
	go func() { ended <- w.Ledger.Hints(ctx, session, hint) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	_, err := await(w.tb, "Hints, whose context has ended,", func() (struct{}, error) { return struct{}{}, <-ended })
	return err
}

// await returns what call does, and fails the clause if it does not return.
func await[T any](tb testing.TB, what string, call func() (T, error)) (T, error) {
	ended, end := relay.Start(what, call)
	select {
	case <-ended:
		return end()
	case <-time.After(patience):
		late := fmt.Errorf("%s has not returned after %v", what, patience)
		tb.Errorf("%v", late)
		var none T
		return none, late
	}
}

package transition

import (
	"context"
	"errors"

	"github.com/countoff/countoff/partition"
)

// A Roster is an indexer over a ledger: the place of a peer in the newest sealed
// roll, and the partitions that the roll gives it. It takes part as a member that
// never asks for a grant. Where everybody is one, they work by the index alone, and
// the roll shares the partitions out among them as wishes. Where others claim
// partitions it has a place among them and wishes for none.
type Roster struct{ cfg Config }

// NewRoster returns the indexer of a peer. Of cfg it uses all but Tenant, Indexer, Barrier
// and Weight: in the ledger its weight is 0, which says that it claims nothing, and it
// neither stops for a barrier nor is waited for. It returns everything that is wrong with
// cfg at once.
func NewRoster(cfg Config) (*Roster, error) {
	cfg.Indexer, cfg.Tenant, cfg.Barrier = nil, nil, false
	if _, err := newCoordinator(cfg, false); err != nil {
		return nil, err
	}
	return &Roster{cfg: cfg}, nil
}

// Index implements partition.Indexer. Each call is a new session, unless the
// configuration names one. It says good-bye to the ledger before it returns. An emit
// that takes long costs views in between, never the lease.
func (r *Roster) Index(ctx context.Context, emit func(partition.View)) error {
	cfg := r.cfg
	newest := make(chan partition.View, 1)
	last := uint64(0)
	cfg.Observer = func(e Event) {
		if r.cfg.Observer != nil {
			r.cfg.Observer(e)
		}
		// After a lapse the roll that is known already comes again.
		if seen, ok := e.(RollSeen); ok && seen.View.Version > last {
			last = seen.View.Version
			select {
			case <-newest: // nobody took it: it is old now
			default:
			}
			newest <- seen.View
		}
	}
	c, err := newCoordinator(cfg, false)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for {
		select {
		case v := <-newest:
			if ctx.Err() == nil {
				emit(v)
			}
		case err := <-ended:
			if err == nil && ctx.Err() == nil {
				err = errors.New("transition: the roster ended by itself")
			}
			return err
		}
	}
}

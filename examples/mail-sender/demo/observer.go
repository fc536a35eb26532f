package demo

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redissource"
)

// look is how often the observer looks at the store: how exact its times are.
const look = 40 * time.Millisecond

// An observer looks at the store again and again and remembers who owned what. It
// takes no part.
type observer struct {
	client redis.UniversalClient
	name   string

	mu     sync.Mutex
	latest status.Status
	err    error                   // of the latest look
	owners map[partition.ID]string // last peer seen with its fence installed
	moves  []move
	killed map[string]time.Time
	served chan struct{} // closed and replaced at each look
}

func newObserver(client redis.UniversalClient, name string) *observer {
	return &observer{
		client: client, name: name, owners: map[partition.ID]string{}, killed: map[string]time.Time{},
		served: make(chan struct{}),
	}
}

// run looks until ctx ends.
func (o *observer) run(ctx context.Context) {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		s, err := status.Read(ctx, o.client, o.name)
		o.saw(s, err, time.Now())
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// saw takes in one look.
func (o *observer) saw(s status.Status, err error, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		close(o.served)
		o.served = make(chan struct{})
	}()
	if o.err = err; err != nil {
		return
	}
	o.latest = s
	for _, p := range s.Partitions {
		// Moving and owned alike: the owner's fence stands at the data.
		if p.State != status.Owned && p.State != status.Moving {
			continue
		}
		former := o.owners[p.ID]
		if former == p.Owner {
			continue
		}
		o.owners[p.ID] = p.Owner
		if former != "" {
			_, crash := o.killed[former]
			o.moves = append(o.moves, move{id: p.ID, from: former, to: p.Owner, when: now, crash: crash})
		}
	}
}

// status returns the latest look.
func (o *observer) status() (status.Status, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latest, o.err
}

// until waits for a look that ok likes.
func (o *observer) until(ctx context.Context, ok func(status.Status) bool) error {
	for {
		o.mu.Lock()
		s, next := o.latest, o.served
		o.mu.Unlock()
		if ok(s) {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// buried notes that peer was killed at when: what it owned is taken over.
func (o *observer) buried(peer string, when time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killed[peer] = when
}

// ownedBy returns the partitions that peer was last seen with.
func (o *observer) ownedBy(peer string) (ids []partition.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, owner := range o.owners {
		if owner == peer {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// open returns the ids of the tasks that stand unfinished in the partitions.
func (o *observer) open(ctx context.Context, ids []partition.ID) (map[string]bool, error) {
	open := map[string]bool{}
	for _, id := range ids {
		queued, err := redissource.Peek(ctx, o.client, o.name, id, 10_000)
		if err != nil {
			return nil, err
		}
		for _, q := range queued {
			open[q.ID] = true
		}
	}
	return open, nil
}

// history returns the moves seen so far.
func (o *observer) history() []move {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.moves)
}

package redissource

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
)

const (
	// cancelsEvery is how often what is to be cancelled is read although nobody said that it has changed: a
	// channel may be forbidden, and what was said on it is lost with its connection.
	cancelsEvery = time.Minute
	// cancelsAgain is how long after a reading that failed.
	cancelsAgain = 2 * time.Second
)

// cancels are what is to be cancelled of a name, as one peer knows it, and the streams that hear of it. They are one
// for the name, and not of its partitions: who gives an ID does not know which one the task is in.
type cancels struct {
	client redis.UniversalClient
	key    string
	kick   chan struct{}
	some   atomic.Bool // something stands: asked with each settlement

	reading sync.Mutex              // one at a time, so that an older answer never comes later
	over    map[string]Cancellation // those that are over here, by ID, and not written down as such; guarded by reading

	mu      sync.Mutex // held while streams are told, so that one hears of one change at a time
	known   bool       // read since the waker runs
	orders  map[string]Cancellation
	why     map[string]string // of orders: what streams are told
	streams map[*stream]func(map[string]string) []string
}

func newCancels(client redis.UniversalClient, name string) *cancels {
	return &cancels{
		client: client, key: CancelKey(name), kick: make(chan struct{}, 1),
		over:    map[string]Cancellation{},
		streams: map[*stream]func(map[string]string) []string{},
	}
}

// run reads what stands whenever somebody says that it has changed. ctx ends with the last stream.
func (c *cancels) run(ctx context.Context) {
	defer func() {
		c.mu.Lock()
		c.known = false
		c.mu.Unlock()
	}()
	timer := time.NewTimer(cancelsEvery)
	defer timer.Stop()
	for {
		select {
		case <-c.kick:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Reset(c.read(ctx))
	}
}

// read reads what stands, tells the streams and writes down what runs. It returns how long that is good for.
func (c *cancels) read(ctx context.Context) time.Duration {
	c.reading.Lock()
	defer c.reading.Unlock()
	written := c.write(ctx)
	all, now, err := readCancels(ctx, c.client, c.key)
	if err != nil && redisconfig.Forbidden(err) {
		return cancelsEvery
	}
	if err != nil {
		return cancelsAgain
	}
	orders := wanted(all)
	for id, m := range c.over {
		if o, is := orders[id]; !is || !o.Since.Equal(m.Since) {
			delete(c.over, id)
			continue
		}
		delete(orders, id)
	}
	for _, runs := range c.tell(orders) {
		_ = markCancel(ctx, c.client, c.key, runs) // for people
	}
	if !written {
		return cancelsAgain
	}
	return max(min(firstEnd(orders).Sub(now), cancelsEvery), time.Millisecond)
}

// tell tells the streams of what has changed and returns what runs, of which nothing is written yet.
func (c *cancels) tell(orders map[string]Cancellation) (runs []Cancellation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = true
	changed := !maps.EqualFunc(orders, c.orders, func(a, b Cancellation) bool { return a.Since.Equal(b.Since) && a.Why == b.Why })
	c.orders = orders
	c.some.Store(len(orders) > 0)
	if !changed {
		return nil
	}
	c.why = make(map[string]string, len(orders))
	for id, o := range orders {
		c.why[id] = o.Why
	}
	for s, tell := range c.streams {
		for _, id := range tell(c.why) {
			if o := orders[id]; o.State != CancelRuns || o.Where != s.Grant.String() {
				o.State, o.Where = CancelRuns, s.Grant.String()
				runs = append(runs, o)
			}
		}
	}
	return runs
}

// add has tell hear of what stands, from now on.
func (c *cancels) add(ctx context.Context, s *stream, tell func(map[string]string) []string) {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if !known {
		c.first(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.orders, c.why = nil, nil // of when the last stream ended
	}
	c.streams[s] = tell
	tell(c.why)
}

// first reads what stands, unless somebody else just has. If it cannot, run does so: a store that does not
// tell is no reason to leave a partition alone.
func (c *cancels) first(ctx context.Context) {
	c.reading.Lock()
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	c.reading.Unlock()
	if !known && c.read(ctx) == cancelsAgain {
		nudge(c.kick)
	}
}

func (c *cancels) remove(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, s)
}

// ended writes down of tasks that were settled that they are to be cancelled no more.
func (c *cancels) ended(ctx context.Context, s *stream, done []sources.Settlement) {
	if !c.some.Load() {
		return
	}
	for i := range done {
		d := &done[i]
		switch d.Outcome {
		case sources.Dead:
			c.end(ctx, d.Task.ID, CancelDead, s.Grant.String())
		case sources.Done:
			c.end(ctx, d.Task.ID, CancelDone, s.Grant.String())
		}
	}
}

// end has the streams forget the cancellation of id, if there is one, and then writes down what became of it: who
// reads that it is over may give the ID again. If that cannot be written now, run does it.
func (c *cancels) end(ctx context.Context, id string, state CancelState, where string) {
	if _, is := c.standing()[id]; !is {
		return
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	orders := maps.Clone(c.standing())
	o, is := orders[id]
	if !is {
		return
	}
	delete(orders, id)
	c.tell(orders)
	o.State, o.Where = state, where
	c.over[id] = o
	if !c.write(ctx) {
		nudge(c.kick)
	}
}

// standing is what stands, which nobody changes.
func (c *cancels) standing() map[string]Cancellation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orders
}

// write writes down what is over, and reports whether it could. The caller holds reading.
func (c *cancels) write(ctx context.Context) bool {
	for id, m := range c.over {
		if markCancel(ctx, c.client, c.key, m) != nil {
			return false
		}
		delete(c.over, id)
	}
	return true
}

// Cancelled implements [sources.Cancelable].
func (s *stream) Cancelled(ctx context.Context, tell func(why map[string]string) (running []string)) {
	s.source.waker.cancels.add(ctx, s, tell)
}

// Settle says what became of tasks, and then what became of cancellations.
func (s *stream) Settle(ctx context.Context, done ...sources.Settlement) error {
	err := s.Stream.Settle(ctx, done...)
	if err == nil {
		s.source.waker.cancels.ended(ctx, s, done)
	}
	return err
}

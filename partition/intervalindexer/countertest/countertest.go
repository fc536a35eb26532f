// Package countertest makes peers that count on a counter of yours a group for package
// indexertest: its suite then holds the counter to what package intervalindexer needs of it.
//
//	func TestConformance(t *testing.T) {
//		indexertest.Run(t, indexertest.Harness{New: func(t *testing.T) indexertest.Group {
//			config := intervalindexer.Config{Interval: 600 * time.Millisecond}
//			return countertest.Group(t, newCounter(t), "mail-sender", config) // one that nobody has counted on under that name
//		}})
//	}
package countertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/indexertest"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/relay"
)

// ErrCut is what a [Cuttable] fails with after it was cut.
var ErrCut = errors.New("cut off")

// A Cuttable is the Counter until it is cut; then its calls fail and do nothing.
type Cuttable struct {
	intervalindexer.Counter
	cut atomic.Bool
}

// Cut takes the counter away. It may be called at any time, also more than once.
func (c *Cuttable) Cut() { c.cut.Store(true) }

// Incr implements [intervalindexer.Counter].
func (c *Cuttable) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	if c.cut.Load() {
		return 0, ErrCut
	}
	return c.Counter.Incr(ctx, key, expiry)
}

// Get implements [intervalindexer.Counter].
func (c *Cuttable) Get(ctx context.Context, keys ...string) ([]int64, error) {
	if c.cut.Load() {
		return nil, ErrCut
	}
	return c.Counter.Get(ctx, keys...)
}

// Group returns the peers of name that count on counter, each by a [Cuttable] of its own. Its
// Settle is five intervals: on a busy machine, and in real time, more will do. Before that it holds
// the counter to what peers need of it and would seldom notice: that it counts each of those that
// count at once, knows of no other key, and sends nothing for who has gone.
func Group(t testing.TB, counter intervalindexer.Counter, name string, config intervalindexer.Config) indexertest.Group {
	config = config.WithDefaults()
	hold(t, watched{counter, t}, fmt.Sprintf("{%s}:0", name)) // that of an interval of long ago
	return indexertest.Group{
		// Four intervals, and one because the change may come just after a turn.
		Settle: 5 * config.Interval,
		IDs:    config.Partitions.IDs(),
		Peer: func(string) (partition.Indexer, func()) {
			c := &Cuttable{Counter: watched{counter, t}}
			x, err := intervalindexer.New(c, name, config)
			if err != nil {
				t.Fatal(err)
			}
			return x, c.Cut
		},
	}
}

// hold tells what of a counter is not as its interface says, by a key that nobody uses.
func hold(tb testing.TB, counter intervalindexer.Counter, key string) {
	tb.Helper()
	const callers, expiry = 8, time.Minute
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	values, errs := make([]int64, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { values[i], errs[i] = counter.Incr(ctx, key, expiry) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Error(err)
		return
	}
	slices.Sort(values)
	for i, v := range values {
		if v != values[0]+int64(i) {
			tb.Error(fmt.Errorf("%d calls of Incr side by side returned %d, want each number once", callers, values))
			return
		}
	}
	gone, leave := context.WithCancel(ctx)
	leave()
	if v, err := counter.Incr(gone, key, expiry); err == nil {
		tb.Error(fmt.Errorf("Incr returned %d after its context had ended, want an error", v))
	}
	want := []int64{0, values[callers-1]}
	got, err := counter.Get(ctx, key+":0", key)
	if err != nil {
		tb.Error(err)
	} else if !slices.Equal(got, want) {
		tb.Error(fmt.Errorf("Get of a key that is not there, and of one that was counted, returned %d, want %d, of which none came from a call whose context had ended", got, want))
	}
}

// patience is how long after the end of its context a call may return.
const patience = 30 * time.Second

// watched is a counter none of whose calls the peers wait for in vain: of one that does not return the suite could only
// tell that a peer does not end.
type watched struct {
	intervalindexer.Counter
	t testing.TB
}

// Incr implements [intervalindexer.Counter].
func (w watched) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	return await(ctx, w.t, "Incr of "+key, func() (int64, error) { return w.Counter.Incr(ctx, key, expiry) })
}

// Get implements [intervalindexer.Counter].
func (w watched) Get(ctx context.Context, keys ...string) ([]int64, error) {
	return await(ctx, w.t, fmt.Sprint("Get of ", keys), func() ([]int64, error) { return w.Counter.Get(ctx, keys...) })
}

// await returns what call does, and fails the test if it does not return.
func await[T any](ctx context.Context, tb testing.TB, what string, call func() (T, error)) (none T, err error) {
	ended, end := relay.Start(what, call)
	select {
	case <-ended:
		return end()
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return end()
	case <-time.After(patience):
		err := fmt.Errorf("%s has not returned %v after its context had ended", what, patience)
		tb.Error(err)
		return none, err
	}
}

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
	"math/rand/v2"
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
// count at once, knows of no other key, and sends nothing for who has gone. When a test ends that has lasted for
// longer than keys are to be kept, it wants one of them to be gone: a fake store must have let that time pass (of
// miniredis: ClockTTL).
func Group(t testing.TB, counter intervalindexer.Counter, name string, config intervalindexer.Config) indexertest.Group {
	config = config.WithDefaults()
	hold(t, watched{counter, t}, name, config.Interval)
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
func hold(tb testing.TB, counter intervalindexer.Counter, name string, interval time.Duration) {
	tb.Helper()
	defer func() {
		if tb.Failed() {
			tb.FailNow() // a peer may panic on it, and then nothing is told
		}
	}()
	const callers = 8
	expiry := 3 * interval                                   // that of peers: a store may keep nothing for longer
	key := fmt.Sprintf("{%s}:%d", name, rand.Uint64()|1<<63) // that of an interval long to come
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	began := time.Now()
	late := func() bool { return time.Since(began) >= expiry } // the machine had no time: the key may have vanished
	values, errs := make([]int64, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { values[i], errs[i] = counter.Incr(ctx, key, expiry) })
	}
	all.Wait()
	counted := time.Now()
	for _, err := range errs {
		if err != nil {
			tb.Error(fmt.Errorf("one of %d calls of Incr side by side: %w", callers, err))
			return
		}
	}
	tb.Cleanup(func() { vanished(tb, counter, key, counted.Add(expiry)) })
	slices.Sort(values)
	for i, v := range values {
		if v != int64(i)+1 && !late() {
			tb.Error(fmt.Errorf("%d calls of Incr side by side, of a key that was not there, returned %d, want each number from 1 to %[1]d", callers, values))
			return
		}
	}
	// Some stores answer with what was a moment ago. Peers ask an interval later.
	for want := []int64{0, callers}; ; <-time.After(interval / 20) {
		got, err := counter.Get(ctx, key+":0", key)
		if err == nil && (slices.Equal(got, want) || late()) {
			break
		}
		if time.Since(counted) < interval {
			continue
		}
		if err == nil {
			err = fmt.Errorf("it returned %d, want %d", got, want)
		}
		tb.Error(fmt.Errorf("Get of a key that is not there, and of one that was counted %d times: %w", callers, err))
		return
	}
	gone, leave := context.WithCancel(ctx)
	leave()
	if v, err := counter.Incr(gone, key, expiry); err == nil {
		tb.Error(fmt.Errorf("Incr returned %d after its context had ended, want an error", v))
	}
	if got, err := counter.Get(ctx, key); err == nil && len(got) == 1 && got[0] > callers {
		tb.Error(fmt.Errorf("a call of Incr whose context had ended was counted: Get returned %d, want %d", got[0], callers))
	}
}

// linger is how much longer than asked for a store may keep a key: it may count in whole seconds, and clean up
// now and then.
const linger = 10 * time.Second

// vanished tells if key, which nobody has counted since, is still there though its time was over at end. It is
// called when the peers have ended, and waits only for what has had its time.
func vanished(tb testing.TB, counter intervalindexer.Counter, key string, end time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	for over := time.Since(end); over >= 0; over = time.Since(end) {
		got, err := counter.Get(ctx, key)
		if err != nil || len(got) != 1 || got[0] == 0 { // it may be gone with its store
			return
		}
		if over > linger {
			tb.Error(fmt.Errorf("a key is still there %v after its expiry: each interval leaves some behind for good", over.Round(time.Millisecond)))
			return
		}
		<-time.After(linger / 100)
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

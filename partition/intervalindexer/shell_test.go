package intervalindexer

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
)

// Memory does not grow with time.
func TestMemoryForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		for i := range uint64(100) {
			if _, err := m.Incr(t.Context(), countKey("a", i), 3*time.Second); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
		}
		if len(m.counts) > 8 {
			t.Errorf("%d counters after 100 intervals", len(m.counts))
		}
	})
}

// A turn that comes at the very end of its interval, because the process stood still, is
// not had: nobody might read what it counts.
func TestLateTurnIsNotHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(Memory)
		var offset atomic.Int64
		var missed []uint64
		x, err := New(memory, "mail-sender", Config{Interval: time.Second},
			WithSkew(func(time.Duration) time.Duration { return 1 }),
			WithMissed(func(number uint64, _ error) { missed = append(missed, number) }))
		if err != nil {
			t.Fatal(err)
		}
		x.now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- x.Index(ctx, func(partition.View) {}) }()
		<-time.After(3500 * time.Millisecond)
		first := clock{interval: time.Second}.number(time.Now())
		offset.Store(int64(950 * time.Millisecond))
		<-time.After(510 * time.Millisecond)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		counts, err := memory.Get(t.Context(), countKey("mail-sender", first), countKey("mail-sender", first+1))
		if err != nil || counts[0] != 1 || counts[1] != 0 || len(missed) != 1 || missed[0] != first+1 {
			t.Errorf("counted %v in the intervals %d and %d, missed %v; %v", counts, first, first+1, missed, err)
		}
	})
}

// A notary refuses nothing, and holds each count to be for the interval it is made in.
type notary struct {
	Memory
	t   *testing.T
	now func() time.Time
}

func (n *notary) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	if number := (clock{interval: time.Second}).number(n.now()); key != countKey("mail-sender", number) && key != indexKey("mail-sender", number, 0) {
		n.t.Errorf("%s is counted in the interval %d", key, number)
	}
	return n.Memory.Incr(ctx, key, expiry)
}

// A clock that is set back while a turn is waited for puts the turn off: nobody is counted in
// an interval that has not begun.
func TestClockIsSetBackBeforeATurn(t *testing.T) {
	for _, step := range []time.Duration{-10 * time.Millisecond, -700 * time.Millisecond, -2 * time.Second, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var offset atomic.Int64
			now := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
			x, err := New(&notary{t: t, now: now}, "mail-sender", Config{Interval: time.Second},
				WithSkew(func(time.Duration) time.Duration { return 500 * time.Millisecond }))
			if err != nil {
				t.Fatal(err)
			}
			x.now = now
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- x.Index(ctx, func(partition.View) {}) }()
			<-time.After(4200 * time.Millisecond)
			offset.Store(int64(step))
			<-time.After(8 * time.Second)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// When the wall clocks of all peers are set back by an hour, they do not stand still
// until it has come again, and their versions go on rising. Set forward, they go on
// there.
func TestClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -2 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			memory := new(Memory)
			var offset atomic.Int64
			var views [2][]partition.View
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, len(views))
			for i := range views {
				x, err := New(memory, "mail-sender", Config{Interval: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				x.now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
				go func() {
					done <- x.Index(ctx, func(v partition.View) { views[i] = append(views[i], v) })
				}()
			}
			<-time.After(10 * time.Second)
			offset.Store(int64(step))
			<-time.After(10 * time.Second)
			// A third peer shows whether the two are there.
			x, err := New(memory, "mail-sender", Config{Interval: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			x.now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
			var third []partition.View
			go func() { done <- x.Index(ctx, func(v partition.View) { third = append(third, v) }) }()
			<-time.After(5 * time.Second)
			cancel()
			for range len(views) + 1 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			for i, v := range append(views[:], third) {
				last := partition.View{}
				for _, w := range v {
					if w.Version <= last.Version {
						t.Errorf("step %v: peer %d was told version %d after %d", step, i, w.Version, last.Version)
					}
					last = w
				}
				if last.Replicas != 3 || last.Index < 0 {
					t.Errorf("step %v: peer %d was last told %d of %d", step, i, last.Index, last.Replicas)
				}
			}
		})
	}
}

// Times are reckoned in multiples of the interval: forty years of it overflowed.
func TestAnIntervalHasBounds(t *testing.T) {
	for interval, ok := range map[time.Duration]bool{
		leastInterval - 1: false, leastInterval: true, mostInterval: true, mostInterval + 1: false, 40 * 365 * 24 * time.Hour: false,
	} {
		if err := (Config{Interval: interval}).Validate(); (err == nil) != ok {
			t.Errorf("%v: %v", interval, err)
		}
	}
}

// A keeper is a counter that notes how long its keys are to be kept.
type keeper struct {
	Counter
	kept chan time.Duration
}

func (k keeper) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	k.kept <- expiry
	return k.Counter.Incr(ctx, key, expiry)
}

// A count is read in the interval after its own, until that ends, and by a peer whose clock was set back a little
// it is taken to be there for one more.
func TestCountsAreKeptForThreeIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper{new(Memory), make(chan time.Duration, 2)} // of the peers, and of an index
		x, err := New(k, "mail-sender", Config{Interval: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- x.Index(ctx, func(partition.View) {}) }()
		for range 2 {
			if kept := <-k.kept; kept != 3*time.Second {
				t.Errorf("a count is kept for %v, want %v", kept, 3*time.Second)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

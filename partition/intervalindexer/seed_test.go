package intervalindexer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/intervalindexer/countertest"
)

// The faults of the published algorithm that this package began with, each in the
// setting that shows it. Where a switch brings the fault back, the test looks at
// both sides.

const interval = time.Second

var letter = intervalindexer.Config{Arrival: true, Hasty: true}

// The seed counts indexes from 1 and gives a peer what has id % n == index: nobody
// has the residue 0.
func TestResidueZeroIsSomebodys(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			memory := new(intervalindexer.Memory)
			var peers []*watched
			for i := range n {
				peers = append(peers, watch(t, newSpy(memory), letter, time.Duration(i+1)*10*time.Millisecond))
			}
			pass(3)
			owners := map[partition.ID]int{}
			for _, p := range peers {
				for _, id := range p.wish() {
					owners[id]++
				}
			}
			for id := range partition.ID(partition.DefaultTotal) {
				if owners[id] != 1 {
					t.Fatalf("n = %d: %d peers wish for %v", n, owners[id], id)
				}
			}
		})
	}
}

// The second seed pairs the index of this interval with the count of the last: after
// one join somebody is "3 of 2". Here a view's index and replicas are both what the
// store said of the interval that the view's version names.
func TestIndexAndReplicasAreOfOneInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(intervalindexer.Memory)
		var peers []*watched
		closed := map[uint64]int64{}
		for i := range 5 {
			// Each newcomer is the first of its intervals, so that all others move.
			peers = append(peers, watch(t, newSpy(memory), letter, time.Duration(500-i*50)*time.Millisecond))
			pass(3)
		}
		peers[1].stop()
		pass(3)
		for _, p := range peers {
			p.stop()
			for number, place := range p.place {
				closed[number] = max(closed[number], place)
			}
		}
		for i, p := range peers {
			if len(p.views) < 2 {
				t.Errorf("peer %d was told %v: too little to see anything", i, p.told())
			}
			for _, v := range p.views {
				if int64(v.Replicas) != closed[v.Version] || int64(v.Index) != p.place[v.Version]-1 {
					t.Errorf("peer %d was told %d of %d for the interval %d, where it was %d of %d",
						i, v.Index, v.Replicas, v.Version, p.place[v.Version]-1, closed[v.Version])
				}
			}
		}
	})
}

// jitter delays each call by up to 20 ms.
func jitter(seed uint64) func(context.Context, string, func() (int64, error)) (int64, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	return func(_ context.Context, _ string, next func() (int64, error)) (int64, error) {
		<-time.After(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
		return next()
	}
}

// Peers whose skews are closer together than the network's jitter arrive in another
// order each time. By arrival their indexes never rest; kept, they do.
func TestArrivalOrderDoesNotReshuffle(t *testing.T) {
	for _, config := range []intervalindexer.Config{{}, {Arrival: true}} {
		synctest.Test(t, func(t *testing.T) {
			memory := new(intervalindexer.Memory)
			var peers []*watched
			for i := range 8 {
				s := newSpy(memory)
				s.incr = jitter(uint64(i))
				peers = append(peers, watch(t, s, config, 300*time.Millisecond))
			}
			pass(50)
			changes := 0
			for _, p := range peers {
				changes += len(p.told()) - 1
			}
			if !config.Arrival && changes != 0 {
				t.Errorf("indexes changed %d times with nobody joining or leaving", changes)
			}
			if config.Arrival && changes < 50 {
				t.Errorf("by arrival indexes changed %d times only: this test proves nothing", changes)
			}
		})
	}
}

// three starts peers "0 of 3" to "2 of 3", whose turns are in this order or in the
// other, and returns when they have settled.
func three(t *testing.T, config intervalindexer.Config, backwards bool) []*watched {
	memory := new(intervalindexer.Memory)
	var peers []*watched
	for i := range 3 {
		skew := time.Duration(i+1) * 100 * time.Millisecond
		if backwards {
			skew = 500*time.Millisecond - skew
		}
		peers = append(peers, watch(t, newSpy(memory), config, skew))
		pass(1) // the first to start has the lowest index
	}
	pass(4)
	for i, p := range peers {
		got := p.told()
		if want := fmt.Sprintf("%d of 3", i); len(got) == 0 || got[len(got)-1] != want {
			t.Fatalf("peer %d was told %v", i, got)
		}
		p.mu.Lock()
		p.views = p.views[len(p.views)-1:]
		p.mu.Unlock()
	}
	return peers
}

// once lets do stand in for the first call of its kind: of the count, or of an index.
func once(ofIndex bool, do func(ctx context.Context, next func() (int64, error)) (int64, error)) func(context.Context, string, func() (int64, error)) (int64, error) {
	done := false
	return func(ctx context.Context, key string, next func() (int64, error)) (int64, error) {
		if _, isCount := counts(key); isCount == ofIndex || done {
			return next()
		}
		done = true
		return do(ctx, next)
	}
}

// twice is what a client does whose first answer was lost.
func twice(_ context.Context, next func() (int64, error)) (int64, error) {
	next()
	return next()
}

// lost is a call that was carried out and whose answer never came.
func lost(ctx context.Context, next func() (int64, error)) (int64, error) {
	next()
	<-ctx.Done()
	return 0, ctx.Err()
}

// late is a call that is carried out after its interval: the others have read the
// count without it.
func late(ctx context.Context, next func() (int64, error)) (int64, error) {
	<-time.After(interval)
	return next()
}

// refused is a call that fails before it is carried out.
func refused(context.Context, func() (int64, error)) (int64, error) { return 0, countertest.ErrCut }

// An increment that is repeated, lost or late counts somebody who is not there, or
// does not count somebody who is, for one interval. Seen once it changes nothing.
func TestOneBadIncrementMovesNothing(t *testing.T) {
	type call = func(context.Context, func() (int64, error)) (int64, error)
	for name, do := range map[string]call{"repeated": twice, "lost": lost, "late": late, "refused": refused} {
		t.Run(name, func(t *testing.T) {
			// The lowest index that comes last, too: the highest must not take its place.
			for bad := range 6 {
				synctest.Test(t, func(t *testing.T) {
					peers := three(t, intervalindexer.Config{}, bad >= 3)
					peers[bad%3].misbehave(once(false, do))
					pass(10)
					for i, p := range peers {
						if got := p.told(); len(got) != 1 {
							t.Errorf("bad %d: peer %d was told %v", bad, i, got)
						}
					}
				})
			}
		})
	}
	// Without patience the same makes an index that nobody owns, as in the seed.
	synctest.Test(t, func(t *testing.T) {
		peers := three(t, intervalindexer.Config{Hasty: true}, false)
		peers[1].misbehave(once(false, twice))
		pass(10)
		if got := peers[0].told(); !slices.Equal(got, []string{"0 of 3", "0 of 4", "0 of 3"}) {
			t.Errorf("hasty: told %v: this test proves nothing", got)
		}
	})
}

// A bad increment of an index may cost its peer the index for a moment, never the
// others theirs, and all is dense again within four intervals.
func TestOneBadIncrementOfAnIndexHeals(t *testing.T) {
	type call = func(context.Context, func() (int64, error)) (int64, error)
	for _, c := range []struct {
		name string
		do   call
		want []string
	}{
		{"repeated", twice, []string{"1 of 3", "-1 of 3", "1 of 3"}},
		{"lost", lost, []string{"1 of 3"}}, // it was its own, and it goes on believing so
		{"late", late, []string{"1 of 3"}},
		{"refused", refused, []string{"1 of 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peers := three(t, intervalindexer.Config{}, false)
				peers[1].misbehave(once(true, c.do))
				pass(4)
				for i, p := range peers {
					want := []string{fmt.Sprintf("%d of 3", i)}
					if i == 1 {
						want = c.want
					}
					if got := p.told(); !slices.Equal(got, want) {
						t.Errorf("peer %d was told %v, want %v", i, got, want)
					}
				}
			})
		})
	}
}

// A ticker started at any moment, and delayed by each slow call, drifts through the
// interval until peers meet or miss one. Turns are at the same place of every
// interval, whenever the peer started and however long its calls take.
func TestTurnsAreAlignedToTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const skew = 250 * time.Millisecond
		pass(0.777)
		s := newSpy(new(intervalindexer.Memory))
		r := rand.New(rand.NewPCG(1, 1))
		s.incr = func(_ context.Context, _ string, next func() (int64, error)) (int64, error) {
			<-time.After(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
			return next()
		}
		p := watch(t, s, intervalindexer.Config{}, skew)
		pass(100)
		p.stop()
		if len(p.at) < 99 {
			t.Errorf("%d turns in 100 intervals", len(p.at))
		}
		for i, at := range p.at {
			if offset := at.Sub(at.Truncate(interval)); offset != skew {
				t.Errorf("turn %d was %v into its interval, want %v", i, offset, skew)
			}
			if i > 0 && at.Sub(p.at[i-1]) != interval {
				t.Errorf("turn %d was %v after the one before", i, at.Sub(p.at[i-1]))
			}
		}
	})
}

// A consumer that is slow to take a view must not keep its peer from being counted,
// and must get what holds now, not all that held meanwhile.
func TestSlowConsumerCostsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(intervalindexer.Memory)
		s := newSpy(memory)
		x, err := intervalindexer.New(s, "mail-sender", intervalindexer.Config{Interval: interval},
			intervalindexer.WithSkew(func(time.Duration) time.Duration { return 1 }))
		if err != nil {
			t.Fatal(err)
		}
		held := make(chan struct{})
		var got []int
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			x.Index(ctx, func(v partition.View) {
				got = append(got, v.Replicas)
				<-held
			})
		})
		pass(5)
		for i := range 3 { // views of 2, 3 and 4 replicas while the first is being taken
			watch(t, newSpy(memory), intervalindexer.Config{}, time.Duration(i+1)*100*time.Millisecond)
			pass(5)
		}
		turns := len(s.turns())
		close(held)
		pass(1)
		cancel()
		running.Wait()
		if turns != 20 {
			t.Errorf("%d turns in 20 intervals", turns)
		}
		if !slices.Equal(got, []int{1, 4}) {
			t.Errorf("the consumer was told %v replicas, want [1 4]", got)
		}
	})
}

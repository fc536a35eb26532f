package intervalindexer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/intervalindexer/countertest"
)

// A storm makes a fifth of a peer's calls fail in every way there is.
func storm(seed uint64) func(context.Context, string, func() (int64, error)) (int64, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	kinds := []func(context.Context, func() (int64, error)) (int64, error){twice, lost, late, refused}
	return func(ctx context.Context, _ string, next func() (int64, error)) (int64, error) {
		<-time.After(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
		if k := r.IntN(5 * len(kinds)); k < len(kinds) {
			return kinds[k](ctx, next)
		}
		return next()
	}
}

// However badly calls fail, and whoever comes and goes meanwhile: six intervals after
// it calms down indexes are dense and agreed, and then nothing moves.
func TestStormsCalmDown(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			memory := new(intervalindexer.Memory)
			r := rand.New(rand.NewPCG(seed, 1))
			var peers []*watched
			start := func() {
				s := newSpy(memory)
				s.misbehave(storm(r.Uint64()))
				peers = append(peers, watch(t, s, intervalindexer.Config{}, time.Duration(r.Int64N(int64(interval)))))
			}
			for range 6 {
				start()
			}
			for range 20 {
				pass(r.Float64() * 2)
				switch r.IntN(6) {
				case 0:
					start()
				case 1:
					i := r.IntN(len(peers))
					if len(peers) > 2 {
						peers[i].stop()
						peers = slices.Delete(peers, i, i+1)
					}
				}
			}
			for _, p := range peers {
				p.misbehave(nil)
			}
			pass(6) // a call that hangs for one interval may still be under way
			check := func() []string {
				var now []string
				seen := map[int]bool{}
				for i, p := range peers {
					told := p.told()
					if len(told) == 0 {
						t.Fatalf("seed %d: peer %d of %d was told nothing", seed, i, len(peers))
					}
					var index, replicas int
					now = append(now, told[len(told)-1])
					fmt.Sscanf(now[i], "%d of %d", &index, &replicas)
					if replicas != len(peers) || seen[index] || index < 0 || index >= replicas {
						t.Fatalf("seed %d: %d peers; they were told %v", seed, len(peers), now)
					}
					seen[index] = true
				}
				return now
			}
			before := check()
			pass(10)
			if after := check(); !slices.Equal(before, after) {
				t.Fatalf("seed %d: in calm %v became %v", seed, before, after)
			}
		})
	}
}

// When the store is away its peers take their membership back after two intervals,
// report what they missed, and have the same indexes again when it returns.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers := three(t, intervalindexer.Config{}, true)
		for _, p := range peers {
			p.misbehave(func(context.Context, string, func() (int64, error)) (int64, error) { return 0, countertest.ErrCut })
		}
		pass(5)
		for _, p := range peers {
			p.misbehave(nil)
		}
		pass(4)
		for i, p := range peers {
			mine := fmt.Sprintf("%d of 3", i)
			if got := p.told(); !slices.Equal(got, []string{mine, "-1 of 3", mine}) {
				t.Errorf("peer %d was told %v", i, got)
			}
		}
	})
}

// Connections do not come back in one moment: whoever is back first is alone in its interval, and
// the index of a peer that comes after it is no hole for the others.
func TestStoreIsBackForOneBeforeTheOthers(t *testing.T) {
	for first := range 3 {
		for _, backwards := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				peers := three(t, intervalindexer.Config{}, backwards)
				for _, p := range peers {
					p.misbehave(func(context.Context, string, func() (int64, error)) (int64, error) { return 0, countertest.ErrCut })
				}
				pass(5)
				peers[first].misbehave(nil)
				pass(1)
				for _, p := range peers {
					p.misbehave(nil)
				}
				pass(4)
				for i, p := range peers {
					mine := fmt.Sprintf("%d of 3", i)
					if got := p.told(); !slices.Equal(got, []string{mine, "-1 of 3", mine}) {
						t.Errorf("peer %d was told %v; peer %d was back first, turns backwards: %t", i, got, first, backwards)
					}
				}
			})
		}
	}
}

// A peer that stands still for long knows it when it goes on, and takes its membership
// back before anything else: the others have shared out what it had.
func TestLongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers := three(t, intervalindexer.Config{}, false)
		peers[0].misbehave(once(false, func(_ context.Context, next func() (int64, error)) (int64, error) {
			pass(6)
			return next()
		}))
		pass(6.5)
		if got := peers[0].told(); !slices.Equal(got, []string{"0 of 3", "-1 of 3"}) {
			t.Errorf("after the pause told %v", got)
		}
		pass(5)
		for i, want := range []string{"2 of 3", "1 of 3", "0 of 3"} {
			if got := peers[i].told(); got[len(got)-1] != want {
				t.Errorf("peer %d was told %v, want %s in the end", i, got, want)
			}
		}
	})
}

// Also where it stands still while it asks for its index, whether the answer is lost or comes
// when it goes on: what was its own in that interval is somebody else's now.
func TestLongPauseWhileItAsksForItsIndex(t *testing.T) {
	for name, answered := range map[string]bool{"lost": false, "answered": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peers := three(t, intervalindexer.Config{}, false)
				peers[0].misbehave(once(true, func(ctx context.Context, next func() (int64, error)) (int64, error) {
					v, err := next()
					pass(6)
					if !answered {
						err = ctx.Err()
					}
					return v, err
				}))
				pass(6.5)
				if got := peers[0].told(); !slices.Equal(got, []string{"0 of 3", "-1 of 3"}) {
					t.Errorf("after the pause told %v", got)
				}
				pass(5)
				for i, want := range []string{"2 of 3", "1 of 3", "0 of 3"} {
					if got := peers[i].told(); got[len(got)-1] != want {
						t.Errorf("peer %d was told %v, want %s in the end", i, got, want)
					}
				}
			})
		})
	}
}

// Of a pause that ends before the turn after next one interval is missed: nothing to a patient
// peer, all to a hasty one.
func TestPauseOfOneIntervalWhileItAsksForItsIndex(t *testing.T) {
	for _, hasty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			peers := three(t, intervalindexer.Config{Hasty: hasty}, false)
			peers[0].misbehave(once(true, func(_ context.Context, next func() (int64, error)) (int64, error) {
				v, err := next()
				pass(1.95)
				return v, err
			}))
			pass(3) // its turn is over before the next, at 2.1 intervals
			want := []string{"0 of 3"}
			if hasty {
				want = []string{"0 of 3", "-1 of 3"}
			}
			if got := peers[0].told(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) || !hasty && len(got) > 1 {
				t.Errorf("hasty %v: told %v, want %v first", hasty, got, want)
			}
		})
	}
}

// A newcomer that stands still in the turn that would have made it a member was none: it has
// nothing to take back.
func TestLongPauseOfANewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(new(intervalindexer.Memory))
		var asked atomic.Int32
		s.incr = func(_ context.Context, key string, next func() (int64, error)) (int64, error) {
			if _, isCount := counts(key); !isCount {
				if asked.Add(1) == 3 {
					pass(6)
				}
			}
			return next()
		}
		p := watch(t, s, intervalindexer.Config{}, 100*time.Millisecond)
		pass(9)
		if got := p.told(); asked.Load() < 3 || len(got) > 0 {
			t.Errorf("after the pause told %v", got)
		}
		pass(4)
		if got := p.told(); !slices.Equal(got, []string{"0 of 1"}) {
			t.Errorf("in the end told %v", got)
		}
	})
}

// Once its context has ended a peer is told nothing, not even what waits.
func TestNothingIsToldAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(intervalindexer.Memory)
		x, err := intervalindexer.New(memory, "mail-sender", intervalindexer.Config{Interval: interval})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		held, done := make(chan struct{}), make(chan struct{})
		told := 0
		go func() {
			defer close(done)
			x.Index(ctx, func(partition.View) { told++; <-held })
		}()
		pass(4)
		watch(t, newSpy(memory), intervalindexer.Config{}, 1)
		pass(4)
		cancel()
		close(held)
		<-done
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}

func TestMissedIntervalsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter := &countertest.Cuttable{Counter: new(intervalindexer.Memory)}
		counter.Cut()
		var missed []uint64
		x, err := intervalindexer.New(counter, "mail-sender", intervalindexer.Config{Interval: interval},
			intervalindexer.WithMissed(func(number uint64, err error) {
				if err == nil {
					t.Error("missed for no reason")
				}
				missed = append(missed, number)
			}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*interval)
		defer cancel()
		x.Index(ctx, func(v partition.View) { t.Errorf("told %+v", v) })
		if len(missed) != 3 || missed[1] != missed[0]+1 || missed[2] != missed[0]+2 {
			t.Errorf("missed %v, want three in a row", missed)
		}
	})
}

// silent is a counter that does not answer.
type silent struct{ intervalindexer.Counter }

func (silent) Incr(ctx context.Context, _ string, _ time.Duration) (int64, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// A turn that ends with the peer was not missed.
func TestTheLastTurnIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, err := intervalindexer.New(silent{}, "mail-sender", intervalindexer.Config{Interval: interval},
			intervalindexer.WithMissed(func(number uint64, err error) { t.Errorf("missed %d: %v", number, err) }),
			intervalindexer.WithSkew(func(time.Duration) time.Duration { return interval / 2 }))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), interval*6/10) // a bubble begins with an interval
		defer cancel()
		if err := x.Index(ctx, func(v partition.View) { t.Errorf("told %+v", v) }); err != nil {
			t.Error(err)
		}
	})
}

// Random skews are constant for a peer, spread over the first four fifths, and leave
// room at the end, whatever a chooser says.
func TestSkew(t *testing.T) {
	offsets := map[time.Duration]bool{}
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy(new(intervalindexer.Memory))
			var options []intervalindexer.Option
			if i < 3 {
				options = append(options, intervalindexer.WithSkew(func(most time.Duration) time.Duration { return time.Duration(2-2*i) * most }))
			}
			x, err := intervalindexer.New(s, "mail-sender", intervalindexer.Config{Interval: interval}, options...)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*interval)
			defer cancel()
			x.Index(ctx, func(partition.View) {})
			var first time.Duration
			for j, at := range s.turns() {
				offset := at.Sub(at.Truncate(interval))
				if j == 0 {
					first = offset
				}
				if offset != first || offset <= 0 || offset > interval*8/10 {
					t.Errorf("a turn %v into its interval, the first was at %v", offset, first)
				}
			}
			offsets[first] = true
		})
	}
	if len(offsets) < 15 {
		t.Errorf("%d different skews of 20 peers", len(offsets))
	}
}

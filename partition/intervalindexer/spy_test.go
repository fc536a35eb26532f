package intervalindexer_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
)

// A spy is a counter that can be told to misbehave, and takes notes.
type spy struct {
	intervalindexer.Counter
	// incr, if set, stands in for Incr.
	incr func(ctx context.Context, key string, next func() (int64, error)) (int64, error)

	mu    sync.Mutex
	place map[uint64]int64 // our place by arrival in it
	at    []time.Time      // when we were counted
}

func newSpy(c intervalindexer.Counter) *spy {
	return &spy{Counter: c, place: map[uint64]int64{}}
}

// counts returns the interval that key counts, or false for the key of an index.
func counts(key string) (uint64, bool) {
	_, rest, _ := strings.Cut(key, "}:")
	n, err := strconv.ParseUint(rest, 10, 64)
	return n, err == nil
}

func (s *spy) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	// What is under way is carried out, whether or not its answer is waited for.
	call := func() (int64, error) { return s.Counter.Incr(context.WithoutCancel(ctx), key, expiry) }
	s.mu.Lock()
	instead := s.incr
	s.mu.Unlock()
	incr := call
	if instead != nil {
		incr = func() (int64, error) { return instead(ctx, key, call) }
	}
	number, ok := counts(key)
	if !ok {
		return incr()
	}
	s.mu.Lock()
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
	v, err := incr()
	s.mu.Lock()
	s.place[number] = v
	s.mu.Unlock()
	return v, err
}

// misbehave has incr stand in for Incr from now on.
func (s *spy) misbehave(incr func(ctx context.Context, key string, next func() (int64, error)) (int64, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.incr = incr
}

// turns returns when the peer was counted.
func (s *spy) turns() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

// A watched is a peer in a bubble, and what it was told (under the spy's lock).
type watched struct {
	*spy
	stop func()

	views []partition.View
}

// watch starts a peer whose turns are at skew.
func watch(t *testing.T, s *spy, config intervalindexer.Config, skew time.Duration) *watched {
	config.Interval = interval
	x, err := intervalindexer.New(s, "mail-sender", config,
		intervalindexer.WithSkew(func(time.Duration) time.Duration { return skew }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{spy: s}
	var running sync.WaitGroup
	running.Go(func() {
		x.Index(ctx, func(v partition.View) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.views = append(w.views, v)
		})
	})
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(w.stop)
	return w
}

// told returns the pairs that w was told, as "index of replicas".
func (w *watched) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, v := range w.views {
		out = append(out, fmt.Sprintf("%d of %d", v.Index, v.Replicas))
	}
	return out
}

func (w *watched) wish() []partition.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.views) == 0 {
		return nil
	}
	return w.views[len(w.views)-1].Wish
}

// pass lets n intervals go by.
func pass(n float64) { <-time.After(time.Duration(n * float64(interval))) }

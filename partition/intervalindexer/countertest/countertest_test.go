package countertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
)

// hung is a counter one of whose methods does not return, whatever its context does, until it is released.
type hung struct {
	intervalindexer.Memory
	what    string
	release chan struct{}
}

func (h *hung) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	if h.what == "Incr" {
		<-h.release
	}
	return h.Memory.Incr(ctx, key, expiry)
}

func (h *hung) Get(ctx context.Context, keys ...string) ([]int64, error) {
	if h.what == "Get" {
		<-h.release
	}
	return h.Memory.Get(ctx, keys...)
}

type recorder struct {
	testing.TB
	mu      sync.Mutex
	failure string
}

func (r *recorder) Error(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = fmt.Sprint(args...)
}

// A call that does not return is told, and holds up no peer that is to end.
func TestWhatHangsIsTold(t *testing.T) {
	for _, what := range []string{"Incr", "Get"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hung{what: what, release: make(chan struct{})}
				defer close(h.release)
				r := &recorder{TB: t}
				config := intervalindexer.Config{Interval: time.Second}
				x, _ := Group(r, h, "mails", config).Peer("a")
				ctx, cancel := context.WithTimeout(t.Context(), 4*config.Interval)
				defer cancel()
				if err := x.Index(ctx, func(partition.View) {}); err != nil {
					t.Error(err)
				}
				if want := what + " of "; !strings.Contains(r.failure, want) || !strings.Contains(r.failure, "has not returned") {
					t.Errorf("it says %q", r.failure)
				}
			})
		})
	}
}

// loose is a counter that breaks one promise.
type loose struct {
	what string
	mu   sync.Mutex
	now  map[string]int64
	last time.Time // of a call
}

func (l *loose) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	if l.what == "keeps nothing for long" && expiry > 10*time.Second {
		return 0, fmt.Errorf("the store keeps nothing for %v", expiry)
	}
	if ctx.Err() != nil && l.what != "sends what was given up" {
		return 0, ctx.Err()
	}
	l.mu.Lock()
	n := l.now[key]
	if l.what == "refuses who comes meanwhile" && l.last.Equal(time.Now()) {
		l.mu.Unlock()
		return 0, errors.New("too many")
	}
	l.last = time.Now()
	if l.what == "reads, then writes" {
		l.mu.Unlock()
		time.Sleep(time.Millisecond) // of the bubble: others come meanwhile
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	l.now[key] = n + 1
	if l.what == "counts from nought" {
		return n, ctx.Err()
	}
	return n + 1, ctx.Err()
}

func (l *loose) Get(ctx context.Context, keys ...string) (values []int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		n, ok := l.now[k]
		if l.what == "answers with what was" && time.Since(l.last) < 300*time.Millisecond {
			n = 0
		}
		if ok || l.what != "leaves out what is not there" {
			values = append(values, n)
		}
	}
	return values, ctx.Err()
}

// Peers have their turns at different times, and would seldom notice.
func TestWhatIsNoCounterIsTold(t *testing.T) {
	for what, want := range map[string]string{
		"":                             "",
		"answers with what was":        "", // as replicas do
		"keeps nothing for long":       "", // as its store is set
		"reads, then writes":           "returned [1 1 1 1 1 1 1 1], want each number from 1 to 8",
		"counts from nought":           "from 1 to 8",
		"refuses who comes meanwhile":  "one of 8 calls of Incr side by side: too many",
		"sends what was given up":      "a call of Incr whose context had ended was counted: Get returned 9",
		"leaves out what is not there": "want [0 8]",
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{TB: t}
				Group(r, &loose{what: what, now: make(map[string]int64)}, "mails", intervalindexer.Config{Interval: time.Second})
				if (r.failure == "") != (want == "") || !strings.Contains(r.failure, want) {
					t.Errorf("it says %q, want %q", r.failure, want)
				}
			})
		})
	}
}

// A lasting is a recorder whose test ends when it is told to.
type lasting struct {
	recorder
	cleanups []func()
}

func (l *lasting) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

// Peers never look at an old interval: a store that keeps all of them is found when it is full.
func TestWhatIsKeptForGoodIsTold(t *testing.T) {
	const interval = time.Second
	for name, c := range map[string]struct {
		counter intervalindexer.Counter
		lasts   time.Duration
		want    string
	}{
		"vanishes":              {new(intervalindexer.Memory), 4 * interval, ""},
		"stays":                 {&loose{now: make(map[string]int64)}, 4 * interval, "still there"},
		"may not have gone yet": {&loose{now: make(map[string]int64)}, 2 * interval, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lasting{recorder: recorder{TB: t}}
				Group(l, c.counter, "mails", intervalindexer.Config{Interval: interval})
				<-time.After(c.lasts)
				began := time.Now()
				for _, f := range l.cleanups {
					f()
				}
				if (l.failure == "") != (c.want == "") || !strings.Contains(l.failure, c.want) {
					t.Errorf("it says %q, want %q", l.failure, c.want)
				}
				if took := time.Since(began); c.want == "" && took > 0 {
					t.Errorf("it has waited for %v", took)
				}
			})
		})
	}
}

// A stopper is a recorder that says whether the test has failed, and is ended by that.
type stopper struct {
	recorder
	ended bool
}

func (s *stopper) Failed() bool { return s.failure != "" }
func (s *stopper) FailNow()     { s.ended = true; runtime.Goexit() }

// brief is a counter that leaves out what is not there.
type brief struct{ intervalindexer.Memory }

func (b *brief) Get(ctx context.Context, keys ...string) ([]int64, error) {
	all, err := b.Memory.Get(ctx, keys...)
	return slices.DeleteFunc(all, func(n int64) bool { return n == 0 }), err
}

// A peer that is given fewer values than keys panics, and of what was told before nothing is read.
func TestNoPeerCountsOnWhatIsNoCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stopper{recorder: recorder{TB: t}}
		over := make(chan struct{})
		go func() {
			defer close(over)
			Group(s, &brief{}, "mails", intervalindexer.Config{Interval: time.Second})
		}()
		<-over
		if !s.ended || !strings.Contains(s.failure, "Get of a key that is not there") {
			t.Errorf("it says %q, and ends the test: %v", s.failure, s.ended)
		}
	})
}

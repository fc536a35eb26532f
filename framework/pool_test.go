package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeGate is a coordinator that grants whatever the test serves.
type fakeGate struct {
	invalid atomic.Bool
	shut    atomic.Bool // Has says no
	asked   func()      // by Valid, before it answers

	attended atomic.Int64 // calls of Attend

	mu     sync.Mutex
	fenced map[partition.Grant]partition.Epoch
	lost   map[partition.Grant]error
}

func (g *fakeGate) Valid(time.Time) bool {
	if g.asked != nil {
		g.asked()
	}
	return !g.invalid.Load()
}

func (g *fakeGate) Attend() { g.attended.Add(1) }

func (g *fakeGate) Has(partition.ID) bool { return !g.shut.Load() }

func (g *fakeGate) Fenced(at partition.Grant, stored partition.Epoch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced[at] = stored
}

func (g *fakeGate) Lost(at partition.Grant, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost[at] = cause
}

// A recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) Observe(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// of returns the events of type E.
func of[E Event](r *recorder) []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []E
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			all = append(all, e)
		}
	}
	return all
}

// A bench is a pool alone: a source in memory, a gate, a recorder.
type bench struct {
	*pool
	t      *testing.T
	gate   *fakeGate
	store  *memsource.Store
	seen   *recorder
	epoch  partition.Epoch
	failed chan error
}

type benchConfig struct {
	Config
	partitions int
	source     func(*memsource.Store) sources.Source
}

func newBench(t *testing.T, cfg benchConfig, h HandlerFunc) *bench {
	t.Helper()
	store, err := memsource.New(memsource.Config{Partitions: partition.Config{Total: max(cfg.partitions, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		t:      t,
		gate:   &fakeGate{fenced: map[partition.Grant]partition.Epoch{}, lost: map[partition.Grant]error{}},
		store:  store,
		seen:   &recorder{},
		failed: make(chan error, 16),
	}
	source := sources.Source(store)
	if cfg.source != nil {
		source = cfg.source(store)
	}
	b.pool = newPool(crew{
		name:     "bench",
		session:  "session",
		source:   source,
		handler:  h,
		cfg:      cfg.Config.WithDefaults(),
		total:    max(cfg.partitions, 1),
		gate:     b.gate,
		observer: b.seen,
		random:   func() float64 { return 0.5 },
		fatal:    func(err error) { b.failed <- err },
	})
	return b
}

// grant serves partition id under a new epoch.
func (b *bench) grant(id partition.ID) partition.Grant {
	b.epoch++
	g := partition.Grant{ID: id, Epoch: b.epoch}
	b.Serve(g)
	return g
}

func (b *bench) push(tasks ...sources.Task) {
	b.t.Helper()
	if err := b.store.PushTo(0, tasks...); err != nil {
		b.t.Fatal(err)
	}
}

// drain drains g and waits for it.
func (b *bench) drain(g partition.Grant) {
	done := make(chan struct{})
	b.Drain(g, func() { close(done) })
	<-done
}

// stop drains everything and closes the pool.
func (b *bench) stop() {
	b.abortAll(ErrStopped)
	b.close()
}

func task(key string, n int) sources.Task {
	return sources.Task{ID: fmt.Sprintf("%s-%d", key, n), Key: key}
}

func ids(tasks []string) string { return fmt.Sprint(tasks) }

func TestTasksOfAKeyRunInOrderOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running := map[string]bool{}
		got := map[string][]string{}
		most := 0
		b := newBench(t, benchConfig{Config: Config{Concurrency: 4}}, func(_ context.Context, task *Task) error {
			mu.Lock()
			if task.Key != "" && running[task.Key] {
				t.Errorf("two handlers at once for key %q", task.Key)
			}
			running[task.Key] = true
			n := 0
			for _, r := range running {
				if r {
					n++
				}
			}
			most = max(most, n)
			mu.Unlock()
			time.Sleep(time.Duration(len(task.ID)%3+1) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			running[task.Key] = false
			got[task.Key] = append(got[task.Key], task.ID)
			return nil
		})
		defer b.stop()
		want := map[string][]string{}
		for i := range 300 {
			task := task(fmt.Sprintf("key%d", i*i%7), i) // 0 1 4 2 2 4 1: a key follows itself
			want[task.Key] = append(want[task.Key], task.ID)
			b.push(task)
		}
		g := b.grant(0)
		for open, _ := b.store.Pending(0); open > 0; open, _ = b.store.Pending(0) {
			time.Sleep(time.Millisecond)
		}
		b.drain(g)
		for key, w := range want {
			if !slices.Equal(got[key], w) {
				t.Errorf("key %s: handled %s, want %s", key, ids(got[key]), ids(w))
			}
		}
		if most < 4 {
			t.Errorf("at most %d keys ran at once, want 4", most)
		}
	})
}

// The source is told the first error of a task that was tried again, not only the last: a
// dead letter tells both.
func TestADeadLetterTellsTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []sources.Settlement
		s := &spy{onSettle: func(_ context.Context, done []sources.Settlement) error {
			told = append(told, done...)
			return nil
		}}
		b := newBench(t, benchConfig{source: s.over}, func(_ context.Context, task *Task) error {
			if task.Attempt == 3 {
				return Dead(errors.New("third"))
			}
			return fmt.Errorf("try %d", task.Attempt)
		})
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		time.Sleep(10 * time.Second)
		b.drain(g)
		if n := len(told); n != 3 {
			t.Fatalf("%d settlements, want two retries and a dead letter", n)
		}
		for i, first := range []string{"", "try 1", "try 1"} {
			if d := told[i]; d.Task.ID != "a-0" || d.Attempt != i+1 || d.Task.FirstError != first {
				t.Errorf("settlement %d is of attempt %d of %s, which says %q was the first error, want %q", i, d.Attempt, d.Task.ID, d.Task.FirstError, first)
			}
		}
		if d := told[2]; d.Outcome != sources.Dead || d.Reason != "third" {
			t.Errorf("the last one is %v: %s", d.Outcome, d.Reason)
		}
	})
}

func TestRetryOfAKeyedTaskParksItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var log []string
		b := newBench(t, benchConfig{}, func(_ context.Context, task *Task) error {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf("%v %s try %d", time.Since(began), task.ID, task.Attempt))
			if task.ID == "a-0" && task.Attempt < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		defer b.stop()
		b.push(task("a", 0), task("a", 1), task("b", 0))
		b.grant(0)
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(log)
		want := []string{"0s a-0 try 1", "0s b-0 try 1", "1s a-0 try 2", "3s a-0 try 3", "3s a-1 try 1"}
		if !slices.Equal(log, want) {
			t.Errorf("handled %q, want %q", log, want)
		}
		if open, _ := b.store.Pending(0); open != 0 {
			t.Errorf("%d tasks open at the end", open)
		}
	})
}

package framework

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// An endless source has as many tasks as it is asked for and costs nothing, so that
// what is measured is the way through the lane.
type endless struct {
	keys  int // 0: tasks without a key
	batch []sources.Task
	done  chan struct{}

	mu      sync.Mutex
	want    int // tasks to settle until done
	next    int
	waiting chan struct{}
}

func newEndless(keys int) *endless {
	e := &endless{keys: keys, done: make(chan struct{}, 1), waiting: make(chan struct{}, 1)}
	names := make([]string, max(keys, 1))
	for i := range names {
		if keys > 0 {
			names[i] = fmt.Sprintf("key-%d", i)
		}
	}
	// Enough memory for all that may be under way at once, so that a task is never
	// overwritten while somebody has it.
	e.batch = make([]sources.Task, 16*mostAhead+mostUnsettled)
	first := &Delivery{Attempt: 1}
	for i := range e.batch {
		e.batch[i] = sources.Task{ID: "task", Key: names[i%len(names)], Receipt: sources.Receipt(i), Delivery: first}
	}
	return e
}

func (e *endless) Layout(context.Context) (partition.Config, error) {
	return partition.Config{Total: 1}, nil
}

func (e *endless) Open(context.Context, partition.Grant, partition.Token) (sources.Stream, error) {
	return e, nil
}

func (e *endless) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	for {
		e.mu.Lock()
		if n := min(limit, e.want-e.next); n > 0 {
			from := e.next % (len(e.batch) - mostAhead)
			e.next += n
			e.mu.Unlock()
			return e.batch[from : from+n], nil
		}
		e.mu.Unlock()
		select {
		case <-e.waiting:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (e *endless) Settle(_ context.Context, done ...sources.Settlement) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.want -= len(done)
	e.next -= len(done)
	if e.want == 0 {
		e.done <- struct{}{}
	}
	return nil
}

func (e *endless) Close(context.Context) error { return nil }

// run lets n tasks go through the lane and waits for the end of the last.
func (e *endless) run(n int) {
	e.mu.Lock()
	e.want = n
	e.mu.Unlock()
	poke(e.waiting)
	<-e.done
}

// through is a pool of so many workers, or the default, with one lane over e, and o, or
// nobody, who listens.
func through(tb testing.TB, e *endless, o Observer, workers int) {
	tb.Helper()
	p := newPool(crew{
		name:    "bench",
		session: "session",
		source:  e,
		handler: HandlerFunc(func(context.Context, *Task) error { return nil }),
		cfg:     Config{Concurrency: workers}.WithDefaults(),
		gate:    &fakeGate{},

		observer: o,
		random:   func() float64 { return 0.5 },
	})
	p.Serve(partition.Grant{ID: 0, Epoch: 1})
	tb.Cleanup(func() {
		p.abortAll(ErrStopped)
		p.close()
	})
}

// runs counts what it is told by which method.
type runs struct{ handled, others, wrong atomic.Int64 }

func (r *runs) Observe(e Event) {
	r.others.Add(1)
	if _, ok := e.(Handled); ok {
		r.wrong.Add(1)
	}
}

func (r *runs) ObserveHandled(Handled) { r.handled.Add(1) }

func TestRunsAreToldByTheMethodForThem(t *testing.T) {
	var r runs
	plain := 0
	all := Observers{&r, ObserverFunc(func(e Event) {
		if _, ok := e.(Handled); ok {
			plain++
		}
	})}
	observeHandled(all, Handled{})
	all.Observe(Fetched{})
	if r.handled.Load() != 1 || r.others.Load() != 1 || r.wrong.Load() != 0 || plain != 1 {
		t.Errorf("handled %d, others %d, by the wrong one %d; the plain observer %d",
			r.handled.Load(), r.others.Load(), r.wrong.Load(), plain)
	}
}

func TestATaskCostsNoAllocationOnItsWayThroughALane(t *testing.T) {
	for _, c := range []struct {
		name     string
		keys     int
		observer Observer
	}{{"without a key", 0, nil}, {"of 64 keys", 64, nil}, {"of 5,000 keys", 5000, nil}, {"told to observers", 0, Observers{&runs{}, &runs{}}}} {
		t.Run(c.name, func(t *testing.T) {
			e := newEndless(c.keys)
			through(t, e, c.observer, 0)
			e.run(20_000) // the free lists and the map grow
			const tasks = 50_000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			e.run(tasks)
			runtime.ReadMemStats(&after)
			if each := float64(after.Mallocs-before.Mallocs) / tasks; each > 0.5 {
				t.Errorf("%.2f allocations a task, want a small part of one: those of a batch", each)
			}
		})
	}
}

// The whole runtime may need 2 allocations a task; the lane itself is to need none.
func BenchmarkLane(b *testing.B) {
	for _, c := range []struct{ keys, workers int }{{0, 16}, {64, 16}, {5000, 16}, {0, 10_000}} {
		b.Run(fmt.Sprintf("keys=%d/workers=%d", c.keys, c.workers), func(b *testing.B) {
			e := newEndless(c.keys)
			through(b, e, nil, c.workers)
			e.run(20_000)
			b.ReportAllocs()
			b.ResetTimer()
			e.run(b.N)
			b.StopTimer()
			perTask := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			verdict := 1.0
			if perTask > 2000 {
				verdict = 0
			}
			b.ReportMetric(verdict, "ok(≤2us)")
		})
	}
}

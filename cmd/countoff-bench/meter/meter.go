package meter

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// A Meter sees every task of a run once it is handled. Saw may be called concurrently.
type Meter struct {
	n       int64
	seen    []atomic.Uint64 // a bit for each task
	handled atomic.Int64
	twice   atomic.Int64
	strange atomic.Int64

	started     bool // by Start, not by the first task
	look        Look
	first, last usage
	began       chan struct{}
	ended       chan struct{}
}

// usage is what the process had used at a moment, and the store.
type usage struct {
	at            time.Time
	cpu           time.Duration // user and system
	allocs, bytes uint64
	store         Answer
	err           error // of the look at the store
}

// used looks at the store last, at both ends of a span: what the process waits for its
// answer moves the store's span, and makes it no longer.
func (m *Meter) used() usage {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	u := usage{at: time.Now(), cpu: cpu(), allocs: stats.Mallocs, bytes: stats.TotalAlloc}
	u.store, u.err = m.look()
	return u
}

// New returns the meter of a run of n tasks, numbered from 0, on a store that look asks.
func New(n int, look Look) *Meter {
	return &Meter{
		n: int64(n), look: look, seen: make([]atomic.Uint64, (n+63)/64),
		began: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Tasks is how many tasks there are.
func (m *Meter) Tasks() int { return int(m.n) }

// Began is closed with the first task, Ended with the last one.
func (m *Meter) Began() <-chan struct{} { return m.began }

// Ended is closed when as many tasks were handled as there are.
func (m *Meter) Ended() <-chan struct{} { return m.ended }

// Saw says that the task with this payload is handled.
func (m *Meter) Saw(payload []byte) { saw(m, payload) }

// SawString is Saw for clients that hand out strings.
func (m *Meter) SawString(payload string) { saw(m, payload) }

func saw[T string | []byte](m *Meter, payload T) {
	i, err := index(payload)
	if err != nil || int64(i) >= m.n {
		m.strange.Add(1)
		return
	}
	bit := uint64(1) << (i % 64)
	if m.seen[i/64].Or(bit)&bit != 0 {
		m.twice.Add(1)
		return
	}
	m.count(1)
}

// Start begins a span that does not begin with a task, since what is measured is not the
// handling of them. Call it before any Count, and not with Saw.
func (m *Meter) Start() {
	m.started = true
	m.begin()
}

// Count says that n more tasks of a span that began with Start are done. It may be
// called concurrently.
func (m *Meter) Count(n int) { m.count(int64(n)) }

func (m *Meter) count(n int64) {
	total := m.handled.Add(n)
	if total == n && !m.started {
		m.begin()
	}
	if total >= m.n && total-n < m.n {
		<-m.began // whoever has the first task may still look at the store
		m.last = m.used()
		close(m.ended)
	}
}

func (m *Meter) begin() {
	m.first = m.used()
	close(m.began)
}

// A Span is what a run took.
type Span struct {
	Tasks         int
	Took, CPU     time.Duration
	Allocs, Bytes uint64
	Store         Store
}

// Span returns what passed from the first to the last task, or an error if the store did
// not say what it had done. Call it after Ended.
func (m *Meter) Span() (Span, error) {
	if err := errors.Join(m.first.err, m.last.err); err != nil {
		return Span{}, fmt.Errorf("what the store has done: %w", err)
	}
	store, err := between(m.first.store, m.last.store)
	return Span{
		Tasks: int(m.n), Took: m.last.at.Sub(m.first.at), CPU: m.last.cpu - m.first.cpu,
		Allocs: m.last.allocs - m.first.allocs, Bytes: m.last.bytes - m.first.bytes, Store: store,
	}, err
}

// Check returns an error unless each task was handled exactly once. Call it when the
// contestant has stopped, so that a task which comes late and again is seen.
func (m *Meter) Check() error {
	var errs []error
	if missing := m.n - m.handled.Load(); missing > 0 {
		errs = append(errs, fmt.Errorf("%d of %d tasks were not handled", missing, m.n))
	}
	if n := m.twice.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("%d times a task was handled again", n))
	}
	if n := m.strange.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("%d times something else was handled", n))
	}
	return errors.Join(errs...)
}

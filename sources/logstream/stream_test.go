package logstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

var (
	errNo      = errors.New("no")
	errLasting = fmt.Errorf("%w, and it lasts", errNo)
)

// A memory is a store with one log, and the driver of its stream. It admits whatever is
// said, unless it is to fail.
type memory struct {
	*Stream
	permit  Permit
	request progress.Request
	trouble error
	due     time.Time
	more    int           // elements behind what was read
	takes   time.Duration // of a trip
	fail    error
	said    []string
	trips   int
}

func start(more int) *memory {
	m := &memory{more: more}
	m.Stream = New(m, partition.Grant{Epoch: 1}, progress.New(progress.Config{}, progress.Opened{}), &m.permit)
	m.Start()
	return m
}

func (m *memory) Trouble() error { return m.trouble }

func (m *memory) Beside(time.Time, int) ([]sources.Task, time.Time) { return nil, m.due }

func (m *memory) Record(d *sources.Settlement, _ time.Time) (uint64, error) {
	if d.Outcome != sources.Done {
		return 0, errNo
	}
	return m.Log.Settle(int64(d.Task.Receipt), progress.Done, d.Attempt), nil
}

func (m *memory) Compose(time.Time) bool {
	limit, read := m.Wants(m.more > 0 || m.Fresh())
	if limit == 0 && m.Log.Seq() == m.Log.Answered() {
		return false
	}
	m.Log.Compose(limit, read, m.Log.Seq(), &m.request)
	return true
}

func (m *memory) Tend(context.Context) time.Duration { return 0 }

func (m *memory) Trip(context.Context) error {
	time.Sleep(m.takes)
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.trips++
	if m.fail != nil {
		return m.fail
	}
	r := &m.request
	m.said = append(m.said, fmt.Sprintf("read %d of %d, base %d", r.Fetch, r.Read, r.Base))
	gate := max(r.Gate, m.Log.Read()+int64(min(r.Fetch, m.more)))
	m.Log.Apply(r, progress.Answer{Status: progress.Admitted, Before: r.Before, Base: r.Base, Gate: gate})
	for range min(r.Fetch, m.more) {
		m.more--
		pos := m.Log.Read()
		m.Log.Add(pos, 0)
		m.Held.Next().Receipt = sources.Receipt(pos)
	}
	m.Admitted()
	return nil
}

func (m *memory) Clear(context.Context) error {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.said = append(m.said, "close")
	return nil
}

func (m *memory) Lasting(err error) bool { return errors.Is(err, errLasting) }

func (m *memory) Close(ctx context.Context) error {
	m.Stop()
	m.Wait(ctx)
	return m.Finish(ctx)
}

// set has whatever is asked fail, or not any more.
func (m *memory) set(fail error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.fail = fail
}

func (m *memory) fetch(t *testing.T, limit int) []sources.Task {
	t.Helper()
	tasks, err := m.Fetch(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func done(tasks ...sources.Task) (all []sources.Settlement) {
	for i := range tasks {
		all = append(all, sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1})
	}
	return all
}

// What was settled is said before the fence is cleared, however often that fails, and
// nothing is said by who has lost the partition or has no time left.
func TestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(2)
		tasks := m.fetch(t, 2)
		m.set(errNo)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Settle(ctx, done(tasks...)...); !errors.Is(err, context.Canceled) {
			t.Errorf("settled: %v", err)
		}
		go func() {
			time.Sleep(patience / 2)
			m.set(nil)
		}()
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []string{"read 2 of 0, base 0", "read 0 of 2, base 2", "close"}; !slices.Equal(m.said, want) {
			t.Errorf("said %q, want %q", m.said, want)
		}
		if _, err := m.Fetch(t.Context(), 1); !errors.Is(err, sources.ErrClosed) {
			t.Errorf("fetched from a closed stream: %v", err)
		}
	})
	for name, fail := range map[string]error{"a trouble that lasts": errLasting, "a long trouble": errNo} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, began := start(0), time.Now()
				m.set(fail)
				err := m.Close(t.Context())
				var of *sources.Error
				if !errors.As(err, &of) || of.Op != "close" || !errors.Is(err, fail) {
					t.Errorf("closed: %v", err)
				}
				if took := time.Since(began); (fail == errLasting) != (took == 0) || took > 2*patience+lastPause {
					t.Errorf("it was told after %v", took)
				}
				m.set(nil)
				if err := m.Close(t.Context()); err != nil || !slices.Equal(m.said, []string{"close"}) {
					t.Errorf("closed again: %v, said %q", err, m.said)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m := start(0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Close(ctx); !errors.Is(err, context.Canceled) || len(m.said) > 0 {
			t.Errorf("closed without time: %v, said %q", err, m.said)
		}
		m.Mu.Lock()
		m.Lose(sources.ErrFenced)
		m.Mu.Unlock()
		if err := m.Close(ctx); err != nil || len(m.said) > 0 {
			t.Errorf("closed what was lost: %v, said %q", err, m.said)
		}
	})
}

// A failed trip is repeated. Who waits is told once that has lasted, and what was said
// stays queued.
func TestTripsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(1)
		defer m.Close(t.Context())
		tasks := m.fetch(t, 1)
		m.set(errNo)
		began := time.Now()
		if err := m.Settle(t.Context(), done(tasks...)...); !errors.Is(err, errNo) || time.Since(began) < patience {
			t.Errorf("told %v after %v", err, time.Since(began))
		}
		m.set(nil)
		if err := m.Settle(t.Context(), done(tasks...)...); err != nil {
			t.Error(err)
		}
		if m.Log.Answered() != 1 || m.trips < 4 {
			t.Errorf("%d verdicts are answered after %d trips", m.Log.Answered(), m.trips)
		}
		if err := m.Settle(t.Context(), sources.Settlement{}); !errors.Is(err, errNo) {
			t.Errorf("recorded what the driver refuses: %v", err)
		}
	})
}

// What was read for a Fetch that went away is handed out to the next one, which asks for
// the fence first, and for no more than it wants.
func TestWhatIsHeldComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(0)
		defer m.Close(t.Context())
		m.Mu.Lock()
		m.more, m.takes = 5, time.Second
		m.Mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := m.Fetch(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if tasks := m.fetch(t, 3); len(tasks) != 3 || m.Held.Len() != 0 {
			t.Errorf("handed out %d, and holds %d", len(tasks), m.Held.Len())
		}
		if want := []string{"read 3 of 0, base 0", "read 0 of 3, base 0"}; !slices.Equal(m.said, want) {
			t.Errorf("said %q, want %q", m.said, want)
		}
	})
}

// A Fetch that goes on because its time has come is no longer waited for: nothing is read
// for it.
func TestNothingIsReadForWhoHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(0)
		defer m.Close(t.Context())
		m.due = time.Now().Add(time.Hour)
		go func() {
			time.Sleep(time.Minute)
			m.Mu.Lock()
			m.trouble = errNo
			m.Mu.Unlock()
		}()
		began := time.Now()
		if _, err := m.Fetch(t.Context(), 1); !errors.Is(err, errNo) || time.Since(began) != time.Hour {
			t.Errorf("fetched: %v after %v", err, time.Since(began))
		}
		m.Mu.Lock()
		defer m.Mu.Unlock()
		if m.Waits() {
			t.Error("it is among the callers still")
		}
	})
}

func TestCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c callers
		var p Permit
		seat := p.newSeat()
		f := newFetch(7)
		wait := func(ctx context.Context, again time.Time) chan error {
			c.fetch = f
			done := make(chan error, 1)
			go func() { done <- f.wait(ctx, again, seat, func() { c.forget(f) }) }()
			synctest.Wait()
			return done
		}
		// An answer, an error, its time, the end of its context.
		done := wait(t.Context(), time.Time{})
		c.answered(0)
		if err := <-done; err != nil || c.fetch != nil {
			t.Errorf("answered: %v", err)
		}
		done = wait(t.Context(), time.Now().Add(time.Hour))
		first, second := c.settle(1), c.settle(2)
		c.answered(1)
		if err := errors.Join(<-done, <-first); err != nil {
			t.Errorf("answered: %v", err)
		}
		done = wait(t.Context(), time.Time{})
		if !c.tellFetch(errNo) || c.tellFetch(errNo) {
			t.Error("not told, or told twice")
		}
		c.tellSettles(errNo)
		if a, b := <-done, <-second; !errors.Is(a, errNo) || !errors.Is(b, errNo) {
			t.Errorf("told %v and %v", a, b)
		}
		began := time.Now()
		if err := <-wait(t.Context(), began.Add(time.Minute)); err != nil || time.Since(began) != time.Minute {
			t.Errorf("its time: %v after %v", err, time.Since(began))
		}
		// It is still among the callers: what is said now it finds when it looks again.
		c.tellFetch(errNo)
		if err := f.told(); !errors.Is(err, errNo) {
			t.Errorf("told %v", err)
		}
		if err := f.told(); err != nil {
			t.Error("told twice")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done = wait(ctx, time.Time{})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || c.fetch != nil {
			t.Errorf("its context: %v", err)
		}
	})
}

// The answer to a trip that left before a Fetch began says nothing about the fence since.
func TestAnAnswerFromBeforeIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(1)
		defer m.Close(t.Context())
		m.takes = time.Second
		first := m.fetch(t, 1)
		m.Mu.Lock()
		m.more = 1
		m.Mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), m.takes/2)
		defer cancel()
		if _, err := m.Fetch(ctx, 1); err == nil {
			t.Fatal("fetched before anything was answered")
		}
		time.Sleep(m.takes) // what it has read is held
		left := time.Now()
		go m.Settle(t.Context(), done(first...)...)
		time.Sleep(m.takes / 2)
		if m.fetch(t, 1); time.Since(left) < 2*m.takes {
			t.Errorf("handed out after %v, on the answer to what left before it was asked for", time.Since(left))
		}
	})
}

// TestHeld: tasks leave by position, and what is behind the last is zero.
func TestHeld(t *testing.T) {
	var h Held
	receipts := func(tasks []sources.Task) (all []sources.Receipt) {
		for i := range tasks {
			all = append(all, tasks[i].Receipt)
		}
		return all
	}
	h.Grow(3)
	for pos := range sources.Receipt(6) {
		if *h.Next() = (sources.Task{Receipt: 2 * pos}); h.Len() != int(pos)+1 {
			t.Fatal(h.Len())
		}
	}
	if got := receipts(h.Take(nil, []int64{0, 6, 4})); !slices.Equal(got, []sources.Receipt{0, 6, 4}) {
		t.Errorf("took %v", got)
	}
	if got := receipts(h.tasks); !slices.Equal(got, []sources.Receipt{2, 8, 10}) {
		t.Errorf("left %v", got)
	}
	if h.Take(nil, nil) != nil || h.Len() != 3 {
		t.Error("took nothing, and something is gone")
	}
	for i := range h.tasks[:cap(h.tasks)][h.Len():] {
		if h.tasks[:cap(h.tasks)][h.Len()+i].Receipt != 0 {
			t.Error("what is behind the last is not zero")
		}
	}
	first := []sources.Task{{Receipt: -1}}
	if got := receipts(h.Take(first, []int64{2, 8, 10})); !slices.Equal(got, []sources.Receipt{-1, 2, 8, 10}) || h.Len() != 0 {
		t.Errorf("took %v, left %d", got, h.Len())
	}
	h.Next().Receipt = 12
	all := &h.tasks[0]
	if got := h.Take(nil, []int64{12}); len(got) != 1 || &got[0] != all || h.Len() != 0 {
		t.Error("all that is held is handed out as it is")
	}
}

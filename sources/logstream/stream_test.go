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
	beside  []sources.Task
	more    int           // elements behind what was read
	takes   time.Duration // of a trip
	fail    error
	said    []string
	trips   int
	lifted  int
	asked   int         // calls of Compose
	tended  int         // calls of Tend
	began   []time.Time // trips
}

func start(more int) *memory {
	m := open(more, progress.New(progress.Config{}, progress.Opened{}))
	m.Start()
	return m
}

func open(more int, log *progress.Log) *memory {
	m := &memory{more: more}
	m.Stream = New(m, partition.Grant{Epoch: 1}, log, &m.permit)
	return m
}

// suspect is a log with one task, which may have ended the owner before.
func suspect() *progress.Log {
	log := progress.New(progress.Config{}, progress.Opened{Suspects: 1, Gate: 1})
	log.Add(0, 0)
	return log
}

func (m *memory) Trouble() error { return m.trouble }

func (m *memory) Beside(time.Time, int) ([]sources.Task, time.Time) { return m.beside, m.due }

func (m *memory) Record(d *sources.Settlement, _ time.Time) (uint64, error) {
	if d.Outcome != sources.Done {
		return 0, errNo
	}
	return m.Log.Settle(int64(d.Task.Receipt), progress.Done, d.Attempt), nil
}

func (m *memory) Compose(now time.Time) bool {
	m.asked++
	limit, read := m.Wants(now, m.more > 0 || m.Fresh())
	if limit == 0 && m.Log.Seq() == m.Log.Answered() {
		return false
	}
	m.Log.Compose(limit, read, m.Log.Seq(), &m.request)
	return true
}

func (m *memory) Tend(context.Context) time.Duration {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.tended++
	return 0
}

func (m *memory) Trip(context.Context) error {
	m.Mu.Lock()
	m.began = append(m.began, time.Now())
	takes := m.takes
	m.Mu.Unlock()
	time.Sleep(takes)
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.trips++
	if m.fail != nil {
		return m.fail
	}
	r := &m.request
	m.lifted += len(r.Lift)
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

// Who is told something at the moment when his time is up has it when he looks again, and
// nothing is left to be told: the next word would wait for him with the lock held.
func TestAWordAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(0)
		defer m.Close(t.Context())
		f := newFetch(1)
		for _, word := range []error{errNo, nil} {
			m.Mu.Lock()
			m.callers.fetch = f
			m.callers.tellFetch(word)
			m.Mu.Unlock()
			if _, _, err := m.look(f); !errors.Is(err, word) {
				t.Errorf("told %v, want %v", err, word)
			}
			if len(f.done) > 0 {
				t.Errorf("the word %v is still to be heard", word)
			}
		}
		m.forget(f)
	})
}

// The permit wakes who waits for it.
func TestThePermitIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Permit
		holder, waits := p.newSeat(), p.newSeat()
		p.ask(holder)
		p.ask(waits)
		f := newFetch(1)
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { done <- f.wait(ctx, time.Time{}, waits, func() {}) }()
		synctest.Wait()
		holder.leave()
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the permit has come, and it waits on")
		}
	})
}

// A stream that is lost asks for nothing any more, and its goroutine has returned before
// anybody closes it.
func TestWhatIsLostEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(1)
		defer m.Close(t.Context())
		m.fetch(t, 1)
		synctest.Wait() // the goroutine sleeps
		m.Mu.Lock()
		asked := m.asked
		m.Lose(sources.ErrFenced)
		m.Mu.Unlock()
		synctest.Wait()
		m.Mu.Lock()
		defer m.Mu.Unlock()
		if m.asked != asked {
			t.Error("a trip was composed after the loss")
		}
		select {
		case <-m.goroutines[0]:
		default:
			t.Error("the goroutine goes on")
		}
	})
}

// After a trip that failed there is a pause, whatever is asked for meanwhile, but for the end.
func TestAPauseIsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(2)
		tasks := m.fetch(t, 2)
		m.Mu.Lock()
		m.began, m.takes, m.fail = nil, time.Second, errNo
		m.Mu.Unlock()
		go m.Settle(t.Context(), done(tasks[:1]...)...)
		time.Sleep(time.Second / 2)
		go m.Settle(t.Context(), done(tasks[1:]...)...) // while the trip is under way
		time.Sleep(time.Second)
		m.Mu.Lock()
		began := m.began
		m.Mu.Unlock()
		if len(began) != 2 || began[1].Sub(began[0]) < time.Second+firstPause/2 {
			t.Errorf("trips of a second began at %v", began)
		}
		time.Sleep(time.Minute) // pauses are long by now
		m.Mu.Lock()
		for m.takes > 0 && time.Since(m.began[len(m.began)-1]) < m.takes {
			m.Mu.Unlock()
			time.Sleep(time.Millisecond)
			m.Mu.Lock()
		}
		m.fail, m.takes = nil, 0
		m.Mu.Unlock()
		synctest.Wait()
		closed := time.Now()
		if err := m.Close(t.Context()); err != nil || time.Since(closed) > 0 {
			t.Errorf("closed: %v, after %v", err, time.Since(closed))
		}
	})
}

// A trouble is over with the first answer: the next one is young again.
func TestATroubleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(2)
		defer m.Close(t.Context())
		for _, task := range m.fetch(t, 2) {
			m.set(errNo)
			go func() {
				time.Sleep(patience / 2)
				m.set(nil)
			}()
			if err := m.Settle(t.Context(), done(task)...); err != nil {
				t.Errorf("told of a short trouble: %v", err)
			}
			time.Sleep(time.Hour)
		}
	})
}

// What may start by itself later is handed out when its time has come, be it of the log or
// beside it, and what waits for the permit when that has come.
func TestWhatComesByItself(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct {
		log  func(log *progress.Log, now time.Time)
		due  time.Duration // beside the log; 0: not known
		held time.Duration // so long somebody else has the permit
		want time.Duration
	}{
		"a suspect is due":             {log: func(log *progress.Log, now time.Time) { log.Tried(0, 1, now.Add(hour)) }, want: hour},
		"what is beside comes before":  {log: func(log *progress.Log, now time.Time) { log.Tried(0, 1, now.Add(hour)) }, due: hour / 2, want: hour / 2},
		"what is beside comes after":   {log: func(log *progress.Log, now time.Time) { log.Tried(0, 1, now.Add(hour)) }, due: 2 * hour, want: hour},
		"an accused one":               {log: func(log *progress.Log, _ time.Time) { log.Accused(0) }},
		"an accused one after another": {log: func(log *progress.Log, _ time.Time) { log.Accused(0) }, held: hour, want: hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, began := suspect(), time.Now()
				m := open(0, log)
				c.log(log, began)
				m.Held.Next()
				if c.due > 0 {
					m.due = began.Add(c.due)
					time.AfterFunc(c.due, func() {
						m.Mu.Lock()
						defer m.Mu.Unlock()
						m.beside, m.due = []sources.Task{{}}, time.Time{}
					})
				}
				if c.held > 0 {
					other := m.permit.newSeat()
					m.permit.ask(other)
					time.AfterFunc(c.held, other.leave)
				}
				m.Start()
				defer m.Close(t.Context())
				ctx, cancel := context.WithTimeout(t.Context(), 24*hour)
				defer cancel()
				tasks, err := m.Fetch(ctx, 1)
				if len(tasks) != 1 || err != nil || time.Since(began) != c.want {
					t.Errorf("fetched %d, %v, after %v, want one after %v", len(tasks), err, time.Since(began), c.want)
				}
			})
		})
	}
}

// A Fetch wakes the goroutine, and gets no more than it asked for from the log and from
// beside it together.
func TestAFetchIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(3)
		defer m.Close(t.Context())
		synctest.Wait() // nothing is asked for
		m.fetch(t, 1)
		m.Mu.Lock()
		m.beside = make([]sources.Task, 1)
		m.Mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for range 2 {
			m.Mu.Lock()
			m.callers.fetch = nil
			pos := m.Log.Read()
			m.Log.Add(pos, 0)
			m.Held.Next().Receipt = sources.Receipt(pos)
			m.Mu.Unlock()
		}
		if tasks, err := m.Fetch(ctx, 2); len(tasks) != 2 || err != nil {
			t.Errorf("fetched %d, %v; want 2", len(tasks), err)
		}
	})
}

// Nor does it if the task that is to run alone could start: what comes beside the log has
// taken its place.
func TestWhatComesBesideCounts(t *testing.T) {
	m := open(0, suspect())
	m.Held.Next()
	m.Log.Hand(time.Now(), 1, nil) // chosen, and told to the store
	var r progress.Request
	m.Log.Compose(1, false, m.Log.Seq(), &r)
	m.Log.Apply(&r, progress.Answer{Status: progress.Admitted, Gate: 1})
	m.beside = make([]sources.Task, 2)
	if tasks, _ := m.give(time.Now(), 2); len(tasks) != 2 {
		t.Errorf("handed out %d, want the two that come beside", len(tasks))
	}
	m.beside = nil
	if tasks, _ := m.give(time.Now(), 2); len(tasks) != 1 {
		t.Errorf("then handed out %d, want the one that runs alone", len(tasks))
	}
}

// A Settle returns when the last thing it says is answered, at once if all of it was before,
// and with the reason if the stream is over.
func TestASettleIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(2)
		defer m.Close(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		tasks := m.fetch(t, 2)
		for what, began := range map[string]time.Time{"once": time.Now(), "again": time.Now()} {
			if err := m.Settle(ctx, done(tasks[0])...); err != nil || time.Since(began) > 0 {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
		m.set(errLasting)
		if err := m.Settle(ctx, done(tasks[1], tasks[0])...); !errors.Is(err, errNo) {
			t.Errorf("answered %v to what the store has not heard of", err)
		}
		m.Mu.Lock()
		m.Lose(sources.ErrFenced)
		m.Mu.Unlock()
		if err := m.Settle(ctx, done(tasks[1])...); !errors.Is(err, sources.ErrFenced) {
			t.Errorf("settled after a loss: %v", err)
		}
	})
}

// The end of a stream is told to all who wait, and the first reason stays; the permit is
// free.
func TestTheEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(1)
		tasks := m.fetch(t, 1)
		m.set(errNo)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		told := make(chan error, 2)
		go func() { told <- m.Settle(ctx, done(tasks...)...) }()
		go func() {
			_, err := m.Fetch(ctx, 1)
			told <- err
		}()
		synctest.Wait()
		m.Mu.Lock()
		m.permit.ask(m.seat)
		m.Lose(sources.ErrFenced)
		m.Mu.Unlock()
		for range 2 {
			if err := <-told; !errors.Is(err, sources.ErrFenced) {
				t.Errorf("told %v", err)
			}
		}
		if m.permit.holder != nil {
			t.Error("it keeps the permit")
		}
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
		if _, err := m.Fetch(ctx, 1); !errors.Is(err, sources.ErrFenced) || errors.Is(err, sources.ErrClosed) {
			t.Errorf("the reason is %v by now", err)
		}
	})
}

// A permit that no task needs any more is given up with the answer that says so: no Fetch
// may come for a long time.
func TestAnAnswerGivesUpThePermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(1)
		defer m.Close(t.Context())
		tasks := m.fetch(t, 1)
		m.Mu.Lock()
		m.seat.wants, m.seat.has = true, m.permit.ask(m.seat)
		m.Mu.Unlock()
		if err := m.Settle(t.Context(), done(tasks...)...); err != nil {
			t.Error(err)
		}
		if m.permit.holder != nil {
			t.Error("it is kept")
		}
	})
}

// Close tends to what is beside the trips before it clears the fence; calls that do not
// return by themselves end with its context, and all with the stream.
func TestCloseEndsTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(0, progress.New(progress.Config{}, progress.Opened{}))
		polite := make(chan context.Context, 1)
		m.Start(func(ctx context.Context) { <-ctx.Done() }, func(ctx context.Context) {
			polite <- ctx
			<-m.Stopped()
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		m.Stop()
		began := time.Now()
		m.Wait(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited for %v", took)
		}
		m.tended = 0
		if err := m.Finish(t.Context()); err != nil || m.tended == 0 {
			t.Errorf("finished: %v, tended %d times", err, m.tended)
		}
		if (<-polite).Err() == nil {
			t.Error("a context is left")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m := open(0, progress.New(progress.Config{}, progress.Opened{}))
		polite := make(chan context.Context, 1)
		m.Start(func(ctx context.Context) {
			polite <- ctx
			<-m.Stopped()
		})
		err, beside := m.Close(t.Context()), <-polite
		if err != nil || beside.Err() == nil {
			t.Errorf("closed: %v; the context of what ran beside it: %v", err, beside.Err())
		}
	})
}

// TestWants: what the next trip asks for.
func TestWants(t *testing.T) {
	for _, c := range []struct {
		name  string
		fetch *fetch
		more  bool
		limit int
		read  bool
	}{
		{"nobody waits", nil, true, 0, false},
		{"there is more to read", &fetch{limit: 3, need: progress.NeedRead, asked: true}, true, 3, true},
		{"there is no more to read", &fetch{limit: 3, need: progress.NeedRead, asked: true}, false, 0, false},
		{"but the fence was not asked yet", &fetch{limit: 3, need: progress.NeedRead}, false, 3, false},
		{"the fence only", &fetch{limit: 3}, true, 3, false},
		{"what a trip gives", &fetch{limit: 3, need: progress.NeedRoundTrip, asked: true}, true, 3, false},
		{"nothing helps", &fetch{limit: 3, asked: true}, true, 0, false},
	} {
		s := open(0, progress.New(progress.Config{}, progress.Opened{})).Stream
		s.callers.fetch = c.fetch
		if limit, read := s.Wants(time.Now(), c.more); limit != c.limit || read != c.read {
			t.Errorf("%s: asks for %d, reads: %t", c.name, limit, read)
		}
	}
}

// A log in which too much is stuck is not read on, and that is told once somebody waits for
// it, once.
func TestStuck(t *testing.T) {
	log := progress.New(progress.Config{Window: 1, Lifted: 1}, progress.Opened{Base: 1, Gate: 2})
	log.AddLifted(0, 0)
	log.Add(1, 0)
	s := open(0, log).Stream
	f := &fetch{limit: 1, need: progress.NeedRead, asked: true}
	for _, c := range []struct {
		name        string
		fetch       *fetch
		stuck, news bool
	}{
		{"nobody waits", nil, false, false},
		{"somebody waits", f, true, true},
		{"and waits on", f, true, false},
		{"and has gone", nil, true, false},
	} {
		s.callers.fetch = c.fetch
		if pos, stuck, news := s.Stuck(); stuck != c.stuck || news != c.news || stuck && pos != 0 {
			t.Errorf("%s: stuck at %d: %t, news: %t", c.name, pos, stuck, news)
		}
		if s.Reads() {
			t.Errorf("%s: it is read on", c.name)
		}
	}
}

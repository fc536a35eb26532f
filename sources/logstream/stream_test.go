package logstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

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

// A Fetch that is to look again is not among the callers until it has: it is told once.
func TestLook(t *testing.T) {
	m := open(0, progress.New(progress.Config{}, progress.Opened{}))
	f := newFetch(1)
	m.callers.fetch = f
	for range 2 {
		if m.Look(); m.Waits() {
			t.Error("it waits")
		}
	}
	select {
	case err := <-f.done:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("it was not told")
	}
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

// Who waits while a suspect runs has the next with the trip that says its end.
func TestOneTripForASuspect(t *testing.T) {
	const suspects = 5
	synctest.Test(t, func(t *testing.T) {
		log := progress.New(progress.Config{}, progress.Opened{Suspects: suspects, Gate: suspects})
		for pos := range int64(suspects) {
			log.Add(pos, 0)
		}
		m := open(0, log)
		for pos := range sources.Receipt(suspects) {
			m.Held.Next().Receipt = pos
		}
		m.Start()
		defer m.Close(t.Context())
		tasks := m.fetch(t, suspects)
		for pos := range sources.Receipt(suspects) {
			if len(tasks) != 1 || tasks[0].Receipt != pos {
				t.Fatalf("got %v, want %d alone", tasks, pos)
			}
			if pos == suspects-1 {
				break
			}
			fetched := make(chan []sources.Task)
			go func() { fetched <- m.fetch(t, suspects) }()
			synctest.Wait()
			m.Mu.Lock()
			before := m.trips
			m.Mu.Unlock()
			if err := m.Settle(t.Context(), done(tasks...)...); err != nil {
				t.Error(err)
			}
			tasks = <-fetched
			m.Mu.Lock()
			if n := m.trips - before; n != 1 {
				t.Errorf("%d trips after %d, want 1", n, pos)
			}
			m.Mu.Unlock()
		}
	})
}

// What was chosen for a Fetch that is gone is not recorded as alone by Close: if the peer dies
// before the fence is cleared it has nothing to do with that.
func TestCloseChoosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := progress.New(progress.Config{}, progress.Opened{Suspects: 2, Gate: 2})
		m := open(0, log)
		for pos := range sources.Receipt(2) {
			log.Add(int64(pos), 0)
			m.Held.Next().Receipt = pos
		}
		m.Start()
		tasks := m.fetch(t, 2)
		ctx, gone := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = m.Fetch(ctx, 2) })
		synctest.Wait()
		m.set(errNo)
		calls.Go(func() { _ = m.Settle(ctx, done(tasks...)...) })
		synctest.Wait()
		if m.request.Alone != 1 {
			t.Fatalf("alone %d, want 1 to follow", m.request.Alone)
		}
		gone()
		calls.Wait()
		m.set(nil)
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if m.request.Base != 1 || m.request.Alone != progress.None {
			t.Errorf("Close says base %d, alone %d; want the end of 0 and nothing alone", m.request.Base, m.request.Alone)
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
// it for a while, once.
func TestStuck(t *testing.T) {
	log := progress.New(progress.Config{Window: 1, Lifted: 1}, progress.Opened{Base: 1, Gate: 2})
	log.AddLifted(0, 0)
	log.Add(1, 0)
	s := open(0, log).Stream
	f := &fetch{limit: 1, need: progress.NeedRead, asked: true}
	now := time.Now()
	for _, c := range []struct {
		name        string
		fetch       *fetch
		at          time.Duration
		stuck, news bool
	}{
		{"nobody waits", nil, 0, false, false},
		{"nobody waits for long", nil, time.Minute - 1, false, false},
		{"somebody waits", f, time.Minute, false, false},
		{"and waits on", f, time.Minute + stuckAfter - 1, false, false},
		{"and for long", f, time.Minute + stuckAfter, true, true},
		{"and longer", f, 2 * time.Minute, true, false},
		{"and has gone", nil, 2 * time.Minute, true, false},
	} {
		s.callers.fetch = c.fetch
		if pos, stuck, news := s.Stuck(now.Add(c.at)); stuck != c.stuck || news != c.news || stuck && pos != 0 {
			t.Errorf("%s: stuck at %d: %t, news: %t", c.name, pos, stuck, news)
		}
		if s.Reads() {
			t.Errorf("%s: it is read on", c.name)
		}
	}
}

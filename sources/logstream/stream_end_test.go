package logstream

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

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

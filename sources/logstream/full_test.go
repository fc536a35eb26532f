package logstream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// openFull is the stream of a log with a window of two, both with a handler, and more behind.
func openFull(t *testing.T) (*memory, []sources.Task) {
	m := &memory{more: 16}
	m.Stream = New(m, partition.Grant{Epoch: 1}, progress.New(progress.Config{Window: 2}, progress.Opened{}), &m.permit)
	m.Start()
	t.Cleanup(func() { m.Stop(); m.Wait(t.Context()) })
	return m, m.fetch(t, 6)
}

// Tasks that end soon are not carried past the base for the next ones.
func TestAFullLogWaitsAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, tasks := openFull(t)
		for range 2 {
			began := time.Now()
			next := make(chan []sources.Task)
			go func() { next <- m.fetch(t, 6) }()
			time.Sleep(liftAfter / 2)
			if err := m.Settle(t.Context(), done(tasks...)...); err != nil {
				t.Fatal(err)
			}
			tasks = <-next
			if m.lifted > 0 || len(tasks) != 2 || time.Since(began) >= liftAfter {
				t.Errorf("%d tasks after %v, %d lifted", len(tasks), time.Since(began), m.lifted)
			}
		}
	})
}

// What is stuck is carried past the base, and nobody has to say anything for that. Where the
// moment was in vain it is left out for a while.
func TestAStuckLogIsReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := openFull(t)
		for i, want := range []time.Duration{liftAfter, 0, liftAfter, 0, 0, 0, liftAfter} {
			began := time.Now()
			if tasks := m.fetch(t, 6); len(tasks) != 2 || m.lifted != 2*i+2 || time.Since(began) != want {
				t.Errorf("%d tasks after %v, %d lifted; want 2 after %v", len(tasks), time.Since(began), m.lifted, want)
			}
		}
	})
}

// Once tasks end in time the moment is never left out; tasks that never do get one in 64 fillings.
func TestFullLearns(t *testing.T) {
	var f full
	now := time.Now()
	fill := func(ends bool) (waited bool) {
		waited = f.wait(true, now)
		now = now.Add(liftAfter)
		if waited && f.wait(!ends, now) {
			t.Error("it is waited for longer")
		}
		return waited
	}
	skipped := 0
	for range 1000 {
		if fill(false) {
			skipped = 0
		} else {
			skipped++
		}
		if skipped > mostSkip {
			t.Fatalf("%d fillings were not waited for", skipped)
		}
	}
	for !fill(true) {
	}
	for range 10 {
		if !fill(true) {
			t.Error("it is not waited for although that was not in vain")
		}
	}
	if fill(false); fill(true) || !fill(true) {
		t.Error("one that was in vain is not followed by just one without")
	}
}

// Who has gone away is not waited for: the goroutine sleeps.
func TestAFullLogThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := openFull(t)
		f := newFetch(1)
		if _, _, err := m.look(f); err != nil {
			t.Fatal(err)
		}
		m.Nudge()
		synctest.Wait()
		m.forget(f)
		time.Sleep(time.Minute)
		synctest.Wait()
		m.Mu.Lock()
		defer m.Mu.Unlock()
		if m.tended > 10 || m.lifted > 0 {
			t.Errorf("it looked %d times in a minute in which nothing happened, and lifted %d", m.tended, m.lifted)
		}
	})
}

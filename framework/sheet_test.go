package framework

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/sources"
)

// What is done behind a task that runs goes with the next batch; what is not done, and
// what was kept back before, goes at once.
func TestWhatIsDoneBehindAHoleIsKeptBackOnce(t *testing.T) {
	s := newSheet()
	note := func(pos sources.Receipt, o sources.Outcome) {
		*s.line(&entry{}) = sources.Settlement{Task: &Task{Receipt: pos}, Outcome: o}
	}
	take := func(hole sources.Receipt, want ...sources.Receipt) {
		t.Helper()
		var got []sources.Receipt
		before := s.unsettled()
		batch := s.take(hole)
		for _, d := range batch {
			got = append(got, d.Task.Receipt)
		}
		if !slices.Equal(got, want) || s.unsettled() != before {
			t.Errorf("%v go, of %d are %d unsettled; want %v", got, before, s.unsettled(), want)
		}
		s.sent(batch)
	}
	for pos, o := range []sources.Outcome{sources.Done, sources.Done, sources.Retry, sources.Done, sources.Dead, sources.Requeue} {
		note(sources.Receipt(pos), o)
	}
	take(0, 0, 2, 4, 5)
	note(6, sources.Done)
	take(0, 1, 3)
	note(7, sources.Done)
	take(0, 6)
	take(math.MaxInt64, 7)
	take(math.MaxInt64)
}

// A task that runs for long keeps back what is done behind it for one batch, not for as
// long as it runs.
func TestALongTaskKeepsNobodysEndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		end := make(chan struct{})
		b := newBench(t, benchConfig{Config: Config{Concurrency: 4}, source: s.over}, func(_ context.Context, task *Task) error {
			if task.Key == "long" {
				<-end
			}
			return nil
		})
		defer b.stop()
		b.push(task("long", 0), task("a", 0), task("b", 0))
		g := b.grantAndWork(0)
		time.Sleep(3 * settleAge)
		synctest.Wait()
		s.mu.Lock()
		told := len(s.told)
		s.mu.Unlock()
		if told != 2 {
			t.Errorf("%d of 2 ends are told while the first task runs", told)
		}
		close(end)
		b.drain(g)
	})
}

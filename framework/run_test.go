package framework

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A stopper handles tasks at once, but the one with the number at it keeps until it is
// let go. By then workers take several tasks at a time.
type stopper struct {
	at      int64
	handled atomic.Int64
	goOn    chan struct{}
}

func (s *stopper) Handle(context.Context, *Task) error {
	if s.handled.Add(1) == s.at {
		<-s.goOn
	}
	return nil
}

func newStopper(t *testing.T, at int64, concurrency, tasks int) (*stopper, *bench) {
	s := &stopper{at: at, goOn: make(chan struct{})}
	b := newBench(t, benchConfig{Config: Config{Concurrency: concurrency}}, s.Handle)
	for i := range tasks {
		b.push(task("", i))
	}
	return s, b
}

// Which task of what a worker has taken takes its time is chance: so each of a whole row
// does in its turn.
func TestNoTaskWaitsForTheHandlerOfAnother(t *testing.T) {
	for at := int64(64); at < 128; at++ {
		synctest.Test(t, func(t *testing.T) {
			const tasks = 1000
			s, b := newStopper(t, at, 2, tasks)
			defer b.stop()
			began := time.Now()
			b.grant(0)
			synctest.Wait()
			if n := s.handled.Load(); n != tasks || time.Since(began) > 0 {
				t.Errorf("with the number %d in its handler, %d of %d tasks were started after %v although a worker has nothing to do", at, n, tasks, time.Since(began))
			}
			close(s.goOn)
			synctest.Wait()
		})
	}
}

// With the only worker in a handler that takes its time, what it did before is settled
// nevertheless, and what it has taken is not its own.
func TestWhatHasEndedIsSettledWhileALaterTaskRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks, at = 500, 108
		s, b := newStopper(t, at, 1, tasks)
		defer b.stop()
		synctest.Wait() // the alarm sleeps
		b.grant(0)
		time.Sleep(recallAfter + 2*settleAge)
		if open, _ := b.store.Pending(0); open != tasks-at+1 {
			t.Errorf("%d tasks are open while the one with the number %d of %d runs", open, at, tasks)
		}
		b.mu.Lock()
		l := b.lanes[0].status()
		b.mu.Unlock()
		if l.Running != 1 || l.Unsettled != 0 {
			t.Errorf("while one runs the lane is %+v", l)
		}
		close(s.goOn)
		synctest.Wait()
	})
}

func TestADrainTakesWhatIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks, at = 500, 100
		s, b := newStopper(t, at, 1, tasks)
		defer b.stop()
		g := b.grant(0)
		synctest.Wait()
		drained := make(chan struct{})
		b.Drain(g, func() { close(drained) })
		close(s.goOn)
		<-drained
		if open, _ := b.store.Pending(0); s.handled.Load() != at || open != tasks-at {
			t.Errorf("%d tasks ran and %d are open, want %d and %d", s.handled.Load(), open, at, tasks-at)
		}
		if e := of[Draining](b.seen); len(e) != 1 || e[0].Running != 1 {
			t.Errorf("told %+v, want one that runs", e)
		}
	})
}

// A loss takes what is not started as well, and counts what is cancelled.
func TestALossTakesWhatIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks, at = 500, 100
		s, b := newStopper(t, at, 1, tasks)
		defer b.stop()
		g := b.grant(0)
		synctest.Wait()
		lost := make(chan struct{})
		b.Abort(g, errLease, func() { close(lost) })
		close(s.goOn)
		<-lost
		if s.handled.Load() != at {
			t.Errorf("%d tasks ran, want %d", s.handled.Load(), at)
		}
		if e := of[Lost](b.seen); len(e) != 1 || e[0].Running != 1 {
			t.Errorf("told %+v, want one that runs", e)
		}
	})
}

// What a settlement, a drain and a worker with nothing to do cost does not grow with the
// workers: they look at no run but those of the lane, or those that are long. The others
// stand here as if they were, and whoever looks at them is found out.
func TestNobodyLooksAtAllTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newStopper(t, 2, 1000, 2)
		defer b.stop()
		b.grant(0)
		synctest.Wait()
		b.mu.Lock()
		l, long := b.lanes[0], b.long
		want := sources.Receipt(-1)
		var others []*run
		for i := range b.runs {
			if r := &b.runs[i]; r.lane == l {
				want = r.tasks[0].task.Receipt
			} else {
				r.lane, r.n = l, 1
				r.tasks[0].task = &Task{Receipt: -2}
				others = append(others, r)
			}
		}
		first := l.hole()
		for _, r := range others {
			r.n, r.long = 0, true
		}
		l.recall()
		b.recallAll()
		seen := 0
		for _, r := range others {
			if !r.long {
				seen++
			}
			r.lane, r.long = nil, false
			r.tasks[0].clear()
		}
		b.long = long
		b.mu.Unlock()
		if first != want || len(others) != 999 {
			t.Errorf("beside %d others a settlement finds the task %d first, want %d", len(others), first, want)
		}
		if seen > 0 {
			t.Errorf("%d runs of others were called back", seen)
		}
		close(s.goOn)
		synctest.Wait()
	})
}

// A lane has exactly the runs that have it, whatever ends them.
func TestALaneKnowsItsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		var calls atomic.Int64
		check := func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			have := map[*lane]int{}
			for i := range b.runs {
				if l := b.runs[i].lane; l != nil {
					have[l]++
				}
			}
			for _, l := range b.lanes {
				n := 0
				for r := range l.runs {
					if n++; r.lane != l {
						t.Errorf("what is no run of %v is among them", l.where)
						break
					}
				}
				if n != have[l] {
					t.Errorf("%v knows %d of its %d runs", l.where, n, have[l])
				}
			}
		}
		b = newBench(t, benchConfig{Config: Config{Concurrency: 5}, partitions: 3}, func(context.Context, *Task) error {
			n := calls.Add(1)
			check()
			switch {
			case n%97 == 0:
				runtime.Goexit()
			case n%13 == 0:
				time.Sleep(time.Duration(n%7) * time.Millisecond)
			}
			return nil
		})
		defer b.stop()
		for i := range 1500 {
			if err := b.store.PushTo(partition.ID(i%3), task("", i)); err != nil {
				t.Fatal(err)
			}
		}
		first := b.grant(0)
		second := b.grant(1)
		b.grant(2)
		time.Sleep(10 * time.Millisecond)
		b.drain(first)
		check()
		lost := make(chan struct{})
		b.Abort(second, errLease, func() { close(lost) })
		<-lost
		check()
		time.Sleep(time.Minute)
		check()
		if open, _ := b.store.Pending(2); open > 0 {
			t.Errorf("%d tasks are open", open)
		}
	})
}

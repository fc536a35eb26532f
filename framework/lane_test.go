package framework

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
)

var errLease = errors.New("the lease ran out")

func TestDrainLetsHandlersEndAndGivesBackTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		var started atomic.Int32
		b := newBench(t, benchConfig{Config: Config{Concurrency: 2}, source: s.over}, func(ctx context.Context, task *Task) error {
			started.Add(1)
			time.Sleep(time.Second)
			s.note("handler of %s ends", task.ID)
			return ctx.Err()
		})
		defer b.stop()
		b.push(task("a", 0), task("a", 1), task("b", 0), task("c", 0))
		g := b.grant(0)
		synctest.Wait()
		s.note("asked to drain")
		b.Drain(g, func() { s.note("drained %v", g) })
		b.push(task("d", 0)) // nobody fetches it
		time.Sleep(time.Minute)

		log, last := s.log(), -1
		for _, step := range []string{"open", "asked to drain", "handler of", "settle", "close 0@1", "drained"} {
			at := slices.IndexFunc(log, func(l string) bool { return strings.HasPrefix(l, step) })
			if at <= last {
				t.Errorf("%q is missing or out of order in %q", step, log)
			}
			last = at
		}
		if n := started.Load(); n != 2 {
			t.Errorf("%d handlers were started, want the 2 that ran at the drain", n)
		}
		if open, _ := b.store.Pending(0); open != 3 {
			t.Errorf("%d tasks left in the log, want 3", open)
		}
		if d := of[Drained](b.seen); len(d) != 1 || d[0].GivenBack != 2 || d[0].Took != time.Second {
			t.Errorf("told %+v, want 2 given back after a second", d)
		}
	})
}

func TestDrainTimeOverCancelsHandlersAtNoCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		attempts := make(chan int, 2)
		first := true
		b := newBench(t, benchConfig{}, func(ctx context.Context, task *Task) error {
			attempts <- task.Attempt
			if !first {
				return nil
			}
			first = false
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		})
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		synctest.Wait()
		began := time.Now()
		b.drain(g)
		if took := time.Since(began); took != b.cfg.Timing.Drain {
			t.Errorf("drained after %v, want the drain time %v", took, b.cfg.Timing.Drain)
		}
		if err := <-cause; !errors.Is(err, ErrDrainOver) {
			t.Errorf("the handler was told %v, want ErrDrainOver", err)
		}
		if o := of[DrainOverdue](b.seen); len(o) != 1 || o[0].Running != 1 {
			t.Errorf("told %+v, want one overdue drain with one handler", o)
		}
		b.drain(b.grantAndWork(0))
		if a := []int{<-attempts, <-attempts}; !slices.Equal(a, []int{1, 1}) {
			t.Errorf("tries %v: a run that was ended from outside counts as a try", a)
		}
		if dead := b.store.Dead(0); len(dead) > 0 {
			t.Errorf("dead letters: %v", dead)
		}
	})
}

// grantAndWork grants and waits until nothing moves.
func (b *bench) grantAndWork(id partition.ID) partition.Grant {
	g := b.grant(id)
	synctest.Wait()
	return g
}

// A picky error is compared with its like only.
type picky struct{}

func (picky) Error() string          { return "picky" }
func (p picky) Is(target error) bool { return target.(picky) == p }

func TestExplicitDeadCountsEvenAfterTheDrainTime(t *testing.T) {
	for _, c := range []struct {
		name string
		err  func(ctx context.Context) error
		dead int
	}{
		{"of its own", func(context.Context) error { return Dead(errors.New("no such mailbox")) }, 1},
		{"of the cancellation", func(ctx context.Context) error { return Dead(fmt.Errorf("render: %w", ctx.Err())) }, 0},
		{"of its cause, as net/http returns it", func(ctx context.Context) error { return Dead(fmt.Errorf("get: %w", context.Cause(ctx))) }, 0},
		{"of a time that is over", func(context.Context) error { return Dead(fmt.Errorf("dial: %w", context.DeadlineExceeded)) }, 0},
		{"a retry", func(ctx context.Context) error { return RetryAfter(0, ctx.Err()) }, 0},
		{"an error that panics when it is compared", func(context.Context) error { return Dead(picky{}) }, 0},
		{"a panic with one", func(context.Context) error { panic(Dead(picky{})) }, 0},
		{"a failure of what was cut off", func(context.Context) error { return errors.New("broken pipe") }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, benchConfig{Config: Config{Retry: RetryPolicy{Tries: 1}}}, func(ctx context.Context, _ *Task) error {
					<-ctx.Done()
					return c.err(ctx)
				})
				defer b.stop()
				b.push(task("a", 0))
				b.drain(b.grantAndWork(0))
				if n := len(b.store.Dead(0)); n != c.dead {
					t.Errorf("%d dead letters, want %d", n, c.dead)
				}
			})
		})
	}
}

func TestAnOpenThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		s := &spy{onOpen: func(context.Context) error {
			if tries.Add(1) < 4 {
				return errors.New("connection refused")
			}
			return nil
		}}
		var handled atomic.Int32
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { handled.Add(1); return nil })
		defer b.stop()
		b.push(task("a", 0))
		b.grant(0)
		time.Sleep(time.Second)
		if handled.Load() != 1 {
			t.Error("the task was not handled")
		}
		failed := of[OpenFailed](b.seen)
		if len(failed) != 3 || failed[0].Again >= failed[2].Again {
			t.Errorf("told %+v, want three failures, ever farther apart", failed)
		}
	})
}

// A process that was stopped past its lease goes on with ready tasks in its hands:
// nothing of them may start, although nobody has aborted the lane yet.
// The loss may come between the moment a worker takes a task and the start.
func TestAClosedStreamIsAnsweredBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusals atomic.Int32
		refusals.Store(5)
		s := &spy{onClose: func(context.Context) error {
			if refusals.Add(-1) >= 0 {
				return errors.New("connection refused")
			}
			return nil
		}}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.drain(b.grantAndWork(0))
		if n := refusals.Load(); n >= 0 {
			t.Errorf("drained although the source has not answered for the close: %d refusals left", n+1)
		}
		if n := len(of[CloseFailed](b.seen)); n != 5 {
			t.Errorf("%d failures told, want 5", n)
		}
	})
}

// A fetch that was under way when the drain came may still bring tasks.
func TestWhatComesAfterADrainIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{deaf: true}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error {
			t.Error("a handler was started after the drain")
			return nil
		})
		defer b.stop()
		g := b.grantAndWork(0)
		done := make(chan struct{})
		b.Drain(g, func() { close(done) })
		b.push(task("a", 0), task("", 1))
		<-done
		if d := of[Drained](b.seen); len(d) != 1 || d[0].GivenBack == 0 {
			t.Errorf("told %+v, want what was given back", d)
		}
		if open, _ := b.store.Pending(0); open != 2 {
			t.Errorf("%d tasks left, want 2", open)
		}
	})
}

// What comes with an error has come: it counts as started, and no later fetch brings it.
func TestWhatIsFetchedWithAnErrorIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{afterFetch: func() error { return errors.New("connection reset") }}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.push(task("a", 0), task("", 1))
		g := b.grant(0)
		time.Sleep(time.Second)
		if open, _ := b.store.Pending(0); open != 0 {
			t.Errorf("%d of 2 tasks left", open)
		}
		if n := len(of[FetchFailed](b.seen)); n != 1 {
			t.Errorf("%d failures told, want 1", n)
		}
		b.drain(g)
	})
}

// Whoever reads a field of such a task panics: the handler, an observer, the lane itself.
func TestATaskWithoutADeliveryEndsTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{bare: true}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error {
			t.Error("it was run")
			return nil
		})
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		err := <-b.failed
		synctest.Wait() // the event comes after
		if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), `"a-0"`) {
			t.Errorf("the consumer ends with %v", err)
		}
		if told := of[FetchFailed](b.seen); len(told) != 1 || told[0].Err != err || told[0].Again != 0 {
			t.Errorf("told %+v", told)
		}
		b.drain(g)
	})
}

// A source that opens nothing and says nothing would hold its partition for ever without work. A nil
// pointer is no stream either, though it is no nil interface.
func TestAStreamThatIsNilEndsTheConsumer(t *testing.T) {
	for what, s := range map[string]sources.Source{"nil": opens{nil}, "a nil pointer": opens{(*spyStream)(nil)}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := func(*memsource.Store) sources.Source { return s }
				b := newBench(t, benchConfig{source: over}, func(context.Context, *Task) error { return nil })
				defer b.stop()
				g := b.grant(0)
				synctest.Wait() // the event comes after
				told := of[OpenFailed](b.seen)
				if len(b.failed) != 1 || len(told) != 1 || told[0].Err != errNoStream || told[0].Again != 0 {
					t.Errorf("ended the consumer %d times, told %+v", len(b.failed), told)
				}
				b.drain(g)
			})
		})
	}
}

// A Fetch that returns nothing, and does not wait for it, is asked again after a pause, as one
// that fails.
func TestAFetchOfNothingIsTroubleThatMayPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{hollow: true}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		g := b.grant(0)
		time.Sleep(time.Minute)
		b.drain(g)
		told := of[FetchFailed](b.seen)
		if n := len(told); n == 0 || n > 100 || told[0].Err != errEmpty || told[0].Again == 0 {
			t.Errorf("in a minute it was told of %d times, first %+v", n, told[:min(n, 1)])
		}
	})
}

// A panic of a source is trouble that may pass, each time told with its stack. In a process that
// it ended the handlers of all other partitions would end, too, and the next owner's would be next.
func TestASourceThatPanicsEndsNoProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var twice [4]int
		boom := func(call int) {
			if twice[call]++; twice[call] <= 2 {
				panic(fmt.Sprintf("boom %d", call))
			}
		}
		s := &spy{
			onOpen:   func(context.Context) error { boom(0); return nil },
			onFetch:  func(context.Context) error { boom(1); return nil },
			onSettle: func(context.Context, []sources.Settlement) error { boom(2); return nil },
			onClose:  func(context.Context) error { boom(3); return nil },
		}
		runs := 0
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { runs++; return nil })
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		time.Sleep(time.Minute)
		b.drain(g)
		if open, _ := b.store.Pending(0); runs != 1 || open != 0 {
			t.Errorf("the task ran %d times, %d are open", runs, open)
		}
		var told []error
		for _, e := range of[OpenFailed](b.seen) {
			told = append(told, e.Err)
		}
		for _, e := range of[FetchFailed](b.seen) {
			told = append(told, e.Err)
		}
		for _, e := range of[SettleFailed](b.seen) {
			told = append(told, e.Err)
		}
		for _, e := range of[CloseFailed](b.seen) {
			told = append(told, e.Err)
		}
		if len(told) != 8 {
			t.Fatalf("told of %q", told)
		}
		for i, err := range told {
			what := []string{"Open", "Fetch", "Settle", "Close"}[i/2]
			want := fmt.Sprintf("the source's %s panicked: boom %d", what, i/2)
			if p, ok := errors.AsType[*PanicError](err); !ok || err.Error() != want || !strings.Contains(string(p.Stack), "lane_test.go") {
				t.Errorf("told of %v, want %q with its stack", err, want)
			}
		}
	})
}

// A fake whose call fails its test ends the goroutine that calls it: that is an error of that call,
// and the partition goes on.
func TestASourceThatEndsItsGoroutineIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var twice [4]int
		end := func(call int) {
			if twice[call]++; twice[call] <= 2 {
				runtime.Goexit()
			}
		}
		s := &spy{
			onOpen:   func(context.Context) error { end(0); return nil },
			onFetch:  func(context.Context) error { end(1); return nil },
			onSettle: func(context.Context, []sources.Settlement) error { end(2); return nil },
			onClose:  func(context.Context) error { end(3); return nil },
		}
		runs := 0
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { runs++; return nil })
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		time.Sleep(time.Minute)
		b.Drain(g, func() {})
		time.Sleep(time.Minute)
		if open, _ := b.store.Pending(0); runs != 1 || open != 0 {
			t.Errorf("the task ran %d times, %d are open", runs, open)
		}
		if log := s.log(); log[len(log)-1] != "close 0@1" {
			t.Errorf("the partition was not handed over: %q", log)
		}
		var told []error
		for _, e := range of[Event](b.seen) {
			switch e := e.(type) {
			case OpenFailed:
				told = append(told, e.Err)
			case FetchFailed:
				told = append(told, e.Err)
			case SettleFailed:
				told = append(told, e.Err)
			case CloseFailed:
				told = append(told, e.Err)
			}
		}
		if len(told) != 8 {
			t.Fatalf("told of %q", told)
		}
		for _, err := range told {
			if !errors.Is(err, errGoexit) {
				t.Errorf("told of %v", err)
			}
		}
	})
}

// An observer must not end its goroutine. If it does nothing begins anew, as without a pause it would again and
// again, and no task overtakes another of its key: the partition stands still until it is taken away.
func TestAnObserverThatEndsALaneBeginsNothingAnew(t *testing.T) {
	away := errors.New("away")
	for name, x := range map[string]struct {
		source *spy
		ends   func(Event) bool
	}{
		"opened":        {ends: func(e Event) bool { _, is := e.(Opened); return is }},
		"open failed":   {&spy{onOpen: func(context.Context) error { return away }}, func(e Event) bool { _, is := e.(OpenFailed); return is }},
		"fetched":       {ends: func(e Event) bool { _, is := e.(Fetched); return is }},
		"fetch failed":  {&spy{onFetch: func(context.Context) error { return away }}, func(e Event) bool { _, is := e.(FetchFailed); return is }},
		"settled":       {ends: func(e Event) bool { _, is := e.(Settled); return is }},
		"settle failed": {&spy{onSettle: func(context.Context, []sources.Settlement) error { return away }}, func(e Event) bool { _, is := e.(SettleFailed); return is }},
		"close failed":  {&spy{onClose: func(context.Context) error { return away }}, func(e Event) bool { _, is := e.(CloseFailed); return is }},
		"drained":       {ends: func(e Event) bool { _, is := e.(Drained); return is }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if x.source == nil {
					x.source = &spy{}
				}
				var told atomic.Int64
				var ran []string
				b := newBench(t, benchConfig{source: x.source.over}, func(_ context.Context, task *Task) error {
					ran = append(ran, task.ID)
					return nil
				})
				seen := b.seen
				b.observer = ObserverFunc(func(e Event) {
					seen.Observe(e)
					if x.ends(e) && told.Add(1) == 1 {
						runtime.Goexit()
					}
				})
				b.push(task("a", 0))
				g := b.grant(0)
				time.Sleep(time.Minute)
				b.push(task("a", 1))
				time.Sleep(time.Minute)
				b.Drain(g, func() {})
				time.Sleep(time.Minute)
				if n := told.Load(); n != 1 {
					t.Errorf("told %d times", n)
				}
				if len(ran) > 0 && ran[0] != "a-0" {
					t.Errorf("ran %q", ran)
				}
				b.mu.Lock()
				for _, l := range b.lanes { // a settler that went away is waited for
					l.sheet.settling = false
				}
				b.mu.Unlock()
				closed := make(chan struct{})
				go func() { b.stop(); close(closed) }()
				select {
				case <-closed:
				case <-time.After(time.Minute):
					t.Fatal("the pool does not close")
				}
			})
		})
	}
}

// The source ends the goroutine of each Settle: since it does not answer, nothing more is started, and that is told once.
func TestASourceThatEndsEachSettleIsToldToBeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		s := &spy{onSettle: func(context.Context, []sources.Settlement) error {
			if away.Load() {
				runtime.Goexit()
			}
			return nil
		}}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.push(task("a", 0))
		b.grant(0)
		time.Sleep(time.Minute)
		b.push(task("b", 1))
		time.Sleep(time.Minute)
		if told := of[Halted](b.seen); len(told) != 1 {
			t.Errorf("told %+v, want once that nothing more is started", told)
		}
		if n := len(of[Handled](b.seen)); n != 1 {
			t.Errorf("%d tasks were run, want 1", n)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if told := of[Resumed](b.seen); len(told) != 1 || told[0].For < 2*time.Minute {
			t.Errorf("told %+v, want once that it goes on", told)
		}
		if n := len(of[Handled](b.seen)); n != 2 {
			t.Errorf("%d tasks were run, want 2", n)
		}
	})
}

// Each ownership is refused as soon as it fetches, as by a source that fences its own newest owner.
func TestWhatIsRefusedAgainAndAgainIsOpenedAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := make(chan time.Time, 1)
		s := &spy{onFetch: func(context.Context) error { fetched <- time.Now(); return sources.ErrFenced }}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		refused := func() time.Duration {
			granted := time.Now()
			g := b.grant(0)
			at := <-fetched
			synctest.Wait()
			done := make(chan struct{})
			b.Abort(g, sources.ErrFenced, func() { close(done) })
			<-done
			return at.Sub(granted)
		}
		for i, want := range []time.Duration{0, 0, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000} {
			if got := refused(); got != want*time.Millisecond {
				t.Errorf("ownership %d was opened after %v, want %v", i+1, got, want*time.Millisecond)
			}
		}
		g := b.grant(0) // it waits: a hand-over does not wait for that
		synctest.Wait()
		began := time.Now()
		b.drain(g)
		if took := time.Since(began); took != 0 {
			t.Errorf("what was not opened yet was handed over after %v", took)
		}
		time.Sleep(time.Minute)
		if got := refused(); got != 0 {
			t.Errorf("long after the last refusal it was opened after %v", got)
		}
	})
}

// What makes up for refusals is an ownership that lasts: the time that it waited to be opened is none.
func TestAnOwnershipThatLastedMakesUpForThoseThatWereRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched, lasts := make(chan time.Time, 1), make(chan time.Duration, 1)
		s := &spy{onFetch: func(context.Context) error {
			fetched <- time.Now()
			time.Sleep(<-lasts)
			return sources.ErrFenced
		}}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		refusedAfter := func(d time.Duration) (opened time.Duration) {
			granted := time.Now()
			g := b.grant(0)
			at := <-fetched
			lasts <- d
			time.Sleep(d)
			synctest.Wait()
			done := make(chan struct{})
			b.Abort(g, sources.ErrFenced, func() { close(done) })
			<-done
			return at.Sub(granted)
		}
		for range 9 {
			refusedAfter(0)
		}
		for i, x := range []struct{ lasts, want time.Duration }{
			{4 * time.Second, 2 * time.Second}, {6 * time.Second, 2 * time.Second}, {0, 0}, {0, 20 * time.Millisecond},
		} {
			if got := refusedAfter(x.lasts); got != x.want {
				t.Errorf("ownership %d was opened after %v, want %v", i+1, got, x.want)
			}
		}
	})
}

// What the end of a lost ownership panics with is told, though there is nobody to try it again.
func TestACloseOfALostPartitionThatPanicsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{onClose: func(context.Context) error { panic("boom") }}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		g := b.grant(0)
		synctest.Wait()
		over := make(chan struct{})
		b.Abort(g, errLease, func() { close(over) })
		<-over
		if told := of[CloseFailed](b.seen); len(told) != 1 || told[0].Again != 0 || told[0].Err.Error() != "the source's Close panicked: boom" {
			t.Errorf("told %+v", told)
		}
	})
}

// An error with a nil pointer in it panics when it is asked, which observers do.
func TestASourceWhoseErrorPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{onFetch: func(context.Context) error { return (*sources.Error)(nil) }}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		g := b.grant(0)
		time.Sleep(time.Second)
		b.drain(g)
		told := of[FetchFailed](b.seen)
		if len(told) == 0 || !strings.HasPrefix(told[0].Err.Error(), "the source's Fetch panicked: ") {
			t.Errorf("told %+v", told)
		}
	})
}

// That somebody else owns the partition may be said by a nil pointer that is wrapped, which no call of
// its methods shows: that it is of no epoch is no reason to end the process.
func TestAFenceThatIsANilPointer(t *testing.T) {
	for what, fence := range map[string]func() error{
		"wrapped":  func() error { return fmt.Errorf("fetch: %w", (*sources.FencedError)(nil)) },
		"panicked": func() error { panic((*sources.FencedError)(nil)) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &spy{onFetch: func(context.Context) error { return fence() }}
				b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
				defer b.stop()
				g := b.grant(0)
				synctest.Wait()
				if told := of[FetchFailed](b.seen); len(told) != 1 || told[0].Again != 0 {
					t.Errorf("told %+v, want once that the partition is lost", told)
				}
				over := make(chan struct{})
				b.Abort(g, errLease, func() { close(over) })
				<-over
			})
		})
	}
}

func TestALostReplyOfSettleIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lose atomic.Int32
		lose.Store(3)
		s := &spy{}
		s.afterSettle = func() error {
			if lose.Add(-1) >= 0 {
				return errors.New("i/o timeout")
			}
			return nil
		}
		runs := map[string]int{}
		var mu sync.Mutex
		b := newBench(t, benchConfig{source: s.over}, func(_ context.Context, task *Task) error {
			mu.Lock()
			defer mu.Unlock()
			runs[task.ID]++
			return nil
		})
		defer b.stop()
		b.push(task("a", 0), task("a", 1))
		g := b.grant(0)
		time.Sleep(time.Second)
		b.drain(g)
		if runs["a-0"] != 1 || runs["a-1"] != 1 {
			t.Errorf("runs %v, want one each", runs)
		}
		if n := len(of[SettleFailed](b.seen)); n != 3 {
			t.Errorf("%d failures told, want 3", n)
		}
	})
}

func TestADrainWaitsUntilEverythingIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := &spy{onSettle: func(context.Context, []sources.Settlement) error {
			if down.Load() {
				return errors.New("connection refused")
			}
			return nil
		}}
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.push(task("a", 0))
		g := b.grantAndWork(0)
		var drained atomic.Bool
		b.Drain(g, func() { drained.Store(true) })
		time.Sleep(time.Minute)
		if drained.Load() {
			t.Fatal("drained although the source does not know what became of the task")
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		if open, _ := b.store.Pending(0); open != 0 || !drained.Load() {
			t.Errorf("open %d, drained %v; want 0, true", open, drained.Load())
		}
	})
}

// What is told of a grant comes in its order, also to an observer that takes its time: the
// end of a drain or of a loss is not told before the beginning.
func TestTheEndIsToldAfterTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		var told []string
		b.pool.observer = ObserverFunc(func(e Event) {
			switch e.(type) {
			case Draining, Lost:
				time.Sleep(time.Second)
			}
			told = append(told, fmt.Sprintf("%T", e))
		})
		end := func(how func(partition.Grant, func()), want ...string) {
			t.Helper()
			g := b.grantAndWork(0)
			told = nil
			drained := make(chan struct{})
			how(g, func() { close(drained) })
			<-drained
			if !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
		}
		end(b.Drain, "framework.Draining", "framework.Drained")
		end(func(g partition.Grant, drained func()) { b.Abort(g, errLease, drained) }, "framework.Lost", "framework.Dropped")
	})
}

// What a loss leaves unsettled is told, each task once: what a call says of that nobody answered for is among it, and what
// failed and waits for its next try is not there twice.
func TestALossTellsWhatIsNotSettled(t *testing.T) {
	for _, c := range []struct {
		name  string
		tasks []sources.Task
		want  int
	}{
		{"a call says so", nil, 1},
		{"two are to be tried again", []sources.Task{task("bad", 0), task("worse", 0)}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &spy{onSettle: func(ctx context.Context, done []sources.Settlement) error {
					if done[0].Task.ID == "good-0" {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}}
				b := newBench(t, benchConfig{source: s.over}, func(_ context.Context, task *Task) error {
					if task.Key != "good" {
						return errors.New("bad")
					}
					return nil
				})
				defer b.stop()
				b.push(task("good", 0))
				g := b.grantAndWork(0)
				for _, tasks := range [][]sources.Task{{task("good", 1)}, c.tasks} {
					time.Sleep(100 * time.Millisecond)
					b.push(tasks...)
				}
				time.Sleep(100 * time.Millisecond)
				done := make(chan struct{})
				b.Abort(g, errLease, func() { close(done) })
				<-done
				if d := of[Dropped](b.seen); len(d) != 1 || d[0].Tasks != c.want {
					t.Errorf("told %+v, want %d tasks that are not settled", d, c.want)
				}
			})
		})
	}
}

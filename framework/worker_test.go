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
)

// A textless error is a nil pointer by mistake.
type textless struct{ text string }

func (e *textless) Error() string { return e.text }

// A chainless one has a text.
type chainless struct{ why error }

func (e *chainless) Error() string { return "failed" }
func (e *chainless) Unwrap() error { return e.why }

// A matchless one panics when it is asked whether it is another.
type matchless struct{ text string }

func (e *matchless) Error() string   { return "failed" }
func (e *matchless) Is(o error) bool { return e.text == o.Error() }

// A choosy one is found as what it is only.
type choosy struct{}

func (choosy) Error() string { return "choosy" }

func (c choosy) As(target any) bool { *target.(*choosy) = c; return true }

// waits answers so many times that nothing failed, and then with err.
func waits(times int, err error) func(int) error {
	return func(int) error {
		if times--; times >= 0 {
			return fmt.Errorf("no quota: %w", RetryAfter(time.Hour, nil))
		}
		return err
	}
}

func TestVerdicts(t *testing.T) {
	broken := errors.New("mailbox full")
	for _, c := range []struct {
		name   string
		key    string
		pass   bool
		answer func(try int) error
		runs   string // when it ran, with which try
		reason string // of the dead letter; empty: none
		moved  bool   // a failed run goes to the end, not to its place
	}{
		{name: "nil is done", key: "a", answer: func(int) error { return nil }, runs: "0s#1"},
		{name: "dead at once", key: "a", answer: func(int) error { return Dead(broken) }, runs: "0s#1", reason: "mailbox full"},
		{name: "dead without a reason", answer: func(int) error { return Dead(nil) }, runs: "0s#1", reason: "the handler gave the task up"},
		{name: "dead by itself", answer: func(int) error { return &sources.DeadError{} }, runs: "0s#1", reason: "the handler gave the task up"},
		{name: "an error is retried, then dead", key: "a", answer: func(int) error { return broken },
			runs: "0s#1 1s#2 3s#3 7s#4 15s#5", reason: "gave up after 5 tries: mailbox full"},
		{name: "without a key too", moved: true, answer: func(int) error { return broken },
			runs: "0s#1 1s#2 3s#3 7s#4 15s#5", reason: "gave up after 5 tries: mailbox full"},
		{name: "past its key too", key: "a", pass: true, moved: true, answer: func(int) error { return broken },
			runs: "0s#1 1s#2 3s#3 7s#4 15s#5", reason: "gave up after 5 tries: mailbox full"},
		{name: "retry after", key: "a", answer: func(try int) error {
			if try < 3 {
				return fmt.Errorf("smtp: %w", RetryAfter(time.Hour, broken))
			}
			return nil
		}, runs: "0s#1 1h0m0s#2 2h0m0s#3"},
		{name: "retry at once", key: "a", answer: func(try int) error {
			if try < 3 {
				return RetryAfter(-time.Second, broken)
			}
			return nil
		}, runs: "0s#1 0s#2 0s#3"},
		{name: "retry after counts as a try", key: "a", answer: func(int) error { return RetryAfter(time.Minute, broken) },
			runs: "0s#1 1m0s#2 2m0s#3 3m0s#4 4m0s#5", reason: "gave up after 5 tries: mailbox full"},
		{name: "what waits loses no try", key: "a", answer: waits(8, broken), runs: "0s#1 1h0m0s#1 2h0m0s#1 3h0m0s#1 4h0m0s#1 5h0m0s#1 6h0m0s#1 7h0m0s#1 8h0m0s#1" +
			" 8h0m1s#2 8h0m3s#3 8h0m7s#4 8h0m15s#5", reason: "gave up after 5 tries: mailbox full"},
		{name: "nor does it in its last try", key: "a", answer: func(wait func(int) error) func(int) error {
			return func(try int) error {
				if try < 5 {
					return broken
				}
				return wait(try)
			}
		}(waits(2, nil)), runs: "0s#1 1s#2 3s#3 7s#4 15s#5 1h0m15s#5 2h0m15s#5"},
		{name: "nor does it without a key", moved: true, answer: waits(6, broken), runs: "0s#1 1h0m0s#1 2h0m0s#1 3h0m0s#1 4h0m0s#1 5h0m0s#1 6h0m0s#1" +
			" 6h0m1s#2 6h0m3s#3 6h0m7s#4 6h0m15s#5", reason: "gave up after 5 tries: mailbox full"},
		{name: "tries that somebody else counts", key: "a", answer: func(try int) error {
			if try < 8 {
				return &sources.RetryError{After: time.Hour, Err: broken, Counted: true}
			}
			return Dead(broken)
		}, runs: "0s#1 1h0m0s#2 2h0m0s#3 3h0m0s#4 4h0m0s#5 5h0m0s#6 6h0m0s#7 7h0m0s#8", reason: "mailbox full"},
		{name: "a panic is an error", key: "a", answer: func(try int) error {
			if try == 1 {
				panic("no such thing")
			}
			return nil
		}, runs: "0s#1 1s#2"},
		{name: "a panic of the error's text is an error", key: "a", answer: func(try int) error {
			if try == 1 {
				return (*textless)(nil)
			}
			return nil
		}, runs: "0s#1 1s#2"},
		{name: "a panic of the error's chain is an error", key: "a", answer: func(try int) error {
			if try == 1 {
				return (*chainless)(nil)
			}
			return nil
		}, runs: "0s#1 1s#2"},
		{name: "a panic with an error whose chain panics is an error", key: "a", answer: func(try int) error {
			if try == 1 {
				panic((*chainless)(nil))
			}
			return nil
		}, runs: "0s#1 1s#2"},
		{name: "a panic of an error that is asked for another type is an error", key: "a", answer: func(try int) error {
			if try == 1 {
				return choosy{}
			}
			return nil
		}, runs: "0s#1 1s#2"},
		{name: "a panic of an error that is asked what it is, beside one of the context, is an error", key: "a", answer: func(try int) error {
			if try == 1 {
				return errors.Join(context.Canceled, (*matchless)(nil))
			}
			return nil
		}, runs: "0s#1 1s#2"},
		{name: "Goexit is an error", key: "a", answer: func(try int) error {
			if try == 1 {
				runtime.Goexit()
			}
			return nil
		}, runs: "0s#1 1s#2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var mu sync.Mutex
				var runs []string
				b := newBench(t, benchConfig{Config: Config{Concurrency: 1, Pass: c.pass}}, func(_ context.Context, task *Task) error {
					mu.Lock()
					runs = append(runs, fmt.Sprintf("%v#%d", time.Since(began).Round(time.Second), task.Attempt))
					mu.Unlock()
					return c.answer(task.Attempt)
				})
				defer b.stop()
				b.push(task(c.key, 0))
				g := b.grant(0)
				time.Sleep(24 * time.Hour)
				b.drain(g)
				if got := strings.Join(runs, " "); got != c.runs {
					t.Errorf("ran at %s, want %s", got, c.runs)
				}
				for _, h := range of[Handled](b.seen) {
					if h.Outcome == sources.Retry && c.moved || h.Outcome == sources.Requeue && !c.moved {
						t.Errorf("try %d: %v", h.Task.Attempt, h.Outcome)
					}
				}
				dead := b.store.Dead(0)
				switch {
				case c.reason == "" && len(dead) > 0:
					t.Errorf("dead letter %q, want none", dead[0].Reason)
				case c.reason != "" && (len(dead) != 1 || dead[0].Reason != c.reason):
					t.Errorf("dead letters %+v, want one with %q", dead, c.reason)
				}
				if open, delayed := b.store.Pending(0); open+delayed > 0 {
					t.Errorf("%d tasks left", open+delayed)
				}
			})
		})
	}
}

func TestAPanicTellsItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Retry: RetryPolicy{Tries: 1}}}, func(context.Context, *Task) error {
			panic(errors.New("index out of range"))
		})
		defer b.stop()
		b.push(task("a", 0))
		b.grantAndWork(0)
		h := of[Handled](b.seen)
		var p *PanicError
		if len(h) != 1 || !errors.As(h[0].Err, &p) {
			t.Fatalf("told %+v, want one panic", h)
		}
		if !strings.Contains(string(p.Stack), "TestAPanicTellsItsStack") {
			t.Errorf("the stack does not show the handler:\n%s", p.Stack)
		}
		if r := b.store.Dead(0)[0].Reason; !strings.Contains(r, "the handler panicked: index out of range") {
			t.Errorf("reason %q", r)
		}
	})
}

func TestHandlerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 2)
		release := make(chan struct{})
		cfg := Config{HandlerTimeout: 5 * time.Second, Retry: RetryPolicy{Tries: 2}}
		b := newBench(t, benchConfig{Config: cfg}, func(ctx context.Context, task *Task) error {
			<-ctx.Done()
			if task.Attempt == 2 {
				<-release // ignores it
			}
			cause <- context.Cause(ctx)
			return ctx.Err()
		})
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		if err := <-cause; !errors.Is(err, ErrTimeout) {
			t.Errorf("the handler was told %v, want ErrTimeout", err)
		}
		time.Sleep(time.Minute)
		stuck := of[HandlerStuck](b.seen)
		if len(stuck) != 1 || stuck[0].Task.Attempt != 2 || !errors.Is(stuck[0].Cause, ErrTimeout) {
			t.Errorf("told %+v, want the second run stuck, once", stuck)
		}
		close(release)
		b.drain(g)
		if dead := b.store.Dead(0); len(dead) != 1 {
			t.Errorf("%d dead letters, want 1: a timeout is a failure of the task", len(dead))
		}
	})
}

// Who wakes up after a freeze has handlers whose time was over meanwhile: they get to know of
// it now, and are not stuck before they have had their grace.
func TestAfterAFreezeNobodyIsStuckAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{HandlerTimeout: 5 * time.Second}
		began, release := make(chan struct{}), make(chan struct{})
		b := newBench(t, benchConfig{Config: cfg}, func(context.Context, *Task) error {
			close(began)
			<-release
			return nil
		})
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		<-began
		synctest.Wait()
		awake := time.Now().Add(time.Minute)
		for _, c := range []struct {
			at   time.Time
			want int
		}{{awake, 0}, {awake.Add(b.cfg.Timing.CancelGrace), 1}} {
			b.mu.Lock()
			told := b.scan(c.at, cfg.HandlerTimeout+b.cfg.Timing.CancelGrace, nil)
			b.mu.Unlock()
			b.tell(told)
			if stuck := len(of[HandlerStuck](b.seen)); stuck != c.want {
				t.Errorf("%v after it woke up %d handlers were stuck, want %d", c.at.Sub(awake), stuck, c.want)
			}
		}
		close(release)
		b.drain(g)
	})
}

func TestTheNextOwnerGoesOnWhereARetryWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		runs := make(chan string, 10)
		b := newBench(t, benchConfig{}, func(_ context.Context, task *Task) error {
			runs <- fmt.Sprintf("%v %s#%d %q", time.Since(began).Round(time.Second), task.ID, task.Attempt, task.FirstError)
			if task.ID == "a-0" && task.Attempt == 1 {
				time.Sleep(time.Second) // the drain comes meanwhile
				return RetryAfter(time.Minute, errors.New("greylisted"))
			}
			return nil
		})
		defer b.stop()
		b.push(task("a", 0), task("a", 1))
		b.drain(b.grantAndWork(0))
		g := b.grant(0)
		time.Sleep(time.Hour)
		b.drain(g)
		close(runs)
		var got []string
		for r := range runs {
			got = append(got, r)
		}
		want := `0s a-0#1 "" 1m1s a-0#2 "greylisted" 1m1s a-1#1 ""`
		if s := strings.Join(got, " "); s != want {
			t.Errorf("ran %s, want %s", s, want)
		}
	})
}

// A task that is retried at once can end before its first failure was sent: in one
// batch a task stands once, with its last word.
func TestABatchHasATaskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		b := newBench(t, benchConfig{Config: Config{Concurrency: 2}, source: s.over}, func(_ context.Context, task *Task) error {
			if task.Key == "slow" {
				time.Sleep(time.Millisecond) // so that the lane is not idle and the batch waits
				return nil
			}
			if task.Attempt < 4 {
				return RetryAfter(0, errors.New("again"))
			}
			return nil
		})
		defer b.stop()
		b.push(task("slow", 0), task("a", 0))
		b.drain(b.grantAndWork(0))
		seen := map[string]int{}
		for _, o := range s.told {
			seen[o.Task.ID]++
			if o.Task.ID == "a-0" && (o.Outcome != sources.Done || o.Attempt != 4 || o.Task.FirstError != "again") {
				t.Errorf("told %v of try %d, first error %q; want done, 4, again", o.Outcome, o.Attempt, o.Task.FirstError)
			}
		}
		if seen["a-0"] != 1 {
			t.Errorf("told %v", seen)
		}
	})
}

func TestLanesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []int
		b := newBench(t, benchConfig{Config: Config{Concurrency: 1}, partitions: 2}, func(_ context.Context, task *Task) error {
			mu.Lock()
			order = append(order, int(task.Grant.ID))
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		defer b.stop()
		for i := range 100 {
			b.push(task("", i))
		}
		b.grantAndWork(0)
		if err := b.store.PushTo(1, task("", 0), task("", 1)); err != nil {
			t.Fatal(err)
		}
		b.grant(1)
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, id := range order[:min(len(order), 6)] {
			n += id
		}
		if n != 2 {
			t.Errorf("the order of partitions is %v: the flood of one starves the other", order)
		}
	})
}

// A turn is one task while handlers take longer than a millisecond, else what is started in
// one: tasks of a lane that run at about the same time are settled together.
func TestHowLongATurnIs(t *testing.T) {
	const tasks = 100
	for handler, want := range map[time.Duration]int{
		20 * time.Millisecond: 1, time.Millisecond: 1, 300 * time.Microsecond: 4, 100 * time.Microsecond: 10,
	} {
		t.Run(handler.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var turns []int
				var last partition.ID
				both := make(chan struct{})
				b := newBench(t, benchConfig{Config: Config{Concurrency: 1}, partitions: 2}, func(_ context.Context, task *Task) error {
					<-both
					mu.Lock()
					if id := task.Grant.ID; len(turns) > 0 && id == last {
						turns[len(turns)-1]++
					} else {
						turns, last = append(turns, 1), id
					}
					mu.Unlock()
					time.Sleep(handler)
					return nil
				})
				defer b.stop()
				for i := range 2 * tasks {
					if err := b.store.PushTo(partitionID(i%2), task("", i)); err != nil {
						t.Fatal(err)
					}
				}
				b.grant(0)
				b.grant(1)
				synctest.Wait() // both lanes have tasks
				close(both)
				time.Sleep(tasks * handler)
				mu.Lock()
				defer mu.Unlock()
				for i, n := range turns[min(len(turns), 2) : len(turns)-1] { // while the first task waited, a turn passed
					if n != want {
						t.Fatalf("turn %d has %d tasks of a lane, want %d: %v", i+2, n, want, turns)
					}
				}
				if n := len(turns); n < tasks/want/2 {
					t.Errorf("%d turns in %d tasks: %v", n, tasks, turns)
				}
			})
		})
	}
}

// Lanes of which nothing more is ready while their task runs, since all are of one key, have
// their turns as well: who comes back goes behind those who wait.
func TestLanesOfOneKeyTakeTurns(t *testing.T) {
	for _, handler := range []time.Duration{10 * time.Millisecond, 100 * time.Microsecond} {
		t.Run(handler.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lanes, tasks = 5, 100
				var mu sync.Mutex
				ran := make([]int, lanes)
				b := newBench(t, benchConfig{Config: Config{Concurrency: 2}, partitions: lanes}, func(_ context.Context, task *Task) error {
					mu.Lock()
					ran[task.Grant.ID]++
					mu.Unlock()
					time.Sleep(handler)
					return nil
				})
				defer b.stop()
				for id := range lanes {
					for i := range tasks {
						if err := b.store.PushTo(partitionID(id), task("k", i)); err != nil {
							t.Fatal(err)
						}
					}
					b.grant(partitionID(id))
				}
				time.Sleep(tasks * handler)
				mu.Lock()
				defer mu.Unlock()
				if least, most := slices.Min(ran), slices.Max(ran); least < most/2 {
					t.Errorf("%v tasks of the partitions ran", ran)
				}
			})
		})
	}
}

func TestNoMoreThanConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		b := newBench(t, benchConfig{Config: Config{Concurrency: 3}, partitions: 5}, func(context.Context, *Task) error {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Millisecond)
			running.Add(-1)
			return nil
		})
		defer b.stop()
		for i := range 100 {
			if err := b.store.Push(task(fmt.Sprint(i%50), i)); err != nil {
				t.Fatal(err)
			}
		}
		for id := range 5 {
			b.grant(partitionID(id))
		}
		time.Sleep(time.Second)
		if n := most.Load(); n != 3 {
			t.Errorf("%d handlers ran at once, want 3", n)
		}
	})
}

// One fetch wakes one worker, and each that takes a task wakes the next: what came
// together runs together, though nothing happens any more while it runs.
func TestWhatComesTogetherRunsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks = 4
		var running atomic.Int32
		hold := make(chan struct{})
		b := newBench(t, benchConfig{Config: Config{Concurrency: tasks}}, func(context.Context, *Task) error {
			running.Add(1)
			<-hold
			return nil
		})
		defer b.stop()
		synctest.Wait() // all workers sleep
		for i := range tasks {
			b.push(task("", i))
		}
		g := b.grantAndWork(0)
		if n := running.Load(); n != tasks {
			t.Errorf("%d of %d tasks run, with a worker for each", n, tasks)
		}
		close(hold)
		b.drain(g)
	})
}

// A lane whose tasks were refused a start is asked again when gatedFor is over, not by each
// of its tasks in turn for as long as there is no lease.
func TestALaneThatWasRefusedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const handled, most = 500, 1000
		b := newBench(t, benchConfig{Config: Config{Concurrency: 1}}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		asked, refused := 0, 0
		b.gate.asked = func() { // by the only worker
			switch asked++; {
			case asked == handled:
				b.gate.invalid.Store(true)
			case !b.gate.invalid.Load():
				return
			case refused == most:
				b.gate.invalid.Store(false) // or it never ends
			}
			refused++
		}
		for i := range 2 * handled {
			b.push(task("", i))
		}
		synctest.Wait() // the alarm sleeps
		b.grant(0)
		time.Sleep(10*gatedFor + gatedFor/2)
		b.mu.Lock()
		ready := b.lanes[0].book.ready.n
		b.mu.Unlock()
		if refused < 2 || refused > 12 || ready <= mostRun {
			t.Errorf("asked %d times in ten times as long as it is to be left alone, with %d tasks ready", refused, ready)
		}
	})
}

// A costlyError counts how often its text is made.
type costlyError struct{ made *int }

func (e costlyError) Error() string { *e.made++; return "costly" }

// The text of an error may be long in the making: it is made once for a task that fails.
func TestTheTextOfAnErrorIsMadeOnce(t *testing.T) {
	p := &pool{crew: crew{cfg: Config{}.WithDefaults(), gate: &fakeGate{}, random: func() float64 { return 0.5 }}}
	made := 0
	p.handler = HandlerFunc(func(context.Context, *Task) error { return costlyError{&made} })
	l := &lane{pool: p, ctxs: newContexts(p.gate.Valid)}
	var v verdict
	p.run(l.ctxs.handlers, l, &Task{Key: "a", Delivery: &Delivery{Attempt: 1}}, time.Now(), &v)
	if made != 1 || v.outcome != sources.Retry || v.reason != "costly" {
		t.Errorf("made %d times for %v, which says %q", made, v.outcome, v.reason)
	}
}

// An observer that ends the goroutine of a worker, as testing's FailNow does, takes neither the
// worker nor what the handler did.
func TestAnObserverThatEndsItsGoroutine(t *testing.T) {
	for what, handle := range map[string]func() error{
		"of what is done":          func() error { return nil },
		"of what ended it already": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs, told atomic.Int64
				b := newBench(t, benchConfig{Config: Config{Concurrency: 1}}, func(context.Context, *Task) error {
					if runs.Add(1) <= 3 {
						return handle()
					}
					return nil
				})
				defer b.stop()
				b.mu.Lock()
				b.observer = ObserverFunc(func(e Event) {
					if _, ok := e.(Handled); ok && told.Add(1) <= 3 {
						runtime.Goexit()
					}
				})
				b.mu.Unlock()
				for i := range 5 {
					b.push(task(fmt.Sprint("key ", i), i))
				}
				g := b.grant(0)
				time.Sleep(time.Hour)
				b.drain(g)
				want := int64(5)
				if what != "of what is done" {
					want += 3 // were tried again
				}
				if runs.Load() != want || told.Load() != want {
					t.Errorf("%d runs, of %d was told; want %d", runs.Load(), told.Load(), want)
				}
			})
		})
	}
}

// So it does where the handler has left its task to the next owner: that is no try.
func TestAnObserverThatEndsItsGoroutineAtAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs, told atomic.Int64
		b := newBench(t, benchConfig{Config: Config{Concurrency: 1, Retry: RetryPolicy{Tries: 1}}}, func(ctx context.Context, _ *Task) error {
			if runs.Add(1) == 1 {
				<-HandOver(ctx)
				return ErrHandedOver
			}
			return nil
		})
		defer b.stop()
		b.mu.Lock()
		b.observer = ObserverFunc(func(e Event) {
			if _, ok := e.(Handled); ok && told.Add(1) == 1 {
				runtime.Goexit()
			}
		})
		b.mu.Unlock()
		b.push(task("a", 0))
		b.drain(b.grantAndWork(0))
		b.drain(b.grantAndWork(0))
		if dead := b.store.Dead(0); runs.Load() != 2 || told.Load() != 2 || len(dead) != 0 {
			t.Errorf("%d runs, of %d was told, dead letters %+v; want 2, 2 and none", runs.Load(), told.Load(), dead)
		}
	})
}

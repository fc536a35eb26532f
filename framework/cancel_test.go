package framework

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
)

// A canceller is a source whose streams hear of what is to be cancelled, from a test.
type canceller struct {
	sources.Source

	mu   sync.Mutex
	why  map[string]string
	tell func(map[string]string) []string // of the newest stream
}

func (c *canceller) over(store *memsource.Store) sources.Source { c.Source = store; return c }

func (c *canceller) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	s, err := c.Source.Open(ctx, g, tok)
	if err != nil {
		return nil, err
	}
	return cancellerStream{s, c}, nil
}

type cancellerStream struct {
	sources.Stream
	c *canceller
}

func (s cancellerStream) Cancelled(_ context.Context, tell func(map[string]string) []string) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.tell = tell
	tell(s.c.why)
}

// cancel has tasks cancelled because it is a test, and nothing else; it returns what runs.
func (c *canceller) cancel(ids ...string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.why = map[string]string{}
	for _, id := range ids {
		c.why[id] = "a test"
	}
	if c.tell == nil {
		return nil
	}
	return c.tell(c.why)
}

// A scribe writes down what handlers say.
type scribe struct {
	mu   sync.Mutex
	said []string
}

func (s *scribe) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *scribe) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

// dead is what stands of the dead letters of partition 0.
func (b *bench) dead() (all []string) {
	for _, d := range b.store.Dead(0) {
		all = append(all, fmt.Sprintf("%s after %d: %s", d.Task.ID, d.Task.Attempt, d.Reason))
	}
	return all
}

// Whatever error a handler returns whose task was cancelled, that is a dead letter, and the next task of the key runs;
// what it did counts. Nobody beside it is disturbed.
func TestWhatRunsIsCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(ctx context.Context) error
		dead string // "" : done
		err  error  // what Handled says beside ErrCancelled
	}{
		"an error of its context": {func(ctx context.Context) error { return ctx.Err() }, "a-0 after 1: the task was cancelled: a test", nil},
		"the cause":               {context.Cause, "a-0 after 1: the task was cancelled: a test", nil},
		"its own error": {
			func(context.Context) error { return errGreylisted },
			"a-0 after 1: the task was cancelled: a test (the handler returned: greylisted)", errGreylisted,
		},
		"a wish for a retry": {
			func(context.Context) error { return RetryAfter(time.Second, errGreylisted) },
			"a-0 after 1: the task was cancelled: a test (the handler returned: greylisted)", errGreylisted,
		},
		"a wish for none": {
			func(context.Context) error { return Dead(errGreylisted) },
			"a-0 after 1: the task was cancelled: a test (the handler returned: greylisted)", errGreylisted,
		},
		"a panic": {
			func(context.Context) error { panic("ouch") },
			"a-0 after 1: the task was cancelled: a test (the handler returned: the handler panicked: ouch", nil,
		},
		"nothing": {func(context.Context) error { return nil }, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said scribe
				cs := &canceller{}
				b := newBench(t, benchConfig{Config: Config{Concurrency: 4}, source: cs.over}, func(ctx context.Context, task *Task) error {
					said.say("%s begins", task.ID)
					switch task.ID {
					case "a-0":
						<-ctx.Done()
						if !errors.Is(context.Cause(ctx), ErrCancelled) {
							t.Errorf("its context ended because %v", context.Cause(ctx))
						}
						return c.end(ctx)
					case "b-1":
						time.Sleep(10 * time.Second)
					}
					if ctx.Err() != nil {
						t.Errorf("the context of %s has ended: %v", task.ID, context.Cause(ctx))
					}
					return nil
				})
				defer b.stop()
				b.push(task("a", 0), task("b", 1), task("a", 2))
				g := b.grant(0)
				synctest.Wait()
				time.Sleep(time.Second)
				if got := cs.cancel("a-0", "nobody's"); !slices.Equal(got, []string{"a-0"}) {
					t.Errorf("%q run", got)
				}
				time.Sleep(time.Second)
				if got, want := said.all(), []string{"a-2 begins", "a-0 begins", "b-1 begins"}; len(got) != 3 || got[2] != want[0] {
					t.Errorf("handlers say %q", got)
				}
				b.drain(g)
				dead := strings.Join(b.dead(), "\n")
				if open, _ := b.store.Pending(0); open != 0 || (c.dead == "") != (dead == "") || !strings.HasPrefix(dead, c.dead) {
					t.Errorf("%d are open; dead letters: %s; want %s", open, dead, c.dead)
				}
				for _, e := range of[Handled](b.seen) {
					if e.Task.ID == "a-0" && c.dead != "" && (e.Outcome != sources.Dead || !errors.Is(e.Err, ErrCancelled) || c.err != nil && !errors.Is(e.Err, c.err)) {
						t.Errorf("told of %v: %v", e.Outcome, e.Err)
					}
				}
				if told := of[Cancelled](b.seen); len(told) != 1 || told[0].Task.ID != "a-0" || !told[0].Runs || told[0].Why != "a test" || told[0].Grant != g {
					t.Errorf("told %+v", told)
				}
			})
		})
	}
}

var errGreylisted = errors.New("greylisted")

// What waits is a dead letter at once and never runs: for its next try, behind another of its key, for a worker; and
// what behind it waits goes on in order.
func TestWhatWaitsIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said scribe
		cs := &canceller{}
		b := newBench(t, benchConfig{Config: Config{Concurrency: 1, Retry: RetryPolicy{Tries: 9, First: time.Hour, Max: time.Hour}}, source: cs.over},
			func(_ context.Context, task *Task) error {
				said.say("%s", task.ID)
				if task.ID == "b-3" {
					time.Sleep(time.Minute)
				}
				if task.ID == "a-0" {
					return errGreylisted
				}
				return nil
			})
		defer b.stop()
		b.push(task("a", 0), task("a", 1), task("a", 2), task("b", 3), task("b", 4), task("b", 5), task("c", 6), task("", 7))
		g := b.grant(0)
		time.Sleep(time.Second) // a-0 waits for its next try, and b-3 runs
		if got := cs.cancel("a-0", "a-1", "b-4", "c-6"); len(got) != 0 {
			t.Errorf("%q run", got)
		}
		time.Sleep(time.Second)
		why := "the task was cancelled: a test"
		want := []string{"a-0 after 1: " + why, "a-1 after 0: " + why, "b-4 after 0: " + why, "c-6 after 0: " + why}
		if got := b.dead(); len(got) != 4 {
			t.Errorf("dead letters: %q", got)
		}
		time.Sleep(2 * time.Minute)
		b.drain(g)
		got := b.dead()
		slices.Sort(got)
		if open, _ := b.store.Pending(0); open != 0 || !slices.Equal(got, want) {
			t.Errorf("%d are open; dead letters: %q, want %q", open, got, want)
		}
		ran := said.all()
		slices.Sort(ran[2:])
		if !slices.Equal(ran, []string{"a-0", "b-3", "-7", "a-2", "b-5"}) {
			t.Errorf("%q ran", ran)
		}
		if told := of[Cancelled](b.seen); len(told) != 4 || told[0].Runs || told[0].Grant != g {
			t.Errorf("told %+v", told)
		}
	})
}

// What is not there yet is a dead letter when it is read, here and with the next owner, once. What is taken back runs.
func TestWhatComesLaterIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said scribe
		cs := &canceller{}
		b := newBench(t, benchConfig{source: cs.over}, func(_ context.Context, task *Task) error {
			said.say("%s", task.ID)
			return nil
		})
		defer b.stop()
		cs.cancel("a-0", "a-2", "a-3")
		g := b.grant(0)
		time.Sleep(time.Second)
		b.push(task("a", 0), task("a", 1))
		time.Sleep(time.Second)
		b.drain(g)
		b.push(task("a", 2))
		g = b.grant(0)
		time.Sleep(time.Second)
		cs.cancel()
		b.push(task("a", 3))
		time.Sleep(time.Second)
		b.drain(g)
		if got := said.all(); !slices.Equal(got, []string{"a-1", "a-3"}) || len(b.dead()) != 2 {
			t.Errorf("%q ran; dead letters: %q", got, b.dead())
		}
	})
}

// Who has just failed, and is told to try again, when he is cancelled, does not.
func TestARetryIsCancelledOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := &canceller{}
		runs := 0
		b := newBench(t, benchConfig{source: cs.over}, func(context.Context, *Task) error {
			runs++
			return errGreylisted
		})
		seen := b.observer
		b.mu.Lock()
		b.observer = ObserverFunc(func(e Event) {
			if h, ok := e.(Handled); ok && h.Outcome == sources.Retry {
				cs.cancel("a-0")
			}
			seen.Observe(e)
		})
		b.mu.Unlock()
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		time.Sleep(time.Hour)
		b.drain(g)
		if got := b.dead(); runs != 1 || !slices.Equal(got, []string{"a-0 after 1: the task was cancelled: a test"}) {
			t.Errorf("%d runs; dead letters: %q", runs, got)
		}
	})
}

// A handler that ignores the end of its context keeps its key, and that is told, after its own grace.
func TestACancelledHandlerThatIsStuckIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := &canceller{}
		var said scribe
		free := make(chan struct{})
		b := newBench(t, benchConfig{Config: Config{Concurrency: 3}, source: cs.over}, func(_ context.Context, task *Task) error {
			said.say("%s", task.ID)
			if task.Key != "c" {
				<-free
			}
			return errGreylisted
		})
		defer b.stop()
		grace := b.cfg.Timing.CancelGrace
		b.push(task("a", 0), task("a", 1), task("b", 2))
		g := b.grant(0)
		time.Sleep(time.Minute)
		cs.cancel("a-0")
		time.Sleep(grace / 2)
		cs.cancel("a-0", "b-2")
		stuck := func() (all []string) {
			for _, e := range of[HandlerStuck](b.seen) {
				if !errors.Is(e.Cause, ErrCancelled) {
					t.Errorf("stuck because %v", e.Cause)
				}
				all = append(all, e.Task.ID)
			}
			return all
		}
		time.Sleep(grace * 3 / 4)
		if got := stuck(); !slices.Equal(got, []string{"a-0"}) {
			t.Errorf("told %q are stuck, want a-0", got)
		}
		time.Sleep(grace)
		if got := stuck(); !slices.Equal(got, []string{"a-0", "b-2"}) {
			t.Errorf("told %q are stuck, want both", got)
		}
		if got := said.all(); len(got) != 2 || len(b.dead()) != 0 {
			t.Errorf("%q began; dead letters: %q", got, b.dead())
		}
		close(free)
		time.Sleep(time.Millisecond)
		b.drain(g)
		if got := b.dead(); len(got) != 2 {
			t.Errorf("dead letters: %q", got)
		}
	})
}

// Whose partition is lost says nothing more of a cancelled task: the next owner carries it out.
func TestALossAfterACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := &canceller{}
		runs := 0
		b := newBench(t, benchConfig{source: cs.over}, func(ctx context.Context, _ *Task) error {
			runs++
			<-ctx.Done()
			time.Sleep(time.Second / 2)
			return ctx.Err()
		})
		defer b.stop()
		b.push(task("a", 0))
		g := b.grant(0)
		time.Sleep(time.Second)
		cs.cancel("a-0")
		done := make(chan struct{})
		b.Abort(g, errors.New("a test"), func() { close(done) })
		<-done
		if got := b.dead(); len(got) != 0 {
			t.Errorf("dead letters of who has lost the partition: %q", got)
		}
		g = b.grant(0)
		time.Sleep(time.Second)
		b.drain(g)
		if got := b.dead(); runs != 1 || len(got) != 1 {
			t.Errorf("%d runs; dead letters: %q", runs, got)
		}
	})
}

// Many short tasks, of which some are cancelled while they come, run or wait: each ends once.
func TestCancelledAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks = 2000
		cs := &canceller{}
		var mu sync.Mutex
		done := map[string]int{}
		b := newBench(t, benchConfig{Config: Config{Concurrency: 8}, source: cs.over}, func(ctx context.Context, task *Task) error {
			if len(task.ID)%3 == 0 {
				time.Sleep(time.Millisecond)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			done[task.ID]++
			return nil
		})
		defer b.stop()
		var all []string
		unwanted := map[string]bool{}
		for i := range tasks {
			next := task(fmt.Sprintf("k%d", i%17), i)
			all = append(all, next.ID)
			b.push(next)
		}
		g := b.grant(0)
		for i := 0; i < tasks; i += 40 {
			for j := max(0, i-200); j < i; j += 2 {
				unwanted[all[j]] = true
			}
			cs.cancel(slices.Collect(maps.Keys(unwanted))...)
			time.Sleep(time.Millisecond)
		}
		for open, _ := b.store.Pending(0); open > 0; open, _ = b.store.Pending(0) {
			time.Sleep(time.Millisecond)
		}
		b.drain(g)
		for _, d := range b.store.Dead(0) {
			done[d.Task.ID]++
			if !unwanted[d.Task.ID] {
				t.Errorf("%s is a dead letter: %s", d.Task.ID, d.Reason)
			}
		}
		for _, id := range all {
			if done[id] != 1 {
				t.Errorf("%s ended %d times", id, done[id])
			}
		}
	})
}

// What a worker has taken along with a task that is cancelled is called back first.
func TestWhatIsTakenAlongIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := &canceller{}
		begun := make(chan struct{})
		b := newBench(t, benchConfig{Config: Config{Concurrency: 1}, source: cs.over}, func(ctx context.Context, task *Task) error {
			if task.ID == "x-0" {
				close(begun)
				<-ctx.Done()
			}
			return ctx.Err()
		})
		defer b.stop()
		var all []sources.Task
		for i := range 100 {
			all = append(all, task(fmt.Sprintf("k%d", i), i))
		}
		b.push(slices.Insert(all, 40, task("x", 0))...) // the worker takes 1, 2, 4, 8, 16 and 16 of them
		g := b.grant(0)
		<-begun
		cs.cancel("x-0")
		time.Sleep(time.Second)
		b.drain(g)
		if open, _ := b.store.Pending(0); open != 0 || len(b.dead()) != 1 {
			t.Errorf("%d are open; dead letters: %q", open, b.dead())
		}
	})
}

// A lane that has held thousands forgets their memory with the last of them, also when that one is cancelled.
func TestTheLastOfThousandsIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks = 3 * mostSpare
		cs := &canceller{}
		b := newBench(t, benchConfig{Config: Config{Retry: RetryPolicy{Tries: 9, First: time.Hour, Max: time.Hour}}, source: cs.over},
			func(_ context.Context, task *Task) error {
				if task.ID == "a-0" || task.Key == "b" {
					return errGreylisted
				}
				return nil
			})
		defer b.stop()
		b.push(task("b", tasks))
		for i := range tasks {
			b.push(task("a", i))
		}
		g := b.grant(0)
		time.Sleep(time.Second) // all but two wait behind a-0
		cs.cancel("a-0")
		time.Sleep(time.Second) // b waits alone
		cs.cancel(fmt.Sprintf("b-%d", tasks))
		time.Sleep(time.Second)
		b.drain(g)
		if open, _ := b.store.Pending(0); open != 0 || len(b.dead()) != 2 {
			t.Errorf("%d are open; dead letters: %q", open, b.dead())
		}
	})
}

// Who is told that his task is cancelled, and then may not start it, does not start it later either.
func TestCancelledAndRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := &canceller{}
		runs := 0
		b := newBench(t, benchConfig{source: cs.over}, func(context.Context, *Task) error {
			runs++
			return nil
		})
		defer b.stop()
		b.gate.invalid.Store(true)
		b.gate.asked = sync.OnceFunc(func() { cs.cancel("a-0") })
		b.push(task("a", 0))
		g := b.grant(0)
		synctest.Wait()
		b.gate.invalid.Store(false)
		time.Sleep(time.Second)
		b.drain(g)
		if got := b.dead(); runs != 0 || !slices.Equal(got, []string{"a-0 after 0: the task was cancelled: a test"}) {
			t.Errorf("%d runs; dead letters: %q", runs, got)
		}
	})
}

// A misdeed is a source whose streams do something else when they are to say what is to be cancelled.
type misdeed struct {
	sources.Source
	do func()
}

func (m misdeed) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	s, err := m.Source.Open(ctx, g, tok)
	return misdeedStream{s, m.do}, err
}

type misdeedStream struct {
	sources.Stream
	do func()
}

func (s misdeedStream) Cancelled(context.Context, func(map[string]string) []string) { s.do() }

// A source that cannot say what is to be cancelled ends neither the process nor the partition: it is told, and work goes on.
func TestASourceThatFailsToSayWhatIsCancelled(t *testing.T) {
	for what, do := range map[string]func(){
		"the source's Cancelled panicked: boom": func() { panic("boom") },
		errGoexit.Error():                       runtime.Goexit,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				over := func(store *memsource.Store) sources.Source { return misdeed{store, do} }
				b := newBench(t, benchConfig{source: over}, func(context.Context, *Task) error { runs++; return nil })
				defer b.stop()
				b.push(task("a", 0))
				g := b.grant(0)
				time.Sleep(time.Minute)
				b.drain(g)
				if open, _ := b.store.Pending(0); runs != 1 || open != 0 {
					t.Errorf("the task ran %d times, %d are open", runs, open)
				}
				if told := of[FetchFailed](b.seen); len(told) != 1 || told[0].Err.Error() != what || told[0].Again == 0 {
					t.Errorf("told %+v, want once %q", told, what)
				}
			})
		})
	}
}

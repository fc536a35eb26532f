package batch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/batch"
	"github.com/countoff/countoff/framework/frameworktest"
	"github.com/countoff/countoff/sources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hands gathers tasks of a test by hand, in the bubble of a synctest: each handed task is handled by a goroutine.
type hands struct {
	t    *testing.T
	h    framework.Handler
	wg   sync.WaitGroup
	mu   sync.Mutex
	runs []string         // of the function: the IDs of its tasks
	ends map[string]error // by ID
}

// newHands has a handler whose function takes a second, if ctx does not end before, and returns what then says.
func newHands(t *testing.T, cfg batch.Config, then func(ctx context.Context, ids []string) error) *hands {
	t.Helper()
	x := &hands{t: t, ends: map[string]error{}}
	h, err := batch.New(cfg, func(ctx context.Context, tasks []*framework.Task) error {
		var ids []string
		for _, task := range tasks {
			ids = append(ids, task.ID)
		}
		x.mu.Lock()
		x.runs = append(x.runs, strings.Join(ids, " "))
		x.mu.Unlock()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return then(ctx, ids)
	})
	if err != nil {
		t.Fatal(err)
	}
	x.h = h
	return x
}

func succeed(ctx context.Context, _ []string) error { return ctx.Err() }

// give hands a task over, and returns once nothing more happens.
func (x *hands) give(ctx context.Context, id string, of framework.Delivery) {
	x.wg.Go(func() {
		err := errors.New("its goroutine ended")
		defer func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.ends[id] = err
		}()
		err = x.h.Handle(ctx, &framework.Task{ID: id, Delivery: &of})
	})
	synctest.Wait()
}

func (x *hands) all(ctx context.Context, ids ...string) {
	for _, id := range ids {
		x.give(ctx, id, framework.Delivery{Attempt: 1})
	}
}

func (x *hands) wantRuns(want ...string) {
	x.t.Helper()
	x.wg.Wait()
	if !slices.Equal(x.runs, want) {
		x.t.Errorf("batches %q, want %q", x.runs, want)
	}
}

func (x *hands) wantEnd(id string, is func(error) bool) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if err, told := x.ends[id]; !told || !is(err) {
		x.t.Errorf("%s ended with %v (%v)", id, err, told)
	}
}

func done(err error) bool { return err == nil }

func TestWhatComesMeanwhileIsTheNextBatch(t *testing.T) {
	for _, c := range []struct {
		cfg  batch.Config
		want []string
	}{
		{batch.Config{}, []string{"a", "b c d e f"}},
		{batch.Config{Size: 2}, []string{"a", "b c", "d e", "f"}},
		{batch.Config{Parallel: 2}, []string{"a", "b", "c d e f"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			x := newHands(t, c.cfg, succeed)
			x.all(t.Context(), "a", "b", "c", "d", "e", "f")
			x.wantRuns(c.want...)
			for _, id := range []string{"a", "f"} {
				x.wantEnd(id, done)
			}
		})
	}
}

// TestTheAccusedIsAlone: what may have ended a process is not to end one with others in hand.
func TestTheAccusedIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{Size: 3}, succeed)
		x.all(t.Context(), "a", "b", "c")
		x.give(t.Context(), "accused", framework.Delivery{Attempt: 1, Crashes: 1})
		x.all(t.Context(), "d", "e")
		x.give(t.Context(), "another try", framework.Delivery{Attempt: 2})
		x.wantRuns("a", "b c d", "accused", "e another try")
	})
}

// refuse is a function that does all or nothing, and nothing where one of these is among them.
func refuse(err func(id string) error, bad ...string) func(context.Context, []string) error {
	return func(_ context.Context, ids []string) error {
		for _, id := range ids {
			if slices.Contains(bad, id) {
				return err(id)
			}
		}
		return nil
	}
}

func text(id string) error { return errors.New(id) }

// TestWhoIsToBlame: of a batch that fails as a whole those are looked for that fail alone.
func TestWhoIsToBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, refuse(text, "e", "i"))
		x.all(t.Context(), "a", "b", "c", "d", "e", "f", "g", "h", "i")
		x.wantRuns("a", "b c d e f g h i", "b", "c d", "e f g h", "e", "f", "g h", "i")
		for _, id := range []string{"a", "b", "c", "d", "f", "g", "h"} {
			x.wantEnd(id, done)
		}
		for _, id := range []string{"e", "i"} {
			x.wantEnd(id, func(err error) bool { return err != nil && err.Error() == id })
		}
	})
}

// TestNobodyIsToBlame: a database that is away is not asked once for each task.
func TestNobodyIsToBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, func(context.Context, []string) error { return errors.New("away") })
		x.all(t.Context(), "a", "b", "c", "d", "e", "f")
		x.wantRuns("a", "b c d e f", "b", "c")
		for _, id := range []string{"a", "b", "c", "d", "f"} {
			x.wantEnd(id, func(err error) bool { return err != nil && err.Error() == "away" })
		}
	})
}

// TestOneThatKnowsItHelpsNobody: that the function could say so of it alone is no sign that the database is there.
func TestOneThatKnowsItHelpsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, func(_ context.Context, ids []string) error {
			if slices.Equal(ids, []string{"b"}) {
				return batch.Each([]error{framework.Dead(errors.New("no JSON"))})
			}
			return errors.New("away")
		})
		x.all(t.Context(), "a", "b", "c", "d", "e", "f", "g")
		x.wantRuns("a", "b c d e f g", "b", "c d", "c", "d")
	})
}

// TestTheDatabaseGoesAwayMeanwhile: after a part that went well the others are not asked one by one for long.
func TestTheDatabaseGoesAwayMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		x := newHands(t, batch.Config{}, func(_ context.Context, ids []string) error {
			if calls++; calls == 2 || calls > 3 { // the second is a batch with a bad one in it
				return errors.New("away")
			}
			return nil
		})
		ids := []string{"first"}
		for i := range 50 {
			ids = append(ids, fmt.Sprint(i))
		}
		x.all(t.Context(), ids...)
		x.wg.Wait()
		x.wantEnd("0", done)
		x.wantEnd("49", func(err error) bool { return err != nil && err.Error() == "away" })
		if want := 2 + 1 + 1 + 8; calls != want {
			t.Errorf("%d calls, want %d", calls, want)
		}
	})
}

// TestDeadIsOfOneAlone: a function that says so of a batch does not mean all of it.
func TestDeadIsOfOneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, refuse(func(id string) error { return framework.Dead(errors.New(id)) }, "b", "c", "d"))
		x.all(t.Context(), "a", "b", "c", "d", "e")
		x.wantRuns("a", "b c d e", "b", "c", "d", "e")
		x.wantEnd("e", done)
		x.wantEnd("d", func(err error) bool { o, _ := sources.Asked(err); return o == sources.Dead && err.Error() == "d" })
	})
}

// TestNotNow: it is of all whom it was said of, and of who is behind them.
func TestNotNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, func(_ context.Context, ids []string) error {
			switch {
			case len(ids) == 4:
				return errors.New("one of them")
			case slices.Contains(ids, "c"):
				return framework.RetryAfter(time.Minute, errors.New("not now"))
			}
			return nil
		})
		x.all(t.Context(), "a", "b", "c", "d", "e")
		x.wantRuns("a", "b c d e", "b", "c d")
		x.wantEnd("b", done)
		for _, id := range []string{"c", "d", "e"} {
			x.wantEnd(id, func(err error) bool {
				o, after := sources.Asked(err)
				return o == sources.Retry && after == time.Minute
			})
		}
	})
}

// TestNotNowBesideWhatNobodyReads: that one of them cannot be decoded is nothing to who is behind them.
func TestNotNowBesideWhatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, nil)
		h := must(t, batch.JSON(func(_ context.Context, ids []string, _ []*framework.Task) error {
			x.mu.Lock()
			x.runs = append(x.runs, strings.Join(ids, " "))
			x.mu.Unlock()
			time.Sleep(time.Second)
			switch {
			case len(ids) == 3:
				return errors.New("one of them")
			case slices.Contains(ids, "d"):
				return framework.RetryAfter(time.Minute, errors.New("not now"))
			}
			return nil
		}))
		x.h = framework.HandlerFunc(func(ctx context.Context, t *framework.Task) error {
			t.Payload = map[bool][]byte{true: []byte("{"), false: fmt.Appendf(nil, "%q", t.ID)}[t.ID == "c"]
			return h.Handle(ctx, t)
		})
		x.all(t.Context(), "a", "b", "c", "d", "e")
		x.wantRuns("a", "b d e", "b", "d")
		x.wantEnd("c", func(err error) bool { o, _ := sources.Asked(err); return o == sources.Dead })
		for _, id := range []string{"d", "e"} {
			x.wantEnd(id, func(err error) bool {
				o, after := sources.Asked(err)
				return o == sources.Retry && after == time.Minute
			})
		}
	})
}

func TestEachTaskHasItsOwnEnd(t *testing.T) {
	broken, gone := errors.New("broken"), framework.Dead(errors.New("no such row"))
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, func(_ context.Context, ids []string) error {
			errs := make([]error, len(ids))
			for i, id := range ids {
				errs[i] = map[string]error{"c": broken, "d": gone}[id]
			}
			return fmt.Errorf("insert: %w", batch.Each(errs))
		})
		x.all(t.Context(), "a", "b", "c", "d")
		x.wg.Wait()
		x.wantEnd("b", done)
		x.wantEnd("c", func(err error) bool { return errors.Is(err, broken) })
		x.wantEnd("d", func(err error) bool { o, _ := sources.Asked(err); return o == sources.Dead })
	})
}

// TestErrorsOfAnotherNumber: nobody can tell whose they are, so nothing counts as done.
func TestErrorsOfAnotherNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, func(_ context.Context, ids []string) error {
			return batch.Each(append(make([]error, len(ids)), framework.Dead(errors.New("one too many"))))
		})
		x.all(t.Context(), "a")
		x.wg.Wait()
		x.wantEnd("a", func(err error) bool {
			asked, _ := sources.Asked(err)
			return asked == 0 && strings.Contains(err.Error(), "2 errors for 1 tasks") && strings.Contains(err.Error(), "one too many")
		})
	})
}

// TestErrorsOfFewer: a loop that ended early has errors for those before it alone, and all may be nil. What was not done
// is not done.
func TestErrorsOfFewer(t *testing.T) {
	for what, f := range map[string]batch.Func{
		"of tasks": func(_ context.Context, tasks []*framework.Task) error { return batch.Each(make([]error, len(tasks)-1)) },
		"of JSON": batch.JSON(func(_ context.Context, _ []int, tasks []*framework.Task) error {
			return batch.Each(make([]error, len(tasks)-1))
		}),
	} {
		h, err := batch.New(batch.Config{}, f)
		if err != nil {
			t.Fatal(err)
		}
		err = h.Handle(t.Context(), &framework.Task{ID: "a", Payload: []byte("1"), Delivery: &framework.Delivery{Attempt: 1}})
		if err == nil || !strings.Contains(err.Error(), "0 errors for 1 tasks: none of 0 tasks failed") {
			t.Errorf("%s: the task ended with %v", what, err)
		}
	}
}

// TestEachIsJoined: what is said of each task is not true any more where the commit failed that the function ends with.
func TestEachIsJoined(t *testing.T) {
	commit := errors.New("commit failed")
	for what, c := range map[string]struct {
		err  error
		done bool
	}{
		"with nothing": {errors.Join(batch.Each([]error{nil}), nil), true},
		"wrapped":      {fmt.Errorf("orders: %w", batch.Each([]error{nil})), true},
		"with another": {errors.Join(batch.Each([]error{nil}), commit), false},
		"both wrapped": {fmt.Errorf("%w after %w", commit, batch.Each([]error{nil})), false},
	} {
		for of, f := range map[string]batch.Func{
			"tasks": func(context.Context, []*framework.Task) error { return c.err },
			"JSON":  batch.JSON(func(context.Context, []int, []*framework.Task) error { return c.err }),
		} {
			h, err := batch.New(batch.Config{}, f)
			if err != nil {
				t.Fatal(err)
			}
			err = h.Handle(t.Context(), &framework.Task{ID: "a", Payload: []byte("1"), Delivery: &framework.Delivery{Attempt: 1}})
			if done := err == nil; done != c.done || !done && !errors.Is(err, commit) {
				t.Errorf("%s, of %s: the task ended with %v", what, of, err)
			}
		}
	}
}

// TestThePartitionOfOneIsLost: the batch ends, and those of other partitions are done in the next, without a try.
func TestThePartitionOfOneIsLost(t *testing.T) {
	for _, cause := range []error{framework.ErrLost, framework.ErrDrainOver, framework.ErrStopped, framework.ErrCancelled} {
		synctest.Test(t, func(t *testing.T) {
			x := newHands(t, batch.Config{}, succeed)
			lost, lose := context.WithCancelCause(t.Context())
			x.all(t.Context(), "a", "b", "c")
			x.all(lost, "lost", "lost too")
			time.Sleep(1500 * time.Millisecond) // in the middle of the second batch
			x.all(t.Context(), "next")
			lose(cause)
			x.wantRuns("a", "b c lost lost too", "b c next")
			x.wantEnd("lost", func(err error) bool { return errors.Is(err, context.Canceled) })
			for _, id := range []string{"b", "c", "next"} {
				x.wantEnd(id, done)
			}
		})
	}
}

// TestTheLeaderIsLost: the one in whose goroutine the batch runs.
func TestTheLeaderIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		x := newHands(t, batch.Config{}, func(ctx context.Context, _ []string) error {
			if ctx.Err() != nil {
				cause = context.Cause(ctx)
			}
			return ctx.Err()
		})
		lost, lose := context.WithCancelCause(t.Context())
		x.all(t.Context(), "a")
		x.all(lost, "lost")
		x.all(t.Context(), "b")
		time.Sleep(1500 * time.Millisecond)
		lose(framework.ErrLost)
		x.wantRuns("a", "lost b", "b")
		x.wantEnd("b", done)
		if !errors.Is(cause, framework.ErrLost) {
			t.Errorf("the context ended with %v", cause)
		}
	})
}

// TestWhatWasDoneIsDone: a function that ended its work though the context ended.
func TestWhatWasDoneIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, func(ctx context.Context, ids []string) error {
			errs := make([]error, len(ids))
			for i, id := range ids {
				if id == "bad" {
					errs[i] = framework.Dead(errors.New("bad"))
				}
			}
			return batch.Each(errs)
		})
		lost, lose := context.WithCancelCause(t.Context())
		x.all(t.Context(), "a", "b", "bad")
		x.all(lost, "lost")
		time.Sleep(1500 * time.Millisecond)
		lose(framework.ErrDrainOver)
		x.wantRuns("a", "b bad lost")
		x.wantEnd("b", done)
		x.wantEnd("lost", done)
	})
}

// lostMeanwhile has a batch of b, c, d and one whose partition is lost in the middle of the call that begins so long after that of a.
func (x *hands) lostMeanwhile(after time.Duration) {
	lost, lose := context.WithCancelCause(x.t.Context())
	x.all(x.t.Context(), "a", "b", "c", "d")
	x.all(lost, "lost")
	time.Sleep(after + 500*time.Millisecond)
	lose(framework.ErrLost)
	x.wg.Wait()
}

// TestWhatIsSaidAtTheEnd: what a function says as others end it is no verdict of those beside them.
func TestWhatIsSaidAtTheEnd(t *testing.T) {
	badRow := framework.Dead(errors.New("bad row"))
	over := func(say func(err error, n int) error) func(context.Context, []string) error {
		return func(ctx context.Context, ids []string) error {
			if ctx.Err() == nil {
				return nil
			}
			return say(fmt.Errorf("insert: %w", ctx.Err()), len(ids))
		}
	}
	for name, c := range map[string]struct {
		after time.Duration
		then  func(ctx context.Context, ids []string) error
		want  []string
	}{
		"Dead of all":       {time.Second, over(func(error, int) error { return badRow }), []string{"a", "b c d lost", "b c d"}},
		"Dead of the end":   {time.Second, over(func(err error, _ int) error { return framework.Dead(err) }), []string{"a", "b c d lost", "b c d"}},
		"RetryAfter of it":  {time.Second, over(func(err error, _ int) error { return framework.RetryAfter(time.Hour, err) }), []string{"a", "b c d lost", "b c d"}},
		"Dead of each, too": {time.Second, over(func(err error, n int) error { return batch.Each(slices.Repeat([]error{framework.Dead(err)}, n)) }), []string{"a", "b c d lost", "b c d"}},
		"Dead of one": {2 * time.Second, func(_ context.Context, ids []string) error {
			if slices.Contains(ids, "b") {
				return badRow
			}
			return nil
		}, []string{"a", "b c d lost", "b", "c d"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newHands(t, batch.Config{}, c.then)
				x.lostMeanwhile(c.after)
				x.wantRuns(c.want...)
				for _, id := range []string{"c", "d"} {
					x.wantEnd(id, done)
				}
			})
		})
	}
}

// TestNothingBeginsAfterTheEnd: of a batch that is called in parts, by a function that does not look at its context.
func TestNothingBeginsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, nil)
		x.h = must(t, func(ctx context.Context, tasks []*framework.Task) error {
			if ctx.Err() != nil {
				t.Errorf("%s is begun after %v", tasks[0].ID, context.Cause(ctx))
			}
			time.Sleep(time.Second)
			if len(tasks) == 4 {
				return errors.New("one of them")
			}
			return nil
		})
		x.lostMeanwhile(2 * time.Second)
		for _, id := range []string{"b", "c", "d"} {
			x.wantEnd(id, done)
		}
		x.wantEnd("lost", func(err error) bool { return errors.Is(err, framework.ErrLost) })
	})
}

// TestNothingBeginsWithoutALease: a process that was suspended for longer than its lease goes on before the contexts of
// its handlers end.
func TestNothingBeginsWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lapsed := false // what it guards is asked and set while nothing else runs
		x := newHands(t, batch.Config{Size: 3}, func(ctx context.Context, ids []string) error {
			if len(ids) == 3 {
				lapsed = true
				return errors.New("one of them")
			}
			return ctx.Err()
		})
		batch.Ask(x.h, func(context.Context) bool { return !lapsed })
		lost, lose := context.WithCancelCause(t.Context())
		x.all(lost, "a", "b", "c", "d", "e")
		time.Sleep(time.Minute)
		lose(framework.ErrLost)
		x.wantRuns("a", "b c d") // and neither b alone nor e
		for _, id := range []string{"b", "c", "d", "e"} {
			x.wantEnd(id, func(err error) bool { return errors.Is(err, framework.ErrLost) })
		}
		x.all(context.WithoutCancel(lost), "f") // nobody will end it
		x.wantRuns("a", "b c d", "f")
	})
}

// TestOwnedInABatch: in the middle of the function, which goes on before anybody has ended its context, framework.Owned says
// whether all of its tasks are this peer's.
func TestOwnedInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lapsed := map[context.Context]bool{} // what it guards is asked and set while nothing else runs
		another := context.WithoutCancel(t.Context())
		var said []bool
		x := newHands(t, batch.Config{}, func(ctx context.Context, ids []string) error {
			if len(ids) == 2 {
				ask := func() {
					within, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					said = append(said, framework.Owned(ctx), framework.Owned(within))
				}
				ask()
				lapsed[another] = true
				ask()
			}
			return nil
		})
		batch.Ask(x.h, func(ctx context.Context) bool { return !lapsed[ctx] })
		x.all(t.Context(), "a", "b")
		x.all(another, "c")
		time.Sleep(time.Minute)
		synctest.Wait()
		x.wantRuns("a", "b c")
		if want := []bool{true, true, false, false}; !slices.Equal(said, want) {
			t.Errorf("owned: %v, want %v", said, want)
		}
	})
}

// TestALeaseThatIsRenewed: who asks just as the answer that renews the lease is taken in hears that it does not stand, and
// nobody ends its context.
func TestALeaseThatIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{Size: 3}, func(context.Context, []string) error { return nil })
		asked := 0 // by one batch at a time
		batch.Ask(x.h, func(context.Context) bool { asked++; return asked > 1 })
		ctx, lose := context.WithCancelCause(t.Context())
		x.all(ctx, "a")
		time.Sleep(time.Minute)
		synctest.Wait()
		x.wantRuns("a")
		lose(framework.ErrLost)
	})
}

// TestTheTimeIsOver: that the batch took too long is a failed try of all of it.
func TestTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deadlines []time.Duration
		began := time.Now()
		x := newHands(t, batch.Config{}, func(ctx context.Context, _ []string) error {
			if at, has := ctx.Deadline(); has {
				deadlines = append(deadlines, at.Sub(began))
			}
			return context.Cause(ctx)
		})
		late, cancel := context.WithTimeoutCause(t.Context(), 1900*time.Millisecond, framework.ErrTimeout)
		defer cancel()
		soon, cancel := context.WithTimeoutCause(t.Context(), 1500*time.Millisecond, framework.ErrTimeout)
		defer cancel()
		x.all(t.Context(), "a")
		x.all(late, "b")
		x.all(soon, "c")
		x.all(t.Context(), "d")
		x.wantRuns("a", "b c d")
		for _, id := range []string{"b", "c", "d"} {
			x.wantEnd(id, func(err error) bool { return errors.Is(err, framework.ErrTimeout) })
		}
		if !slices.Equal(deadlines, []time.Duration{1500 * time.Millisecond}) {
			t.Errorf("deadlines %v", deadlines)
		}
	})
}

// TestWhoWaitsCanBeEnded: a task that is still to come into a batch goes at once.
func TestWhoWaitsCanBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, succeed)
		lost, lose := context.WithCancelCause(t.Context())
		x.all(t.Context(), "a")
		x.all(lost, "lost")
		x.all(t.Context(), "b")
		began := time.Now()
		lose(framework.ErrLost)
		synctest.Wait()
		x.wantEnd("lost", func(err error) bool { return errors.Is(err, framework.ErrLost) })
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		time.Sleep(3 * time.Second)
		x.all(lost, "late") // and nothing runs
		x.wantRuns("a", "b")
		x.wantEnd("late", func(err error) bool { return errors.Is(err, framework.ErrLost) })
	})
}

// An ending context has ended, which its Done has not said yet.
type ending struct {
	context.Context
	ended bool
}

func (c *ending) Err() error {
	if c.ended {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// TestWhoIsEndedMeanwhile: a task whose time is over while it waits, and that is about to go, ends no batch.
func TestWhoIsEndedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, end := context.WithCancelCause(t.Context())
		ctx := &ending{Context: late}
		x := newHands(t, batch.Config{}, func(c context.Context, _ []string) error {
			ctx.ended = true
			return c.Err()
		})
		x.all(t.Context(), "a")
		x.all(ctx, "late")
		x.all(t.Context(), "b")
		time.Sleep(time.Minute)
		end(framework.ErrTimeout)
		x.wantRuns("a", "b")
		x.wantEnd("b", done)
	})
}

// TestTheFunctionPanics: that is an error as others are.
func TestTheFunctionPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, refuse(func(id string) error { panic(id) }, "c"))
		x.all(t.Context(), "a", "b", "c", "d")
		x.wantRuns("a", "b c d", "b", "c d", "c", "d")
		x.wantEnd("b", done)
		x.wantEnd("c", func(err error) bool { p, is := errors.AsType[*framework.PanicError](err); return is && p.Value == "c" })
		x.wantEnd("d", done)
	})
}

// TestTheFunctionGoesAway: that it ends its goroutine is an error as others are, and no other task is run again.
func TestTheFunctionGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{Size: 3}, refuse(func(string) error { runtime.Goexit(); return nil }, "bad"))
		x.all(t.Context(), "a", "b", "c", "bad", "d")
		x.wantRuns("a", "b c bad", "b", "c bad", "c", "bad", "d")
		for _, id := range []string{"b", "c", "d"} {
			x.wantEnd(id, done)
		}
		x.wantEnd("bad", func(err error) bool { return err != nil && strings.Contains(err.Error(), "Goexit") })
	})
}

// TestTheFunctionGoesAwayAtTheEnd: who was beside the task that ended it is in the next batch.
func TestTheFunctionGoesAwayAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, func(ctx context.Context, _ []string) error {
			if ctx.Err() != nil {
				runtime.Goexit()
			}
			return nil
		})
		x.lostMeanwhile(time.Second)
		x.all(t.Context(), "next")
		x.wantRuns("a", "b c d lost", "b c d", "next")
		for _, id := range []string{"b", "c", "d", "next"} {
			x.wantEnd(id, done)
		}
	})
}

type emptyError struct{ err error }

func (e *emptyError) Error() string { return e.err.Error() }
func (e *emptyError) Unwrap() error { return e.err }

// TestANilPointerIsAnError: whose methods panic, which holds up nobody.
func TestANilPointerIsAnError(t *testing.T) {
	panicked := func(err error) bool { _, is := errors.AsType[*framework.PanicError](err); return is }
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, refuse(func(string) error { return (*emptyError)(nil) }, "b"))
		x.all(t.Context(), "a", "b", "c", "d")
		x.wantRuns("a", "b c d", "b", "c", "d")
		x.wantEnd("b", panicked)
		x.wantEnd("d", done)
	})
	synctest.Test(t, func(t *testing.T) {
		x := newHands(t, batch.Config{}, func(ctx context.Context, ids []string) error {
			errs := slices.Repeat([]error{ctx.Err()}, len(ids))
			if ids[0] == "b" {
				errs[0] = (*emptyError)(nil)
			}
			return batch.Each(errs)
		})
		x.lostMeanwhile(time.Second)
		x.all(t.Context(), "next")
		x.wantRuns("a", "b c d lost", "b c d", "next")
		x.wantEnd("b", panicked)
		x.wantEnd("c", done)
		x.wantEnd("next", done)
	})
}

func TestJSON(t *testing.T) {
	type row struct{ N int }
	sum, odd := 0, errors.New("odd")
	do := batch.JSON(func(_ context.Context, rows []row, tasks []*framework.Task) error {
		errs := make([]error, len(rows))
		for i, r := range rows {
			sum += r.N
			if r.N%2 == 1 {
				errs[i] = fmt.Errorf("task %s: %w", tasks[i].ID, odd)
			}
		}
		return batch.Each(errs)
	})
	var tasks []*framework.Task
	for i, payload := range []string{`{"N":2}`, `{`, `{"N":3}`, `{"N":4}`} {
		tasks = append(tasks, &framework.Task{ID: fmt.Sprint(i), Payload: []byte(payload)})
	}
	err := do(t.Context(), tasks)
	if sum != 9 || err == nil || !strings.HasPrefix(err.Error(), "2 of 4 tasks failed; the first: payload is no JSON of batch_test.row") {
		t.Errorf("sum %d, %v", sum, err)
	}
	if err := do(t.Context(), tasks[1:2]); err == nil || sum != 9 {
		t.Errorf("sum %d, %v: the function had no task", sum, err)
	}
	if o, _, err := frameworktest.Handle(t, must(t, do), *tasks[1]); o != sources.Dead {
		t.Errorf("%v: %v", o, err)
	}
	table := batch.JSON(func(_ context.Context, rows []row, _ []*framework.Task) error {
		if len(rows) > 1 {
			return odd
		}
		return nil
	})
	if err := table(t.Context(), tasks); !errors.Is(err, odd) {
		t.Errorf("%v: which of them nobody knows yet", err)
	}
	later := framework.RetryAfter(time.Minute, odd)
	busy := batch.JSON(func(context.Context, []row, []*framework.Task) error { return later })
	if err := busy(t.Context(), tasks[2:]); err != later {
		t.Errorf("%v: none of them is to be asked for alone", err)
	}
	const unread = "3 of 3 tasks failed; the first: payload is no JSON"
	if err := busy(t.Context(), tasks[1:]); err == nil || !strings.HasPrefix(err.Error(), unread) {
		t.Errorf("%v: what nobody can read is so in a minute, too", err)
	}
	if batch.JSON[row](nil) != nil {
		t.Error("a Func of nothing")
	}
}

func must(t *testing.T, do batch.Func) framework.Handler {
	t.Helper()
	h, err := batch.New(batch.Config{}, do)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestBadConfig(t *testing.T) {
	_, err := batch.New(batch.Config{Size: -1, Parallel: -2}, nil)
	const want = "batch: size -1: must not be negative\nbatch: parallel -2: must not be negative\nbatch: no function"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// TestABadRowAmongMany: of a table that takes all rows or none, one that it refuses dies alone, and costs those beside it
// no try, while peers come, leave and are killed.
func TestABadRowAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := frameworktest.New(t, frameworktest.Config{})
		largest := 0
		var mu sync.Mutex
		insert := func(ctx context.Context, tasks []*framework.Task) error {
			mu.Lock()
			largest = max(largest, len(tasks))
			mu.Unlock()
			keys := map[string]bool{}
			for _, task := range tasks {
				if keys[task.Key] {
					t.Errorf("two tasks of %s in one batch", task.Key)
				}
				keys[task.Key] = true
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
			for _, task := range tasks {
				if strings.HasPrefix(task.ID, "bad") {
					return errors.New("the table refuses it")
				}
			}
			return nil
		}
		start := func(peer string) *frameworktest.Peer {
			return f.Start(peer, must(t, insert), framework.WithConfig(framework.Config{Concurrency: 64}))
		}
		ann, ben := start("ann"), start("ben")
		f.WaitReady(time.Minute)
		for i := range 3000 {
			id := fmt.Sprint(i)
			if i%1000 == 500 {
				id = "bad " + id
			}
			f.Push(framework.Task{ID: id, Key: fmt.Sprint(i % 300)})
		}
		time.Sleep(300 * time.Millisecond)
		start("cyd")
		ann.Kill()
		time.Sleep(300 * time.Millisecond)
		ben.Stop()
		f.Wait(10 * time.Minute)
		f.Check()
		if dead := f.Dead(); len(dead) != 3 || slices.ContainsFunc(dead, func(d frameworktest.DeadLetter) bool { return !strings.HasPrefix(d.Task.ID, "bad") }) {
			t.Errorf("dead letters: %v", dead)
		}
		for _, r := range f.Runs() {
			if r.Task.Attempt > 1 && !strings.HasPrefix(r.Task.ID, "bad") {
				t.Errorf("task %s has try %d", r.Task.ID, r.Task.Attempt)
			}
		}
		if largest < 10 {
			t.Errorf("the largest batch has %d tasks", largest)
		}
	})
}

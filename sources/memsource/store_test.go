package memsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ids(tasks []sources.Task) []string {
	var ids []string
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

func TestPushFollowsTheKey(t *testing.T) {
	s := newStore(t, Config{Partitions: partition.Config{Total: 8}})
	for i := range 100 {
		if err := s.Push(sources.Task{Key: fmt.Sprint("key", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for id := range partition.ID(8) {
		want := 0
		for i := range 100 {
			if partition.Of(fmt.Sprint("key", i), 8) == id {
				want++
			}
		}
		if got, _ := s.Pending(id); got != want {
			t.Errorf("partition %v has %d tasks, want %d", id, got, want)
		}
	}
}

// Without time a stream is closed and its fence stands; with time it is cleared, whatever Close said before.
func TestCloseWithoutTime(t *testing.T) {
	s, g, tok := newStore(t, Config{}), partition.Grant{ID: 1, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}
	open := func() sources.Stream {
		st, err := s.Open(t.Context(), g, tok)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := open()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	if _, err := st.Fetch(t.Context(), 1); !errors.Is(err, sources.ErrClosed) {
		t.Errorf("Fetch: %v", err)
	}
	open() // the fence stands
	for range 2 {
		if err := st.Close(t.Context()); err != nil {
			t.Errorf("Close again: %v", err)
		}
		if err := st.Close(ended); err != nil {
			t.Errorf("when it is over: %v", err)
		}
	}
	if _, err := s.Open(t.Context(), g, tok); !errors.Is(err, sources.ErrFenced) {
		t.Errorf("the fence was not cleared: %v", err)
	}
}

func TestPushWithoutAKeyGoesRoundRobin(t *testing.T) {
	s := newStore(t, Config{Partitions: partition.Config{Total: 4}})
	if err := s.Push(make([]sources.Task, 12)...); err != nil {
		t.Fatal(err)
	}
	for id := range partition.ID(4) {
		if got, _ := s.Pending(id); got != 3 {
			t.Errorf("partition %v has %d tasks, want 3", id, got)
		}
	}
}

func TestPushRefusesAKeyTheHashCannotTake(t *testing.T) {
	s := newStore(t, Config{Partitions: partition.Config{Total: 4, Hash: partition.ByID}})
	if err := s.Push(sources.Task{Key: "1"}, sources.Task{Key: "ann"}); err == nil {
		t.Fatal("a key that is no number was taken")
	}
	for id := range partition.ID(4) {
		if got, _ := s.Pending(id); got != 0 {
			t.Errorf("partition %v has %d tasks after a refused push", id, got)
		}
	}
	if err := s.PushTo(9, sources.Task{}); err == nil {
		t.Error("a partition that is none was taken")
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	for _, cfg := range []Config{{CrashLimit: -1}, {Partitions: partition.Config{Total: -1}}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func TestScheduledTasksComeWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{Partitions: partition.Config{Total: 1}})
		start := time.Now()
		for i, hours := range []int{3, 1, 2, 1, 0} {
			if err := s.Push(sources.Task{ID: fmt.Sprint(i), Delivery: &sources.Delivery{NotBefore: start.Add(time.Duration(hours) * time.Hour)}}); err != nil {
				t.Fatal(err)
			}
		}
		if open, delayed := s.Pending(0); open != 1 || delayed != 4 {
			t.Fatalf("%d open and %d delayed, want 1 and 4", open, delayed)
		}
		st, err := s.Open(t.Context(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "a"})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			ids   []string
			after time.Duration
		}{{[]string{"4"}, 0}, {[]string{"1", "3"}, time.Hour}, {[]string{"2"}, 2 * time.Hour}, {[]string{"0"}, 3 * time.Hour}} {
			tasks, err := st.Fetch(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ids(tasks), want.ids) || time.Since(start) != want.after {
				t.Errorf("fetched %v after %v, want %v", ids(tasks), time.Since(start), want)
			}
		}
	})
}

func TestUnitsHaveNoTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{Partitions: partition.Config{Total: 1, Units: []string{"inbox"}}})
		st, err := s.Open(t.Context(), partition.Grant{ID: partition.FirstUnit, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if tasks, err := st.Fetch(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the unit fetched %v, %v", tasks, err)
		}
	})
}

// The batch is the same one until its recording was answered: a caller that asks
// for less the second time gets the rest later.
func TestAnUnansweredFetchIsSaidAgain(t *testing.T) {
	s := newStore(t, Config{Partitions: partition.Config{Total: 1}})
	for i := range 3 {
		if err := s.Push(sources.Task{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	lost := 1
	src := s.Via(func(_ context.Context, op string, execute func()) error {
		execute()
		if op == "fetch" && lost > 0 {
			lost--
			return errors.New("connection lost")
		}
		return nil
	})
	st, err := src.Open(t.Context(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Fetch(t.Context(), 3); err == nil {
		t.Fatal("no error although the reply was lost")
	}
	for _, want := range [][]string{{"0", "1"}, {"2"}} {
		tasks, err := st.Fetch(t.Context(), 2)
		if err != nil || !slices.Equal(ids(tasks), want) {
			t.Fatalf("fetched %v, %v, want %v", ids(tasks), err, want)
		}
	}
}

// grant opens partition 0 as the owner of an epoch.
func grant(t *testing.T, s *Store, epoch partition.Epoch) sources.Stream {
	t.Helper()
	st, err := s.Open(t.Context(), partition.Grant{Epoch: epoch}, partition.Token{Epoch: epoch, Session: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestAWaitingFetchLearnsThatItLost(t *testing.T) {
	for _, lost := range []struct {
		how  string
		take func(t *testing.T, s *Store, before *Snapshot)
		want error
	}{
		{"another owner", func(t *testing.T, s *Store, _ *Snapshot) { grant(t, s, 2) }, sources.ErrFenced},
		{"a store that was set back", func(_ *testing.T, s *Store, before *Snapshot) { s.Restore(before) }, sources.ErrForgot},
	} {
		t.Run(lost.how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t, Config{Partitions: partition.Config{Total: 1}})
				before := s.Snapshot()
				st := grant(t, s, 1)
				time.AfterFunc(time.Minute, func() { lost.take(t, s, before) })
				start := time.Now()
				if _, err := st.Fetch(t.Context(), 1); !errors.Is(err, lost.want) || time.Since(start) != time.Minute {
					t.Errorf("after %v fetch returned %v, want %v after a minute", time.Since(start), err, lost.want)
				}
			})
		})
	}
}

func TestOpenWantsTheTokenOfTheGrant(t *testing.T) {
	s := newStore(t, Config{Partitions: partition.Config{Total: 1}})
	for _, o := range []struct {
		g   partition.Grant
		tok partition.Token
	}{
		{partition.Grant{Epoch: 1}, partition.Token{Epoch: 2, Session: "a"}},
		{partition.Grant{}, partition.Token{}},
		{partition.Grant{ID: 1, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}},
	} {
		var e *sources.Error
		if _, err := s.Open(t.Context(), o.g, o.tok); !errors.As(err, &e) || e.Op != "open" {
			t.Errorf("open %v under %v: got %v", o.g, o.tok, err)
		}
	}
}

// fetch returns the names of what a stream hands out at once.
func fetch(t *testing.T, st sources.Stream) ([]sources.Task, []string) {
	t.Helper()
	tasks, err := st.Fetch(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	return tasks, ids(tasks)
}

func settle(t *testing.T, st sources.Stream, d sources.Settlement) {
	t.Helper()
	if err := st.Settle(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// A suspect that came back with a retry was acquitted: the next owner may have it
// beside others.
func TestARetryEndsTheSuspicion(t *testing.T) {
	s := newStore(t, Config{Partitions: partition.Config{Total: 1}})
	if err := s.Push(sources.Task{ID: "0"}); err != nil {
		t.Fatal(err)
	}
	fetch(t, grant(t, s, 1))
	st := grant(t, s, 2)
	tasks, _ := fetch(t, st)
	settle(t, st, sources.Settlement{Task: &tasks[0], Outcome: sources.Retry, Attempt: 1})
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Push(sources.Task{ID: "1"}); err != nil {
		t.Fatal(err)
	}
	if _, got := fetch(t, grant(t, s, 3)); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("fetched %v, want both", got)
	}
}

func TestASmallerAttemptOverwritesNothing(t *testing.T) {
	s := newStore(t, Config{Partitions: partition.Config{Total: 1}})
	if err := s.Push(sources.Task{ID: "0"}); err != nil {
		t.Fatal(err)
	}
	st := grant(t, s, 1)
	tasks, _ := fetch(t, st)
	settle(t, st, sources.Settlement{Task: &tasks[0], Outcome: sources.Retry, Attempt: 4, Reason: "first"})
	settle(t, st, sources.Settlement{Task: &tasks[0], Outcome: sources.Requeue, Attempt: 1, Reason: "second"})
	tasks, _ = fetch(t, st)
	if tasks[0].Attempt != 5 || tasks[0].FirstError != "first" {
		t.Errorf("requeued: attempt %d, first error %q, want 5 and %q", tasks[0].Attempt, tasks[0].FirstError, "first")
	}
	settle(t, st, sources.Settlement{Task: &tasks[0], Outcome: sources.Dead, Attempt: 1, Reason: "third"})
	d := s.Dead(0)
	if len(d) != 1 || d[0].Task.Attempt != 4 || d[0].Task.FirstError != "first" || d[0].Reason != "third" {
		t.Errorf("the dead letters are %+v", d)
	}
}

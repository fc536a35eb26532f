package frameworktest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sleeper(d time.Duration) framework.Handler {
	return framework.HandlerFunc(func(ctx context.Context, _ *framework.Task) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

func push(f *Fleet, n, keys int) {
	for i := range n {
		f.Push(framework.Task{ID: fmt.Sprint(i), Key: fmt.Sprintf("key%d", i%keys)})
	}
}

func TestAFleetThroughJoinsLeavesKillsAndCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(t, Config{})
		push(f, 1000, 50)
		ann := f.Start("ann", sleeper(300*time.Millisecond))
		f.WaitReady(time.Minute)
		ben := f.Start("ben", sleeper(300*time.Millisecond))
		cid := f.Start("cid", sleeper(300*time.Millisecond))
		time.Sleep(3 * time.Second)
		ann.Kill()
		time.Sleep(20 * time.Second)
		dan := f.Start("dan", sleeper(300*time.Millisecond))
		f.WaitReady(time.Minute)
		for i := range 1000 {
			f.Push(framework.Task{ID: fmt.Sprintf("late%d", i), Key: fmt.Sprintf("key%d", i%50)})
		}
		cid.Cut()
		time.Sleep(20 * time.Second)
		cid.Heal()
		ben.Stop()
		f.Wait(5 * time.Minute)
		f.Check()
		killed := 0
		for _, r := range f.Runs() {
			if r.Killed {
				killed++
				if r.Peer != "ann" {
					t.Errorf("a run of %s is marked as killed", r.Peer)
				}
			}
		}
		if killed == 0 {
			t.Error("the kill hit nothing")
		}
		dan.Stop()
	})
}

// A teller keeps what a Check says.
type teller struct {
	testing.TB
	said []string
}

func (t *teller) Helper() {}
func (t *teller) Errorf(format string, args ...any) {
	t.said = append(t.said, fmt.Sprintf(format, args...))
}

func (t *teller) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// No handler, also one that JSON has made of nil, is what is wrong with the test: framework.New would refuse it, and each
// task of a fleet would panic.
func TestNoHandler(t *testing.T) {
	none := framework.JSON[string](nil)
	for what, do := range map[string]func(testing.TB){
		"a run":  func(t testing.TB) { Handle(t, none, framework.Task{ID: "1"}) },
		"a peer": func(t testing.TB) { New(t, Config{}).Start("ann", none) },
	} {
		heard := &teller{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("%s panicked: %v", what, v)
				}
			}()
			do(heard)
		}()
		<-done
		if said := strings.Join(heard.said, "\n"); !strings.Contains(said, "no handler") {
			t.Errorf("%s says %q", what, said)
		}
	}
}

func TestCheckSeesEveryBrokenPromise(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, c := range []struct {
		name   string
		pushed []framework.Task
		runs   func(ann, ben *Peer) []*Run
		says   string
	}{
		{"nothing", []framework.Task{{ID: "1", Key: "a"}, {ID: "2", Key: "a"}}, func(ann, ben *Peer) []*Run {
			return []*Run{
				{Peer: "ann", peer: ann, Task: framework.Task{ID: "1", Key: "a"}, Began: at(0), Ended: at(5), Err: errors.New("no")},
				{Peer: "ben", peer: ben, Task: framework.Task{ID: "1", Key: "a"}, Began: at(5), Ended: at(6)},
				{Peer: "ben", peer: ben, Task: framework.Task{ID: "2", Key: "a"}, Began: at(6), Ended: at(7)},
			}
		}, ""},
		{"without an ID", []framework.Task{{ID: "1"}, {}}, func(_, _ *Peer) []*Run { return nil }, `frameworktest: task 2 of those that were pushed has the ID ""`},
		{"of one ID", []framework.Task{{ID: "1"}, {ID: "1"}}, func(_, _ *Peer) []*Run { return nil }, `frameworktest: task 2 of those that were pushed has the ID "1"`},
		{"lost", []framework.Task{{ID: "1"}}, func(ann, _ *Peer) []*Run {
			return []*Run{{Peer: "ann", peer: ann, Task: framework.Task{ID: "1"}, Began: at(0), Ended: at(5), Err: errors.New("no")}}
		}, "task 1 is lost"},
		{"lost with its peer", []framework.Task{{ID: "1"}}, func(ann, _ *Peer) []*Run {
			return []*Run{{Peer: "ann", peer: ann, Task: framework.Task{ID: "1"}, Began: at(0), Ended: at(5), Killed: true}}
		}, "task 1 is lost"},
		{"doubled", []framework.Task{{ID: "1"}}, func(ann, ben *Peer) []*Run {
			return []*Run{
				{Peer: "ann", peer: ann, Task: framework.Task{ID: "1"}, Began: at(0), Ended: at(5)},
				{Peer: "ben", peer: ben, Task: framework.Task{ID: "1"}, Began: at(6), Ended: at(8)},
			}
		}, "task 1 was done twice, by ann and by ben"},
		{"overlap of a key", []framework.Task{{ID: "1", Key: "a"}, {ID: "2", Key: "a"}}, func(ann, ben *Peer) []*Run {
			return []*Run{
				{Peer: "ann", peer: ann, Task: framework.Task{ID: "1", Key: "a"}, Began: at(0), Ended: at(5)},
				{Peer: "ben", peer: ben, Task: framework.Task{ID: "2", Key: "a"}, Began: at(4), Ended: at(8)},
			}
		}, "key a: ben began task 2"},
		{"order", []framework.Task{{ID: "1", Key: "a"}, {ID: "2", Key: "a"}}, func(ann, _ *Peer) []*Run {
			return []*Run{
				{Peer: "ann", peer: ann, Task: framework.Task{ID: "2", Key: "a"}, Began: at(0), Ended: at(5)},
				{Peer: "ann", peer: ann, Task: framework.Task{ID: "1", Key: "a"}, Began: at(5), Ended: at(8)},
			}
		}, "key a: first started in the order [2 1], pushed as [1 2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := New(t, Config{})
			said := &teller{TB: t}
			f.t = said
			f.pushed = c.pushed
			f.runs = c.runs(&Peer{}, &Peer{})
			f.Check()
			switch {
			case c.says == "" && len(said.said) > 0:
				t.Errorf("said %q", said.said)
			case c.says != "" && (len(said.said) != 1 || !strings.HasPrefix(said.said[0], c.says)):
				t.Errorf("said %q, want %q", said.said, c.says)
			}
		})
	}
}

// What is scheduled starts when it is due, whatever of its key was pushed meanwhile, and what was fetched
// by peers that were killed may be buried before it ever started: no promise is broken.
func TestNotAllOfAKeyStartsInTheOrderOfPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(t, Config{})
		said := &teller{TB: t}
		f.t = said
		f.Push(framework.Task{ID: "buried", Key: "b"})
		for i := 0; len(f.Dead()) == 0 && i < 10; i++ {
			slow := framework.WithConfig(framework.Config{Rate: framework.Rate{Tasks: 1, Per: 24 * time.Hour}})
			p := f.Start(fmt.Sprint("ann", i), sleeper(0), slow)
			time.Sleep(20 * time.Second)
			p.Kill()
		}
		f.Push(framework.Task{ID: "last", Key: "b"},
			framework.Task{ID: "scheduled", Key: "a", Delivery: &framework.Delivery{NotBefore: time.Now().Add(time.Minute)}},
			framework.Task{ID: "now", Key: "a"})
		f.Start("ben", sleeper(0))
		f.Wait(5 * time.Minute)
		f.Check()
		if dead, runs := f.Dead(), f.Runs(); len(said.said) > 0 || len(dead) != 1 || len(runs) != 3 {
			t.Errorf("said %q, of the dead %+v and the runs %+v", said.said, dead, runs)
		}
	})
}

// A Config among the options takes the place of the fleet's, with its Timing: a peer that
// believes in another lease than the ledger would break promises that the handler keeps.
func TestAPeerOfAnotherTimingIsRefused(t *testing.T) {
	f := New(t, Config{Timing: transition.Timing{Lease: 3 * time.Second}})
	said := &teller{TB: t}
	f.t = said
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Start("ann", sleeper(0), framework.WithConfig(framework.Config{Concurrency: 1}))
	}()
	<-ended
	if len(said.said) != 1 || !strings.Contains(said.said[0], "ann has the timing") {
		t.Errorf("said %q", said.said)
	}
}

func TestHandle(t *testing.T) {
	for _, c := range []struct {
		err   error
		want  sources.Outcome
		after time.Duration
	}{
		{nil, sources.Done, 0},
		{errors.New("no"), sources.Retry, 0},
		{framework.RetryAfter(time.Minute, errors.New("later")), sources.Retry, time.Minute},
		{framework.Dead(errors.New("never")), sources.Dead, 0},
	} {
		h := framework.HandlerFunc(func(_ context.Context, task *framework.Task) error {
			if task.Attempt != 1 {
				t.Errorf("attempt %d", task.Attempt)
			}
			return c.err
		})
		if o, after, err := Handle(t, h, framework.Task{}); o != c.want || after != c.after || !errors.Is(err, c.err) {
			t.Errorf("%v: %v after %v, want %v after %v", c.err, o, after, c.want, c.after)
		}
	}
}

package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// A wire is a client's way to the store. What a test puts on it decides what becomes
// of each request.
type wire struct {
	mu sync.Mutex
	on func(cmds []redis.Cmder, send func() error) error // nil: all go through
}

// reads reports whether c reads the list: on a cluster a script does.
func reads(c redis.Cmder) bool {
	_, elements := c.(*redis.StringSliceCmd)
	return elements && slices.Contains([]string{"lrange", "evalsha", "eval"}, c.Name())
}

func (w *wire) set(on func([]redis.Cmder, func() error) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = on
}

func (*wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return w.do([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return w.do(cmds, func() error { return next(ctx, cmds) })
	}
}

func (w *wire) do(cmds []redis.Cmder, send func() error) error {
	w.mu.Lock()
	on := w.on
	w.mu.Unlock()
	last := cmds[len(cmds)-1]
	if name := last.Name(); on == nil || name != "evalsha" && name != "eval" || strings.HasSuffix(fmt.Sprint(last.Args()[3]), ":cancel") {
		return send()
	}
	err := on(cmds, send)
	if errors.Is(err, errNetwork) {
		for _, c := range cmds {
			c.SetErr(err)
		}
	}
	return err
}

// cut loses the first request, or only its answer.
func (w *wire) cut(answer bool) (was <-chan struct{}) {
	lost, first := make(chan struct{}), sync.Once{}
	w.set(func(_ []redis.Cmder, send func() error) (err error) {
		mine := false
		first.Do(func() { mine = true })
		if !mine || answer {
			err = send()
		}
		if mine {
			close(lost)
			return errNetwork
		}
		return err
	})
	return lost
}

func newWired(t *testing.T, cfg Config) (*world, *wire) { return newWiredTo(t, redistest.New(t), cfg) }

// newOrdered is of a client that keeps the order of a pipeline, and so reads without a script.
func newOrdered(t *testing.T, cfg Config) (*world, *wire) {
	return newWiredTo(t, redistest.Single(t, redistest.New(t)), cfg)
}

func newWiredTo(t *testing.T, client redis.UniversalClient, cfg Config) (*world, *wire) {
	w := newWorld(t, client, cfg)
	line := &wire{}
	w.client.AddHook(line)
	return w, line
}

// Who waits at the end of the list does not read it again because others are settled: the next push rings.
func TestASettleBesideWhoWaitsReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, line := newWorld(t, bubble(t, true), Config{}), &wire{}
		w.client.AddHook(line)
		w.push("a", "b", "c")
		s := w.open()
		tasks := w.fetch(s, 3, "a", "b", "c")
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() {
			_, err := s.Fetch(ctx, 1)
			waits <- err
		}()
		synctest.Wait()
		if _, idle := s.idle(); !idle {
			t.Fatal("it is not at the end")
		}
		var asked atomic.Int64
		line.set(func(cmds []redis.Cmder, send func() error) error {
			if reads(cmds[0]) {
				asked.Add(1)
			}
			return send()
		})
		for _, task := range tasks {
			w.done(s, task)
			synctest.Wait()
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("the list was read %d times", n)
		}
		cancel()
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		w.close(s)
	})
}

// What was not answered is said again with all it carried, and happens once.
func TestUnknownAnswerIsSaidAgain(t *testing.T) {
	for _, executed := range []bool{true, false} {
		t.Run(fmt.Sprintf("executed %v", executed), func(t *testing.T) {
			w, line := newWired(t, Config{})
			w.push("a", "b", "c")
			s := w.open()
			tasks := w.fetch(s, 3, "a", "b", "c")
			was := line.cut(executed)
			w.settle(s,
				sources.Settlement{Task: &tasks[0], Outcome: sources.Requeue, Attempt: 1, Reason: "not now"},
				sources.Settlement{Task: &tasks[1], Outcome: sources.Dead, Attempt: 1, Reason: "never"},
				retry(tasks[2], 0, "again"),
			)
			<-was
			again := w.fetch(s, 3, "a")
			if a := again[0]; a.Attempt != 2 || a.FirstError != "not now" || string(a.Payload) != "payload of a" {
				t.Errorf("the requeued task is %+v", a)
			}
			w.done(s, again[0])
			w.close(s)
			if again := w.fetch(w.open(), 3, "c"); again[0].Attempt != 2 || again[0].FirstError != "again" {
				t.Errorf("the retried task is %+v", again[0])
			}
			dead := w.client.LRange(t.Context(), w.keys.Dead, 0, -1).Val()
			if len(dead) != 1 {
				t.Fatalf("%d dead letters", len(dead))
			}
			if l, err := parseLetter(dead[0]); err != nil || l.reason != "never" || len(l.body) == 0 {
				t.Errorf("letter %+v, %v", l, err)
			}
		})
	}
}

// The answer of a lift is lost: it has moved the base, and what is read as if it had
// not been is something else.
func TestReadAtAnotherBase(t *testing.T) {
	w, line := newOrdered(t, Config{Window: 2})
	w.push("0", "1", "2", "3", "4", "5")
	s := w.open()
	tasks := w.fetch(s, 2, "0", "1")
	lost := false // the answer to the first that reads: it makes the room for that itself
	line.set(func(cmds []redis.Cmder, send func() error) error {
		err := send()
		if !lost && reads(cmds[0]) {
			lost = true
			return errNetwork
		}
		return err
	})
	tasks = append(tasks, w.fetch(s, 2, "2", "3")...)
	if n := w.client.HLen(t.Context(), w.keys.Lifted).Val(); n != 2 {
		t.Fatalf("%d are lifted, want 2: the read was at another base only then", n)
	}
	w.done(s, tasks...)
	w.done(s, w.fetch(s, 2, "4", "5")...)
	w.close(s)
	w.empty(w.keys.Pending, w.keys.Done, w.keys.Lifted, w.keys.Tries)
}

// Close says what was settled and not answered, then clears the fence, and says so
// once both were answered.
func TestCloseSaysTheRest(t *testing.T) {
	w, line := newWired(t, Config{})
	w.push("a", "b")
	s := w.open()
	tasks := w.fetch(s, 2, "a", "b")
	given, giveUp := context.WithCancel(t.Context())
	line.set(func([]redis.Cmder, func() error) error {
		giveUp()
		return errNetwork
	})
	if err := s.Settle(given, sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1}); !errors.Is(err, context.Canceled) {
		t.Fatalf("settle while nothing gets through: %v", err)
	}
	cuts := 0
	line.set(func(cmds []redis.Cmder, send func() error) error {
		if len(cmds) == 1 && fmt.Sprint(cmds[0].Args()[2]) == "1" && cuts < 2 { // the close
			cuts++
			return errNetwork
		}
		return send()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if cuts != 2 || w.fence("t") != "" {
		t.Errorf("closed after %d closes were lost, and the token is %q", cuts, w.fence("t"))
	}
	line.set(nil)
	next := w.open()
	w.fetch(next, 2, "b") // and not the one that was settled
	w.nothing(next)
}

// What was read for a Fetch that ended is handed to the next one, but not before the
// fence was asked again: it may be another's by now.
func TestFetchAsksBeforeItHandsOut(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprintf("fenced %v", fenced), func(t *testing.T) {
			w, line := newWired(t, Config{})
			s := w.open()
			w.push("first")
			w.fetch(s, 1, "first") // the store knows the script
			w.push("a", "b")
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan struct{})
			line.set(func(_ []redis.Cmder, send func() error) error {
				end()
				<-ended
				return send()
			})
			if tasks, err := s.Fetch(ctx, 2); !errors.Is(err, context.Canceled) {
				t.Fatalf("fetched %v, %v", idsOfTasks(tasks), err)
			}
			line.set(nil)
			close(ended)
			eventually(t, func() bool {
				s.Mu.Lock()
				defer s.Mu.Unlock()
				return s.Held.Len() == 2
			})
			if !fenced {
				w.fetch(s, 2, "a", "b")
				return
			}
			w.open()
			if tasks, err := s.Fetch(t.Context(), 2); !errors.Is(err, sources.ErrFenced) {
				t.Errorf("fetched %v, %v, from under another's fence", idsOfTasks(tasks), err)
			}
		})
	}
}

// A settlement and a fetch travel together: the list is read before the settlement
// trims it.
func TestReadIsBeforeTheTrim(t *testing.T) {
	w, line := newOrdered(t, Config{})
	w.push("0", "1", "2", "3", "4", "5")
	s := w.open()
	tasks := w.fetch(s, 2, "0", "1")
	waits, first := make(chan struct{}), sync.Once{}
	var together []string // of the trip after the one that was held up and lost
	line.set(func(cmds []redis.Cmder, send func() error) (err error) {
		held := false
		first.Do(func() { held = true })
		if held {
			<-waits
			return errNetwork
		}
		if together == nil {
			for _, c := range cmds {
				together = append(together, c.Name())
			}
		}
		return send()
	})
	settled := make(chan error, 1)
	go func() {
		settled <- s.Settle(t.Context(),
			sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1},
			sources.Settlement{Task: &tasks[1], Outcome: sources.Done, Attempt: 1})
	}()
	eventually(t, func() bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return s.Log.Seq() == 2
	})
	fetched := make(chan []sources.Task, 1)
	go func() {
		tasks, err := s.Fetch(t.Context(), 2)
		if err != nil {
			t.Error(err)
		}
		fetched <- tasks
	}()
	eventually(t, func() bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return s.Waits()
	})
	close(waits)
	tasks = <-fetched
	if got := fmt.Sprint(idsOfTasks(tasks)); got != "[2 3]" {
		t.Fatalf("fetched %v, want 2 and 3", got)
	}
	w.done(s, tasks...)
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	line.set(nil)
	if len(together) != 2 {
		t.Errorf("%v travelled together, want a read and a script", together)
	}
	w.done(s, w.fetch(s, 2, "4", "5")...)
	w.close(s)
	w.empty(w.keys.Pending, w.keys.Done)
}

// A client of a cluster sends again what came to a node that is not the right one: that may be the read alone, and then it
// comes behind the settlement that it was sent before. What it finds there stands for other positions.
func TestAReadBehindItsSettlement(t *testing.T) {
	stray := &strays{}
	w := newWorld(t, redistest.New(t), Config{Window: 4})
	w.client.AddHook(stray)
	const n = 40
	for i := range n {
		w.push(strconv.Itoa(i))
	}
	s := w.open()
	var held []sources.Task
	for next := 0; next < n; {
		got := make(chan fetched, 1)
		go func() {
			tasks, err := s.Fetch(t.Context(), 2)
			got <- fetched{tasks, err}
		}()
		if len(held) >= 4 { // it waits for room, mostly: what makes it goes with the next read
			eventually(t, func() bool {
				s.Mu.Lock()
				defer s.Mu.Unlock()
				return s.Waits() || len(got) > 0
			})
			w.done(s, held[:2]...)
			held = held[2:]
		}
		f := <-got
		if f.err != nil {
			t.Fatal(f.err)
		}
		for _, task := range f.tasks {
			if id := strconv.Itoa(next); task.ID != id || string(task.Payload) != "payload of "+id {
				t.Fatalf("task %s, want %s", task.ID, id)
			}
			next++
		}
		held = append(held, f.tasks...)
	}
	w.done(s, held...)
	eventually(t, func() bool { return w.client.LLen(t.Context(), w.keys.Pending).Val() == 0 })
	if stray.n.Load() == 0 {
		t.Error("no read came late")
	}
}

// strays sends every second read behind what it was sent with.
type strays struct {
	wire
	n, odd atomic.Int64
}

func (h *strays) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !reads(cmds[0]) || h.odd.Add(1)%2 == 1 {
			return next(ctx, cmds)
		}
		h.n.Add(1)
		return errors.Join(next(ctx, cmds[1:]), next(ctx, cmds[:1]))
	}
}

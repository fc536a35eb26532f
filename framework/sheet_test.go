package framework

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// What is done behind a task that runs goes with the next batch; what is not done, and
// what was kept back before, goes at once.
func TestWhatIsDoneBehindAHoleIsKeptBackOnce(t *testing.T) {
	s := newSheet()
	note := func(pos sources.Receipt, o sources.Outcome) {
		*s.line(&entry{}, 1) = sources.Settlement{Task: &Task{Receipt: pos}, Outcome: o}
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

// What observers are told of a batch is how many there were of each outcome.
func TestWhatABatchCameTo(t *testing.T) {
	var batch []sources.Settlement
	for n, o := range []sources.Outcome{sources.Done, sources.Retry, sources.Requeue, sources.Dead} {
		for range n + 1 {
			batch = append(batch, sources.Settlement{Outcome: o})
		}
	}
	if got, want := settled(Where{}, batch, time.Second), (Settled{Took: time.Second, Done: 1, Retried: 2, Requeued: 3, Dead: 4}); got != want {
		t.Errorf("it came to %+v, want %+v", got, want)
	}
}

// A lane with nothing to say holds on to no task that it has said something of.
func TestAnIdleSheetHoldsNoTask(t *testing.T) {
	s := newSheet()
	for _, batch := range []int{5, 3, 1} {
		for pos := range batch {
			*s.line(&entry{}, 2) = sources.Settlement{Task: &Task{Receipt: sources.Receipt(pos)}, Outcome: sources.Dead, Reason: "no"}
		}
		s.sent(s.take(math.MaxInt64))
	}
	s.tidy()
	for i, lines := range [][]sources.Settlement{s.pending, s.spare} {
		if cap(lines) == 0 {
			t.Errorf("there is no memory %d", i)
		}
		for k, d := range lines[:cap(lines)] {
			if d != (sources.Settlement{}) {
				t.Errorf("line %d of memory %d is of task %d", k, i, d.Task.Receipt)
			}
		}
	}
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

// What ends in several lanes at different times is told at one: each trip wakes the
// process.
func TestWhatEndsInManyLanesIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		var mu sync.Mutex
		var told []time.Time
		s.onSettle = func(context.Context, []sources.Settlement) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, time.Now())
			return nil
		}
		end := make(chan struct{})
		b := newBench(t, benchConfig{Config: Config{Concurrency: 8}, partitions: 3, source: s.over}, func(_ context.Context, task *Task) error {
			if task.Key == "long" { // a lane with nothing to do tells at once
				<-end
				return nil
			}
			d, err := time.ParseDuration(task.Key)
			time.Sleep(d)
			return err
		})
		defer b.stop()
		began := time.Now()
		for i, short := range []string{"2ms", "5ms", "8ms"} {
			id := partition.ID(i)
			if err := b.store.PushTo(id, task(short, i), task("long", i)); err != nil {
				t.Fatal(err)
			}
			b.grant(id)
		}
		time.Sleep(5 * settleAge)
		mu.Lock()
		if want := began.Add(settleAge); len(told) != 3 || slices.ContainsFunc(told, func(at time.Time) bool { return !at.Equal(want) }) {
			t.Errorf("three ends within %v are told at %v, want all at %v", settleAge, told, want)
		}
		mu.Unlock()
		close(end)
	})
}

// A fetch and a settlement of a lane leave together, and those of all lanes do, as long as
// there is enough to start until then.
func TestAFetchLeavesWithASettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		var mu sync.Mutex
		const answered = 2 * time.Millisecond
		fetched, settled := map[time.Duration]bool{}, map[time.Duration]bool{}
		began := time.Now()
		s.onFetch = func(context.Context) error {
			mu.Lock()
			fetched[time.Since(began)] = true
			mu.Unlock()
			return nil
		}
		s.onSettle = func(context.Context, []sources.Settlement) error {
			mu.Lock()
			settled[time.Since(began)] = true
			mu.Unlock()
			time.Sleep(answered)
			return nil
		}
		b := newBench(t, benchConfig{Config: Config{Concurrency: 1}, source: s.over}, func(context.Context, *Task) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		defer b.stop()
		for i := range 2500 {
			b.push(task("", i))
		}
		b.grant(0)
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		n, with := 0, 0
		for at := range fetched {
			if at < time.Second { // it comes to its pace
				continue
			}
			n++
			if settled[at] {
				with++
			}
			if leaves := at.Truncate(settleAge); !settled[leaves] || at > leaves+answered {
				t.Errorf("a fetch at %v: not with a settlement, nor while one is answered", at)
			}
		}
		if n < 10 || with < n/2 {
			t.Errorf("%d fetches within a second, %d of them with a settlement", n, with)
		}
	})
}

// A lane with little left to start waits for no settlement: both leave at once.
func TestALaneWithLittleLeftFetchesAtOnce(t *testing.T) {
	now := time.Unix(0, 0)
	l := &lane{wake: make(chan struct{}, 1), sheet: newSheet(), book: newBook()}
	l.pace.ahead, l.phase.hungry, l.sheet.waiting = 100, true, true
	for range 26 {
		l.book.add(&Task{Delivery: &Delivery{}}, now)
	}
	if l.nudge(); len(l.wake)+len(l.sheet.flush) > 0 || !l.phase.hungry || !l.sheet.waiting {
		t.Error("with a quarter to start it does not wait for the settlement")
	}
	l.book.finish(l.book.next(), now)
	if l.nudge(); len(l.wake) != 1 || len(l.sheet.flush) != 1 || l.phase.hungry || l.sheet.waiting {
		t.Errorf("with less: fetches %d, settles %d", len(l.wake), len(l.sheet.flush))
	}
}

// What is left is little, too, once workers have taken the rest: a lane that waits for its
// settlement looks again then, not when the first of them has ended.
func TestALaneThatHandsOutItsLastFetchesAtOnce(t *testing.T) {
	now := time.Unix(0, 0)
	l := &lane{wake: make(chan struct{}, 1), sheet: newSheet(), book: newBook(), ctxs: newContexts(func(time.Time) bool { return true })}
	p := &pool{runs: make([]run, 2), line: line{first: l, last: l}}
	l.pool = p
	l.pace.ahead, l.phase.hungry, l.sheet.waiting = 100, true, true
	for range 27 {
		l.book.add(&Task{Delivery: &Delivery{}}, now)
	}
	if p.next(&p.runs[0], 1, now); len(l.wake)+len(l.sheet.flush) > 0 {
		t.Error("with a quarter to start it does not wait for the settlement")
	}
	if p.next(&p.runs[1], 1, now); len(l.wake) != 1 || len(l.sheet.flush) != 1 {
		t.Errorf("with less: fetches %d, settles %d", len(l.wake), len(l.sheet.flush))
	}
}

// The memory of what was sent is written over: nothing of the former settlement is left in
// the next, and a retry at once does not wait as long as the one before it.
func TestALineIsAsNew(t *testing.T) {
	l := &lane{sheet: newSheet()}
	l.sheet.settling = true // nobody sends
	for _, v := range []verdict{
		{outcome: sources.Retry, delay: time.Hour, err: errors.New("greylisted")},
		{outcome: sources.Retry, reason: "connection reset"},
		{outcome: sources.Done},
		{outcome: sources.Dead, reason: "no such mailbox"},
	} {
		l.book = newBook()
		task := &Task{Delivery: &Delivery{Attempt: 1}}
		l.note(&runTask{slot: l.book.entries.take(task), task: task, verdict: v}, 1)
		batch := l.sheet.take(math.MaxInt64)
		want := sources.Settlement{Task: batch[0].Task, Outcome: v.outcome, Attempt: 1, Delay: v.delay, Reason: v.reason}
		if len(batch) != 1 || batch[0] != want {
			t.Errorf("told %+v, want %+v", batch, want)
		}
		l.sheet.sent(batch)
		l.sheet.pending, l.sheet.spare = l.sheet.spare, l.sheet.pending // the same line again
	}
}

// What ended before a loss and was not sent yet is not sent after it, and what ends after it
// is not even written down: the token may stand for another by now.
func TestNothingIsSettledAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		b := newBench(t, benchConfig{Config: Config{Concurrency: 2}, source: s.over}, func(ctx context.Context, task *Task) error {
			if task.Key == "slow" {
				<-ctx.Done()
			}
			return nil
		})
		defer b.stop()
		b.push(task("slow", 0), task("a", 0))
		g := b.grantAndWork(0)
		b.mu.Lock()
		l := b.lanes[0]
		unsettled := l.sheet.unsettled()
		b.mu.Unlock()
		if unsettled != 1 {
			t.Fatalf("%d ends wait to be sent, want 1", unsettled)
		}
		done := make(chan struct{})
		b.Abort(g, errLease, func() { close(done) })
		<-done
		b.mu.Lock()
		late := &Task{}
		l.book.active++
		b.finish(l, &runTask{slot: l.book.entries.take(late), task: late, verdict: verdict{outcome: sources.Done}}, time.Now()) // it had ended before, and comes last
		if n := l.sheet.unsettled(); n > 0 || l.sheet.settling {
			t.Errorf("%d ends are to be sent after the loss", n)
		}
		b.mu.Unlock()
		for _, call := range s.log() {
			if strings.HasPrefix(call, "settle") {
				t.Errorf("%q under a lost token", call)
			}
		}
	})
}

// While the source does not answer for what ended, no more is started than fits into the
// time of one call: with the end of the lease all of it is done once more. Another partition
// whose source answers goes on.
func TestNothingStartsWhileNoEndIsHeard(t *testing.T) {
	for _, c := range []struct {
		how  string
		away func(ctx context.Context) error
	}{
		{"refuses", func(context.Context) error { return errors.New("connection refused") }},
		{"is silent", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
	} {
		t.Run("a source that "+c.how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var away atomic.Bool
				var mu sync.Mutex
				ended := map[partition.ID]int{}
				s := &spy{onSettle: func(ctx context.Context, done []sources.Settlement) error {
					if !away.Load() || done[0].Task.Grant.ID != 0 {
						return nil
					}
					ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // as a client has
					defer cancel()
					return c.away(ctx)
				}}
				b := newBench(t, benchConfig{Config: Config{Concurrency: 2}, partitions: 2, source: s.over}, func(_ context.Context, task *Task) error {
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					ended[task.Grant.ID]++
					return nil
				})
				defer b.stop()
				count := func(id partition.ID) int {
					mu.Lock()
					defer mu.Unlock()
					return ended[id]
				}
				const all = 2000
				for i := range all {
					b.push(task("", i))
					if err := b.store.PushTo(1, task("", i)); err != nil {
						t.Fatal(err)
					}
				}
				b.grant(0)
				b.grant(1)
				time.Sleep(time.Second)
				away.Store(true)
				before, other := count(0), count(1)
				time.Sleep(5 * time.Second)
				patience := b.cfg.Timing.CallTimeout()
				if n, most := count(0)-before, 2*int((patience+100*time.Millisecond)/(10*time.Millisecond)); n == 0 || n > most {
					t.Errorf("%d tasks have ended that nobody heard of, want at most %d", n, most)
				}
				if told := of[Halted](b.seen); len(told) != 1 || told[0].Grant.ID != 0 || told[0].For <= patience || told[0].For > patience+time.Second {
					t.Errorf("told that nothing starts: %+v, want once, of partition 0, after %v", told, patience)
				}
				if n := count(1) - other; n < 400 {
					t.Errorf("%d tasks of the other partition have ended, it is held up", n)
				}
				away.Store(false)
				time.Sleep(time.Minute)
				if count(0) != all || count(1) != all {
					t.Errorf("%d and %d tasks have ended, want all", count(0), count(1))
				}
				if told := of[Resumed](b.seen); len(told) != 1 || told[0].Grant.ID != 0 || told[0].For < 5*time.Second {
					t.Errorf("told that starts go on: %+v, want once, of partition 0", told)
				}
				b.push(task("", all)) // long after the last answer
				time.Sleep(time.Minute)
				if count(0) != all+1 {
					t.Error("a partition that was idle starts nothing more")
				}
			})
		})
	}
}

// A long reason is cut between two characters, not in the middle of one.
func TestALongReasonIsText(t *testing.T) {
	for _, lead := range []string{"", "a", "aa"} { // of three bytes each one is cut
		s := reason(errors.New(lead + strings.Repeat("€", mostReason)))
		if !utf8.ValidString(s) || !strings.HasSuffix(s, "€…") || len(s) > mostReason+len("…") || len(s) < mostReason {
			t.Errorf("%d bytes, the last of them %q", len(s), s[len(s)-8:])
		}
	}
}

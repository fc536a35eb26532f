package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
)

func partitionID(i int) partition.ID { return partition.ID(i) }

func TestFetchesNoFurtherThanCanBeStartedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		b := newBench(t, benchConfig{Config: Config{Concurrency: 4}, source: s.over}, func(context.Context, *Task) error {
			time.Sleep(time.Second)
			return nil
		})
		defer b.stop()
		for i := range 1000 {
			b.push(task("", i))
		}
		b.grant(0)
		time.Sleep(500 * time.Millisecond)
		b.mu.Lock()
		held := b.lanes[0].book.held
		b.mu.Unlock()
		if held > 8 {
			t.Errorf("%d tasks fetched for 4 slow workers, want at most 8", held)
		}
		time.Sleep(time.Minute)
		if m := slices.Max(s.asked()); m > 8 {
			t.Errorf("a limit of %d for 4 slow workers", m)
		}
	})
}

func TestFetchesFurtherWhenTasksFinishFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		b := newBrisk(t, s)
		defer b.stop()
		b.grant(0)
		time.Sleep(time.Second)
		if m := slices.Max(s.asked()); m <= mostAhead/2 || m > mostAhead { // what is not used up is not asked for
			t.Errorf("the limit grew to %d, want more than half of %d", m, mostAhead)
		}
		if n := aheadOf(b, 0); n != mostAhead {
			t.Errorf("it goes %d ahead, want %d", n, mostAhead)
		}
		if soon := s.asked()[:5]; soon[4] < mostAhead/2 { // 8, 64, 512, and each may be what is wanted of that
			t.Errorf("the first limits were %d: it takes long to come to %d", soon, mostAhead)
		}
		if open, _ := b.store.Pending(0); open != 0 {
			t.Errorf("%d tasks left", open)
		}
	})
}

// With many lanes each goes less far ahead: together they hold no more.
func TestLanesShareWhatIsAhead(t *testing.T) {
	for _, c := range []struct{ lanes, most int }{{1, mostAhead}, {128, mostAhead}, {200, mostTogether / 200}, {256, mostAhead / 2}, {1000, mostAhead / 2}} {
		synctest.Test(t, func(t *testing.T) {
			s := &spy{}
			b := newBrisk(t, s)
			defer b.stop()
			for i := range c.lanes { // the one with tasks comes last
				b.grant(partition.ID(c.lanes - 1 - i))
			}
			time.Sleep(time.Second)
			if n := aheadOf(b, 0); n != c.most {
				t.Errorf("of %d lanes one goes %d ahead, want %d", c.lanes, n, c.most)
			}
			if m := slices.Max(s.asked()); m > c.most {
				t.Errorf("of %d lanes one asks for %d, want %d at most", c.lanes, m, c.most)
			}
		})
	}
}

// newBrisk returns a bench with 5,000 tasks whose handlers take no time.
func newBrisk(t *testing.T, s *spy) *bench {
	b := newBench(t, benchConfig{Config: Config{Concurrency: 4}, source: s.over}, func(context.Context, *Task) error { return nil })
	for i := range 5000 {
		b.push(task("", i))
	}
	return b
}

func aheadOf(b *bench, id partition.ID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lanes[id].pace.ahead
}

// A key whose tasks fill all that is fetched must not stop the keys behind it.
func TestAStuckKeyDoesNotStopOthers(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(*Task) error
	}{
		{"its handler is slow", func(*Task) error { time.Sleep(time.Hour); return nil }},
		{"it is parked", func(*Task) error { return RetryAfter(time.Hour, nil) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var others atomic.Int32
				b := newBench(t, benchConfig{Config: Config{Concurrency: 2}}, func(_ context.Context, task *Task) error {
					if task.Key == "stuck" {
						return c.run(task)
					}
					others.Add(1)
					return nil
				})
				defer b.stop()
				for i := range 500 {
					b.push(task("stuck", i))
				}
				b.push(task("b", 0), task("c", 0))
				b.grant(0)
				time.Sleep(2 * time.Second)
				if n := others.Load(); n != 2 {
					t.Errorf("%d of 2 tasks behind the stuck key were handled", n)
				}
			})
		})
	}
}

// Parked keys must not slow down the others: there is nothing of theirs to start.
func TestParkedKeysDoNotCountAsStartable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var last atomic.Int64
		b := newBench(t, benchConfig{Config: Config{Concurrency: 2}}, func(_ context.Context, task *Task) error {
			if task.Key != "" {
				return RetryAfter(time.Hour, nil)
			}
			last.Store(int64(time.Since(began)))
			return nil
		})
		defer b.stop()
		for i := range 600 {
			b.push(task(fmt.Sprint(i), i))
		}
		for i := range 3000 {
			b.push(task("", i))
		}
		b.grant(0)
		time.Sleep(time.Second)
		if open, _ := b.store.Pending(0); open != 600 {
			t.Errorf("%d tasks left, want the 600 parked", open)
		}
		if took := time.Duration(last.Load()); took > 20*time.Millisecond {
			t.Errorf("the tasks behind the parked ones took %v, want no time to speak of", took)
		}
	})
}

func TestWhatIsHeldForStuckKeysIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Concurrency: 2}}, func(ctx context.Context, task *Task) error {
			<-ctx.Done()
			return ctx.Err()
		})
		defer b.stop()
		for i := range mostHeld + 500 {
			b.push(task("stuck", i))
		}
		b.grant(0)
		time.Sleep(time.Minute)
		b.mu.Lock()
		held := b.lanes[0].book.held
		b.mu.Unlock()
		if held != mostHeld {
			t.Errorf("%d tasks held, want %d", held, mostHeld)
		}
		if told := of[Blocked](b.seen); len(told) != 1 || told[0].Key != "stuck" || told[0].Waiting != mostHeld-1 || told[0].Parked != 0 {
			t.Errorf("told %+v, want once, naming the key", told)
		}
		b.drain(partition.Grant{ID: 0, Epoch: 1})
		if told := of[Unblocked](b.seen); len(told) != 1 {
			t.Errorf("told %+v, want once that it is over", told)
		}
	})
}

// Where it is no key that is stuck, but tasks of many keys wait for their next try, as when what they call is away, none of the keys
// is blamed.
func TestFullOfTasksThatWaitForTheirNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Concurrency: 2}}, func(context.Context, *Task) error {
			return RetryAfter(time.Hour, errors.New("it is away"))
		})
		defer b.stop()
		for i := range mostHeld + 500 {
			b.push(task(fmt.Sprint(i), i))
		}
		b.grant(0)
		time.Sleep(time.Minute)
		if told := of[Blocked](b.seen); len(told) != 1 || told[0].Key != "" || told[0].Waiting != 0 || told[0].Parked != mostHeld || told[0].Held != mostHeld {
			t.Errorf("told %+v, want once, that all wait for their next try", told)
		}
	})
}

// A lane that is full again and again for a moment, since another task comes whenever one has ended, is no news. One that
// stays full is.
func TestFullForAMomentIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		b := newBench(t, benchConfig{Config: Config{Concurrency: 2}}, func(ctx context.Context, task *Task) error {
			if task.Key != "stuck" {
				time.Sleep(10 * time.Millisecond)
				return nil
			}
			select {
			case <-end:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		defer b.stop()
		for i := range mostHeld - 1 {
			b.push(task("stuck", i))
		}
		for i := range 100 {
			b.push(task(fmt.Sprint("other", i), mostHeld+i))
		}
		told := func(when string, blocked, over int) {
			t.Helper()
			time.Sleep(time.Minute)
			if n, m := len(of[Blocked](b.seen)), len(of[Unblocked](b.seen)); n != blocked || m != over {
				t.Errorf("%s: told %d times that it is full and %d times that it is over, want %d and %d", when, n, m, blocked, over)
			}
		}
		b.grant(0)
		told("with others", 0, 0)
		if open, _ := b.store.Pending(0); open != mostHeld-1 {
			t.Errorf("%d tasks are open, want those of the key that is stuck", open)
		}
		b.push(task("stuck", 2*mostHeld))
		told("with nothing else", 1, 0)
		close(end)
		told("at the end", 1, 1)
	})
}

func TestHandlersDoNotRunFarAheadOfASourceThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{afterSettle: func() error { return fmt.Errorf("i/o timeout") }}
		var runs atomic.Int32
		b := newBench(t, benchConfig{source: s.over}, func(context.Context, *Task) error { runs.Add(1); return nil })
		defer b.stop()
		for i := range 3 * mostUnsettled {
			b.push(task("", i))
		}
		b.grant(0)
		time.Sleep(time.Minute)
		if n := runs.Load(); n > mostUnsettled+mostAhead {
			t.Errorf("%d handlers ran, want at most %d", n, mostUnsettled+mostAhead)
		}
	})
}

// The pace is halved at the moment of asking, so that what was wanted a moment ago
// may be too much: then the lane waits, it does not end.
func TestThePaceFallsWithoutEndingTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Concurrency: 4}}, func(_ context.Context, task *Task) error {
			if task.Payload != nil {
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		})
		defer b.stop()
		for i := range 2 * mostAhead {
			b.push(task("", i))
		}
		for i := range 2 * mostAhead {
			slow := task("", 2*mostAhead+i)
			slow.Payload = []byte("slow")
			b.push(slow)
		}
		b.grant(0)
		time.Sleep(10 * time.Minute)
		if open, _ := b.store.Pending(0); open != 0 {
			t.Errorf("%d tasks were never handled", open)
		}
		if ahead := aheadOf(b, 0); ahead != 8 {
			t.Errorf("the lane still fetches %d ahead for 4 slow workers, want 8", ahead)
		}
	})
}

// Parked tasks leave room for others, but not more than may be held.
func TestNotMoreIsWantedThanMayBeHeld(t *testing.T) {
	l := &lane{}
	l.pace.ahead = mostAhead
	l.book.held, l.book.asleep = mostHeld-10, mostHeld-10
	if n := l.wants(); n != 10 {
		t.Errorf("%d are wanted, want the 10 there is room for", n)
	}
	l.book.held++
	l.sheet.sending = mostUnsettled
	if n := l.wants(); n != 0 {
		t.Errorf("%d are wanted while the source does not answer", n)
	}
}

// How fast what came was used up says how much comes next.
func TestAPaceFollowsWhatIsUsedUp(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		what  string
		full  bool
		took  time.Duration
		ahead int // of 100
	}{
		{"in no time", true, 0, 800},
		{"slower", true, brisk / 4, 400},
		{"little faster than it is to last", true, brisk - 1, 200},
		{"as long as it is to last", true, brisk, 100},
		{"in no time, but there was no more", false, 0, 100},
		{"not too slow", true, slack, 100},
		{"too slow", true, slack + 1, 50},
		{"too slow, and there was no more", false, slack + 1, 50},
	} {
		p := pace{ahead: 100}
		p.arrived(c.full, now)
		p.used(1, mostAhead, now.Add(c.took))
		if p.ahead != c.ahead {
			t.Errorf("%s: %d ahead after 100, want %d", c.what, p.ahead, c.ahead)
		}
		if p.used(1, mostAhead, now); p.ahead != c.ahead {
			t.Errorf("%s: %d ahead instead of %d with the next question, though nothing came", c.what, p.ahead, c.ahead)
		}
	}
	for _, c := range []struct{ ahead, share, most, want int }{
		{0, 1, mostAhead, leastAhead}, {0, 100, mostAhead, 200}, {300, 100, mostAhead, 300}, {300, 1, 256, 256}, {0, 1, 2, 2},
	} {
		p := pace{ahead: c.ahead}
		if p.used(c.share, c.most, now); p.ahead != c.want {
			t.Errorf("of %d with a share of %d and at most %d become %d, want %d", c.ahead, c.share, c.most, p.ahead, c.want)
		}
	}
}

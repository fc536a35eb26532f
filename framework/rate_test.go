package framework

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
)

func TestRateIsReadAndWritten(t *testing.T) {
	for _, c := range []struct {
		text string
		want Rate
		back string
	}{
		{"", Rate{}, "0"},
		{"0", Rate{}, "0"},
		{"0/h", Rate{}, "0"},
		{"50", Rate{50, time.Second}, "50/s"},
		{"50/s", Rate{50, time.Second}, "50/s"},
		{"20/m", Rate{20, time.Minute}, "20/m"},
		{"500/h", Rate{500, time.Hour}, "500/h"},
		{"10000/d", Rate{10000, 24 * time.Hour}, "10000/d"},
		{"100/15m", Rate{100, 15 * time.Minute}, "100/15m0s"},
		{"3/60s", Rate{3, time.Minute}, "3/m"},
		{"1/8760h", Rate{1, longestWait}, "1/8760h0m0s"},
	} {
		got, err := ParseRate(c.text)
		if err != nil || got != c.want || got.String() != c.back {
			t.Errorf("%q is %+v, written %q, %v; want %+v and %q", c.text, got, got, err, c.want, c.back)
		}
		if again, err := ParseRate(got.String()); err != nil || again != got {
			t.Errorf("%q, which was written, is read as %+v, %v", got, again, err)
		}
		var value Rate
		if text, err := got.MarshalText(); err != nil || value.UnmarshalText(text) != nil || value != got {
			t.Errorf("as text, %q, it is read as %+v, %v", text, value, err)
		}
	}
	for _, text := range []string{"fast", "-1/s", "1/", "/s", "1/0s", "1/-1s", "1/w", "1.5/s", "1/s/s", "1/9000h", " 1/s"} {
		if got, err := ParseRate(text); err == nil || got != (Rate{}) || !strings.Contains(err.Error(), "as in 50/s") {
			t.Errorf("%q is %+v, %v; want an error that says what is right", text, got, err)
		}
		if err := new(Rate).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("the text %q is taken", text)
		}
	}
	if got := (Rate{Tasks: 7}).String(); got != "7/s" {
		t.Errorf("a rate that says no time is written %s, want 7/s", got)
	}
}

func TestRateThatCannotBe(t *testing.T) {
	for _, r := range []Rate{{Tasks: -1}, {Tasks: 1, Per: -1}, {Tasks: 1, Per: longestWait + 1}} {
		if err := (Config{Rate: r}).Validate(); err == nil || !strings.Contains(err.Error(), "rate of ") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := (Rate{Tasks: 1, Per: longestWait}).Validate(); err != nil {
		t.Error(err)
	}
}

// What a valve lets pass in any span is bounded by what it had saved up and its share meanwhile.
func TestValve(t *testing.T) {
	v := newValve(Rate{Tasks: 1000}, 10)
	now := time.Unix(0, 0)
	later := func(d time.Duration) { now = now.Add(d) }
	passes := func(want int) {
		t.Helper()
		got := v.most(1<<20, now)
		v.start(got)
		if got != want {
			t.Errorf("%d pass, want %d", got, want)
		}
	}
	v.serve(10, now)
	passes(0) // it begins with nothing
	later(time.Millisecond)
	passes(1)
	later(time.Hour)
	passes(100) // a tenth of a second
	passes(0)
	later(2 * time.Millisecond)
	v.start(-3) // were not started after all
	passes(5)
	later(time.Hour)
	_ = v.most(1, now)
	v.serve(-5, now) // a smaller share cannot have saved up as much
	passes(50)
	later(2 * time.Millisecond)
	v.serve(5, now) // what came meanwhile was of the smaller share
	passes(1)
	later(time.Hour)
	v.serve(-9, now)
	v.serve(9, now)
	passes(10) // nor does it come back with the share
	v.serve(-10, now)
	later(time.Hour)
	passes(0)
	v.serve(1, now)
	passes(0)
	if due := v.due(); due.Sub(now) != 10*time.Millisecond {
		t.Errorf("the next may start in %v, want 10 ms", due.Sub(now))
	}
	passes(0)
	if got := v.most(1, now.Add(-time.Second)); got != 0 { // a time from before the lock was had
		t.Errorf("%d pass at an earlier time", got)
	}
}

func TestAPoolKeepsToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var starts []time.Time
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 10}}, partitions: 4}, func(context.Context, *Task) error {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Now())
			return nil
		})
		defer b.stop()
		for i := range 40 {
			if err := b.store.PushTo(partition.ID(i%4), task("k", i)); err != nil {
				t.Fatal(err)
			}
		}
		all := func() []time.Time {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(starts)
		}
		began := time.Now()
		for id := range 3 {
			b.grant(partition.ID(id)) // three of four, so three quarters of the rate
		}
		time.Sleep(2 * time.Second)
		if n := len(all()); n < 14 || n > 15 {
			t.Errorf("%d tasks started in 2 s, want 15 at most and hardly fewer", n)
		}
		if first := all()[0].Sub(began); first < 100*time.Millisecond {
			t.Errorf("the first started after %v: a peer begins with nothing", first)
		}
		b.grant(3) // the whole rate, at once
		from := len(all())
		time.Sleep(time.Second)
		if n := len(all()) - from; n < 9 || n > 11 {
			t.Errorf("%d tasks started in the second after the last partition came, want 10", n)
		}
		if limited := of[Limited](b.seen); len(limited) != 1 || limited[0].Rate.Tasks != 10 || limited[0].Share != 7.5 {
			t.Errorf("told %+v, want once that tasks wait, with a share of 7.5", limited)
		}
		if n := len(of[Unlimited](b.seen)); n != 0 {
			t.Errorf("told %d times that none waits", n)
		}
		time.Sleep(10 * time.Second)
		if n := len(all()); n != 40 || len(of[Unlimited](b.seen)) != 1 {
			t.Errorf("%d of 40 tasks started, and it was told %d times that none waits", n, len(of[Unlimited](b.seen)))
		}
	})
}

// Workers take several short tasks at once: what is called back, to be given to another, counts once.
func TestARateCountsWhatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 200}, Concurrency: 2}}, func(context.Context, *Task) error {
			if n.Add(1) == 6 {
				time.Sleep(time.Minute) // in the middle of what its worker has
			}
			return nil
		})
		defer b.stop()
		b.grant(0)
		time.Sleep(time.Second) // 20 may start at once
		for i := range 100 {
			b.push(task("", i))
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if n := n.Load(); n != 20 {
			t.Errorf("%d tasks have started, want the 20 that may", n)
		}
		time.Sleep(time.Minute)
	})
}

// A lane whose tasks wait for the rate is drained at once: none of them has begun.
func TestADrainDoesNotWaitForTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 1, Per: time.Hour}}}, func(context.Context, *Task) error {
			t.Error("a task has started")
			return nil
		})
		defer b.stop()
		for i := range 10 {
			b.push(task("a", i))
		}
		g := b.grant(0)
		time.Sleep(2 * time.Second)
		began := time.Now()
		b.drain(g)
		if took := time.Since(began); took > 0 {
			t.Errorf("drained after %v", took)
		}
		if open, _ := b.store.Pending(0); open != 10 {
			t.Errorf("%d of 10 tasks are there", open)
		}
		time.Sleep(2 * limitedAfter)
		synctest.Wait()
		if n := len(of[Unlimited](b.seen)); n != 1 {
			t.Errorf("told %d times that none waits any more, want once", n)
		}
	})
}

// What was refused a start has not used up the rate.
func TestARefusedStartIsOfNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 1, Per: time.Hour}}}, func(context.Context, *Task) error { n.Add(1); return nil })
		defer b.stop()
		b.push(task("a", 1))
		b.grant(0)
		b.gate.invalid.Store(true)
		time.Sleep(time.Hour + time.Minute)
		b.gate.invalid.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n.Load() != 1 {
			t.Errorf("%d tasks started in the minute after the lease stood again, want the one that was refused", n.Load())
		}
	})
}

// Another task may start in the place of one that was refused, although the workers have looked and
// sleep until the next: not one of them has to wait for that.
func TestAfterARefusedStartAnotherIsDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 1, Per: time.Hour}}}, func(context.Context, *Task) error { n.Add(1); return nil })
		defer b.stop()
		for i := range 5 {
			b.push(task(strconv.Itoa(i), i))
		}
		b.gate.asked = func() { time.Sleep(time.Millisecond) } // meanwhile another worker looks
		b.gate.invalid.Store(true)
		b.grant(0)
		time.Sleep(time.Hour + time.Minute)
		b.gate.invalid.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n.Load() != 1 {
			t.Errorf("%d tasks started in the minute after the lease stood again, want one", n.Load())
		}
	})
}

// Tasks that wait for workers are not told as those that wait for the rate, although they have
// waited for it in the beginning; nor is a rate of which none waits any more, however long what has
// started takes.
func TestWhoWaitsForAWorkerIsNotLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 20}, Concurrency: 1}}, func(context.Context, *Task) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		defer b.stop()
		b.grant(0)
		for i := range 5 {
			b.push(task(strconv.Itoa(i), i))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n, m := len(of[Limited](b.seen)), len(of[Unlimited](b.seen)); n != 0 || m != 0 {
			t.Errorf("told %d times that tasks wait for the rate, and %d that none does", n, m)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 1, Per: 10 * time.Second}, Concurrency: 1}}, func(context.Context, *Task) error {
			time.Sleep(time.Hour)
			return nil
		})
		defer b.stop()
		b.grant(0)
		b.push(task("a", 1))
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n, m := len(of[Limited](b.seen)), len(of[Unlimited](b.seen)); n != 1 || m != 1 {
			t.Errorf("told %d times that tasks wait for the rate, and %d that none does, of which the only task runs", n, m)
		}
		time.Sleep(time.Hour)
	})
}

// That tasks wait is told once while there is always one again within a second, as with one key.
func TestLimitedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 1, Per: 10 * time.Second}}}, func(context.Context, *Task) error {
			time.Sleep(limitedAfter / 2)
			return nil
		})
		defer b.stop()
		b.grant(0)
		for i := range 20 {
			b.push(task("a", i))
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if n, m := len(of[Limited](b.seen)), len(of[Unlimited](b.seen)); n != 1 || m != 0 {
			t.Errorf("told %d times that tasks wait for the rate, and %d that none does", n, m)
		}
	})
}

// That tasks wait is told after a second, however far away the next start is.
func TestLimitedIsToldBeforeTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 1, Per: time.Hour}}}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.grant(0)
		b.push(task("a", 1))
		time.Sleep(limitedAfter + 10*time.Millisecond)
		synctest.Wait()
		if n := len(of[Limited](b.seen)); n != 1 {
			t.Errorf("told %d times that a task waits for the rate", n)
		}
	})
}

// That none waits any more is told after a second, however often one starts in it.
func TestUnlimitedIsToldWhileTasksStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 2}}, partitions: 1}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.grant(0)
		for i := range 4 {
			b.push(task("a", i))
		}
		time.Sleep(2 * time.Second) // all have started, the last now
		for i := range 5 {
			time.Sleep(limitedAfter * 2 / 3) // another may start at once
			b.push(task("a", 4+i))
		}
		synctest.Wait()
		if n, m := len(of[Limited](b.seen)), len(of[Unlimited](b.seen)); n != 1 || m != 1 {
			t.Errorf("told %d times that tasks wait for the rate, and %d that none does", n, m)
		}
	})
}

// A share may be so small that its next start is further away than a Duration holds, and so large
// that no int holds what may start.
func TestSharesOfAnySize(t *testing.T) {
	now := time.Now()
	v := newValve(Rate{Tasks: 1, Per: longestWait}, 1<<16)
	v.serve(1, now)
	if wait := v.due().Sub(now); wait < time.Hour {
		t.Errorf("the next may start in %v", wait)
	}
	v = newValve(Rate{Tasks: math.MaxInt, Per: 1}, 1)
	v.serve(1, now)
	if n := v.most(5, now.Add(time.Second)); n != 5 {
		t.Errorf("%d of 5 may start", n)
	}
}

// Who waits for the next start of a small share hears that the share has grown.
func TestAGrownShareStartsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 100, Per: time.Hour}}, partitions: 100}, func(context.Context, *Task) error { n.Add(1); return nil })
		defer b.stop()
		b.push(task("a", 1))
		b.grant(0)
		time.Sleep(time.Minute)
		for id := 1; id < 100; id++ {
			b.grant(partition.ID(id))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n.Load() != 1 {
			t.Errorf("%d tasks started in the minute after the share had become the whole rate, 100 in an hour", n.Load())
		}
	})
}

// Who is given partitions that a topic has grown by has no more than the rate.
func TestARateDoesNotGrowWithItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 10}}, partitions: 8}, func(context.Context, *Task) error { n.Add(1); return nil })
		defer b.stop()
		b.mu.Lock()
		b.valve = newValve(b.cfg.Rate, 2) // as there were
		b.mu.Unlock()
		for i := range 80 {
			if err := b.store.PushTo(partition.ID(i%8), task("k", i)); err != nil {
				t.Fatal(err)
			}
		}
		for id := range 8 {
			b.grant(partition.ID(id))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := n.Load(); n < 9 || n > 11 {
			t.Errorf("%d tasks started in a second, want 10", n)
		}
	})
}

// Tasks that wait for the rate keep no order from being kept, and no partition from its turn.
func TestUnderARatePartitionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var keys, got []string
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 10}}, partitions: 2}, func(_ context.Context, task *Task) error {
			mu.Lock()
			defer mu.Unlock()
			keys, got = append(keys, task.Key), append(got, task.ID)
			return nil
		})
		defer b.stop()
		want := map[string][]string{}
		for i := range 20 {
			one := task([]string{"a", "b"}[i%2], i)
			want[one.Key] = append(want[one.Key], one.ID)
			if err := b.store.PushTo(partition.ID(i%2), one); err != nil {
				t.Fatal(err)
			}
		}
		b.grant(0)
		b.grant(1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for key, w := range want {
			var of []string
			for i := range got {
				if keys[i] == key {
					of = append(of, got[i])
				}
			}
			if !slices.Equal(of, w) {
				t.Errorf("key %s: %v, want %v", key, of, w)
			}
		}
		for i := 2; i < len(keys); i++ {
			if keys[i] == keys[i-1] && keys[i] == keys[i-2] {
				t.Fatalf("three in a row of one partition: %v", keys)
			}
		}
	})
}

// Who waits for the rate costs nothing: a worker looks when the next task may start, not before.
func TestWhoWaitsForTheRateSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{Config: Config{Rate: Rate{Tasks: 1, Per: time.Hour}, Concurrency: 100}}, func(context.Context, *Task) error { return nil })
		defer b.stop()
		b.push(task("a", 1))
		b.grant(0)
		time.Sleep(time.Second)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.idle != 100 || !b.valve.shut {
			t.Errorf("%d of 100 workers wait, shut %v", b.idle, b.valve.shut)
		}
		if wait := time.Until(b.alarm.rate); wait < 59*time.Minute || wait > time.Hour {
			t.Errorf("a worker looks again in %v, want an hour", wait)
		}
	})
}

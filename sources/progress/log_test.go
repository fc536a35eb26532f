package progress

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var t0 = time.Unix(1_000_000, 0)

// admit answers r as a store does that nobody else talks to.
func admit(l *Log, r *Request) bool {
	return l.Apply(r, Answer{Status: Admitted, Before: l.Base(), Base: max(l.Base(), r.Base), Writes: r.Seen + 1, Gate: r.Gate})
}

// read adds n positions without keys, with a round trip.
func read(t *testing.T, l *Log, n int) {
	t.Helper()
	var r Request
	l.Compose(n, true, ^uint64(0), &r)
	if r.Fetch != n {
		t.Fatalf("asks for %d, want %d", r.Fetch, n)
	}
	if !admit(l, &r) {
		t.Fatal("what was read does not count")
	}
	for i := range n {
		l.Add(r.Read+int64(i), 0)
	}
}

func TestLogHandsOutInOrderAndRaisesTheBase(t *testing.T) {
	l := New(Config{Window: 8}, Opened{Base: 5, Gate: 5})
	read(t, l, 4)
	if got := l.Hand(t0, 3, nil); !slices.Equal(got, []int64{5, 6, 7}) {
		t.Fatalf("handed out %v", got)
	}
	var r Request
	l.Settle(6, Done, 1)
	l.Compose(0, false, ^uint64(0), &r)
	if r.Base != 5 || !slices.Equal(r.Done, []int64{6}) {
		t.Errorf("base %d, by name %v: 5 runs", r.Base, r.Done)
	}
	admit(l, &r)
	l.Settle(5, Done, 1)
	l.Settle(7, Done, 1)
	l.Compose(0, false, ^uint64(0), &r)
	if r.Base != 8 || len(r.Done) != 0 {
		t.Errorf("base %d, by name %v: all of it is implied", r.Base, r.Done)
	}
	admit(l, &r)
	if l.Base() != 8 || l.Lowest() != 8 || l.Answered() != 3 {
		t.Errorf("base %d, lowest %d, answered %d", l.Base(), l.Lowest(), l.Answered())
	}
}

// A log is full as long as what is open at its head fills the window: not of what has ended
// and is about to be said.
func TestLogIsFull(t *testing.T) {
	l := New(Config{Window: 3}, Opened{})
	look := func(what string, want bool) {
		t.Helper()
		if got := l.Full(); got != want {
			t.Errorf("%s: full: %t", what, got)
		}
	}
	look("nothing was read", false)
	read(t, l, 2)
	l.Hand(t0, 2, nil)
	look("one more may be read", false)
	read(t, l, 1)
	l.Hand(t0, 1, nil)
	look("three are open", true)
	l.Settle(2, Done, 1)
	l.Settle(1, Done, 1)
	look("the first is open", true)
	l.Settle(0, Retry, 1)
	look("the first is to be tried again", true)
	l.Settle(0, Done, 2)
	look("all have ended", false)
	var r Request
	if l.Compose(3, true, ^uint64(0), &r); r.Fetch != 3 || len(r.Lift) > 0 {
		t.Errorf("reads %d, lifts %v", r.Fetch, r.Lift)
	}
}

func TestLogSaysUnansweredVerdictsAgain(t *testing.T) {
	l := New(Config{}, Opened{})
	read(t, l, 3)
	l.Hand(t0, 3, nil)
	l.Settle(0, Retry, 1)
	l.Settle(1, Dead, 1)
	var r Request
	l.Compose(0, false, ^uint64(0), &r) // lost
	l.Settle(2, Done, 1)
	l.Compose(0, false, 0, &r) // nothing new fits; what was sent is in it in any case
	if fmt.Sprint(r.Others) != "[{1 0 2 1} {2 1 4 1}]" || r.Base != 0 || len(r.Done) != 0 || r.Upto != 2 {
		t.Errorf("says %+v", r)
	}
	admit(l, &r)
	if l.Answered() != 2 || l.Seq() != 3 {
		t.Errorf("answered %d of %d", l.Answered(), l.Seq())
	}
}

func TestLogSettlesOnce(t *testing.T) {
	l := New(Config{}, Opened{})
	read(t, l, 2)
	l.Hand(t0, 2, nil)
	first := l.Settle(0, Retry, 1)
	for range 3 {
		if again := l.Settle(0, Retry, 1); again != first || l.Seq() != first {
			t.Fatalf("the same retry is verdict %d, then %d of %d", first, again, l.Seq())
		}
	}
	end := l.Settle(0, Done, 2)
	if again := l.Settle(0, Dead, 2); again != end || l.Seq() != end {
		t.Errorf("an end after the end is verdict %d", again)
	}
	var r Request
	l.Compose(0, false, ^uint64(0), &r)
	admit(l, &r)
	for _, pos := range []int64{0, 7, -3} {
		if seq := l.Settle(pos, Done, 1); seq != 0 || l.Seq() != end {
			t.Errorf("position %d, over or never read, gives verdict %d", pos, seq)
		}
	}
}

func TestLogLiftsFromTheHead(t *testing.T) {
	l := New(Config{Window: 4, Lifted: 3}, Opened{})
	read(t, l, 4)
	l.Hand(t0, 4, nil)
	for _, pos := range []int64{1, 3} {
		l.Settle(pos, Done, 1)
	}
	var r Request
	l.Compose(2, true, ^uint64(0), &r)
	if r.Base != 4 || !slices.Equal(r.Lift, []int64{0, 2}) || r.Fetch != 2 || len(r.Done) != 0 {
		t.Fatalf("says %+v", r)
	}
	admit(l, &r)
	l.Add(4, 0)
	l.Add(5, 0)
	l.Settle(0, Done, 1)
	l.Compose(0, false, ^uint64(0), &r)
	if !slices.Equal(r.Done, []int64{0}) {
		t.Errorf("by name: %v; what was lifted is settled so", r.Done)
	}
	admit(l, &r)
	if l.Lowest() != 2 || l.Base() != 4 {
		t.Errorf("lowest %d, base %d", l.Lowest(), l.Base())
	}
	// 2 is lifted, and 4 and 5 run: two more fit, then there is no room.
	read(t, l, 2)
	l.Hand(t0, 4, nil)
	l.Compose(4, true, ^uint64(0), &r)
	if !slices.Equal(r.Lift, []int64{4, 5}) || r.Fetch != 2 {
		t.Fatalf("says %+v", r)
	}
	admit(l, &r)
	l.Add(8, 0)
	l.Add(9, 0)
	if pos, blocked := l.Blocked(); !blocked || pos != 2 {
		t.Errorf("blocked %v at %d: three are lifted", blocked, pos)
	}
	l.Compose(4, true, ^uint64(0), &r)
	if len(r.Lift) != 0 || r.Fetch != 0 {
		t.Errorf("lifts %v and reads %d over the cap", r.Lift, r.Fetch)
	}
}

func TestLogNamesWhatItTriedToLift(t *testing.T) {
	l := New(Config{Window: 2}, Opened{})
	read(t, l, 2)
	l.Hand(t0, 2, nil)
	var r Request
	l.Compose(1, true, ^uint64(0), &r) // lost: perhaps it was carried out
	if len(r.Lift) != 2 {
		t.Fatalf("lifts %v", r.Lift)
	}
	l.Settle(0, Done, 1)
	l.Settle(1, Done, 1)
	l.Compose(0, false, ^uint64(0), &r)
	if !slices.Equal(r.Done, []int64{0, 1}) || r.Base != 2 {
		t.Errorf("says %+v", r)
	}
}

func TestLogRunsSuspectsAlone(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 3, Gate: 3})
	var r Request
	l.Compose(4, true, ^uint64(0), &r)
	admit(l, &r)
	for pos := range int64(4) {
		l.Add(pos, 0)
	}
	for pos := range int64(3) {
		if got := l.Hand(t0, 4, nil); len(got) > 0 || l.Need() != NeedRoundTrip {
			t.Fatalf("handed out %v before the store knows", got)
		}
		l.Compose(4, false, ^uint64(0), &r)
		if r.Alone != pos {
			t.Fatalf("alone %d, want %d", r.Alone, pos)
		}
		if got := l.Hand(t0, 4, nil); len(got) > 0 {
			t.Fatalf("handed out %v before the store has answered", got)
		}
		l.Compose(4, false, ^uint64(0), &r) // repeated
		admit(l, &r)
		if got := l.Hand(t0, 4, nil); !slices.Equal(got, []int64{pos}) {
			t.Fatalf("handed out %v, want %d alone", got, pos)
		}
		l.Settle(pos, Done, 1)
		if got := l.Hand(t0, 4, nil); len(got) > 0 || l.Need() != NeedNothing {
			t.Fatalf("handed out %v before the end of %d was answered", got, pos)
		}
		l.Compose(4, false, ^uint64(0), &r)
		admit(l, &r)
	}
	if got := l.Hand(t0, 4, nil); !slices.Equal(got, []int64{3}) {
		t.Fatalf("handed out %v after the suspects", got)
	}
}

// Who has no place for a task gets none, and is still waiting for what he waited for.
func TestLogHandsOutNothingWithoutPlace(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 1, Gate: 2})
	l.Add(0, 0)
	l.Accused(0)
	l.Add(1, 1)
	if got := l.Hand(t0, 1, nil); !slices.Equal(got, []int64{1}) || !l.WantsPermit() {
		t.Fatalf("handed out %v, wants the permit: %t; want 1 and true", got, l.WantsPermit())
	}
	finish(t, l, 1)
	l.Permit(true)
	for _, limit := range []int{0, -1} {
		if got := l.Hand(t0, limit, nil); len(got) > 0 || !l.WantsPermit() || l.alone != None {
			t.Errorf("with %d places: handed out %v, alone is %d, wants the permit: %t", limit, got, l.alone, l.WantsPermit())
		}
	}
	if got := handAlone(t, l, t0); !slices.Equal(got, []int64{0}) {
		t.Fatalf("handed out %v, want 0", got)
	}
}

// What stands behind a task of its key that failed had not begun, and need not run alone.
func TestLogWhatWaitedIsNoSuspect(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 9, Gate: 16})
	var r Request
	l.Compose(16, true, ^uint64(0), &r)
	admit(l, &r)
	l.AddLifted(0, 3)
	l.Tried(0, 1, time.Time{})
	l.Add(1, 1)
	l.Tried(1, 2, time.Time{})
	l.Add(2, 2)
	l.Tried(2, 0, time.Time{}) // it was in a crash, and nothing says that it failed
	l.Add(3, 1)                // waited for 1
	l.Add(4, 0)
	l.Tried(4, 1, time.Time{})
	l.Add(5, 0) // waited for nothing: what has no key has no order
	l.Add(6, 3) // waited for 0
	l.Add(7, 3)
	l.Suspect(7) // and nobody makes a suspect of it
	l.Add(8, 2)  // 2 may have ended
	l.Add(9, 9)  // this one had not been read
	var alone []int64
	for range 20 {
		got := l.Hand(t0, 16, nil)
		if len(got) > 1 {
			if want := []int64{3, 6, 7, 9}; !slices.Equal(got, want) {
				t.Errorf("handed out %v together, want %v", got, want)
			}
			break
		}
		alone = append(alone, got...)
		for _, pos := range got {
			l.Settle(pos, Done, 3)
		}
		l.Compose(16, false, ^uint64(0), &r)
		admit(l, &r)
	}
	slices.Sort(alone)
	if want := []int64{0, 1, 2, 4, 5, 8}; !slices.Equal(alone, want) {
		t.Errorf("%v ran alone, want %v", alone, want)
	}
}

// A trip that left before anything was chosen has told the store nothing of it.
func TestLogRunsAloneOnlyWhatWasSaid(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 1, Gate: 1})
	var r Request
	l.Compose(1, true, ^uint64(0), &r)
	admit(l, &r)
	l.Add(0, 0)
	l.Compose(1, false, ^uint64(0), &r)
	if got := l.Hand(t0, 1, nil); len(got) > 0 || r.Alone != None {
		t.Fatalf("handed out %v, and the trip before says %d is alone", got, r.Alone)
	}
	admit(l, &r)
	if got := l.Hand(t0, 1, nil); len(got) > 0 || l.Need() != NeedRoundTrip {
		t.Fatalf("handed out %v, which the store was not told of", got)
	}
}

// Beside a task that waits for its retry suspects need not be alone. When it has ended they
// are again, and one that ended unread is none any more.
func TestLogCountsWhatHasEnded(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 3, Gate: 10})
	for pos := range int64(3) {
		l.Add(pos, 0)
	}
	if got := handAlone(t, l, t0); !slices.Equal(got, []int64{0}) {
		t.Fatalf("handed out %v, want 0", got)
	}
	l.Settle(0, Retry, 1)
	trip(l)
	finish(t, l, 0)
	if got := handAlone(t, l, t0); !slices.Equal(got, []int64{1}) {
		t.Fatalf("handed out %v, want 1, alone again", got)
	}
	finish(t, l, 1)
	l.Settle(2, Dead, 0)
	if l.held != 0 {
		t.Errorf("%d are held when all suspects have ended", l.held)
	}
}

// What the store may know as alone stays chosen, even if something better turns up:
// a late request would accuse it while the other runs.
func TestLogKeepsTheChoiceOfWhatRunsAlone(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 2, Gate: 2})
	var r Request
	l.Compose(2, true, ^uint64(0), &r)
	admit(l, &r)
	l.Add(0, 0)
	l.Add(1, 0)
	l.Tried(0, 1, t0.Add(time.Second))
	l.Tried(1, 2, time.Time{})
	l.Hand(t0, 2, nil)
	l.Compose(2, false, ^uint64(0), &r)
	if r.Alone != 1 || r.AloneTries != 2 {
		t.Fatalf("alone %d with %d tries: 0 is not due", r.Alone, r.AloneTries)
	}
	if due := l.Due(t0); !due.Equal(t0.Add(time.Second)) {
		t.Errorf("due %v", due)
	}
	l.Hand(t0.Add(time.Minute), 2, nil)
	l.Compose(2, false, ^uint64(0), &r)
	if r.Alone != 1 {
		t.Errorf("alone %d after 1 was said", r.Alone)
	}
}

// A suspect behind a parked task of its key steps aside, and what is not suspect
// goes on, but for the keys that wait.
func TestLogStepsAsideForAParkedKey(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 3, Gate: 6})
	var r Request
	l.Compose(6, true, ^uint64(0), &r)
	admit(l, &r)
	for pos, key := range []uint64{7, 7, 8, 8, 9, 7} {
		l.Add(int64(pos), key)
	}
	step := func(want ...int64) {
		t.Helper()
		got := l.Hand(t0, 6, nil)
		if len(got) == 0 {
			l.Compose(6, false, ^uint64(0), &r)
			admit(l, &r)
			got = l.Hand(t0, 6, nil)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("handed out %v, want %v", got, want)
		}
	}
	step(0)
	l.Settle(0, Retry, 1)
	step(2) // 1 is behind 0; 2 is not recorded as alone, since the caller holds 0
	if r.Alone != None {
		t.Errorf("%d is accused while the caller may start 0", r.Alone)
	}
	l.Settle(2, Done, 1)
	step(3, 4) // 5 is behind 1
	l.Settle(0, Done, 2)
	step() // 3 and 4 run: 1 waits for them
	l.Settle(3, Done, 1)
	l.Settle(4, Done, 1)
	step(1)
	l.Settle(1, Done, 1)
	step(5)
}

// What was handed out to wait for an hour does not run until then.
func TestLogWhatWaitsHoldsUpNoSuspect(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 1, Gate: 2})
	for pos, wait := range []time.Duration{time.Second, time.Hour} {
		l.Add(int64(pos), uint64(pos+1))
		l.Tried(int64(pos), 1, t0.Add(wait))
	}
	if got := l.Hand(t0, 6, nil); !slices.Equal(got, []int64{1}) {
		t.Fatalf("handed out %v, want 1: the suspect must not start yet", got)
	}
	if got := l.Hand(t0.Add(time.Second), 6, nil); !slices.Equal(got, []int64{0}) {
		t.Fatalf("handed out %v, want the suspect", got)
	}
	for pos := range int64(2) {
		l.Settle(pos, Done, 2)
	}
	if l.running != 0 || l.parked != 0 || len(l.due) != 0 {
		t.Errorf("at the end %d run, %d wait, and of %d the time is kept", l.running, l.parked, len(l.due))
	}
}

// What stands behind a retry of its key may wait for hours; it starts by itself only once that has ended.
func TestLogWhatWaitsBehindARetryHoldsUpNoSuspect(t *testing.T) {
	const a, b, none = 1, 2, 0
	for _, tt := range []struct {
		name string
		key  uint64 // of what fails and of what comes after it
		pass bool
		want []int64
	}{
		{"behind a retry of its key", b, false, []int64{1}},
		{"its key goes on without the retry", b, true, nil},
		{"it has no key", none, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := New(Config{}, Opened{Suspects: 2, Gate: 5})
			for pos, key := range []uint64{a, a, tt.key, tt.key, 3} {
				l.Add(int64(pos), key)
			}
			handAlone(t, l, t0)
			l.Settle(0, Retry, 1)
			trip(l)
			if got := l.Hand(t0, 2, nil); !slices.Equal(got, []int64{2, 3}) {
				t.Fatalf("handed out %v, want 2 and 3: the suspect 1 is behind 0", got)
			}
			l.Settle(2, Retry, 1)
			if tt.pass {
				l.Passed(2)
			}
			l.Settle(0, Done, 2)
			trip(l)
			if got := l.Hand(t0, 2, nil); !slices.Equal(got, tt.want) || l.alone != None {
				t.Errorf("handed out %v, and %d is accused; want %v, and nobody", got, l.alone, tt.want)
			}
		})
	}
}

// What is accused is charged with the next crash, too: nothing that waits is handed out while only the permit lacks.
func TestLogWhatWaitsDoesNotShieldTheAccused(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 1, Gate: 3})
	l.Add(0, 1)
	l.Tried(0, 1, time.Time{})
	l.Accused(0)
	l.Add(1, 2)
	l.Tried(1, 1, t0.Add(time.Hour))
	l.Add(2, 2) // behind it
	if got := l.Hand(t0, 6, nil); len(got) > 0 || !l.WantsPermit() {
		t.Fatalf("handed out %v, and it wants a permit: %v", got, l.WantsPermit())
	}
	l.Permit(true)
	if got := l.Hand(t0, 6, nil); len(got) > 0 || l.alone != 0 {
		t.Fatalf("handed out %v, and %d is alone, want the accused to be recorded first", got, l.alone)
	}
}

func TestLogFindsPositionsWithGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := New(Config{Window: 300}, Opened{Base: 10, Gate: 1 << 40})
	var all []int64
	pos := int64(10)
	for range 300 {
		pos += 1 + int64(rng.IntN(3))*int64(rng.IntN(1000))
		l.Add(pos, 0)
		all = append(all, pos)
	}
	l.Skip(pos + 50)
	if got := l.Hand(t0, 1000, nil); !slices.Equal(got, all) {
		t.Fatalf("handed out %d of %d", len(got), len(all))
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, pos := range all {
		if l.Settle(pos+1<<41, Done, 1) != 0 || l.Settle(pos, Done, 1) != uint64(i+1) {
			t.Fatalf("position %d is not found", pos)
		}
	}
	var r Request
	l.Compose(0, false, ^uint64(0), &r)
	if r.Base != pos+50 || len(r.Done) != 0 {
		t.Errorf("base %d, %d by name, want %d and none", r.Base, len(r.Done), pos+50)
	}
}

func TestLogDoesNotAllocate(t *testing.T) {
	l := New(Config{}, Opened{})
	var r Request
	var hand []int64
	round := func() {
		l.Compose(100, true, ^uint64(0), &r)
		admit(l, &r)
		for i := range r.Fetch {
			l.Add(r.Read+int64(i), 7)
		}
		hand = l.Hand(t0, 100, hand[:0])
		for _, pos := range slices.Backward(hand) {
			l.Settle(pos, Done, 1)
		}
	}
	for range 10 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Errorf("%v allocations for 100 tasks", n)
	}
}

func BenchmarkLog(b *testing.B) {
	l := New(Config{}, Opened{})
	var r Request
	var hand []int64
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(hand) {
		l.Compose(100, true, ^uint64(0), &r)
		admit(l, &r)
		for i := range r.Fetch {
			l.Add(r.Read+int64(i), 7)
		}
		hand = l.Hand(t0, 100, hand[:0])
		for _, pos := range hand {
			l.Settle(pos, Done, 1)
		}
	}
}

// What was lifted may have been running as well when its owner died.
func TestLogRunsLiftedSuspectsAlone(t *testing.T) {
	l := New(Config{}, Opened{Base: 4, Suspects: 2, Gate: 5})
	l.AddLifted(1, 0)
	l.AddLifted(3, 0)
	read(t, l, 1)
	var r Request
	if got := l.Hand(t0, 4, nil); len(got) > 0 {
		t.Fatalf("handed out %v before the store knows", got)
	}
	l.Compose(4, false, ^uint64(0), &r)
	if r.Alone != 1 {
		t.Fatalf("alone %d, want 1", r.Alone)
	}
	admit(l, &r)
	if got := l.Hand(t0, 4, nil); !slices.Equal(got, []int64{1}) {
		t.Fatalf("handed out %v, want 1 alone", got)
	}
	l.Settle(1, Done, 1)
	l.Compose(0, false, ^uint64(0), &r)
	admit(l, &r)
	if got := l.Hand(t0, 4, nil); !slices.Equal(got, []int64{3, 4}) {
		t.Errorf("handed out %v after the suspect, want 3 and 4", got)
	}
}

func TestLogHandsOutWhatWasLiftedFirst(t *testing.T) {
	l := New(Config{}, Opened{Base: 4, Gate: 4})
	l.AddLifted(1, 7)
	l.AddLifted(3, 8)
	read(t, l, 2)
	for _, want := range []int64{1, 3, 4, 5} {
		if got := l.Hand(t0, 1, nil); !slices.Equal(got, []int64{want}) {
			t.Fatalf("handed out %v, want %d", got, want)
		}
	}
}

// What stores keep of a task that was tried is read in one way, by the clock of who asks;
// what is no such thing is told.
func TestParseTried(t *testing.T) {
	store := t0.Add(-time.Hour).UnixMilli() // its clock is an hour behind
	for s, want := range map[string]Tried{
		"2 1 0 no luck at all":                  {Tries: 2, Crashes: 1, FirstError: "no luck at all"},
		"1 0 0 ":                                {Tries: 1},
		Runs(5, 3) + " 1 0 busy":                {Tries: 5, Waits: 3, Crashes: 1, FirstError: "busy"},
		Runs(5, 0) + " 0 0 ":                    {Tries: 5},
		fmt.Sprint("3 0 ", store+1500, " x"):    {Tries: 3, NotBefore: t0.Add(1500 * time.Millisecond), FirstError: "x"},
		fmt.Sprint("3 0 ", store, " it is due"): {Tries: 3, FirstError: "it is due"},
	} {
		if got, err := ParseTried(s, t0, store); got != want || err != nil {
			t.Errorf("%q is %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "1 0 0", "x 0 0 ", "1 x 0 ", "1 0 x ", "2-x 0 0 ", "2-3 0 0 ", "2--1 0 0 ", "2- 0 0 "} {
		if got, err := ParseTried(s, t0, store); err == nil || got != (Tried{}) {
			t.Errorf("%q is %+v", s, got)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	for _, c := range []struct{ is, want Config }{
		{Config{}, Config{Window: 2048, Lifted: 8192}},
		{Config{Window: 4}, Config{Window: 4, Lifted: 32}},
		{Config{Window: 4, Lifted: 2}, Config{Window: 4, Lifted: 2}},
	} {
		if got := c.is.WithDefaults(); got != c.want {
			t.Errorf("%+v becomes %+v, want %+v", c.is, got, c.want)
		}
	}
}

// What its owner withholds is started by nobody, and nothing waits for it but the base: not the
// suspects of its key either, which run alone as ever.
func TestLogWithholds(t *testing.T) {
	l := New(Config{}, Opened{Base: 1, Suspects: 4, Gate: 10})
	l.AddLifted(0, 7)
	l.Add(1, 7)
	l.Withhold(0)
	l.Withhold(1)
	l.Withhold(9) // is not there
	l.Add(2, 7)
	l.Add(3, 0)
	for pos := int64(2); pos < 4; pos++ {
		if got := handAlone(t, l, t0); !slices.Equal(got, []int64{pos}) {
			t.Fatalf("handed out %v, want %d", got, pos)
		}
		l.Withhold(pos) // it runs
		finish(t, l, pos)
	}
	if got := l.Hand(t0, 10, nil); len(got) > 0 || l.held != 0 || l.Base() != 1 || l.Lowest() != 0 {
		t.Fatalf("handed out %v, %d are held, the base is %d", got, l.held, l.Base())
	}
	l.Settle(1, Dead, 0)
	l.Settle(0, Dead, 0)
	var r Request
	l.Compose(10, false, ^uint64(0), &r)
	if len(r.Others) != 2 || r.Others[0].Position != 1 || r.Others[1].Position != 0 || r.Base != 4 {
		t.Errorf("it says %+v", r)
	}
}

package progress

import (
	"slices"
	"testing"
	"time"
)

// TestLogWaitsForThePermit: a task that is accused of a crash does not run alone
// before the caller has the permit; what it does not stand in the way of goes on.
func TestLogWaitsForThePermit(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(Config{}, Opened{Suspects: 2, Gate: 10})
	for pos := range int64(4) {
		l.Add(pos, uint64(pos%2)+1) // 0 and 2 have one key, 1 and 3 another
	}
	l.Tried(0, 0, time.Time{})
	l.Accused(0)

	// 1 is not accused: it runs first, alone in this log.
	if got := handAlone(t, l, now); !slices.Equal(got, []int64{1}) {
		t.Fatalf("handed out %v, want the suspect nobody accuses, 1", got)
	}
	finish(t, l, 1)

	if got := l.Hand(now, 10, nil); !slices.Equal(got, []int64{3}) || !l.WantsPermit() {
		t.Fatalf("handed out %v, wants the permit: %v; want 3, which is not behind the accused, and true", got, l.WantsPermit())
	}
	l.Permit(true)
	if got := l.Hand(now, 10, nil); len(got) != 0 || !l.WantsPermit() {
		t.Fatalf("handed out %v beside a running task", got)
	}
	finish(t, l, 3)
	for range 2 { // it chooses, and looks again
		if got := l.Hand(now, 10, nil); len(got) != 0 || !l.WantsPermit() {
			t.Fatalf("handed out %v, wants the permit: %v; want it kept while the store is told", got, l.WantsPermit())
		}
	}
	if got := handAlone(t, l, now); !slices.Equal(got, []int64{0}) || !l.WantsPermit() {
		t.Fatalf("handed out %v with the permit, want the accused, 0", got)
	}
	finish(t, l, 0)
	if l.WantsPermit() {
		t.Error("the permit is still wanted when the accused has ended")
	}
	l.Permit(false)
	if got := l.Hand(now, 10, nil); !slices.Equal(got, []int64{2}) {
		t.Errorf("handed out %v, want 2", got)
	}
}

// handAlone hands out what has to be recorded as alone first.
func handAlone(t *testing.T, l *Log, now time.Time) []int64 {
	t.Helper()
	if got := l.Hand(now, 10, nil); len(got) != 0 {
		t.Fatalf("handed out %v before the store knew that it runs alone", got)
	}
	trip(l)
	return l.Hand(now, 10, nil)
}

func finish(t *testing.T, l *Log, pos int64) {
	t.Helper()
	if l.Settle(pos, Done, 0) == 0 {
		t.Fatalf("%d was finished before", pos)
	}
	trip(l)
}

// trip is a round trip to a store that agrees.
func trip(l *Log) {
	var r Request
	l.Compose(10, false, l.Seq(), &r)
	l.Apply(&r, Answer{Status: Admitted, Before: l.Base(), Base: max(l.Base(), r.Base), Gate: 10})
}

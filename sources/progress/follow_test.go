package progress

import (
	"slices"
	"testing"
	"time"
)

// One request says the end of a suspect and which runs next, which starts with its answer.
func TestLogSaysWhoFollowsWithTheEnd(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 4, Gate: 3})
	for pos := range int64(4) {
		l.Add(pos, 0)
	}
	if l.Follow(t0); l.alone != None {
		t.Fatalf("%d follows before anything ran", l.alone)
	}
	var r Request
	l.Hand(t0, 4, nil)
	l.Compose(4, false, 0, &r)
	l.Apply(&r, Answer{Status: Admitted, Gate: 3})
	if got := l.Hand(t0, 4, nil); !slices.Equal(got, []int64{0}) {
		t.Fatalf("handed out %v, want 0", got)
	}
	for pos := range int64(2) {
		if l.Follow(t0); l.alone != None {
			t.Fatalf("%d follows while %d runs", l.alone, pos)
		}
		end := l.Settle(pos, Done, 1)
		for range 2 { // a Fetch may come and go
			if l.Follow(t0); l.alone != pos+1 {
				t.Fatalf("%d follows %d", l.alone, pos)
			}
		}
		if l.Compose(4, false, end-1, &r); r.Alone != None {
			t.Fatalf("alone %d before the end of %d is said", r.Alone, pos)
		}
		for range 2 { // it is repeated
			if l.Compose(4, false, end, &r); r.Base != pos+1 || r.Alone != pos+1 {
				t.Fatalf("base %d, alone %d; want the end of %d and %d alone", r.Base, r.Alone, pos, pos+1)
			}
			if got := l.Hand(t0, 4, nil); len(got) > 0 {
				t.Fatalf("handed out %v before the store has answered", got)
			}
		}
		l.Apply(&r, Answer{Status: Admitted, Before: l.Base(), Base: r.Base, Gate: 3})
		if got := l.Hand(t0, 4, nil); !slices.Equal(got, []int64{pos + 1}) {
			t.Fatalf("handed out %v, want %d at once", got, pos+1)
		}
	}
	l.Settle(2, Done, 1)
	if l.Follow(t0); l.alone != None {
		t.Error("what may not be started yet follows")
	}
}

// Nothing follows whose turn Hand has to judge: beside what waits for a retry nothing is
// recorded as alone, and what is accused wants a permit, which is not kept for others.
func TestLogSaysNotWhoFollows(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*Log)
		ends   Outcome
	}{
		"it comes again":     {func(*Log) {}, Retry},
		"next is accused":    {func(l *Log) { l.Accused(1) }, Done},
		"it has a permit":    {func(l *Log) { l.Permit(true) }, Done},
		"it is not its time": {func(l *Log) { l.Tried(1, 1, t0.Add(time.Second)) }, Done},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Config{}, Opened{Suspects: 2, Gate: 10})
			l.Add(0, 1)
			l.Add(1, 2)
			c.before(l)
			if got := handAlone(t, l, t0); !slices.Equal(got, []int64{0}) {
				t.Fatalf("handed out %v, want 0", got)
			}
			l.Settle(0, c.ends, 1)
			l.Follow(t0)
			for range 2 { // before its end is answered, and after
				var r Request
				if l.Compose(10, false, l.Seq(), &r); r.Alone != None {
					t.Errorf("alone %d", r.Alone)
				}
				trip(l)
			}
		})
	}
}

// What was chosen for somebody who is gone is not recorded.
func TestLogLeaves(t *testing.T) {
	l := New(Config{}, Opened{Suspects: 2, Gate: 10})
	l.Add(0, 1)
	l.Add(1, 2)
	if got := handAlone(t, l, t0); !slices.Equal(got, []int64{0}) {
		t.Fatalf("handed out %v, want 0", got)
	}
	l.Settle(0, Done, 1)
	l.Follow(t0)
	l.Leave()
	var r Request
	if l.Compose(0, false, l.Seq(), &r); r.Base != 1 || r.Alone != None {
		t.Errorf("base %d, alone %d; want the end of 0 and nothing alone", r.Base, r.Alone)
	}
}

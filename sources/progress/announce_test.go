package progress

import (
	"slices"
	"testing"
	"time"
)

// An announced task may be started, and nothing is said of it before it was read.
func TestLogAnnounces(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(Config{Window: 2}, Opened{Base: 5, Gate: 5, Writes: 1})
	if !l.Announce(5, 1) || l.Announced() != 5 || l.Read() != 5 {
		t.Fatalf("announced %d, read %d", l.Announced(), l.Read())
	}
	if got := l.Hand(now, 10, nil); !slices.Equal(got, []int64{5}) {
		t.Fatalf("handed out %v, want [5]", got)
	}
	seq := l.Settle(5, Done, 1)
	var r Request
	l.Compose(1, true, ^uint64(0), &r)
	if r.Base != 5 || len(r.Done) > 0 || r.Upto != 0 || r.Read != 5 || r.Fetch != 1 {
		t.Fatalf("before it is read it says %+v", r)
	}
	l.Apply(&r, Answer{Status: Admitted, Before: 5, Base: 5, Writes: 2, Gate: 6})
	l.Confirm()
	if l.Announced() != None || l.Read() != 6 {
		t.Fatalf("announced %d, read %d", l.Announced(), l.Read())
	}
	l.Compose(0, false, ^uint64(0), &r)
	if r.Base != 6 || r.Upto != seq {
		t.Fatalf("after it is read it says %+v", r)
	}
}

// A start that the store knows already stays known.
func TestLogAnnouncesBelowTheGate(t *testing.T) {
	l := New(Config{}, Opened{Base: 5, Gate: 9})
	l.Announce(5, 0)
	var r Request
	if l.Compose(0, false, ^uint64(0), &r); r.Gate != 9 {
		t.Errorf("starts are known below %d, want 9", r.Gate)
	}
}

// A window of one has room for what is announced, and for its reading.
func TestLogAnnouncesInAFullWindow(t *testing.T) {
	l := New(Config{Window: 1}, Opened{})
	if !l.Announce(0, 0) {
		t.Fatal("refused")
	}
	var r Request
	if l.Compose(1, true, ^uint64(0), &r); r.Fetch != 1 || len(r.Lift) > 0 {
		t.Fatalf("it reads %d and lifts %v", r.Fetch, r.Lift)
	}
	l.Confirm()
	if l.Announce(1, 0) {
		t.Fatal("there is no room for another")
	}
}

// Where the order of starts is not that of the log, nothing is announced.
func TestLogAnnouncesNothing(t *testing.T) {
	now := time.Unix(0, 0)
	for what, c := range map[string]struct {
		opened Opened
		before func(l *Log)
		pos    int64
	}{
		"it was read":               {Opened{}, func(l *Log) { l.Add(0, 0) }, 0},
		"it is not the next":        {Opened{}, func(*Log) {}, 1},
		"it was announced":          {Opened{}, func(l *Log) { l.Announce(0, 0) }, 0},
		"perhaps it ran":            {Opened{Suspects: 1}, func(*Log) {}, 0},
		"an earlier owner ended it": {Opened{Done: []int64{1}}, func(l *Log) { l.Add(0, 0) }, 1},
		"a suspect waits":           {Opened{Suspects: 1, Gate: 1}, func(l *Log) { l.Add(0, 0) }, 1},
		"a suspect is to be alone": {Opened{Suspects: 1, Gate: 1}, func(l *Log) {
			l.Add(0, 0)
			l.Hand(now, 1, nil)
		}, 1},
		"a suspect runs": {Opened{Suspects: 1, Gate: 1}, func(l *Log) {
			l.Add(0, 0)
			handAlone(t, l, now)
		}, 1},
	} {
		l := New(Config{}, c.opened)
		c.before(l)
		if l.Announce(c.pos, 0) {
			t.Errorf("%s, and it is announced", what)
		}
	}
}

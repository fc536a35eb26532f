package redissource

import (
	"testing"

	"github.com/countoff/countoff/partition/redistest"
)

// TestOneAccusedAtATime: of all partitions of a peer, one at a time runs a task that
// is accused of a crash. Were they alone side by side, each in its own partition, the
// one that kills the process would have the others charged with it, crash after
// crash, until they are dead letters too.
func TestOneAccusedAtATime(t *testing.T) {
	poison := newWorld(t, redistest.New(t), Config{Partitions: 2})
	innocent := *poison
	innocent.id, innocent.keys = 1, KeysOf(poison.name, 1)
	worlds := []*world{poison, &innocent}
	for _, w := range worlds {
		w.push("task", "next")
	}

	// Both run when the peer dies; both run alone, side by side, when the next dies.
	for range 2 {
		var open []*stream
		for _, w := range worlds {
			s := w.open()
			w.fetch(s, 1, "task")
			open = append(open, s)
		}
		for i, w := range worlds {
			w.crash(open[i])
		}
	}

	// Now both are charged with one crash. Only one of them runs alone from here on;
	// the other partition goes on with what is not accused of anything.
	first, second := poison.open(), innocent.open()
	task := poison.fetch(first, 1, "task")
	if task[0].Crashes != 1 {
		t.Fatalf("%d crashes, want 1", task[0].Crashes)
	}
	next := innocent.fetch(second, 1, "next")
	innocent.done(second, next...)
	innocent.nothing(second)
	if a := innocent.fence("a"); a != "" {
		t.Errorf("%s is recorded as alone beside another", a)
	}
	poison.crash(first)
	innocent.done(second, innocent.fetch(second, 1, "task")...)

	// The one that runs alone whenever a peer dies becomes a dead letter; the other
	// was charged once.
	poison.crash(poison.openAndFetch("task"))
	poison.fetch(poison.open(), 1, "next")
	if n := poison.client.LLen(t.Context(), poison.keys.Dead).Val(); n != 1 {
		t.Errorf("%d dead letters, want the one that ran alone three times", n)
	}
	if n := innocent.client.LLen(t.Context(), innocent.keys.Dead).Val(); n != 0 {
		t.Errorf("%d dead letters beside it, want none", n)
	}
}

// openAndFetch opens the partition and takes the task id, alone.
func (w *world) openAndFetch(id string) *stream {
	w.t.Helper()
	s := w.open()
	w.fetch(s, 1, id)
	return s
}

// A task that took its crashes along, as through a resize, is accused as well, before any is counted here.
func TestOneOfThoseThatCameAccusedAtATime(t *testing.T) {
	one := newWorld(t, redistest.New(t), Config{Partitions: 2})
	other := *one
	other.id, other.keys = 1, KeysOf(one.name, 1)
	for _, w := range []*world{one, &other} {
		e := envelope{born: w.born, id: "task", crashes: 1}
		if err := w.client.RPush(t.Context(), w.keys.Pending, appendEnvelope(nil, &e)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a, b := one.openAndFetch("task"), other.openAndFetch("task")
	one.crash(a)
	other.crash(b)
	first, second := one.open(), other.open()
	one.fetch(first, 1, "task")
	other.nothing(second)
	one.crash(first)
	other.done(second, other.fetch(second, 1, "task")...)
}

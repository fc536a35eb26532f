package redissource

import (
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

// What is decided by a read is read where it was written: a client that reads from
// replicas, since the program has other uses for it, has one that lags.
func TestNothingIsReadFromAReplicaThatLags(t *testing.T) {
	t.Run("a task that ended its peers", func(t *testing.T) {
		store, client := redistest.Lagging(t)
		w := newWorld(t, client, Config{})
		w.push("poison", "next")
		w.crash(w.openAndFetch("poison"))
		for range w.source.cfg.CrashLimit {
			w.crash(w.openAndFetch("poison"))
		}
		w.fetch(w.open(), 1, "next")
		if n := store.LLen(t.Context(), w.keys.Dead).Val(); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
	t.Run("the lines of an ingress", func(t *testing.T) {
		store, client := redistest.Lagging(t)
		b := newInbox(t, store, 4)
		b.push(inboxLine("ann", 0))
		if _, err := b.start(client, 1); err != nil {
			t.Fatal(err)
		}
		b.arrived(1)
	})
	t.Run("a task that is cancelled", func(t *testing.T) {
		_, client := redistest.Lagging(t)
		p := newProducer(t, client, redistest.Name(t), ProducerConfig{Partitions: 4})
		enqueue(t, p, Message{ID: "later", Delay: time.Hour})
		if n, err := p.Cancel(t.Context(), "", "later"); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("tasks that are delayed, of many of which some are looked for", func(t *testing.T) {
		_, client := redistest.Lagging(t)
		name := redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		enqueue(t, p, Message{ID: "later", Delay: time.Hour})
		found := 0
		if err := DelayedTasks(t.Context(), client, name, []partition.ID{0}, "", func(Delayed) bool { found++; return true }); found != 1 || err != nil {
			t.Errorf("%d, %v", found, err)
		}
	})
	t.Run("what a resize moves", func(t *testing.T) {
		store, client := redistest.Lagging(t)
		w := newCrowd(t, store, 4, 1)
		if _, err := Resize(t.Context(), client, w.name, 7, ResizeConfig{Idle: idle}); err != nil {
			t.Fatal(err)
		}
		w.check(7)
	})
}

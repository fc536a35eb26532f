package asynqsource

import (
	"errors"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// Peers and producers begin where the client reads from a replica that lags, and see what others
// have agreed on.
func TestWhatIsAgreedOnIsReadAtTheMaster(t *testing.T) {
	_, client := redistest.Lagging(t)
	name := redistest.Name(t)
	start := func(queues ...string) error {
		t.Helper()
		src, err := New(client, name, Config{Queues: queues})
		if err != nil {
			t.Fatal(err)
		}
		_, err = src.Layout(t.Context())
		return err
	}
	for range 2 {
		if err := start("a", "b"); err != nil {
			t.Fatal(err)
		}
	}
	if err := start("b", "a"); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("other queues than others have: %v", err)
	}
	if _, err := NewClient(t.Context(), client, name, ClientConfig{}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("a producer for queues with names of their own: %v", err)
	}
}

// The owner of an ingress sees there that the marks are of a greater epoch.
func TestMarksAreReadAtTheMaster(t *testing.T) {
	store, client := redistest.Lagging(t)
	name := redistest.Name(t)
	src, err := New(client, name, Config{Partitions: 2, Ingress: []string{"in"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.HSet(t.Context(), marksOf(QueueOf(name, 1)), "in", "9-1").Err(); err != nil {
		t.Fatal(err)
	}
	r := openUnit(t, src, 1)
	var fenced *sources.FencedError
	if err := r.underMarks(t.Context()); !errors.As(err, &fenced) || fenced.Stored != 9 {
		t.Errorf("its owner hears %v, want that 9 stands", err)
	}
}

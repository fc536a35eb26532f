package asynqsource

import (
	"errors"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
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

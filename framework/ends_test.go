package framework

import (
	"testing"
	"time"
)

// Who has heard enough says so where he hears it, and may hear of the next: that keeps no run
// from ending.
func TestEnoughWhereItIsHeard(t *testing.T) {
	var e ends
	var heard []string
	var enough func()
	enough = e.hear(func(error) {
		heard = append(heard, "first")
		enough()
		e.hear(func(error) { heard = append(heard, "second") })
	})
	told := make(chan struct{})
	go func() {
		defer close(told)
		e.tell(nil)
		e.tell(nil)
	}()
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Fatal("whoever has enough waits for himself")
	}
	if len(heard) != 2 || heard[0] != "first" || heard[1] != "second" {
		t.Errorf("heard %q, want the first by the first and the second by the second", heard)
	}
}

package framework

import (
	"testing"
	"time"
)

// Several hear of each end, and who has heard enough takes nothing from the others.
func TestSeveralHearOfAnEnd(t *testing.T) {
	var e ends
	var first, second int
	enough := e.hear(func(error) { first++ })
	e.hear(func(error) { second++ })
	e.tell(nil)
	enough()
	e.tell(nil)
	if first != 1 || second != 2 {
		t.Errorf("the first heard %d, want 1, the second %d, want 2", first, second)
	}
}

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

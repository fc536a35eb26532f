package meter

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

func TestPayloadCarriesItsNumber(t *testing.T) {
	for _, n := range []int{0, 7, 1_234_567, 9_999_999_999} {
		p := Payload(n)
		if len(p) != PayloadSize || !json.Valid(p) {
			t.Fatalf("%d bytes: %s", len(p), p)
		}
		if got, err := index(p); err != nil || got != n {
			t.Errorf("%d: got %d, %v", n, got, err)
		}
		if got, err := index(string(p)); err != nil || got != n {
			t.Errorf("%d as a string: got %d, %v", n, got, err)
		}
	}
	for _, p := range []string{"", "x", strings.Repeat("x", PayloadSize), strings.Replace(string(Payload(1)), "01", "x1", 1)} {
		if _, err := index(p); err == nil {
			t.Errorf("%q passed", p)
		}
	}
}

func TestEachTaskOnce(t *testing.T) {
	const n = 1000
	m := New(n)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := g; i < n; i += 4 {
				m.Saw(Payload(i))
			}
		})
	}
	wg.Wait()
	<-m.Began()
	<-m.Ended()
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if s := m.Span(); s.Tasks != n || s.Took <= 0 || s.Allocs == 0 || s.Bytes == 0 {
		t.Errorf("span %+v", s)
	}
	m.SawString(string(Payload(5)))
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "1 times a task was handled again") {
		t.Errorf("a task that was handled twice: %v", err)
	}
}

func TestWhatIsMissingOrStrangeIsFound(t *testing.T) {
	m := New(3)
	m.Saw(Payload(0))
	m.Saw(Payload(3)) // there is no such task
	err := m.Check()
	if err == nil || !strings.Contains(err.Error(), "2 of 3 tasks were not handled") || !strings.Contains(err.Error(), "something else") {
		t.Errorf("got %v", err)
	}
	select {
	case <-m.Ended():
		t.Error("it ended")
	default:
	}
}

func TestASpanThatBeginsByItself(t *testing.T) {
	m := New(5)
	m.Start()
	m.Count(2)
	if err := m.Check(); err == nil {
		t.Error("two of five passed")
	}
	m.Count(3)
	<-m.Ended()
	if err := m.Check(); err != nil {
		t.Error(err)
	}
}

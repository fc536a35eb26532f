package meter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// quiet is a store that has done nothing.
func quiet() (Answer, error) { return "used_cpu_sys:0.5\r\nused_cpu_user:1.5\r\n", nil }

func TestPayloadCarriesItsNumber(t *testing.T) {
	for _, n := range []int{0, 7, 1_234_567, 9_999_999_999} {
		p := Payload(n)
		if len(p) != payloadSize || !json.Valid(p) {
			t.Fatalf("%d bytes: %s", len(p), p)
		}
		if got, err := index(p); err != nil || got != n {
			t.Errorf("%d: got %d, %v", n, got, err)
		}
		if got, err := index(string(p)); err != nil || got != n {
			t.Errorf("%d as a string: got %d, %v", n, got, err)
		}
	}
	for _, p := range []string{"", "x", strings.Repeat("x", payloadSize), strings.Replace(string(Payload(1)), "01", "x1", 1)} {
		if _, err := index(p); err == nil {
			t.Errorf("%q passed", p)
		}
	}
}

func TestEachTaskOnce(t *testing.T) {
	const n = 1000
	m := New(n, quiet)
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
	if s, err := m.Span(); err != nil || s.Tasks != n || s.Took <= 0 || s.Allocs == 0 || s.Bytes == 0 {
		t.Errorf("span %+v, %v", s, err)
	}
	m.SawString(string(Payload(5)))
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "1 times a task was handled again") {
		t.Errorf("a task that was handled twice: %v", err)
	}
}

func TestWhatIsMissingOrStrangeIsFound(t *testing.T) {
	m := New(3, quiet)
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
	m := New(5, quiet)
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

// What a store does for a task before it is handled, and after it, is in the span from the
// first task to the last; what it does once the last was handled is not.
func TestTheStoreIsAskedAtBothEnds(t *testing.T) {
	commands := 0
	var m *Meter
	m = New(100, func() (Answer, error) {
		select {
		case <-m.Ended():
			t.Error("asked when it was known that it has ended")
		default:
		}
		return Answer(fmt.Sprintf("# CPU\r\nused_cpu_sys:%d\r\nused_cpu_user:0\r\n\r\n# Commandstats\r\ncmdstat_info:calls=%[1]d,usec=1,\r\n"+
			"cmdstat_config|get:calls=1,usec=9,\r\ncmdstat_lmove:calls=%[1]d,usec=%d,usec_per_call=3\r\n", commands, 3*commands)), nil
	})
	for i := range 100 {
		commands++ // to fetch it
		m.Saw(Payload(i))
		commands++ // to settle it
	}
	commands += 1000 // of what goes on until it stops
	span, err := m.Span()
	if err != nil || len(span.Store.Calls) != 1 || span.Store.Calls["lmove"] != 198 || span.Store.Micros["lmove"] != 3*198 || span.Store.CPU != 198*time.Second {
		t.Errorf("%+v, %v", span.Store, err)
	}
}

// The task that is first may be the last one to be through with the look at the store.
func TestTheLastTaskWaitsForTheFirst(t *testing.T) {
	asked, answer := make(chan bool, 2), make(chan bool)
	m := New(2, func() (Answer, error) {
		asked <- true
		<-answer
		return quiet()
	})
	var wg sync.WaitGroup
	wg.Go(func() { m.Saw(Payload(0)) })
	<-asked
	wg.Go(func() { m.Saw(Payload(1)) })
	answer <- true
	<-m.Began()
	<-asked
	answer <- true
	<-m.Ended()
	if span, err := m.Span(); err != nil || span.Took <= 0 {
		t.Errorf("%+v, %v", span, err)
	}
	wg.Wait()
}

func TestAStoreThatDoesNotAnswer(t *testing.T) {
	for want, look := range map[string]Look{
		"gone":                 func() (Answer, error) { return "", errors.New("gone") },
		"what it used":         func() (Answer, error) { return "", nil },
		"cmdstat_get:calls=x,": func() (Answer, error) { return "cmdstat_get:calls=x,usec=1\r\n", nil },
	} {
		m := New(1, look)
		m.Saw(Payload(0))
		if _, err := m.Span(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

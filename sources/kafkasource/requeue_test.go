package kafkasource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// Dead letters that are requeued come again in their order, as the tasks that they
// were, and once.
func TestRequeue(t *testing.T) {
	s := newStage(t, 2)
	src := s.source(Config{})
	var died []sources.Task
	for id, key := range []string{"ann", "bob"} {
		st := s.open(src, partition.ID(id))
		s.push(partition.ID(id), key, 5, key)
		got := s.take(st, 5)
		s.settle(st, sources.Done, got[4])
		s.settle(st, sources.Dead, got[:4]...)
		died = append(died, got[:4]...)
		s.close(st)
	}
	requeue := func(want int) {
		t.Helper()
		n, err := Requeue(s.soon(), Config{Topic: s.topic, Options: s.broker.Options()}, func(r *kgo.Record) bool { return string(r.Value) != "bob1" })
		if err != nil || n != want {
			t.Fatalf("requeued %d, %v, want %d", n, err, want)
		}
	}
	requeue(7)
	requeue(0)
	var back []sources.Task
	for id, n := range []int{4, 3} {
		back = append(back, s.take(s.open(src, partition.ID(id)), n)...)
	}
	died = append(died[:5:5], died[6:]...) // bob1 stays dead
	for i, was := range died {
		is := back[i]
		if string(is.Payload) != string(was.Payload) || is.Key != was.Key || is.ID != was.ID || is.Attempt != 1 || fmt.Sprint(is.Headers) != fmt.Sprint(was.Headers) {
			t.Errorf("%d: %s of %s came back as %+v", i, was.Payload, was.Key, is)
		}
	}
}

// Dead letters are listed until they were requeued or dropped.
func TestDeadLetters(t *testing.T) {
	s := newStage(t, 2)
	cfg := Config{Topic: s.topic, Options: s.broker.Options()}
	list := func(most int) string {
		t.Helper()
		var values []string
		err := DeadLetters(s.soon(), cfg, func(r *kgo.Record) bool {
			values = append(values, string(r.Value))
			return len(values) < most
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(values, " ")
	}
	if got := list(9); got != "" {
		t.Errorf("without a dead topic there is %q", got)
	}
	st := s.open(s.source(Config{}), 1)
	die := func(n int) {
		s.push(1, "t", n)
		s.settle(st, sources.Dead, s.take(st, n)...)
	}
	die(3)
	if got := list(9); got != "t0 t1 t2" {
		t.Errorf("listed %q", got)
	}
	if got := list(2); got != "t0 t1" {
		t.Errorf("listed %q, two were wanted", got)
	}
	if n, err := Drop(s.soon(), cfg); n != 3 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	die(1)
	if got := list(9); got != "t0" {
		t.Errorf("after the drop there is %q", got)
	}
	if n, err := Requeue(s.soon(), cfg, nil); n != 1 || err != nil {
		t.Errorf("requeued %d, %v", n, err)
	}
	if got := list(9); got != "" {
		t.Errorf("after the requeue there is %q", got)
	}
}

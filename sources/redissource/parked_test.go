package redissource

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/countoff/countoff/partition/redistest"
)

// What a dead owner may have started is a suspect for the next one, who runs it alone: it runs
// only once that is written down.
func TestTriedOfASuspect(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	over, end := context.WithCancel(ctx)
	end()
	p, err := NewProducer(ctx, client, name, ProducerConfig{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(ctx)
	if _, err := p.Enqueue(ctx, Message{ID: "a"}, Message{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	want := func(what string, started, suspect bool) {
		t.Helper()
		got, err := TriedOf(ctx, client, name, 0, 1)
		if err != nil || got.Started != started || got.Suspect != suspect {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	want("nobody has opened it", false, false)
	first := opened(t, client, name, 1)
	if _, err := first.Fetch(ctx, 2); err != nil {
		t.Fatal(err)
	}
	want("its owner has it", true, false)
	_ = first.Close(over)
	second := opened(t, client, name, 2)
	defer func() { _ = second.Close(over) }()
	want("the next owner has it", false, true)
	fence := KeysOf(name, 0).Fence
	client.HSet(ctx, fence, "a", "0")
	want("another runs alone", false, true)
	client.HSet(ctx, fence, "a", "1")
	want("it runs alone", true, true)
	client.HSet(ctx, fence, "s", "x")
	if _, err := TriedOf(ctx, client, name, 0, 1); err == nil {
		t.Error("a fence that nobody could read is no error")
	}
}

// When a task runs again is the store's time, and the machine of who asks may have another: past there, it is
// not past yet where the task waits.
func TestTriedOfAStoreThatIsBehind(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	due := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	client.HSet(ctx, KeysOf(name, 0).Tries, "1", fmt.Sprintf("2 0 %d broken", due.UnixMilli()), "2", "2 0 0 broken")
	for position, want := range map[int64]time.Time{1: due, 2: {}} {
		got, err := TriedOf(ctx, client, name, 0, position)
		if err != nil || got.Tries != 2 || !got.NotBefore.Equal(want) {
			t.Errorf("position %d: %+v, %v, want not before %v", position, got, err, want)
		}
	}
}

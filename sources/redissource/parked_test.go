package redissource

import (
	"context"
	"testing"

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

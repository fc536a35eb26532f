package queue_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/countoff/countoff/examples/mail-sender/mail"
	"github.com/countoff/countoff/examples/mail-sender/queue"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
)

func TestGenerate(t *testing.T) {
	collect := func(seed uint64) (keys []string) {
		for m, err := range queue.Generate(100, 5, seed) {
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, m.Key()+" "+m.Subject)
		}
		return keys
	}
	a, b, c := collect(1), collect(1), collect(2)
	if len(a) != 100 || strings.Join(a, ",") != strings.Join(b, ",") || strings.Join(a, ",") == strings.Join(c, ",") {
		t.Error("a seed gives one order and another seed another")
	}
}

func TestEnqueueFile(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	p, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	file := strings.Join([]string{
		`{"to":"ann@example.com","text":"1","id":"a"}`,
		``,
		`{"to":"nobody","text":"2"}`,
		`{"to":"ann@example.com","text":"3","id":"a"}`,
		`{"to":"bob@example.com","text":"4"}`,
	}, "\n")
	var refused []string
	report, err := queue.Enqueue(t.Context(), p, queue.Lines(strings.NewReader(file)), func(err error) { refused = append(refused, err.Error()) }, func(queue.Report) {})
	if err != nil {
		t.Fatal(err)
	}
	if want := (queue.Report{Enqueued: 2, Duplicates: 1, Refused: 1}); report != want {
		t.Errorf("%+v, want %+v", report, want)
	}
	if len(refused) != 1 || !strings.HasPrefix(refused[0], "line 3:") {
		t.Errorf("refused %q", refused)
	}
	open := 0
	for id := range partition.ID(4) {
		queued, err := redissource.Peek(t.Context(), client, name, id, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queued {
			open++
			if q.Type != mail.Type || partition.Of(q.Key, 4) != id {
				t.Errorf("partition %v: %+v", id, q)
			}
		}
	}
	if open != 2 {
		t.Errorf("%d tasks in the store", open)
	}
}

func TestLinesEndsWithTheReader(t *testing.T) {
	broken := errors.New("the disk is gone")
	for _, err := range queue.Lines(failing{broken}) {
		if !errors.Is(err, broken) {
			t.Error(err)
		}
		return
	}
	t.Error("no error")
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

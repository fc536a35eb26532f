package queue_test

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

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

// More recipients than there is room for are no panic: only those that get a mail take any.
func TestGenerateForAnyNumberOfRecipients(t *testing.T) {
	n := 0
	for m, err := range queue.Generate(3, math.MaxInt, 1) {
		if err != nil || m.Validate() != nil {
			t.Errorf("%+v: %v", m, err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d mails, want 3", n)
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

// A mail is sent when it has come: who writes the next line may wait for that.
func TestALineWaitsForNoOther(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	p, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	out, in := io.Pipe()
	sent := make(chan queue.Report, 10)
	ended := make(chan error, 1)
	go func() {
		_, err := queue.Enqueue(t.Context(), p, queue.Lines(out), func(error) {}, func(r queue.Report) { sent <- r })
		ended <- err
	}()
	for n := range 3 {
		if _, err := io.WriteString(in, `{"to":"ann@example.com","text":"1"}`+"\n\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-sent:
			if r.Enqueued != n+1 {
				t.Errorf("%+v after line %d", r, n)
			}
		case <-time.After(30 * time.Second):
			t.Error("a mail waits for the next one")
			in.Close()
			<-ended
			return
		}
	}
	in.Close()
	if err := <-ended; err != nil || len(sent) > 0 {
		t.Errorf("%v, and %d batches more", err, len(sent))
	}
}

// Lines that are there travel together.
func TestLinesTravelTogether(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	p, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	lines := strings.Repeat(`{"to":"ann@example.com","text":"1"}`+"\n", 1200)
	batches := 0
	if _, err := queue.Enqueue(t.Context(), p, queue.Lines(strings.NewReader(lines)), func(error) {}, func(queue.Report) { batches++ }); err != nil {
		t.Fatal(err)
	}
	if batches != 3 {
		t.Errorf("%d batches, want 3", batches)
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

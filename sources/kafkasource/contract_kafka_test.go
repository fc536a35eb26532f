package kafkasource

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/kafkaprogress"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/sourcetest"
)

// wire is the way of one peer to a store: a sourcetest.Line says what becomes of a call.
type wire struct {
	sourcetest.Line
	Store

	mu   sync.Mutex // held over a call: one that comes late does not overlap another
	base map[partition.ID]int64
}

var errWire = errors.New("the wire is cut")

// say makes a call. One that comes late is made when its sender has long gone on.
func (w *wire) say(ctx context.Context, call func(ctx context.Context) error, op sourcetest.Op) error {
	var mu sync.Mutex
	var err error
	over := false // the sender is
	injected := w.DoContext(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		e := call(context.Background())
		mu.Lock()
		defer mu.Unlock()
		if !over {
			err = e
		}
	}, op)
	mu.Lock()
	defer mu.Unlock()
	over = true
	if errors.Is(injected, sourcetest.ErrKilled) {
		return errWire
	}
	return errors.Join(injected, err)
}

func (w *wire) Open(ctx context.Context, g partition.Grant, tok partition.Token, begin int64) (f progress.Found, err error) {
	err = w.say(ctx, func(ctx context.Context) error {
		found, err := w.Store.Open(ctx, g, tok, begin)
		f = found
		return err
	}, sourcetest.Open)
	return f, flat(err)
}

func (w *wire) Settle(ctx context.Context, g partition.Grant, tok partition.Token, r *progress.Request, content []progress.Content) (a progress.Answer, err error) {
	said := *r
	said.Done, said.Others, said.Lift = slices.Clone(r.Done), slices.Clone(r.Others), slices.Clone(r.Lift)
	content = slices.Clone(content)
	w.mu.Lock()
	op := sourcetest.Fetch
	if last, ok := w.base[g.ID]; ok && last != r.Base || len(r.Done)+len(r.Others) > 0 {
		op = sourcetest.Settle
	}
	w.base[g.ID] = r.Base
	w.mu.Unlock()
	answers := make(chan progress.Answer, 1)
	err = w.say(ctx, func(ctx context.Context) error {
		a, err := w.Store.Settle(ctx, g, tok, &said, content)
		answers <- a
		return err
	}, op)
	if err == nil {
		a = <-answers
	}
	return a, flat(err)
}

func (w *wire) Close(ctx context.Context, g partition.Grant, tok partition.Token) error {
	return flat(w.say(ctx, func(ctx context.Context) error { return w.Store.Close(ctx, g, tok) }, sourcetest.Close))
}

// flat takes an error out of a join of one.
func flat(err error) error {
	if fenced, ok := errors.AsType[*sources.FencedError](err); ok {
		return fenced
	}
	return err
}

// contractInKafka makes a topic, and peers that keep the progress in a group.
func contractInKafka(t *testing.T) sourcetest.Harness {
	h := contract(t)
	broker := kafkatest.New(t)
	topic := broker.Topic(4)
	producer := broker.Client()
	name := newName(t)
	h.Peer = func() sourcetest.Peer {
		store, err := kafkaprogress.NewStore(name, kafkaprogress.Config{Topic: topic, Options: broker.Options()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Disconnect() })
		w := &wire{Store: store, base: make(map[partition.ID]int64)}
		s, err := New(name, w, Config{Topic: topic, Options: broker.Options(), Buried: h.Buried.Tell})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return sourcetest.Peer{Source: s, Inject: w.Inject, Kill: w.Kill}
	}
	h.Push = func(ctx context.Context, id partition.ID, tasks ...sources.Task) error {
		for _, t := range tasks {
			if err := producer.ProduceSync(ctx, record(topic, id, t)).FirstErr(); err != nil {
				return err
			}
		}
		return nil
	}
	h.Dead = func(ctx context.Context, id partition.ID) ([]sourcetest.DeadLetter, error) {
		return deadLetters(ctx, broker, topic+".dead", id)
	}
	// A group that lost something has it again when its owner next speaks: that is not the
	// store that forgot, and a lost settlement is not handled again.
	h.Snapshot = nil
	h.Patience = 20 * time.Second
	return h
}

func TestContractInKafka(t *testing.T) { sourcetest.Run(t, contractInKafka) }

package framework_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

type fleet struct {
	t      *testing.T
	store  *memsource.Store
	ledger *memledger.Ledger
	layout partition.Config

	mu     sync.Mutex
	events map[string][]framework.Event // by peer
	runs   map[string][]string          // by key: the ids, in the order they began
	busy   map[string]string            // by key: who runs it
}

func newFleet(t *testing.T, partitions int) *fleet {
	t.Helper()
	layout := partition.Config{Total: partitions}
	store, err := memsource.New(memsource.Config{Partitions: layout})
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{
		t: t, store: store, layout: layout,
		ledger: memledger.New(layout, transition.Timing{}, memledger.Options{}),
		events: map[string][]framework.Event{}, runs: map[string][]string{}, busy: map[string]string{},
	}
}

func (f *fleet) handler(peer string, d time.Duration) framework.Handler {
	return framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
		f.mu.Lock()
		if other := f.busy[task.Key]; other != "" {
			f.t.Errorf("%s and %s handle key %s at once", peer, other, task.Key)
		}
		f.busy[task.Key] = peer
		f.runs[task.Key] = append(f.runs[task.Key], task.ID)
		f.mu.Unlock()
		time.Sleep(d)
		f.mu.Lock()
		f.busy[task.Key] = ""
		f.mu.Unlock()
		return ctx.Err()
	})
}

func (f *fleet) consumer(peer string, h framework.Handler, opts ...framework.Option) *framework.Consumer {
	f.t.Helper()
	opts = append([]framework.Option{
		framework.WithLedger(f.ledger),
		framework.WithPeer(peer, 1),
		framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.events[peer] = append(f.events[peer], e)
		})),
	}, opts...)
	c, err := framework.New("test", f.store, h, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func eventsOf[E framework.Event](f *fleet, peer string) []E {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []E
	for _, e := range f.events[peer] {
		if e, ok := e.(E); ok {
			all = append(all, e)
		}
	}
	return all
}

func (f *fleet) push(n, keys int) map[string][]string {
	f.t.Helper()
	want := map[string][]string{}
	for i := range n {
		task := sources.Task{ID: fmt.Sprint(i), Key: fmt.Sprintf("key%d", i%keys)}
		want[task.Key] = append(want[task.Key], task.ID)
		if err := f.store.Push(task); err != nil {
			f.t.Fatal(err)
		}
	}
	return want
}

func (f *fleet) open() int {
	n := 0
	for i := range f.layout.Total {
		open, delayed := f.store.Pending(partition.ID(i))
		n += open + delayed
	}
	return n
}

func until(t *testing.T, d time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came to it")
		}
	}
}

func (f *fleet) checkOnceInOrder(want map[string][]string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, ids := range want {
		if !slices.Equal(f.runs[key], ids) {
			f.t.Errorf("key %s ran %v, want %v", key, f.runs[key], ids)
		}
	}
}

type cutLedger struct {
	transition.Ledger
	off atomic.Bool
}

func (l *cutLedger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	if l.off.Load() {
		return transition.Answer{}, errors.New("connection refused")
	}
	return l.Ledger.Sync(ctx, r)
}

type downSource struct {
	sources.Source
	mu       sync.Mutex
	err      error
	unopened error
}

func (d *downSource) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	d.mu.Lock()
	err := d.unopened
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return d.Source.Open(ctx, g, tok)
}

func (d *downSource) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *downSource) Layout(ctx context.Context) (partition.Config, error) {
	d.mu.Lock()
	err := d.err
	d.mu.Unlock()
	if err != nil {
		return partition.Config{}, err
	}
	return d.Source.Layout(ctx)
}

package asynqsource

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// waitFor is how long one BLMOVE blocks. A connection that has not answered waitLate after
	// that died in silence; go-redis would give it 10 s.
	waitFor  = 5 * time.Second
	waitLate = 2 * time.Second
	// glanceEvery is how often an empty queue is looked at that has no connection to
	// wait on.
	glanceEvery = 500 * time.Millisecond
)

// A waiter rings for its stream when something comes into an empty queue, whoever has
// put it there: it blocks in a BLMOVE of the tail of pending onto itself, on a
// connection of its own, which Close cuts. A source has so many connections for this
// as Config.Connections says; beyond that a waiter looks now and then.
type waiter struct {
	source *Source
	stream *stream
	kick   chan struct{}
	quit   chan struct{}

	mu     sync.Mutex
	wanted bool
	client *redis.Client // nil while it has no connection
}

func newWaiter(src *Source, s *stream) *waiter {
	return &waiter{source: src, stream: s, kick: make(chan struct{}, 1), quit: make(chan struct{})}
}

// idle says whether the stream waits for its queue to grow.
func (w *waiter) idle(yes bool) {
	w.mu.Lock()
	changed := yes != w.wanted
	w.wanted = yes
	w.mu.Unlock()
	if changed && yes {
		poke(w.kick)
	}
}

func (w *waiter) wants() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wanted
}

// close ends it, whatever it does.
func (w *waiter) close() {
	close(w.quit)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client != nil {
		w.client.Close()
	}
}

// closed reports whether close was called.
func (w *waiter) closed() bool {
	select {
	case <-w.quit:
		return true
	default:
		return false
	}
}

// run waits and rings until close.
func (w *waiter) run(ctx context.Context) {
	defer w.hangUp()
	for {
		select {
		case <-w.kick:
		case <-w.quit:
			return
		}
		for w.wants() {
			if !w.wait(ctx) {
				return
			}
		}
	}
}

// wait waits once, and reports whether to go on.
func (w *waiter) wait(ctx context.Context) bool {
	pending := w.stream.keys.pending
	if client := w.connect(ctx); client != nil {
		late := time.AfterFunc(waitFor+waitLate, func() { client.Close() })
		err := client.BLMove(ctx, pending, pending, "RIGHT", "RIGHT", waitFor).Err()
		late.Stop()
		if err == nil {
			w.ring()
		}
		if err == nil || errors.Is(err, redis.Nil) {
			return true
		}
		w.hangUp() // perhaps the queue is on another server now
		if w.closed() {
			return false
		}
	}
	if n, err := w.source.client.Exists(ctx, pending).Result(); err == nil && n > 0 {
		w.ring()
		return true
	}
	t := time.NewTimer(glanceEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.quit:
		return false
	}
}

// ring tells the stream that there is something, and waits no more until it is told to.
func (w *waiter) ring() {
	w.idle(false)
	w.stream.ring()
}

// connect returns the connection to wait on, or nil if there is none to be had.
func (w *waiter) connect(ctx context.Context) *redis.Client {
	w.mu.Lock()
	client := w.client
	w.mu.Unlock()
	if client != nil {
		return client
	}
	options := w.source.options(ctx, w.stream.keys.pending)
	if options == nil || !w.source.connection(1) {
		return nil
	}
	options.MaxRetries, options.ConnMaxIdleTime = -1, -1 // the pool does not count a wait as use
	client = redis.NewClient(options)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed() { // close has not seen it
		client.Close()
	}
	w.client = client
	return client
}

// hangUp gives the connection back.
func (w *waiter) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client != nil {
		w.client.Close()
		w.client = nil
		w.source.connection(-1)
	}
}

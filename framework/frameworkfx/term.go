package frameworkfx

import (
	"context"
	"sync"
	"time"
)

// A term is a context that ends when its time is over, which may be put off before.
type term struct {
	done chan struct{}

	mu    sync.Mutex
	until time.Time
	timer *time.Timer
	err   error // once it has ended
}

func newTerm(d time.Duration) *term {
	t := &term{done: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until, t.timer = time.Now().Add(d), time.AfterFunc(d, t.over)
	return t
}

// putOff gives t so much time from now on, and reports whether it did: not if it has ended.
func (t *term) putOff(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return false
	}
	t.until = time.Now().Add(d)
	t.timer.Reset(d)
	return true
}

// over ends t unless that was put off in this moment.
func (t *term) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !time.Now().Before(t.until) {
		t.end(context.DeadlineExceeded)
	}
}

// cancel ends t: nobody needs it any more.
func (t *term) cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(context.Canceled)
}

// end ends t with err. The caller holds mu.
func (t *term) end(err error) {
	if t.err == nil {
		t.err = err
		t.timer.Stop()
		close(t.done)
	}
}

func (t *term) Deadline() (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until, true
}

func (t *term) Done() <-chan struct{} { return t.done }

func (t *term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *term) Value(any) any { return nil }

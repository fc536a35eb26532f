package sourcetest

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrInjected is what the sender of a request gets that suffers a fault.
var ErrInjected = errors.New("injected fault")

// ErrKilled is what the calls of a killed peer return.
var ErrKilled = errors.New("the peer was killed")

// A Line carries out faults for a peer whose requests can be wrapped: the harness
// sends every request through [Line.Do] and offers [Line.Inject] and [Line.Kill].
// The zero value is a line without faults; it may be used concurrently.
type Line struct {
	mu     sync.Mutex
	faults []*fault
	killed bool
}

type fault struct {
	op      Op
	kind    Kind
	mu      sync.Mutex
	hit     bool
	execute func()        // of a late request
	let     chan struct{} // closed when a hung request is let go
	gone    sync.Once     // it was
}

// Inject makes the next request for op suffer kind.
func (l *Line) Inject(op Op, kind Kind) Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &fault{op: op, kind: kind, let: make(chan struct{})}
	l.faults = append(l.faults, f)
	return f
}

// Kill lets nothing through any more.
func (l *Line) Kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = true
}

// Do executes a request that is for each of ops, unless a fault says otherwise. A
// late one is executed by another goroutine, when its sender has long gone on and its
// context has ended, even if the peer was killed since: then execute must not depend on that
// context nor on what the sender does with the request. See the example.
//
// None of its requests hangs: see [Line.DoContext].
func (l *Line) Do(execute func(), ops ...Op) error {
	return l.do(context.Background(), execute, func(f *fault) bool { return f.kind != Hung && slices.Contains(ops, f.op) })
}

// DoContext is Do of a request whose sender gives it up when ctx ends. One that hangs returns then, or when its
// fault is released.
func (l *Line) DoContext(ctx context.Context, execute func(), ops ...Op) error {
	return l.do(ctx, execute, func(f *fault) bool { return slices.Contains(ops, f.op) })
}

func (l *Line) do(ctx context.Context, execute func(), of func(*fault) bool) error {
	l.mu.Lock()
	if l.killed {
		l.mu.Unlock()
		return ErrKilled
	}
	var f *fault
	if i := slices.IndexFunc(l.faults, of); i >= 0 {
		f = l.faults[i]
		l.faults = slices.Delete(l.faults, i, i+1)
	}
	l.mu.Unlock()
	if f == nil {
		execute()
		return nil
	}
	if f.kind == Lost {
		execute()
	}
	f.mu.Lock()
	f.hit = true
	if f.kind == Late {
		f.execute = execute
	}
	f.mu.Unlock()
	if f.kind == Hung {
		select {
		case <-f.let:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ErrInjected
}

func (f *fault) Hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

func (f *fault) Release() {
	f.gone.Do(func() { close(f.let) })
	f.mu.Lock()
	execute := f.execute
	f.execute = nil
	f.mu.Unlock()
	if execute != nil {
		execute()
	}
}

package sourcetest

import (
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
	execute func() // of a late request
}

// Inject makes the next request for op suffer kind.
func (l *Line) Inject(op Op, kind Kind) Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &fault{op: op, kind: kind}
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
func (l *Line) Do(execute func(), ops ...Op) error {
	l.mu.Lock()
	if l.killed {
		l.mu.Unlock()
		return ErrKilled
	}
	var f *fault
	if i := slices.IndexFunc(l.faults, func(f *fault) bool { return slices.Contains(ops, f.op) }); i >= 0 {
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
	defer f.mu.Unlock()
	f.hit = true
	if f.kind == Late {
		f.execute = execute
	}
	return ErrInjected
}

func (f *fault) Hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

func (f *fault) Release() {
	f.mu.Lock()
	execute := f.execute
	f.execute = nil
	f.mu.Unlock()
	if execute != nil {
		execute()
	}
}

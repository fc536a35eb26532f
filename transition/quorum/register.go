package quorum

import (
	"context"
	"errors"
	"sync"
)

// Most is the largest number a register can hold: those above are not exact in every
// store.
const Most = 1<<53 - 1

// ErrEmpty says that a register holds no number: it was never set up, or its store has
// lost its memory. It counts as one that does not answer until [Counter.Admit].
var ErrEmpty = errors.New("quorum: the register is empty: it was never set up, or has lost its memory")

// A Register is one store's number. Its methods may be called concurrently. What fails
// may have been carried out.
type Register interface {
	// Raise sets the number to n if it is less, and returns what it was before:
	// it was raised if that is less than n. Raise(ctx, 0) only reads. It returns
	// ErrEmpty, and sets nothing, if there is no number.
	Raise(ctx context.Context, n uint64) (before uint64, err error)
	// Admit sets the number to n if there is none, or a smaller one.
	Admit(ctx context.Context, n uint64) error
	// String says where the register is, for people. It shows no password.
	String() string
}

// Memory is a register in this process, for tests and demonstrations. The zero value is
// empty.
type Memory struct {
	mu  sync.Mutex
	n   uint64
	set bool
}

// Raise implements [Register].
func (m *Memory) Raise(ctx context.Context, n uint64) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.set {
		return 0, ErrEmpty
	}
	before := m.n
	m.n = max(m.n, n)
	return before, nil
}

// Admit implements [Register].
func (m *Memory) Admit(ctx context.Context, n uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n, m.set = max(m.n, n), true
	return nil
}

// Forget empties the register.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n, m.set = 0, false
}

func (m *Memory) String() string { return "memory" }

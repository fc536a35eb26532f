package intervalindexer

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// A Counter is all that the algorithm asks of a store. Its methods must be safe for
// concurrent use. A call whose context has ended must fail without being sent; any
// other that fails may have been carried out. Package countertest is for tests of one.
type Counter interface {
	// Incr adds one to key and returns what it is then: 1 if it was not there. The
	// key is to vanish expiry after its last Incr.
	Incr(ctx context.Context, key string, expiry time.Duration) (int64, error)
	// Get returns the values of keys, 0 for those that are not there. What was counted a
	// moment ago may be missing, as from a replica: peers ask of the interval before.
	Get(ctx context.Context, keys ...string) ([]int64, error)
}

// The keys of an interval: how many came, and who has which index. The braces are a
// cluster's hash tag and are in the key.
func countKey(name string, number uint64) string {
	return "{" + name + "}:" + strconv.FormatUint(number, 10)
}

func indexKey(name string, number uint64, index int) string {
	return countKey(name, number) + ":" + strconv.Itoa(index)
}

// Memory is a Counter for the peers of one process, as in tests and demonstrations.
// The zero value is ready.
type Memory struct {
	mu     sync.Mutex
	counts map[string]count
	sweep  time.Time // when to look for what has expired
}

type count struct {
	value int64
	until time.Time
}

// Incr implements [Counter].
func (m *Memory) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.counts == nil {
		m.counts = map[string]count{}
	}
	if now.After(m.sweep) {
		for k, c := range m.counts {
			if now.After(c.until) {
				delete(m.counts, k)
			}
		}
		m.sweep = now.Add(expiry)
	}
	c := count{value: m.value(key, now) + 1, until: now.Add(expiry)}
	m.counts[key] = c
	return c.value, nil
}

// Get implements [Counter].
func (m *Memory) Get(ctx context.Context, keys ...string) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	values := make([]int64, len(keys))
	for i, k := range keys {
		values[i] = m.value(k, now)
	}
	return values, nil
}

func (m *Memory) value(key string, now time.Time) int64 {
	if c, ok := m.counts[key]; ok && !now.After(c.until) {
		return c.value
	}
	return 0
}

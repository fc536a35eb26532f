package etcdledger

import (
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A snapshot is what stood under a name at one revision.
type snapshot struct {
	cluster  uint64
	revision int64
	values   map[string]string
	mods     map[string]int64 // revision of the last change of a key; 0: it is not there, whatever its value is known to be
	// setBack: etcd shows an older state than was seen before, which it does only after its
	// data were replaced by older ones.
	setBack bool
}

func newSnapshot(h *pb.ResponseHeader) *snapshot {
	return &snapshot{cluster: h.ClusterId, revision: h.Revision, values: make(map[string]string), mods: make(map[string]int64)}
}

// add takes in what a range of keys below prefix found.
func (s *snapshot) add(prefix string, kvs []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		key := strings.TrimPrefix(string(kv.Key), prefix)
		s.values[key], s.mods[key] = string(kv.Value), kv.ModRevision
	}
}

// half reports whether a part of what never lacks does, and more than the configuration is left.
func (s *snapshot) half() bool {
	lacks := func(key string) bool { _, known := s.values[key]; return !known }
	return slices.ContainsFunc(whole, lacks) && (len(s.values) > 1 || len(s.values) == 1 && lacks(configKey))
}

// recall takes from floor what is lost of s: while the lock word is the same it is known.
func (s *snapshot) recall(floor *snapshot) {
	if s.mods[metaKey] == 0 || s.mods[metaKey] != floor.mods[metaKey] || s.values[metaKey] != floor.values[metaKey] {
		return
	}
	for _, key := range covered {
		if value, known := floor.values[key]; known && s.mods[key] == 0 {
			s.values[key] = value
		}
	}
}

// locked returns a copy with what the lock word covers.
func (s *snapshot) locked(h *pb.ResponseHeader) *snapshot {
	c := newSnapshot(h)
	for key, v := range s.values {
		if !free(key) {
			c.values[key], c.mods[key] = v, s.mods[key]
		}
	}
	return c
}

// A memory is what a ledger has seen of etcd so far.
type memory struct {
	now func() time.Duration // never goes back

	mu   sync.Mutex
	last *snapshot // the newest; nil: none yet
	// replaced is closed, and another one, when etcd is found to be set back or another one.
	replaced chan struct{}
	// tick is the clock as it stands, and since when this ledger has known it to.
	tick  tick
	since time.Duration
	moved bool // this ledger has seen another tick before, or calls itself
}

// A tick is one value of the clock, as it was written once.
type tick struct {
	cluster uint64
	mod     int64
	value   string
}

func (s *snapshot) tick() tick { return tick{s.cluster, s.mods[clockKey], s.values[clockKey]} }

// untilReplaced returns what is closed when etcd is found to be set back or another one.
func (m *memory) untilReplaced() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replaced
}

// newest returns the newest snapshot. It is asked for before a request is sent: what etcd
// answers then cannot be older.
func (m *memory) newest() *snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// read takes in the answer to a request that was sent when floor was the newest.
func (m *memory) read(s, floor *snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := s.tick(); t != m.tick {
		m.tick, m.since, m.moved = t, m.now(), m.tick != (tick{})
	}
	if floor != nil {
		same := floor.cluster == s.cluster
		s.setBack = same && (s.revision < floor.revision || s.mods[metaKey] < floor.mods[metaKey] ||
			s.mods[metaKey] == floor.mods[metaKey] && s.values[metaKey] != floor.values[metaKey])
		if s.setBack || !same {
			close(m.replaced)
			m.replaced = make(chan struct{})
		} else {
			s.recall(floor)
		}
	}
	if !s.setBack && (m.last == nil || m.last.cluster != s.cluster || m.last.revision <= s.revision) {
		m.last = s
	}
}

// wrote takes in what this ledger has written itself. It ends the suspicion of a store that
// was set back.
func (m *memory) wrote(s *snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := s.tick(); t != m.tick {
		m.tick, m.since, m.moved = t, m.now(), m.tick != (tick{})
	}
	if s.setBack || m.last == nil || m.last.cluster != s.cluster || m.last.revision <= s.revision {
		m.last = s
	}
	s.setBack = false
}

// called takes in that this ledger is one of a peer.
func (m *memory) called() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moved = true
}

// newcomer reports whether this ledger has not seen the clock go on yet, and is of nobody who calls.
func (m *memory) newcomer() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.moved
}

// elapsed returns how long the clock of s has stood at least. Only the time in which this
// ledger knew it to stand counts: so no moment is counted by two ledgers, or by two ticks.
func (m *memory) elapsed(s *snapshot) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.tick() != m.tick {
		return 0
	}
	return max(m.now()-m.since, 0)
}

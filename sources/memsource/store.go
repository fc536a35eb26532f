package memsource

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A Config says what a [Store] is like. The zero value is ready to use.
type Config struct {
	// Partitions is the layout. Default: 256 partitions, xxhash64, no units.
	Partitions partition.Config
	// CrashLimit is how many crashes of its peer a task may be charged with; the
	// last of them makes it a dead letter. Default 3.
	CrashLimit int
}

// A Store is a set of logs in memory, one per partition. All its methods may be
// called concurrently.
type Store struct {
	cfg  Config
	logs map[partition.ID]*log
	ids  atomic.Uint64 // tasks that got their ID here
	turn atomic.Uint64 // partition of the next task without a key
}

// New returns an empty store.
func New(cfg Config) (*Store, error) {
	cfg.Partitions = cfg.Partitions.WithDefaults()
	if err := cfg.Partitions.Validate(); err != nil {
		return nil, err
	}
	if cfg.CrashLimit < 0 {
		return nil, fmt.Errorf("memsource: crash limit %d: want 1 or more", cfg.CrashLimit)
	}
	if cfg.CrashLimit == 0 {
		cfg.CrashLimit = 3
	}
	s := &Store{cfg: cfg, logs: make(map[partition.ID]*log)}
	for _, id := range cfg.Partitions.IDs() {
		s.logs[id] = newLog(cfg.CrashLimit)
	}
	return s, nil
}

// Layout returns the configured partitions. It never fails.
func (s *Store) Layout(context.Context) (partition.Config, error) { return s.cfg.Partitions, nil }

// Open starts the ownership g. The stream of a unit has no tasks.
func (s *Store) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	return open(ctx, s, nil, g, tok)
}

// A Link is the way of one peer to the store. It is called with what the call is
// for ("open", "read", "fetch", "settle", "close") and with execute, which does it
// at the store. It may run execute before it returns or later, on any goroutine,
// any number of times, or never. It returns nil after it ran execute, or an error
// instead of the reply.
type Link func(ctx context.Context, op string, execute func()) error

// Via returns the store as a peer sees it whose calls go over link.
func (s *Store) Via(link Link) sources.Source { return peer{s, link} }

type peer struct {
	*Store
	link Link
}

func (p peer) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	return open(ctx, p.Store, p.link, g, tok)
}

// Push appends tasks, in order, to the partitions of their keys; those without a
// key go round robin. It uses ID (made up if empty), Type, Key, Payload, Headers,
// Born (now if zero) and NotBefore (scheduled: appended when due); the store keeps
// Payload and Headers, so they must not be changed any more. A task without headers
// that is not scheduled needs no Delivery. It fails, and pushes nothing, if the hash
// cannot take one of the keys.
func (s *Store) Push(tasks ...sources.Task) error {
	ids := make([]partition.ID, len(tasks))
	for i, t := range tasks {
		if t.Key == "" {
			ids[i] = partition.OfID(s.turn.Add(1)-1, s.cfg.Partitions.Total)
			continue
		}
		id, err := s.cfg.Partitions.Hash.Of(t.Key, s.cfg.Partitions.Total)
		if err != nil {
			return err
		}
		ids[i] = id
	}
	for i, t := range tasks {
		s.logs[ids[i]].push(s.birth(t))
	}
	return nil
}

// PushTo is Push into one partition, whatever the keys.
func (s *Store) PushTo(id partition.ID, tasks ...sources.Task) error {
	l, err := s.log(id)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		l.push(s.birth(t))
	}
	return nil
}

// birth keeps of a task what its producer said.
func (s *Store) birth(t sources.Task) sources.Task {
	if t.ID == "" {
		t.ID = strconv.FormatUint(s.ids.Add(1), 10)
	}
	if t.Born.IsZero() {
		t.Born = sources.MomentOf(time.Now())
	}
	said := &sources.Delivery{}
	if t.Delivery != nil {
		said.Headers, said.NotBefore = t.Headers, t.NotBefore
	}
	return sources.Task{ID: t.ID, Type: t.Type, Key: t.Key, Payload: t.Payload, Born: t.Born, Delivery: said}
}

func (s *Store) log(id partition.ID) (*log, error) {
	l := s.logs[id]
	if l == nil {
		return nil, fmt.Errorf("memsource: no partition %v: the store has %d and %d units", id, s.cfg.Partitions.Total, len(s.cfg.Partitions.Units))
	}
	return l, nil
}

// A DeadLetter is a task that will not run again.
type DeadLetter struct {
	Task   sources.Task // as it was pushed, with Attempt, Crashes and FirstError as they were at the end
	Reason string
	At     time.Time
}

// Dead returns the dead letters of a partition, oldest first.
func (s *Store) Dead(id partition.ID) []DeadLetter {
	if l := s.logs[id]; l != nil {
		return l.deadLetters()
	}
	return nil
}

// Pending returns how many tasks of a partition are in its log and not finished,
// and how many wait to be appended to it.
func (s *Store) Pending(id partition.ID) (open, delayed int) {
	if l := s.logs[id]; l != nil {
		return l.pending()
	}
	return 0, 0
}

// A Snapshot is what a store was at a moment: what a replica has of it.
type Snapshot struct{ logs map[partition.ID]*log }

// Snapshot copies the store, partition by partition.
func (s *Store) Snapshot() *Snapshot {
	c := &Snapshot{logs: make(map[partition.ID]*log, len(s.logs))}
	for id, l := range s.logs {
		c.logs[id] = l.clone()
	}
	return c
}

// Restore makes the store what it was, as a fail-over to a replica that lags does:
// what it answered since is lost, and the streams that were told of it end with
// sources.ErrForgot or, where another token stood, with sources.ErrFenced.
func (s *Store) Restore(c *Snapshot) {
	for id, l := range s.logs {
		l.restore(c.logs[id])
	}
}

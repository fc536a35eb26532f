package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/internal/prompt"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// A Store keeps, under the fence, what of the topic is done. Package redisprogress has
// one, which keeps it in Redis, and package kafkaprogress one that keeps it in a Kafka
// group. Its errors are a *sources.FencedError, sources.ErrForgot, or they say that
// nothing is known of the call and that it may be said again.
type Store interface {
	// Ready says what is wrong with the store: it is asked at the start.
	Ready(ctx context.Context) error
	// Commits reports whether the store itself commits to a Kafka group. The source keeps
	// its hands off that one: what it mirrors there is not fenced.
	Commits(group string) bool
	// Stands returns the base of the partition, and the life of the log that it is of, as they are before
	// Open: -1 if the partition was never opened.
	Stands(ctx context.Context, id partition.ID) (base int64, life string, err error)
	// Open installs the fence; begin is the base if the partition was never opened.
	Open(ctx context.Context, g partition.Grant, tok partition.Token, begin int64) (progress.Found, error)
	// Reset moves the base, after Open and what Settle has carried past it: seen is the number
	// of writes as answered last, and the result what it is now.
	Reset(ctx context.Context, g partition.Grant, tok partition.Token, seen, base int64, life string) (writes int64, err error)
	// Settle says r; content goes with r.Others.
	Settle(ctx context.Context, g partition.Grant, tok partition.Token, r *progress.Request, content []progress.Content) (progress.Answer, error)
	// Ends notes where the partitions end, for people.
	Ends(ctx context.Context, ends map[partition.ID]int64) error
	// Close ends the ownership; it succeeds if it is over already.
	Close(ctx context.Context, g partition.Grant, tok partition.Token) error
}

// A Source hands out the records of one topic. It implements [sources.Source]. Close
// it after the last stream.
type Source struct {
	name   string
	cfg    Config
	store  Store
	client *kgo.Client
	admin  *kadm.Client
	check  atomic.Int64 // Config.Check
	reader reader
	mirror mirror
	permit logstream.Permit
	grave  grave

	mu    sync.Mutex
	total int    // partitions as last seen; 0: not asked yet
	first int    // ... as first seen
	life  string // of the topic, when a partition was first opened, or refused its position; empty: not known
}

// New returns the source of name's tasks in cfg.Topic. It does not talk to the broker.
func New(name string, store Store, cfg Config) (*Source, error) {
	errs := []error{cfg.Validate(name), partition.SameName(name, "store", store)}
	if partition.Absent(store) {
		errs = append(errs, errors.New("kafkasource: no store"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(name)
	if store.Commits(cfg.Group) {
		cfg.Group = NoGroup
	}
	client, err := kgo.NewClient(cfg.options()...)
	if err != nil {
		return nil, fmt.Errorf("kafkasource: %w", err)
	}
	if err := consumes(client); err != nil {
		client.Close()
		return nil, err
	}
	s := &Source{name: name, cfg: cfg, store: store, client: client, admin: kadm.NewClient(client)}
	s.check.Store(int64(cfg.Check))
	s.reader, s.mirror = newReader(client, &cfg), newMirror(s)
	s.grave.source, s.grave.patience, s.grave.asking = s, letterTimeout, make(chan struct{}, 1)
	return s, nil
}

// Name implements [partition.Named].
func (s *Source) Name() string { return s.name }

// Close frees the client. No stream may be open any more.
func (s *Source) Close() error {
	s.client.Close()
	return nil
}

// CheckEvery replaces Config.Check, for who learns of the lease after New. What is not
// above 0 changes nothing.
func (s *Source) CheckEvery(d time.Duration) {
	if d > 0 {
		s.check.Store(int64(d))
	}
}

// Layout returns as many partitions as the topic has, and Kafka's own hash. It fails
// if the broker cannot be reached or does not let us in, if there is no such topic, and
// if the store is not ready: its error says what to do.
func (s *Source) Layout(ctx context.Context) (partition.Config, error) {
	total, err := s.look(ctx)
	if err == nil {
		err = s.rights(ctx)
	}
	if err == nil {
		err = s.store.Ready(ctx)
	}
	if err != nil {
		return partition.Config{}, err
	}
	return partition.Config{Total: total, Hash: partition.Murmur2}, nil
}

// rights asks for what would be missed only later: the group, and the dead topic, and what that does to letters.
func (s *Source) rights(ctx context.Context) error {
	if s.cfg.Group != NoGroup {
		if _, _, err := s.committed(ctx, 0, ""); err != nil {
			return err
		}
	}
	_, err := s.describe(ctx, s.cfg.DeadTopic, kadm.OpWrite)
	if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.InvalidTopicException) {
		return fmt.Errorf("kafkasource: dead topic %s: %w", s.cfg.DeadTopic, explain(err))
	}
	switch {
	case err == nil:
		s.grave.examine(ctx)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		s.grave.foresee(ctx)
	}
	return nil
}

// look asks the broker how many partitions there are, and keeps the answer.
func (s *Source) look(ctx context.Context) (int, error) {
	t, err := s.topic(ctx)
	if err != nil {
		return 0, err
	}
	s.reader.notice(lifeOf(t.TopicID))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == 0 {
		s.first = len(t.Partitions)
	}
	s.total = max(s.total, len(t.Partitions))
	return s.total, nil
}

// has reports whether the topic has partition id, as far as is known.
func (s *Source) has(id partition.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id >= 0 && int(id) < s.total
}

// known is how many partitions the topic had when it had most.
func (s *Source) known() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// grown reports whether partition id is younger than this source.
func (s *Source) grown(id partition.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(id) >= s.first
}

// Open starts the ownership g. See [sources.Source].
func (s *Source) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	return logstream.Open(g, tok, func() (sources.Stream, error) { return s.open(ctx, g, tok) })
}

func (s *Source) open(ctx context.Context, g partition.Grant, tok partition.Token) (*stream, error) {
	if !s.has(g.ID) {
		total, err := s.look(ctx)
		if err != nil {
			return nil, err
		}
		if !s.has(g.ID) {
			return nil, fmt.Errorf("kafkasource: topic %s: partition %v does not exist: it has %d partitions, and its peers know of more: give it as many again, "+
				"or, if it is to have fewer, stop all peers, then countoff destroy NAME --yes", s.cfg.Topic, g.ID, total)
		}
	}
	log, err := s.bounds(ctx, int32(g.ID))
	if err != nil {
		return nil, err
	}
	begin, life, err := s.begin(ctx, g.ID, log)
	if err == nil && begin > log.end {
		log, err = s.bounds(ctx, int32(g.ID)) // it was said by a peer that has looked since
	}
	if err != nil {
		return nil, err
	}
	// Whoever looks takes who has the fence for one who works: who will not is refused before.
	if lost := s.misplaced(g, log, begin, life); lost != nil && s.cfg.OutOfRange == Fail {
		s.knows(cmp.Or(log.life, life))
		return nil, lost
	}
	found, err := s.store.Open(ctx, g, tok, begin)
	if err == nil && found.Base > log.end {
		log, err = s.bounds(ctx, int32(g.ID)) // the owner before was at work until then
	}
	if err != nil {
		return nil, err
	}
	begun := found.Life != ""
	if err := s.place(ctx, g, tok, log, &found); err != nil {
		return nil, err
	}
	records, corpses, err := s.leftovers(ctx, g, tok, log, &found)
	if err != nil {
		return nil, err
	}
	st := newStream(s, g, tok, found, records, corpses)
	s.mirror.add(st, begun)
	if err := s.reader.add(ctx, st, found.Base); err != nil {
		_ = st.Close(ctx) // it has ended: nothing is sent
		return nil, err
	}
	return st, nil
}

// begin is where a partition stands, and in which life of the topic. Of one that nobody has opened that is where the
// group of the mirror stands, else where the configuration says, in none. What was added to the topic since the name
// began is read from its beginning: the group has the others, or this source has seen it grow.
func (s *Source) begin(ctx context.Context, id partition.ID, log bounds) (base int64, life string, err error) {
	base, life, err = s.store.Stands(ctx, id)
	if err != nil || base >= 0 {
		return base, life, err
	}
	if s.cfg.Group != NoGroup {
		at, others, err := s.committed(ctx, int32(id), log.life)
		if err != nil {
			return 0, "", err
		}
		if at >= 0 {
			return at, "", nil // out of range or not, place will say
		}
		if s.cfg.Start == Latest && !others {
			err = s.mark(ctx, log.life)
		}
		if err != nil || others {
			return log.start, "", err
		}
	}
	if s.cfg.Start == Latest && !s.grown(id) {
		return log.stable, "", nil
	}
	return log.start, "", nil
}

// mark commits where all partitions end now, at the first one of a name that begins at the latest. So
// each has its beginning, whenever it is opened, and one that has none is younger. Peers may do it side by
// side: an owner's own commits go on.
func (s *Source) mark(ctx context.Context, life string) error {
	ends, err := prompt.Call(ctx, func() (kadm.ListedOffsets, error) { return s.admin.ListCommittedOffsets(ctx, s.cfg.Topic) })
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("kafkasource: where the partitions end: %w", explain(err))
	}
	at := make(map[int32]word)
	for p, o := range ends[s.cfg.Topic] {
		at[p] = word{o.Offset, life}
	}
	return s.mirror.write(ctx, at)
}

// knows keeps the first life of the topic that there is.
func (s *Source) knows(life string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = cmp.Or(s.life, life)
}

// began returns the first life of the topic that is known here, which is life if none is.
func (s *Source) began(life string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.life, life)
}

// misplaced says what is wrong with a base that the topic has not got; nil: nothing.
func (s *Source) misplaced(g partition.Grant, log bounds, base int64, was string) *OutOfRangeError {
	life := cmp.Or(log.life, was) // who knows of no ids does not say that it is another one
	other := was != "" && was != life
	if was == "" && !s.grown(g.ID) {
		other = life != "" && s.began(life) != life // brokers forget with a topic what they keep of it
	}
	if !other && log.start <= base && base <= log.end {
		return nil
	}
	return &OutOfRangeError{Topic: s.cfg.Topic, Grant: g, Base: base, Start: log.start, End: log.end, Recreated: other, Policy: s.cfg.OutOfRange}
}

// place makes the base one that the topic has.
func (s *Source) place(ctx context.Context, g partition.Grant, tok partition.Token, log bounds, f *progress.Found) error {
	base, life := f.Base, cmp.Or(log.life, f.Life)
	lost := s.misplaced(g, log, base, f.Life)
	s.knows(life)
	if lost != nil {
		switch s.cfg.OutOfRange {
		case Earliest:
			base = log.start
		case Latest:
			base = log.stable
		default:
			return lost
		}
		s.warn(lost)
		if !lost.Recreated {
			if err := s.carry(ctx, g, tok, base, f); err != nil {
				return err
			}
		}
	} else if f.Life == life {
		return nil
	}
	writes, err := s.store.Reset(ctx, g, tok, f.Writes, base, life)
	if err != nil {
		return err
	}
	if base < f.Base || lost != nil && lost.Recreated {
		f.Done, f.Lifted, f.Tried, f.Suspects, f.Gate = nil, nil, nil, 0, base
	}
	f.Base, f.Writes, f.Life, f.Gate = base, writes, life, max(f.Gate, base)
	return nil
}

// carry has the store carry what was tried past a base that goes forward: what of it the topic has lost gets its letter.
func (s *Source) carry(ctx context.Context, g partition.Grant, tok partition.Token, base int64, f *progress.Found) error {
	var waits []int64
	for pos := range f.Tried {
		if f.Base <= pos && pos < base {
			waits = append(waits, pos)
		}
	}
	if len(waits) == 0 {
		return nil
	}
	slices.Sort(waits)
	a, err := s.store.Settle(ctx, g, tok, &progress.Request{Seen: f.Writes, Read: base, Base: base, Gate: base, Alone: progress.None, Lift: waits}, nil)
	if err != nil {
		return err
	}
	f.Base, f.Writes, f.Lifted = base, a.Writes, append(f.Lifted, waits...)
	return nil
}

func (s *Source) warn(err error) {
	if s.cfg.Warn != nil {
		s.cfg.Warn(err)
	}
}

// limits are those of a partition's log.
func (s *Source) limits() progress.Config { return progress.Config{Window: s.cfg.Window} }

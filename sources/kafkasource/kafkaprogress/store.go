package kafkaprogress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

const (
	// patience is how long one call may take, before nothing is known of it.
	patience = 10 * time.Second
	// refresh is how old a commit may become before it is repeated, so that brokers do
	// not forget it.
	refresh = time.Minute
	// rounds is how often a commit is said again by who was fenced and is the owner still.
	rounds = 4
	// turns is how many partitions are opened at once, or regained. A broker answers one request of a client after
	// the other: of a thousand that begin together none would be done within patience, and all begin again.
	turns = 32
	// turnFor is how long one keeps its turn from others: who waits for a broker that hangs is not to hold up the
	// partitions of those that answer.
	turnFor = 3 * time.Second
	// firstUse is how long brokers may take to make what they keep transactions in.
	firstUse = time.Second
)

// A Config says where progress is kept. Topic and Options (at least the brokers) must be
// given.
type Config struct {
	// Topic whose records are the tasks.
	Topic string
	// Group is the Kafka group whose offsets are the progress. No consumer may subscribe
	// with it, and no other name have it. Default: the name.
	Group string
	// Options of the client: brokers, TLS, SASL; see kafkasource.Options for a URL.
	Options []kgo.Opt
	// Metadata is the most characters of an offset's metadata: what the brokers have as
	// offset.metadata.max.bytes. If they take less, less is kept. Default 4,096.
	Metadata int
	// Warn is told that the group knows nothing of a partition, which is so the first
	// time, and after the brokers have forgotten its offset; that somebody else has set its
	// offset, under an idle owner or between two owners; and once an ownership, that its
	// progress does not fit in the metadata. It must not block. Default: nobody is told.
	Warn func(error)
}

func (c Config) validate() error {
	var errs []error
	if c.Topic == "" {
		errs = append(errs, errors.New("kafkaprogress: no topic"))
	}
	if len(c.Options) == 0 {
		errs = append(errs, errors.New("kafkaprogress: no Options: give at least the brokers"))
	}
	if i := slices.Index(c.Options, nil); i >= 0 {
		errs = append(errs, fmt.Errorf("kafkaprogress: Options[%d] is nil", i))
	}
	if c.Group == "-" {
		errs = append(errs, errors.New("kafkaprogress: no Group: the progress is kept in one"))
	}
	if c.Metadata < leastMetadata {
		errs = append(errs, fmt.Errorf("kafkaprogress: Metadata %d: want %d or more", c.Metadata, leastMetadata))
	}
	return errors.Join(errs...)
}

// leastMetadata has room for what is always written.
const leastMetadata = 256

// A Store keeps what is done of the partitions of one topic. It implements
// kafkasource.Store. Its methods may be called concurrently, those for one ownership one
// after the other. Disconnect it after the source was closed.
type Store struct {
	name     string
	cfg      Config
	link     link
	firstUse time.Duration // less in tests
	turns    chan struct{} // holds a value for each partition that is opened, or regained

	mu     sync.Mutex
	owners map[partition.ID]*owner
	limit  int // of the metadata, as the brokers take it
}

// An owner is one ownership of a partition by this process. It belongs to whoever calls
// for it.
type owner struct {
	grant    partition.Grant
	token    partition.Token
	table    *table
	answered int64 // table.writes as the broker has answered it
	dirty    bool  // the table is ahead of the broker
	producer producer
	unsure   bool // what the broker has is not known, or the producer was fenced
	kept     time.Time
	told     bool // that not all fits
}

// NewStore returns the store of name. It does not talk to the broker.
func NewStore(name string, cfg Config) (*Store, error) {
	if cfg.Group == "" {
		cfg.Group = name
	}
	if cfg.Metadata == 0 {
		cfg.Metadata = 4096
	}
	if err := errors.Join(partition.CheckName(name), cfg.validate()); err != nil {
		return nil, err
	}
	return &Store{
		name: name, cfg: cfg, link: link{options: cfg.Options, asking: make(chan struct{}, 1)},
		firstUse: firstUse, turns: make(chan struct{}, turns), owners: make(map[partition.ID]*owner), limit: cfg.Metadata,
	}, nil
}

// Name implements [partition.Named].
func (s *Store) Name() string { return s.name }

// Disconnect frees the client. Nothing may be asked any more.
func (s *Store) Disconnect() error {
	s.link.close()
	return nil
}

// Ready says what is wrong with the group or with the rights of the user.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id := s.name + "-ready" // of its own, so that nobody is fenced
	err := s.seek(ctx, id)
	if err == nil {
		_, err = s.begin(ctx, id)
	}
	if err != nil {
		return s.fail("transactional ids", err)
	}
	_, _, err = s.read(ctx, 0, false)
	return err
}

// Commits reports whether the offsets of a group are the progress.
func (s *Store) Commits(group string) bool { return group == s.cfg.Group }

// Stands returns where the partition stands, and in which life of the topic, -1 if the group has no offset of it:
// its own, or another's, at which it begins then.
func (s *Store) Stands(ctx context.Context, id partition.ID) (base int64, life string, err error) {
	end, err := s.turn(ctx)
	if err != nil {
		return 0, "", err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t, at, err := s.read(ctx, id, false)
	if t == nil || err != nil {
		return at, "", err
	}
	return t.base, t.life, nil
}

// Open makes tok the owner. begin is the base of a partition of which the group knows
// nothing. Opening again with the token that stands changes nothing.
func (s *Store) Open(ctx context.Context, g partition.Grant, tok partition.Token, begin int64) (progress.Found, error) {
	end, err := s.turn(ctx)
	if err != nil {
		return progress.Found{}, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o := &owner{grant: g, token: tok}
	for round := 0; ; round++ {
		err := s.open(ctx, o, begin)
		if err == nil {
			break
		}
		if !fenced(err) || round == rounds {
			return progress.Found{}, err
		}
		// Somebody initialized since: either one who will see that he comes too late, or
		// our successor, whom we shall see. Not in step with him.
		if err := pause(ctx, time.Duration(rand.IntN(20)<<round)*time.Millisecond); err != nil {
			return progress.Found{}, err
		}
	}
	s.mu.Lock()
	s.owners[g.ID] = o
	s.mu.Unlock()
	return o.table.found(time.Now()), nil
}

// turn waits until there is room for one more that is opened, or regained, until end, or for turnFor.
func (s *Store) turn(ctx context.Context) (end func(), err error) {
	select {
	case s.turns <- struct{}{}:
		back := sync.OnceFunc(func() { <-s.turns })
		late := time.AfterFunc(turnFor, back)
		return func() {
			late.Stop()
			back()
		}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// seize makes o the one whose commits count. Who comes too late, or was followed, shall not
// fence the owner only to learn that: so it looks first.
func (s *Store) seize(ctx context.Context, o *owner) error {
	t, _, err := s.read(ctx, o.grant.ID, false)
	if err == nil {
		err = o.mayOpen(t)
	}
	if err != nil {
		return err
	}
	if o.producer, err = s.begin(ctx, s.id(o.grant.ID)); err != nil {
		return s.fail(o.grant.String(), err)
	}
	return nil
}

func (s *Store) open(ctx context.Context, o *owner, begin int64) error {
	if err := s.seize(ctx, o); err != nil {
		return err
	}
	// From here on nobody else commits, or our commit is refused.
	t, at, err := s.read(ctx, o.grant.ID, true)
	if err == nil {
		err = o.mayOpen(t)
	}
	if err != nil {
		return err
	}
	if t == nil {
		switch { // else the first time, where a consumer or the mirror of another store stands
		case at < 0:
			// The first time, or the brokers have forgotten: nobody can tell.
			s.warn("%s/%v: the group %s knows nothing of it: it begins at %d", s.cfg.Topic, o.grant.ID, s.cfg.Group, begin)
			at = begin
		case o.producer.epoch > 0:
			// An owner before us has said how far it was, and somebody else wrote over that.
			s.warn("%s/%v: somebody else has set the group %s at %d, a consumer or a reset: it goes on there, and what is before that counts as done",
				s.cfg.Topic, o.grant.ID, s.cfg.Group, at)
		}
		t = newTable(at)
	} else if t.epoch > 0 && o.producer.epoch == 0 {
		// Nobody has initialized our id before us, as far as the brokers remember: they forget one that is not used.
		s.warn("%s/%v: what the group %s knows of it was said under another name, or longer ago than transactional.id.expiration.ms (7 days): "+
			"what another name has done counts as done, and while both work they take the partition from each other: give each a Group of its own",
			s.cfg.Topic, o.grant.ID, s.cfg.Group)
	}
	again := t.token == o.token
	t.install(o.token)
	o.table = t
	if again {
		return nil // what is said first is committed, whatever it is
	}
	return s.commit(ctx, o)
}

// mayOpen says whether the owner comes too late, or was followed.
func (o *owner) mayOpen(t *table) error {
	if t != nil && t.epoch >= o.token.Epoch && t.token != o.token {
		return &sources.FencedError{Grant: o.grant, Stored: t.epoch}
	}
	return nil
}

// Reset says where the log goes on, and which life of it that is, after Open and
// before anything else under the token but what Settle carries past base.
func (s *Store) Reset(ctx context.Context, g partition.Grant, tok partition.Token, seen, base int64, life string) (writes int64, err error) {
	o, err := s.owner(g, tok)
	if err != nil {
		return 0, err
	}
	switch t := o.table; {
	case t.writes < seen:
		return 0, sources.ErrForgot
	case t.writes == seen:
		t.reset(base, life)
		o.dirty = true
	case t.base != base:
		return 0, fmt.Errorf("kafkaprogress: the base of %v is %d and not %d: something was said before the reset", g, t.base, base)
	}
	if err := s.keep(ctx, o); err != nil {
		return 0, err
	}
	return o.table.writes, nil
}

// Settle says r; content goes with r.Others, one by one. What r does not change costs a
// look whether the fence still stands.
func (s *Store) Settle(ctx context.Context, g partition.Grant, tok partition.Token, r *progress.Request, content []progress.Content) (progress.Answer, error) {
	o, err := s.owner(g, tok)
	if err != nil {
		return progress.Answer{}, err
	}
	a, changed := o.table.settle(r, content, time.Now())
	if a.Status == progress.Forgot {
		return progress.Answer{}, sources.ErrForgot
	}
	o.dirty = o.dirty || changed
	if err := s.keep(ctx, o); err != nil {
		return progress.Answer{}, err
	}
	return a, nil
}

// Ends notes nothing: the group shows how much is open.
func (s *Store) Ends(context.Context, map[partition.ID]int64) error { return nil }

// Close ends the ownership. It succeeds if the partition is another's already.
func (s *Store) Close(ctx context.Context, g partition.Grant, tok partition.Token) error {
	o, err := s.owner(g, tok)
	if err == nil {
		if !o.table.token.IsZero() {
			o.table.clear()
			o.dirty = true
		}
		err = s.keep(ctx, o)
	}
	if errors.Is(err, sources.ErrFenced) || errors.Is(err, sources.ErrForgot) {
		err = nil
	}
	if err == nil {
		s.mu.Lock()
		if s.owners[g.ID] == o {
			delete(s.owners, g.ID)
		}
		s.mu.Unlock()
	}
	return err
}

// Fences reads who has the partitions ids open, zero for nobody, for whoever watches over
// them: all in one request. Of what the group does not know nothing is returned.
func (s *Store) Fences(ctx context.Context, ids []partition.ID) (map[partition.ID]partition.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := s.offsets(ctx, ids, false)
	if err != nil {
		return nil, err
	}
	fences := make(map[partition.ID]partition.Token)
	for id, o := range found {
		if o.table != nil {
			fences[id] = o.table.token
		}
	}
	return fences, nil
}

// owner returns the ownership of tok, unless another followed in this process.
func (s *Store) owner(g partition.Grant, tok partition.Token) (*owner, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[g.ID]
	if o == nil || o.token != tok && o.token.Epoch < tok.Epoch {
		return nil, sources.ErrForgot
	}
	if o.token != tok {
		return nil, &sources.FencedError{Grant: g, Stored: o.token.Epoch}
	}
	return o, nil
}

// keep makes the broker know what the table says, or sees that the fence stands.
func (s *Store) keep(ctx context.Context, o *owner) error {
	if o.unsure { // as all are that a broker has left so
		end, err := s.turn(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for round := 0; ; round++ {
		if o.unsure {
			if err := s.regain(ctx, o); err != nil && (!fenced(err) || round == rounds) {
				return err
			} else if err != nil {
				continue
			}
		}
		if !o.dirty && time.Since(o.kept) < refresh {
			// Stable: a commit that was answered shows only after a moment otherwise.
			t, at, err := s.read(ctx, o.grant.ID, true)
			if err == nil {
				err = o.judge(t)
			}
			if err == nil && t == nil && at >= 0 {
				s.warn("%s/%v: somebody else has set the group %s at %d under its owner, who says again what it knows: to move peers stop all of them before",
					s.cfg.Topic, o.grant.ID, s.cfg.Group, at)
			}
			if err != nil || !o.dirty {
				return err
			}
		}
		err := s.commit(ctx, o)
		if !fenced(err) || round == rounds {
			return err
		}
	}
}

// regain finds out what the broker has, after a call of which nothing is known, or after
// another has initialized. If that was our successor, we are over. If it was one who came
// too late, he has given up, and we go on with a new epoch of the producer.
func (s *Store) regain(ctx context.Context, o *owner) error {
	if err := s.seize(ctx, o); err != nil {
		return err
	}
	t, _, err := s.read(ctx, o.grant.ID, true)
	if err == nil {
		err = o.judge(t)
	}
	o.unsure = err != nil
	return err
}

// judge compares what the group has with what was answered. A greater epoch is our
// successor's. Anything else that differs was lost by the brokers, or written by somebody
// who may not: nobody has owned the partition since, so what we know is the truth, and we
// say it again.
func (o *owner) judge(t *table) error {
	if err := o.mayOpen(t); err != nil {
		return err
	}
	if t == nil || t.token != o.token || t.writes < o.answered {
		o.dirty = true
	}
	return nil
}

// commit writes the table under the owner's producer.
func (s *Store) commit(ctx context.Context, o *owner) error {
	s.mu.Lock()
	limit := s.limit
	s.mu.Unlock()
	now := time.Now()
	writes := o.table.writes
	metadata, whole := o.table.encode(limit, now)
	if !whole && !o.told {
		o.told = true
		s.warn("%s/%v: its progress does not fit in %d characters of metadata: the next owner does again some of what is done out of order, or begins anew with what waits for a retry, at once",
			s.cfg.Topic, o.grant.ID, limit)
	}
	err := s.transact(ctx, o, o.table.lowest(), metadata)
	if err == nil {
		o.answered, o.kept, o.dirty = writes, now, false
		return nil
	}
	o.unsure = true
	if errors.Is(err, kerr.OffsetMetadataTooLarge) && limit > leastMetadata {
		s.mu.Lock()
		s.limit = max(leastMetadata, min(s.limit, limit/2))
		s.mu.Unlock()
	}
	return s.fail(o.grant.String(), err)
}

func (s *Store) warn(format string, args ...any) {
	if s.cfg.Warn != nil {
		s.cfg.Warn(fmt.Errorf("kafkaprogress: "+format, args...))
	}
}

// id is the transactional id of a partition.
func (s *Store) id(id partition.ID) string { return s.name + "-" + id.String() }

// fail says of an error what it is about.
func (s *Store) fail(what string, err error) error {
	for _, h := range hints {
		if errors.Is(err, h.err) {
			err = fmt.Errorf("%w (%s)", err, h.hint)
			break
		}
	}
	return fmt.Errorf("kafkaprogress: group %s, %s: %w", s.cfg.Group, what, err)
}

// hints say what to do about an error of the broker.
var hints = []struct {
	err  error
	hint string
}{
	{kerr.TransactionalIDAuthorizationFailed, "the user needs WRITE and DESCRIBE on the transactional ids that begin with the name and a dash"},
	{kerr.GroupAuthorizationFailed, "the user needs READ on the group"},
	{kerr.TopicAuthorizationFailed, "the user needs READ on the topic"},
	{kerr.CoordinatorNotAvailable, "a broker is away or has just started; if it stays, the brokers have no place for transactions, or for the offsets of groups: " +
		"transaction.state.log.replication.factor or offsets.topic.replication.factor may be above their number"},
	{kerr.UnknownMemberID, "a consumer is subscribed with this group: give the progress a group of its own"},
	{kerr.SaslAuthenticationFailed, "the broker refuses the user or the password"},
	{syscall.ECONNREFUSED, "start the broker, or correct its address: in the URL, or where it is one that the brokers tell, in their advertised.listeners"},
	{kerr.UnknownTopicOrPartition, "the topic was deleted, or the broker has just started, and knows of it in a moment"},
	{context.DeadlineExceeded, "no broker has answered in time: is it stopped, cut off, or overloaded?"},
}

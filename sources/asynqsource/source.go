package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/logstream"
)

// A Source hands out the tasks of asynq queues, each of which is a partition. It
// implements [sources.Source]. It holds nothing while no stream is open, so there is
// nothing to close; the client stays the caller's.
type Source struct {
	client  redis.UniversalClient
	name    string
	cfg     Config
	mark    string // the queue that tells our servers from others
	library *library
	// modest: our own scripts do not fit this version of asynq. See modest.go.
	modest atomic.Bool
	permit logstream.Permit

	mu      sync.Mutex // never held over a call or a wait
	layout  partition.Config
	tested  bool  // the self-test has passed
	doubted bool  // it found a misfit when it was last made
	misfit  error // why modest
	engine  *Engine
	streams map[string]*stream // the newest of each queue
	waiting int                // connections in use
	refusal error              // a plain server is on our queues
	looked  time.Time          // when one was looked for last

	opening chan struct{} // taken while the first to open something looks for plain servers
	doubt   chan struct{} // somebody has taken a task, perhaps a plain server

	life   sync.Mutex // held while the first stream comes or the last one goes
	live   int        // streams
	guard  context.CancelFunc
	guards sync.WaitGroup
}

// New returns the source of the tasks under name. It does not talk to the store.
func New(client redis.UniversalClient, name string, cfg Config) (*Source, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(partition.CheckName(name), cfg.validate(name)); err != nil {
		return nil, err
	}
	if err := redisconfig.Fits(client); err != nil {
		return nil, fmt.Errorf("asynqsource: %w", err)
	}
	return &Source{
		client: client, name: name, cfg: cfg, mark: queuestat.Mark(name),
		library: new(library), streams: make(map[string]*stream), opening: make(chan struct{}, 1),
		doubt: make(chan struct{}, 1),
	}, nil
}

// Name implements [partition.Named].
func (s *Source) Name() string { return s.name }

// QueueOf is the queue of partition id of name, where the queues are not named one by one.
func QueueOf(name string, id partition.ID) string { return name + ":" + id.String() }

// queue is the queue of a partition.
func (s *Source) queue(id partition.ID) string {
	if len(s.cfg.Queues) > 0 {
		return s.cfg.Queues[id]
	}
	return QueueOf(s.name, id)
}

// Place names the keys of a partition's fence and of its list of pending tasks, for an
// observer; nothing for a queue that is moved. It holds no secret and changes nothing.
func (s *Source) Place(id partition.ID) (fence, pending string) {
	if id >= partition.FirstUnit {
		return "", ""
	}
	k := keysOf(s.queue(id))
	return k.fence, k.pending
}

// queues are all of them, and those that are moved.
func (s *Source) queues(total int) []string {
	list := make([]string, total, total+len(s.cfg.Ingress))
	for i := range list {
		list[i] = s.queue(partition.ID(i))
	}
	return append(list, s.cfg.Ingress...)
}

// consumes reports whether a queue is one of the source, as far as is known before the
// number of its partitions is.
func (s *Source) consumes(queue string) bool {
	if slices.Contains(s.cfg.Queues, queue) || slices.Contains(s.cfg.Ingress, queue) {
		return true
	}
	return len(s.cfg.Queues) == 0 && ownQueue(s.name, queue)
}

// ownQueue reports whether a queue is that of a partition of name.
func ownQueue(name, queue string) bool {
	number, ours := strings.CutPrefix(queue, name+":")
	_, err := strconv.ParseUint(number, 10, 31)
	return ours && err == nil
}

// Layout returns the configuration of the name. The first call writes it if none
// stands, and fails with an error that wraps partition.ErrConfig if another does. It
// also checks what the source relies on in asynq and in Redis, and that no plain
// asynq.Server consumes the queues.
func (s *Source) Layout(ctx context.Context) (partition.Config, error) {
	s.mu.Lock()
	known := s.layout
	s.mu.Unlock()
	if known.Total > 0 {
		return known, nil
	}
	// The list of queues comes first: of another one the number of partitions would say no more
	// than that there is one more or less.
	err := s.compareQueues(ctx)
	var c partition.Config
	if err == nil {
		c, err = redisconfig.Asynq.Agree(ctx, s.client, s.name, s.wants())
	}
	if err == nil {
		err = s.agreeQueues(ctx)
	}
	if err == nil {
		err = s.check(ctx)
	}
	if err == nil {
		err = s.lookForPlain(ctx, c.Total)
	}
	if err != nil {
		return partition.Config{}, err
	}
	s.mu.Lock()
	s.layout = c
	s.mu.Unlock()
	return c, nil
}

// wants is the configuration that the peers of the name are to agree on.
func (s *Source) wants() partition.Config {
	return partition.Config{Total: max(s.cfg.Partitions, len(s.cfg.Queues)), Hash: s.cfg.Hash, Units: s.cfg.Ingress}
}

// compareQueues compares the list of queues with what stands, if one does.
func (s *Source) compareQueues(ctx context.Context) error {
	got, ok, err := standingField(ctx, s.client, s.name)
	if err != nil || !ok {
		return err
	}
	return s.sameQueues(ctx, got)
}

// agreeQueues compares the list of queues with what stands: a peer that counts them in
// another order would work on what another has.
func (s *Source) agreeQueues(ctx context.Context) error {
	got, err := agreeField(ctx, s.client, s.name, strings.Join(s.cfg.Queues, "\n"))
	if err != nil {
		return err
	}
	return s.sameQueues(ctx, got)
}

// sameQueues is the refusal if another list of queues stands.
func (s *Source) sameQueues(ctx context.Context, stands string) error {
	want := strings.Join(s.cfg.Queues, "\n")
	if stands == want {
		return nil
	}
	said := func(queues string) string {
		if queues == "" {
			return fmt.Sprintf("%s, %s ... by key", QueueOf(s.name, 0), QueueOf(s.name, 1))
		}
		return fmt.Sprintf("%q", strings.Split(queues, "\n"))
	}
	layout := s.wants().WithDefaults()
	begin := fmt.Sprintf("countoff init %s --partitions %d", s.name, layout.Total)
	for _, list := range layout.Units {
		begin += " --unit " + redisconfig.ShellWord(list)
	}
	err := fmt.Errorf("the queues %s stand there, this program wants %s (all peers have the same ones in the same order; to change them, stop all peers, then countoff destroy %s --yes, which leaves queues of asynq and their tasks as they are, and %s): %w",
		said(stands), said(want), s.name, begin, partition.ErrConfig)
	redisconfig.NoteRefused(ctx, s.client, s.name, err)
	return fmt.Errorf("asynqsource: %s: %w", redisconfig.Key(s.name), err)
}

// standingField returns the list of queues that stands, and whether one does.
func standingField(ctx context.Context, client redis.UniversalClient, name string) (got string, ok bool, err error) {
	got, err = client.HGet(ctx, redisconfig.Key(name), queuestat.Field).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("asynqsource: read %s: %w", redisconfig.Key(name), err)
	}
	return got, true, nil
}

// agreeField returns the list of queues that stands, and writes want where none does. It
// reads first: a full store refuses writes, and a peer must be able to start there.
func agreeField(ctx context.Context, client redis.UniversalClient, name, want string) (string, error) {
	if got, ok, err := standingField(ctx, client, name); err != nil || ok {
		return got, err
	}
	key := redisconfig.Key(name)
	// Behind a write it is read where that went: a client of a cluster that reads from replicas
	// asks one that lags.
	pipe := client.Pipeline()
	pipe.HSetNX(ctx, key, queuestat.Field, want)
	read := pipe.HGet(ctx, key, queuestat.Field)
	if _, err := pipe.Exec(ctx); err != nil {
		return "", fmt.Errorf("asynqsource: write %s: %w", key, err)
	}
	return read.Val(), nil
}

// opened is what the store said when the fence was installed.
type opened struct {
	number   int64
	suspects map[string]bool
}

// Open starts the ownership g. See [sources.Source].
func (s *Source) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	return logstream.Open(g, tok, func() (sources.Stream, error) {
		st, err := s.open(ctx, g, tok)
		return st, redisconfig.Explain(err)
	})
}

func (s *Source) open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	layout, err := s.Layout(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.beside(ctx, layout.Total); err != nil {
		return nil, err
	}
	if g.ID.IsUnit() {
		return s.openRouter(ctx, g, tok, layout)
	}
	if g.ID < 0 || int(g.ID) >= layout.Total {
		return nil, fmt.Errorf("%s has %d partitions", s.name, layout.Total)
	}
	queue := s.queue(g.ID)
	o, err := s.install(ctx, keysOf(queue), g, tok)
	if err != nil {
		return nil, err
	}
	st := newStream(s, g, tok, queue, o)
	if err := s.start(ctx, st, layout); err != nil {
		return nil, err
	}
	return st, nil
}

// start makes st known.
func (s *Source) start(ctx context.Context, st *stream, layout partition.Config) error {
	err := s.enter(st, layout.Total)
	if err != nil {
		_ = st.Close(ctx) // the error that counts is the first
	}
	return err
}

// install installs the fence.
func (s *Source) install(ctx context.Context, k keys, g partition.Grant, tok partition.Token) (o opened, err error) {
	reply, err := openScript.Run(ctx, s.client,
		[]string{k.fence, k.pending, k.active, k.lease, k.tries, k.suspects, k.archived, k.sets, k.groups},
		tok.String(), tok.Epoch.String(), k.task, s.cfg.CrashLimit, k.group).Slice()
	if err != nil {
		return o, err
	}
	if len(reply) == 2 && reply[0] == int64(0) {
		return o, &sources.FencedError{Grant: g, Stored: partition.Epoch(number(reply, 1))}
	}
	if len(reply) != 4 {
		return o, errReply
	}
	if buried, _ := reply[3].([]any); len(buried) == 2 && s.cfg.Buried != nil {
		s.cfg.Buried(sources.Buried{Grant: g, Tasks: 1, ID: fmt.Sprint(buried[0]), Reason: fmt.Sprint(buried[1])})
	}
	o = opened{number: number(reply, 1), suspects: make(map[string]bool)}
	suspects, _ := reply[2].([]any)
	for _, id := range suspects {
		if id, ok := id.(string); ok {
			o.suspects[id] = true
		}
	}
	return o, nil
}

// enter makes st the stream of its queue. With the first one come the engine's server, or that the
// peer is listed as one, and the watch for plain servers.
func (s *Source) enter(st *stream, total int) error {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	s.streams[st.queue] = st
	engine := s.engine
	s.mu.Unlock()
	if s.live++; s.live > 1 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.guard = cancel
	s.guards.Go(func() { s.watch(ctx, total) })
	if engine == nil {
		s.guards.Go(func() { s.list(ctx, total) })
		return nil
	}
	return engine.start(s.queues(total))
}

// leave takes st out. It is called once. What came with the first stream goes with the last.
func (s *Source) leave(st *stream) {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	if s.streams[st.queue] == st {
		delete(s.streams, st.queue)
	}
	engine := s.engine
	s.mu.Unlock()
	if s.live--; s.live > 0 {
		return
	}
	if engine != nil {
		engine.stop()
	}
	s.guard()
	s.guards.Wait()
}

// of returns the stream of a queue that is open here, or nil.
func (s *Source) of(queue string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[queue]
}

// holder returns the stream that handed out a task of a grant, or nil.
func (s *Source) holder(g partition.Grant, tok partition.Token) *stream {
	if g.ID < 0 || g.ID.IsUnit() || len(s.cfg.Queues) > 0 && int(g.ID) >= len(s.cfg.Queues) {
		return nil
	}
	st := s.of(s.queue(g.ID))
	if st == nil || st.token != tok {
		return nil
	}
	return st
}

// connection takes a connection to wait on, or gives one back, and reports whether that
// is allowed.
func (s *Source) connection(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting+n > max(s.cfg.Connections, 0) {
		return false
	}
	s.waiting += n
	return true
}

// options are those of a client of the server that key is on; nil where that cannot be
// known.
func (s *Source) options(ctx context.Context, key string) *redis.Options {
	switch c := s.client.(type) {
	case interface{ Options() *redis.Options }:
		return single(c.Options())
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil
		}
		return single(node.Options())
	}
	return nil
}

// single are options as of, for a client of one connection. What hears pushes is not shared: it refuses a second
// client, which panics where maintenance notifications are required.
func single(of *redis.Options) *redis.Options {
	o := *of
	o.PoolSize, o.MinIdleConns, o.PushNotificationProcessor = 1, 0, nil
	return &o
}

package redissource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
)

// A ProducerConfig is what a [Producer] may be told. Zero is ready to use.
type ProducerConfig struct {
	// Partitions and Hash are written under the name if nobody has done so, and
	// compared otherwise. Default: what stands there, else 256 and xxhash64.
	Partitions int
	Hash       partition.Hash
	// MaxBacklog is the most tasks in the log of a partition, finished ones that
	// wait for an earlier one included; messages over it are refused with
	// ErrBacklog. Scheduled tasks are not counted. Default 0: no limit.
	MaxBacklog int
	// Timeout is how long a message is tried for while the store does not answer or
	// refuses for a while (fail-over, loading, a slot that moves), and waits behind
	// others. A request that is under way then is waited for a second more. Default 30 s,
	// at most 30 min.
	Timeout time.Duration
	// Replicas is how many replicas must have a message before it counts as enqueued. It is
	// waited for as long as Timeout, each time with the push repeated, and told by a
	// ReplicasError. It costs a WAIT for what travels together. A server that has fewer when the
	// producer is made is refused. What a fail-over forgets all the same is in docs/stores.md.
	// Default 0: the master's answer is enough.
	Replicas int
}

const (
	defaultTimeout = 30 * time.Second
	// markLife is how long a partition remembers what a producer pushed last. A
	// batch is never repeated after half of it.
	markLife   = time.Hour
	maxTimeout = markLife / 2
	// lastWord is how long a request that is under way when a message's time is over is waited for: what it
	// says is better than that nobody knows. The client's own timeouts may be much longer.
	lastWord = time.Second
)

func (c ProducerConfig) validate() error {
	errs := []error{partition.Config{Total: c.Partitions, Hash: c.Hash}.WithDefaults().Validate()}
	if c.MaxBacklog < 0 {
		errs = append(errs, fmt.Errorf("redissource: MaxBacklog %d: want 0 or more", c.MaxBacklog))
	}
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		errs = append(errs, fmt.Errorf("redissource: Timeout %v: want up to %v", c.Timeout, maxTimeout))
	}
	return errors.Join(errs...)
}

// A Producer enqueues tasks under a name.
//
// Its methods may be called concurrently; messages of calls that overlap travel
// together. Each push carries the producer's session and a position, so that a push
// whose answer was lost is repeated without doubling a task.
type Producer struct {
	client  redis.UniversalClient
	pusher  pusher
	name    string
	config  partition.Config
	backlog int
	timeout time.Duration
	session string // names the marks
	// oneServer says that one script may touch all partitions.
	oneServer bool

	round atomic.Uint32 // messages without a key go round
	born  atomic.Int64  // the last one given out, microseconds

	mu      sync.Mutex
	closed  bool
	lanes   map[string]*lane       // by node
	ofPart  map[partition.ID]*lane // where a partition's messages go, for good
	running sync.WaitGroup         // lanes that send
	trying  context.Context        // over: nothing is tried again, by the client neither
	stop    context.CancelFunc     // ends it
	cut     atomic.Bool            // that has failed a message
}

// NewProducer returns a producer for name. It writes the configuration of the name
// if none stands, and returns an error that wraps partition.ErrConfig if another one
// does. ctx bounds this call only. The caller closes the producer, then the client.
func NewProducer(ctx context.Context, client redis.UniversalClient, name string, cfg ProducerConfig) (*Producer, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	pusher := pusher{client: client, replicas: cfg.Replicas, patience: min(waitReplicas, cfg.Timeout)}
	if err := errors.Join(partition.CheckName(name), cfg.validate(), pusher.supported()); err != nil {
		return nil, err
	}
	if cfg.Replicas > 0 { // before anything is written: who is refused leaves no name behind
		if err := pusher.check(ctx); err != nil {
			return nil, err
		}
	}
	config, err := redisconfig.Lists.AgreePartitions(ctx, client, name, partition.Config{Total: cfg.Partitions, Hash: cfg.Hash})
	if err != nil {
		return nil, err
	}
	p := &Producer{
		client: client, pusher: pusher, name: name, config: config, backlog: cfg.MaxBacklog, timeout: cfg.Timeout,
		session: newID(time.Now()),
		lanes:   make(map[string]*lane),
		ofPart:  make(map[partition.ID]*lane),
	}
	p.trying, p.stop = context.WithCancel(context.Background())
	_, p.oneServer = client.(*redis.Client)
	p.round.Store(rand.Uint32())
	return p, nil
}

// Config returns the configuration of the name.
func (p *Producer) Config() partition.Config { return p.config }

// Enqueue puts messages at the end of their partitions' logs and returns what became of each, in
// their order. It returns once the store, and as many Replicas as are configured, have answered for
// all of them, or ctx or the producer's Timeout has ended. Messages of one key keep the order of their call. The error is nil if every
// message was enqueued or is a duplicate, and an ErrUnknown if that is so of any. The results are nil if nothing was sent, because there
// are no messages, one of them is faulty or ctx had ended before.
func (p *Producer) Enqueue(ctx context.Context, messages ...Message) ([]Result, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := p.newCall(messages)
	if err != nil {
		return nil, err
	}
	for i := range c.items {
		it := &c.items[i]
		it.lane = p.laneOf(ctx, it.part)
		if it.lane == nil || !it.lane.submit(it) {
			c.finish(it, false, p.closedError())
		}
	}
	late := time.NewTimer(p.timeout + lastWord)
	defer late.Stop()
	select {
	case <-c.done:
	case <-ctx.Done():
		c.abandon(func(it *item, s standing) error { return it.left(context.Cause(ctx), s) })
	case <-late.C:
		c.abandon(p.overdue)
	}
	return c.answer()
}

// newCall checks and encodes messages.
func (p *Producer) newCall(messages []Message) (*call, error) {
	now := time.Now()
	c := &call{
		items: make([]item, len(messages)), results: make([]Result, len(messages)),
		left: len(messages), done: make(chan struct{}),
	}
	var errs []error
	size := 0
	for i := range messages {
		m := &messages[i]
		if err := m.check(p.config.Hash, now); err != nil {
			errs = append(errs, fmt.Errorf("redissource: message %d: %w", i, err))
		}
		size += m.size()
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	buf := make([]byte, 0, size)
	for i := range messages {
		m := &messages[i]
		it := &c.items[i]
		it.call, it.n, it.deadline = c, i, now.Add(p.timeout)
		it.part = p.place(m)
		id := m.ID
		if id == "" {
			id = newID(now)
		}
		c.results[i] = Result{ID: id, Partition: it.part}
		e := envelope{
			id: id, typ: m.Type, key: m.Key, born: p.nextBorn(now),
			headers: m.Headers, unique: m.Unique, payload: m.Payload,
		}
		start := len(buf)
		buf = appendEnvelope(buf, &e)
		it.body = buf[start:len(buf):len(buf)]
		if !m.plain() {
			it.special = specialOf(m, &e)
		}
	}
	return c, nil
}

// plain reports whether the message only asks to be at the end of the log.
func (m *Message) plain() bool { return m.At.IsZero() && m.Delay == 0 && !m.Unique }

// place returns the partition of m, which was checked.
func (p *Producer) place(m *Message) partition.ID {
	switch {
	case m.Key == "" && m.Unique:
		return homeOfUnique(m.ID, p.config.Total)
	case m.Key == "":
		return partition.ID(p.round.Add(1) % uint32(p.config.Total))
	}
	id, err := p.config.Hash.Of(m.Key, p.config.Total)
	if err != nil {
		panic(err) // Message.check let it pass
	}
	return id
}

// nextBorn returns now, or a little later: no two messages of a producer are born in
// the same microsecond. Two that are otherwise equal would be one member of :delayed,
// and would hold each other's lock.
func (p *Producer) nextBorn(now time.Time) sources.Moment {
	for {
		last := p.born.Load()
		next := max(now.UnixMicro(), last+1)
		if p.born.CompareAndSwap(last, next) {
			return sources.Moment(next)
		}
	}
}

// laneOf returns the lane of a partition, nil if the producer is closed. On a cluster
// there is one for each node, so that messages for the others do not wait for a node
// that is down. A partition that moves to another node keeps its lane: no two pushes
// to one partition may be on their way at once, the earlier one would be taken for a
// repetition.
func (p *Producer) laneOf(ctx context.Context, id partition.ID) *lane {
	p.mu.Lock()
	l, closed := p.ofPart[id], p.closed
	p.mu.Unlock()
	if closed {
		return nil
	}
	if l != nil {
		return l
	}
	node := ""
	if cluster, ok := p.client.(*redis.ClusterClient); ok {
		if master, err := cluster.MasterForKey(ctx, KeysOf(p.name, id).Fence); err == nil {
			node = master.Options().Addr
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if l := p.ofPart[id]; l != nil {
		return l
	}
	l = p.lanes[node]
	if l == nil {
		l = newLane(p)
		p.lanes[node] = l
	}
	p.ofPart[id] = l
	return l
}

// over reports whether Close has run out of time.
func (p *Producer) over() bool { return p.trying.Err() != nil }

// closedError is a sources.ErrClosed that says what is closed.
func (p *Producer) closedError() error { return &closedError{p.name} }

// cutError is what a message fails with because Close has run out of time.
func (p *Producer) cutError() error {
	p.cut.Store(true)
	return p.closedError()
}

type closedError struct{ name string }

func (e *closedError) Error() string { return "redissource: the producer of " + e.name + " is closed" }

// Is makes errors.Is(err, sources.ErrClosed) true.
func (e *closedError) Is(target error) bool { return target == sources.ErrClosed }

// Close refuses new messages, waits until those on their way are answered, and
// returns after the last goroutine of the producer. When ctx ends first, what was not
// answered fails, with ErrUnknown if it was sent, and the client repeats nothing any more;
// Close then still waits for the request under way, which the client's ReadTimeout and
// DialTimeout bound (seconds), and returns ctx's error if anything has failed so.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	lanes := slices.Collect(maps.Values(p.lanes))
	p.mu.Unlock()
	for _, l := range lanes {
		l.close()
	}
	idle := make(chan struct{})
	go func() {
		p.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		p.stop()
		<-idle
		if !p.cut.Load() {
			return nil // ctx has ended, but nothing had to wait
		}
		return ctx.Err()
	}
}

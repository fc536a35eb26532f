package redissource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/jobs"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// A Config is what a [Source] may be told. Zero is ready to use.
type Config struct {
	// Partitions and Hash are written under the name if nobody has done so, and
	// compared otherwise. Default: what stands there, else 256 and xxhash64.
	Partitions int
	Hash       partition.Hash
	// Window is the most tasks of a partition between the first that is not finished and the last
	// that was read. Default 2,048, at most 65,536.
	Window int
	// CrashLimit is how many crashes of its peer a task may be charged with; the
	// last of them makes it a dead letter. Default 3.
	CrashLimit int
	// Ingress are plain lists whose lines become tasks. All peers of the name have the
	// same ones. Default: none.
	Ingress []Ingress
	// Replicas is how many replicas must have the lines of an ingress list before they are taken off it,
	// where the list and the partitions are on several servers of a cluster: else a fail-over forgets lines
	// and their tasks together or neither. Default 0: none.
	Replicas int
	// Stuck is called when a partition is read no further because too many tasks (eight windows,
	// 8,192 at most) wait behind one key that does not get done for a second, and again when that is
	// over. It must not block. Default: nobody is told.
	Stuck func(Stuck)
	// Jobs are periodic tasks. All peers of the name have the same ones. Default: none.
	Jobs []jobs.Entry
	// Ticked is called when ticks of jobs were fired or passed over, or could not be. It must not
	// block. Default: nobody is told.
	Ticked func(Ticked)
	// Buried is called when tasks that no handler was given became dead letters. It must not
	// block. Default: nobody is told.
	Buried func(sources.Buried)
	// Warn is called at the start with what of the server may cost tasks: that it evicts keys. It
	// must not block. Default: nobody is told, and the server is not asked.
	Warn func(error)
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 2048
	}
	if c.CrashLimit == 0 {
		c.CrashLimit = 3
	}
	return c
}

func (c Config) validate() error {
	errs := []error{partition.Config{Total: c.Partitions, Hash: c.Hash}.WithDefaults().Validate()}
	if c.Window < 1 || c.Window > 1<<16 {
		errs = append(errs, fmt.Errorf("redissource: Window %d: want 1 to %d", c.Window, 1<<16))
	}
	if c.CrashLimit < 1 {
		errs = append(errs, fmt.Errorf("redissource: CrashLimit %d: want 1 or more", c.CrashLimit))
	}
	errs = append(errs, validateIngress(c.Ingress))
	return errors.Join(errs...)
}

// A Source hands out the tasks under one name. It implements [sources.Source]. It
// holds nothing while no stream is open, so there is nothing to close; the client
// stays the caller's.
type Source struct {
	client redis.UniversalClient
	name   string
	cfg    Config
	waker  waker
	permit logstream.Permit
	jobs   []*jobs.Job
	forgot atomic.Bool // the store has forgotten a partition, and maybe what was agreed on

	mu     sync.Mutex
	layout partition.Config // zero: not asked yet
}

// New returns the source of the tasks under name. It does not talk to the store.
func New(client redis.UniversalClient, name string, cfg Config) (*Source, error) {
	cfg = cfg.withDefaults()
	all, err := jobs.Compile(cfg.Jobs...)
	waits := (&pusher{client: client, replicas: cfg.Replicas}).supported()
	if err := errors.Join(partition.CheckName(name), cfg.validate(), waits, ownLists(name, cfg.Ingress), err); err != nil {
		return nil, err
	}
	s := &Source{client: client, name: name, cfg: cfg, jobs: all}
	s.waker.client, s.waker.cancels = client, newCancels(client, name)
	return s, nil
}

// Name implements [partition.Named].
func (s *Source) Name() string { return s.name }

// Layout returns the configuration of the name. The first call writes it if none
// stands, and fails with an error that wraps partition.ErrConfig if another does.
func (s *Source) Layout(ctx context.Context) (partition.Config, error) {
	s.mu.Lock()
	known := s.layout
	s.mu.Unlock()
	if known.Total > 0 {
		return known, nil
	}
	c, err := redisconfig.Lists.Agree(ctx, s.client, s.name, partition.Config{
		Total: s.cfg.Partitions, Hash: s.cfg.Hash, Units: unitNames(s.cfg.Ingress),
	})
	if err == nil {
		err = checkJobs(s.jobs, c.Hash)
	}
	if err != nil {
		return partition.Config{}, err
	}
	s.mu.Lock()
	first := s.layout.Total == 0
	s.layout = c
	s.mu.Unlock()
	if first && s.cfg.Warn != nil {
		if err := evicting(ctx, s.client); err != nil {
			s.cfg.Warn(err)
		}
	}
	return c, nil
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
	if g.ID.IsUnit() {
		return openIngress(ctx, s, layout, g, tok)
	}
	if g.ID < 0 || int(g.ID) >= layout.Total {
		return nil, fmt.Errorf("%s has %d partitions", s.name, layout.Total)
	}
	if s.forgot.Swap(false) {
		s.again(ctx, layout)
	}
	keys := KeysOf(s.name, g.ID)
	log := redisprogress.New(s.client, keys.Keys, g, tok)
	o, err := log.Open(ctx, 0)
	if err == nil {
		err = s.buryCrashed(ctx, g, keys, log, &o)
	}
	if err != nil {
		return nil, err
	}
	return newStream(s, g, tok, keys, log, o, layout), nil
}

// again writes what all agree on where nothing stands any more: a ledger elsewhere does not know that the store has
// forgotten it. Who stands there now is let be, and the work waits no longer than a moment for it: the node of it may be
// away where that of the partition is not.
func (s *Source) again(ctx context.Context, layout partition.Config) {
	ctx, done := context.WithTimeout(ctx, time.Second)
	defer done()
	_, err := redisconfig.Lists.Agree(ctx, s.client, s.name, layout)
	if err != nil && !errors.Is(err, partition.ErrConfig) {
		s.forgot.Store(true) // with the next that is opened
	}
}

// limits are those of a partition's log.
func (s *Source) limits() progress.Config { return progress.Config{Window: s.cfg.Window} }

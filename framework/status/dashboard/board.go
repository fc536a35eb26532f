package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/machine"
)

// Config of a [Board].
type Config struct {
	// Names are those that may be looked at. None: all.
	Names []string
	// List returns the names there are; it is asked at most every 30 s. Required without Names.
	List func(context.Context) ([]string, error)
	// Read looks at a name, as [status.Place.Read] does. Required.
	Read func(ctx context.Context, name string) (status.Status, error)
	// History returns the last changes in a name, as [status.Place.History] does. Nil: none are shown.
	History func(ctx context.Context, name string, limit int) (machine.History, error)
	// Every is how often a page is brought up to date. Default 1 s; at least 100 ms.
	Every time.Duration
	// Timeout of one look. Default 10 s.
	Timeout time.Duration
}

// Of returns what shows names of the store behind client, all that are in it if none are given.
func Of(client redis.UniversalClient, names ...string) Config {
	at := status.Place{Client: client}
	return Config{
		Names:   names,
		List:    func(ctx context.Context) ([]string, error) { return redisconfig.Names(ctx, client) },
		Read:    at.Read,
		History: at.History,
	}
}

// fastest is how often a page may be brought up to date.
const fastest = 100 * time.Millisecond

// validate says all that is wrong with c.
func (c Config) validate() error {
	var errs []error
	for _, name := range c.Names {
		if err := partition.CheckName(name); err != nil {
			errs = append(errs, fmt.Errorf("dashboard: %w", err))
		}
	}
	if len(c.Names) == 0 && c.List == nil {
		errs = append(errs, errors.New("dashboard: no Names and no List: want names to show, or a function that returns them"))
	}
	if c.Read == nil {
		errs = append(errs, errors.New("dashboard: Read is nil: want a function that looks at a name"))
	}
	if c.Every < fastest {
		errs = append(errs, fmt.Errorf("dashboard: every %v: want at least %v", c.Every, fastest))
	}
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("dashboard: timeout %v: want more than 0", c.Timeout))
	}
	return errors.Join(errs...)
}

// A Board shows names. It is an [http.Handler], for any path: mount it at one that ends with a
// slash, with [http.StripPrefix]. It only reads, and authenticates nobody: put your own check
// before it where others reach it. It has no goroutines but those of its requests.
type Board struct {
	cfg    Config
	closed context.Context // over: streams end
	close  context.CancelFunc
	mux    *http.ServeMux
	listed *looks[listing]

	mu    sync.Mutex
	views map[string]*looks[*view] // of names that were seen not long ago
}

// New returns a board, or says all that is wrong with cfg.
func New(cfg Config) (*Board, error) {
	cfg.Every, cfg.Timeout = cmp.Or(cfg.Every, time.Second), cmp.Or(cfg.Timeout, 10*time.Second)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var once []string
	for _, name := range cfg.Names {
		if !slices.Contains(once, name) { // a second series of a name would be refused by Prometheus, with all of them
			once = append(once, name)
		}
	}
	cfg.Names = once
	b := &Board{cfg: cfg, listed: newLooks[listing](), views: map[string]*looks[*view]{}}
	b.closed, b.close = context.WithCancel(context.Background())
	b.mux = b.routes()
	return b, nil
}

// Close ends the streams to browsers, which would keep a server from shutting down; they come back by
// themselves where there is still one. Pages go on to be served.
func (b *Board) Close() { b.close() }

// fresh is how long the list of names is taken to be the same: to find them, all keys of a store are
// walked through.
const fresh = 30 * time.Second

// A listing is the names that there were when they were last found, and why they are not of now.
type listing struct {
	names []string
	err   error
}

// names returns which there are. With an error those that there were: what was seen of them is shown on.
func (b *Board) names(ctx context.Context) ([]string, error) {
	if len(b.cfg.Names) > 0 {
		return b.cfg.Names, nil
	}
	found, err := b.listed.get(ctx, func(last listing) time.Duration {
		if last.err != nil {
			return b.cfg.Every / 2
		}
		return fresh
	}, func(last listing) (listing, error) {
		ctx, cancel := b.span(ctx)
		defer cancel()
		names, err := b.cfg.List(ctx)
		if err != nil {
			names = append(names, last.names...) // those of a master that does not answer are there still
			slices.Sort(names)
			names = slices.Compact(names)
		}
		return listing{names, err}, nil
	})
	return found.names, errors.Join(err, found.err)
}

// shown says why name is not.
func (b *Board) shown(name string) error {
	switch err := partition.CheckName(name); {
	case err != nil:
		return err
	case len(b.cfg.Names) > 0 && !slices.Contains(b.cfg.Names, name):
		return fmt.Errorf("dashboard: %s is not among the names that are shown here", name)
	}
	return nil
}

// look returns what name looks like. The error says that there is nothing to see under it; what keeps a
// view from being of now, the view says itself.
func (b *Board) look(ctx context.Context, name string) (*view, error) {
	if err := b.shown(name); err != nil {
		return nil, err
	}
	l := b.looksAt(name)
	v, err := l.get(ctx, func(last *view) time.Duration {
		// A stream looks each Every, and may come a little early for what another has brought. What is
		// big must not keep the store busy.
		return max(b.cfg.Every/2, 3*last.took)
	}, func(last *view) (*view, error) {
		ctx, cancel := b.span(ctx)
		defer cancel()
		began := time.Now()
		s, history, err := b.read(ctx, name)
		if errors.Is(err, redisconfig.ErrNone) {
			return nil, err
		}
		v := last.next(name, s, history, err, time.Now())
		switch v.took = time.Since(began); { // to wait keeps nobody busy
		case err != nil:
			v.took = 0
		case s.Totals().Unknown || slices.ContainsFunc(s.Units, func(u status.Unit) bool { return u.Unknown }):
			v.took = min(v.took, b.cfg.Every) // for a node of a cluster
		}
		return v, nil
	})
	if errors.Is(err, redisconfig.ErrNone) || err == nil && !v.seen {
		b.mu.Lock() // whoever asks for names at random leaves nothing here
		delete(b.views, name)
		b.mu.Unlock()
	}
	return v, err
}

// long is for how long a view is kept that nobody asks for: its name may not be there any more.
const long = time.Hour

// looksAt returns the looks at name.
func (b *Board) looksAt(name string) *looks[*view] {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.views[name]
	if l == nil {
		maps.DeleteFunc(b.views, func(_ string, l *looks[*view]) bool { return time.Since(l.asked) > long })
		l = newLooks[*view]()
		b.views[name] = l
	}
	l.asked = time.Now()
	return l
}

// span is that of one look, which is for others too: it does not end with who asked for it.
func (b *Board) span(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), b.cfg.Timeout)
}

// told is how many of the last changes are shown.
const told = 40

func (b *Board) read(ctx context.Context, name string) (status.Status, machine.History, error) {
	s, err := b.cfg.Read(ctx, name)
	if err != nil || b.cfg.History == nil {
		return s, nil, err
	}
	history, err := b.cfg.History(ctx, name, told)
	return s, history, err
}

// looks are those of many at the same thing.
type looks[T any] struct {
	turn  chan struct{} // has room for the one who looks
	last  T
	at    time.Time // of the last
	taken bool

	asked time.Time // guarded by Board.mu
}

func newLooks[T any]() *looks[T] { return &looks[T]{turn: make(chan struct{}, 1)} }

// get returns the last look if it is not as old as it may get, else takes another, for which the others
// wait. An error is nobody's but the caller's: the next one looks again.
func (l *looks[T]) get(ctx context.Context, age func(last T) time.Duration, take func(last T) (T, error)) (none T, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return none, ctx.Err()
	}
	if err := ctx.Err(); err != nil { // whoever has gone wants no look
		return none, err
	}
	if l.taken && time.Since(l.at) < age(l.last) {
		return l.last, nil
	}
	next, err := take(l.last)
	if err != nil {
		return none, err
	}
	l.last, l.at, l.taken = next, time.Now(), true
	return next, nil
}

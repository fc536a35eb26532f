package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// A PlainPolicy says what to do about an asynq.Server of somebody else that consumes our
// queues: it asks no fence, and there is no promise beside it.
type PlainPolicy string

// The policies.
const (
	// Refuse: nothing is begun, and while it is there nothing more is fetched.
	Refuse PlainPolicy = "refuse"
	// Alarm: Config.Found is told, nothing else.
	Alarm PlainPolicy = "alarm"
)

// A Plain is an asynq.Server that is not one of our peers and lists one of our queues.
type Plain struct {
	ID    string // asynq's id of the server
	Host  string
	PID   int
	Since time.Time
	Queue string // one of ours that it lists
	// Peer is the name of countoff's whose peer it is; empty: it is a plain one.
	Peer string
}

// A PlainError is the refusal because of a plain server, or of a peer of another name.
type PlainError struct{ Plain Plain }

func (e *PlainError) Error() string {
	p := e.Plain
	if p.Peer != "" {
		return fmt.Sprintf("asynqsource: queue %q is consumed by the peers of the name %s (host %s, pid %d): a queue belongs to one name; stop them, or take the queue out of one",
			p.Queue, p.Peer, p.Host, p.PID)
	}
	return fmt.Sprintf("asynqsource: a plain asynq.Server consumes queue %q (host %s, pid %d, since %s): it asks no fence; stop it (one that was killed stays listed for some ten seconds), or set Plain to %q",
		p.Queue, p.Host, p.PID, p.Since.Format(time.RFC3339), Alarm)
}

const (
	// plainEvery is how often plain servers are looked for.
	plainEvery = time.Minute
	// goneEvery is how often they are looked for while nothing is fetched because of one. It is that of peers
	// that do not start because of it.
	goneEvery = 10 * time.Second
	// lookedFor is how long what was found counts for those who open something beside.
	lookedFor = time.Second
)

// lookForPlain looks for plain servers, tells of them and returns the first as an error
// if the policy is to refuse.
func (s *Source) lookForPlain(ctx context.Context, total int) error {
	found, err := s.plainServers(ctx, total)
	if err != nil {
		return err
	}
	for _, p := range found {
		if s.cfg.Found != nil {
			s.cfg.Found(p)
		}
	}
	if len(found) == 0 || s.cfg.Plain == Alarm {
		return ctx.Err()
	}
	return &PlainError{found[0]}
}

// plainServers lists the plain servers on our queues. It asks asynq itself: tools read the
// same without it (queuestat.Servers).
func (s *Source) plainServers(ctx context.Context, total int) ([]Plain, error) {
	listed, err := asynq.NewInspectorFromRedisClient(within{s.client, ctx}).Servers()
	if err != nil {
		return nil, fmt.Errorf("asynqsource: list asynq's servers: %w", err)
	}
	servers := make([]queuestat.Server, len(listed))
	for i, l := range listed {
		servers[i] = queuestat.Server{ID: l.ID, Host: l.Host, PID: l.PID, Since: l.Started, Queues: slices.Collect(maps.Keys(l.Queues))}
	}
	var found []Plain
	for _, p := range queuestat.Strangers(servers, s.name, s.queues(total)) {
		found = append(found, Plain{ID: p.ID, Host: p.Host, PID: p.PID, Since: p.Since, Queue: p.Queue, Peer: p.Peer})
	}
	return found, nil
}

// within is a client whose calls, as asynq makes them to list servers, end with ctx: asynq gives them none
// that ends, and a store that stands still would hold whoever is to hand a queue over.
type within struct {
	redis.UniversalClient
	ctx context.Context
}

func (w within) Eval(_ context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return w.UniversalClient.Eval(w.ctx, script, keys, args...)
}

func (w within) EvalSha(_ context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return w.UniversalClient.EvalSha(w.ctx, sha, keys, args...)
}

func (w within) Get(_ context.Context, key string) *redis.StringCmd {
	return w.UniversalClient.Get(w.ctx, key)
}

// watch looks for plain servers until ctx ends, now and then and in doubt, which may come with each task: of one that
// is not listed it finds nothing. While there is one, and the policy is to refuse, streams fetch nothing, and it looks
// more often: nobody else says that it is gone.
func (s *Source) watch(ctx context.Context, total int) {
	tick := time.NewTicker(plainEvery)
	defer tick.Stop()
	rest := time.NewTimer(lookedFor)
	defer rest.Stop()
	doubt := s.doubt // nil: there was a look in doubt a moment ago
	for {
		select {
		case <-tick.C:
		case <-doubt:
			doubt = nil
			rest.Reset(lookedFor)
		case <-rest.C:
			doubt = s.doubt
			continue
		case <-ctx.Done():
			return
		}
		_ = s.lookAgain(ctx, total) // a store that is down is noticed elsewhere
		every := plainEvery
		if plain := new(PlainError); errors.As(s.refused(), &plain) {
			every = goneEvery
		}
		tick.Reset(every)
	}
}

// lookAgain looks for plain servers, says what that means for streams, and returns it. A self-test for
// which there was no room at the start is made up for first.
func (s *Source) lookAgain(ctx context.Context, total int) error {
	err := s.check(ctx)
	if !errors.Is(err, partition.ErrConfig) {
		err = s.lookForPlain(ctx, total)
		if plain := new(PlainError); err != nil && !errors.As(err, &plain) {
			return err // the store is down: that says nothing of servers
		}
	}
	s.refuse(err)
	return err
}

// beside returns why nothing may be opened: it would give back, to be run again, what a plain server runs.
// While no stream is open nobody watches for one, as under a pause. Many are opened at once: one of them looks.
func (s *Source) beside(ctx context.Context, total int) error {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	known := len(s.streams) > 0 || time.Since(s.looked) < lookedFor
	s.mu.Unlock()
	if known {
		return s.refused()
	}
	return s.lookAgain(ctx, total)
}

// refuse sets why nothing is fetched, nil: nothing is wrong.
func (s *Source) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal, s.looked = err, time.Now()
}

func (s *Source) refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal
}

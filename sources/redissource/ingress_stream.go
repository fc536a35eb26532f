package redissource

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
)

var (
	//go:embed ingress.lua
	ingressSource string
	//go:embed ingress_open.lua
	ingressOpenSource string
	//go:embed ingress_close.lua
	ingressCloseSource string

	ingressOpenScript  = newScript(ingressSource + ingressOpenSource)
	ingressCloseScript = newScript(ingressCloseSource)
)

// An ingressStream is one ownership of an ingress list. Its goroutine moves lines to
// the partitions from Open to Close, or until the fence refuses it; Fetch only hears
// of its troubles.
type ingressStream struct {
	client redis.UniversalClient
	pusher pusher
	name   string
	layout partition.Config
	unit   Ingress
	fence  string // keys
	plan   string
	grant  partition.Grant
	token  partition.Token
	single bool // one script may touch the list and all partitions

	stop    context.CancelFunc // after the batch under way
	abort   context.CancelFunc // also that batch
	trouble chan error         // the newest one worth telling
	ended   chan struct{}      // closed when the goroutine has ended
	end     error              // why, once it has; nil: stopped

	// Of the goroutine, and of Open before it:
	base     int64
	era      int64
	begun    int64 // eras this owner began
	standing *ingressPlan
	size     int      // lines of the next batch
	came     []string // the oldest line, with which the last wait ended
	full     bool     // a target refused the last push because it is full
	waiter   *redis.Client
}

// openIngress starts the ownership g of an ingress list.
func openIngress(ctx context.Context, s *Source, layout partition.Config, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	for _, unit := range s.cfg.Ingress {
		if unit.List == layout.Unit(g.ID) {
			_, single := s.client.(*redis.Client)
			unit.buried, unit.replicas = s.cfg.Buried, s.cfg.Replicas
			return startIngress(ctx, s.client, s.name, layout, unit, g, tok, single)
		}
	}
	return nil, fmt.Errorf("%s has no ingress list %q", s.name, layout.Unit(g.ID))
}

func startIngress(ctx context.Context, client redis.UniversalClient, name string, layout partition.Config, unit Ingress,
	g partition.Grant, tok partition.Token, single bool) (sources.Stream, error) {
	tag, err := ingressTag(unit.List)
	if err != nil {
		return nil, err
	}
	if other := ofAnother(ctx, client, unit.List); other != "" {
		return nil, fmt.Errorf("ingress %s: so the keys of a partition of the name %s are called: take another name for the list: %w", unit.List, other, partition.ErrConfig)
	}
	run, stop := context.WithCancel(context.Background())
	batch, abort := context.WithCancel(context.Background())
	s := &ingressStream{
		client: client, name: name, layout: layout, unit: unit, single: single,
		pusher: pusher{client: client, replicas: unit.replicas, patience: waitReplicas},
		fence:  tag + ":fence", plan: tag + ":plan", grant: g, token: tok,
		stop: stop, abort: abort, trouble: make(chan error, 1), ended: make(chan struct{}),
		begun: -1, size: firstBatch,
	}
	if err := s.install(ctx, false); err != nil {
		stop()
		abort()
		return nil, err
	}
	go s.run(run, batch)
	return s, nil
}

// eras is how many eras an owner may begin: the store fails over seldom.
const eras = 1000

// install installs the fence, or begins a new era under the one that stands. The
// lines may no longer be those of the plan if void.
func (s *ingressStream) install(ctx context.Context, void bool) error {
	if s.begun++; s.begun >= eras {
		return sources.ErrForgot
	}
	flag := ""
	if void {
		flag = "1"
	}
	a, err := s.ask(ctx, ingressOpenScript, []string{s.fence, s.plan},
		s.token.String(), s.token.Epoch.String(), int64(s.token.Epoch)*eras+s.begun, flag)
	if err != nil {
		return err
	}
	switch {
	case a[0] == "FENCED" && len(a) == 2:
		epoch, err := strconv.ParseUint(a[1], 10, 64)
		if err != nil {
			return fmt.Errorf("ingress %s: epoch %q", s.unit.List, a[1])
		}
		return &sources.FencedError{Grant: s.grant, Stored: partition.Epoch(epoch)}
	case a[0] == "PARTITION":
		return fmt.Errorf("ingress %s: its key %s is one of a partition of another name: take another name for the list: %w",
			s.unit.List, s.fence, partition.ErrConfig)
	case a[0] == "OK" && len(a) == 8:
		if err := errors.Join(parseInt(&s.base, a[1]), parseInt(&s.era, a[2])); err != nil {
			return err
		}
		s.standing = nil
		if a[3] != "" {
			s.standing, err = s.parsePlan(a[3:])
		}
		return err
	}
	return s.strange(a)
}

// ask runs a script and returns its answer, one string at least.
func (s *ingressStream) ask(ctx context.Context, sc script, keys []string, args ...any) ([]string, error) {
	a, err := sc.Run(ctx, s.client, keys, args...).StringSlice()
	if err == nil && len(a) == 0 {
		err = s.strange(a)
	}
	return a, err
}

func (s *ingressStream) strange(answer []string) error {
	return fmt.Errorf("ingress %s: answer %q", s.unit.List, answer)
}

func parseInt(to *int64, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	*to = n
	return err
}

// Fetch returns no tasks: it waits for the next trouble worth telling, or the end.
func (s *ingressStream) Fetch(ctx context.Context, _ int) ([]sources.Task, error) {
	select {
	case err := <-s.trouble:
		return nil, s.failed("fetch", err)
	case <-s.ended:
		if s.end == nil {
			return nil, sources.ErrClosed
		}
		return nil, s.failed("fetch", s.end)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Settle does nothing: there are no tasks.
func (s *ingressStream) Settle(context.Context, ...sources.Settlement) error { return nil }

// Close ends the ownership: once it returned nil, nothing that was sent under it
// moves a line any more. A batch under way is ended, unless ctx ends or it fails. Close returns after
// the stream's goroutine, whose request under way the client's own timeouts bound; if ctx has ended
// then, the fence stays.
func (s *ingressStream) Close(ctx context.Context) error {
	s.stop()
	defer s.abort()
	defer context.AfterFunc(ctx, s.abort)()
	<-s.ended
	if err := ctx.Err(); err != nil {
		return s.failed("close", err)
	}
	if err := ingressCloseScript.Run(ctx, s.client, []string{s.fence}, s.token.String()).Err(); err != nil {
		return s.failed("close", redisconfig.Explain(err))
	}
	return nil
}

func (s *ingressStream) failed(op string, err error) error {
	return &sources.Error{Op: op, Grant: s.grant, Err: err}
}

// final are the ends of an ownership.
func final(err error) bool {
	return errors.Is(err, sources.ErrFenced) || errors.Is(err, sources.ErrForgot) || errors.Is(err, partition.ErrConfig) ||
		errors.Is(err, redis.ErrClosed)
}

// run moves lines until ctx ends or the ownership does. A batch that has begun goes on until batch ends.
func (s *ingressStream) run(ctx, batch context.Context) {
	defer close(s.ended)
	defer s.closeWaiter()
	var t logstream.Trouble
	for ctx.Err() == nil {
		err := s.step(ctx, batch, &t)
		now := time.Now()
		switch {
		case err == nil:
			t = logstream.Trouble{}
			continue
		case final(err):
			s.end = err
			return
		case ctx.Err() != nil:
			return
		}
		s.size = max(1, s.size/2) // perhaps they weigh too much to be read in the time
		pause, tell := t.Next(now, redisconfig.Lasting(err))
		if tell {
			s.tell(redisconfig.Explain(err))
		}
		sleep(ctx, pause)
	}
}

// tell puts err where Fetch finds it; one that nobody has fetched yet gives way.
func (s *ingressStream) tell(err error) {
	select {
	case <-s.trouble:
	default:
	}
	s.trouble <- err // the only sender: there is room
}

// errChanged means that the lines read are not those in the list any more.
var errChanged = errors.New("lines were pushed at the wrong end of the list, or taken out of it, while they were moved")

// settled says what an answer other than OK means for the ownership.
func (s *ingressStream) settled(ctx context.Context, a []string) error {
	switch a[0] {
	case "MOVED":
		if len(a) < 2 {
			return s.strange(a)
		}
		return parseInt(&s.base, a[1])
	case "CHANGED":
		return errChanged
	case "STALE":
		return sources.ErrFenced
	case "FORGOT":
		return s.install(ctx, false)
	case "RESIZED":
		return fmt.Errorf("%s has %s partitions now, this peer counts %d: %w",
			s.name, strings.Join(a[1:], ""), s.layout.Total, partition.ErrConfig)
	}
	return s.strange(a)
}

package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// wait is how long a test waits for what must come.
const wait = 30 * time.Second

// until waits until ok.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(wait); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("it never came to be: %s", what)
		}
	}
}

// quiet is a logger of asynq that says nothing.
type quiet struct{ *log.Logger }

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}

func silent(cfg asynq.Config) asynq.Config {
	cfg.Logger = quiet{log.New(io.Discard, "", 0)}
	return cfg
}

// A testPeer does with a source what the framework does: it runs what is fetched, tasks
// of a key one at a time and in order, and settles.
type testPeer struct {
	t      testing.TB
	src    *Source
	engine *Engine
	client redis.UniversalClient
}

func (s *store) run(t testing.TB, cfg Config, h asynq.Handler, acfg asynq.Config) *testPeer {
	t.Helper()
	src, _, client := s.peer(t, cfg)
	e, err := src.Handler(h, silent(acfg))
	if err != nil {
		t.Fatal(err)
	}
	return &testPeer{t: t, src: src, engine: e, client: client}
}

// owned is a partition that a peer works on.
type owned struct {
	p      *testPeer
	stream sources.Stream
	cancel context.CancelFunc
	lose   context.CancelCauseFunc
	done   sync.WaitGroup
}

var errLost = errors.New("the partition is lost")

// serve opens a partition under an epoch and works on it until stop or lost.
func (p *testPeer) serve(id partition.ID, epoch partition.Epoch) *owned {
	p.t.Helper()
	g := partition.Grant{ID: id, Epoch: epoch}
	st, err := p.src.Open(p.t.Context(), g, partition.Token{Epoch: epoch, Session: partition.Session(fmt.Sprintf("%032x", epoch))})
	if err != nil {
		p.t.Fatalf("open: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run, lose := context.WithCancelCause(context.Background())
	o := &owned{p: p, stream: st, cancel: cancel, lose: lose}
	o.done.Go(func() { o.work(ctx, run) })
	return o
}

// stop lets handlers end and gives the rest back.
func (o *owned) stop() {
	o.p.t.Helper()
	o.cancel()
	o.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := o.stream.Close(ctx); err != nil {
		o.p.t.Errorf("close: %v", err)
	}
}

// lost takes the partition away: handlers are cancelled, nothing is said any more.
func (o *owned) lost() {
	o.lose(errLost)
	o.cancel()
	o.done.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = o.stream.Close(ctx) // only frees what it holds
}

func (o *owned) work(ctx, run context.Context) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	last := make(map[string]chan struct{}) // when the last task of a key is finished
	for ctx.Err() == nil {
		tasks, err := o.stream.Fetch(ctx, 16)
		if err != nil {
			if errors.Is(err, sources.ErrFenced) || errors.Is(err, sources.ErrForgot) || errors.Is(err, sources.ErrClosed) {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		for i := range tasks {
			task := tasks[i]
			var before chan struct{}
			after := make(chan struct{})
			if task.Key != "" {
				before, last[task.Key] = last[task.Key], after
			}
			handlers.Go(func() {
				defer close(after)
				if before != nil {
					<-before
				}
				o.handle(ctx, run, task)
			})
		}
	}
}

// handle runs a task until it is finished or the peer stops.
func (o *owned) handle(ctx, run context.Context, task sources.Task) {
	now := *task.Copy()
	for {
		if d := time.Until(now.NotBefore); d > 0 {
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		err := o.p.engine.Handle(run, &now)
		if run.Err() != nil {
			return
		}
		s := sources.Settlement{Task: &task, Attempt: now.Attempt}
		if err != nil {
			s.Reason = err.Error()
		}
		s.Outcome, s.Delay = sources.Asked(err)
		switch {
		case s.Outcome == 0:
			return // not run: the next owner does
		case s.Outcome == sources.Retry && task.Key == "":
			s.Outcome = sources.Requeue
		}
		if err := o.stream.Settle(run, s); err != nil {
			return
		}
		if s.Outcome != sources.Retry {
			return
		}
		now.Attempt++
		now.NotBefore = time.Now().Add(s.Delay)
	}
}

// enqueue enqueues with asynq's own client.
func (s *store) enqueue(t testing.TB, id partition.ID, task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
	t.Helper()
	client := asynq.NewClientFromRedisClient(s.UniversalClient)
	info, err := client.Enqueue(task, append(opts, asynq.Queue(QueueOf(s.name, id)))...)
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	return info
}

func (s *store) inspector() *asynq.Inspector {
	return asynq.NewInspectorFromRedisClient(s.UniversalClient)
}

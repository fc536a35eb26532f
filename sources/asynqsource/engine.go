package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources"
)

// An Engine runs a handler of asynq, a ServeMux as a rule, in one stock asynq.Server
// that lives while the source has an open stream. Its method Handle makes it a
// framework.Handler: what it is given is what the server takes from its queues, and
// what the server says of it afterwards is what becomes of the task.
//
// Order, concurrency and when a task may start are the consumer's; everything about one
// run is asynq's: timeouts, deadlines, retries and their delays, results, the archive.
type Engine struct {
	source  *Source
	handler asynq.Handler
	cfg     asynq.Config

	offers chan *run
	again  <-chan time.Time // when asynq is to ask again

	mu     sync.Mutex
	runs   map[runKey]*run
	asking int           // questions that the caller takes his time over, see ask
	asked  time.Time     // when that was last so
	quit   chan struct{} // nil while the server is down; closed when it is to stop
	server *asynq.Server
	free   func() // of what it listens by
	watch  sync.WaitGroup
}

// A runKey names a task: its id is unique in its queue.
type runKey struct{ queue, id string }

// A run is one run of a task, from Handle until its verdict.
type run struct {
	ctx    context.Context // the consumer's
	task   *sources.Task
	stream *stream
	key    runKey
	raw    string
	begun  time.Time

	// The engine's lock guards what follows.
	handed   time.Time       // when asynq took it
	started  bool            // the handler was called
	handling <-chan struct{} // closed when the handler's context is over, as by its return; nil before the call
	returned chan struct{}   // closed when the handler has returned; made by who waits
	ended    time.Time       // when it returned, or the caller was told of its error after that
	telling  int             // how often the caller is being told
	err      error           // ... and with what
	verdict  chan struct{}   // closed when there is one
	settled  bool
	native   *native // nil: asynq said nothing
}

const (
	// hopTime is the most that may pass from the consumer's question whether a task may
	// start to the start. More means that the process stood still: it asks again.
	hopTime = time.Second
	// dropTime is how long after a handler has returned asynq may take to say what
	// became of the task. It says nothing if it believes that its own lease is over.
	dropTime = time.Second
	// startTime is how long after asynq has taken a task it may take to start it. It says
	// nothing of a message that it cannot read.
	startTime = 10 * time.Second
	// askTime is how long a question of asynq's for a task may wait. asynq counts the lease of the
	// task, 30 s, from the question, and extends it first at its next heartbeat, within 5 s.
	askTime = 5 * time.Second
	// mostRuns is the concurrency of the server: the consumer's bounds it.
	mostRuns = 1 << 16
)

var (
	errTwice      = errors.New("asynqsource: asynq has given the task up before it was started")
	errPaused     = errors.New("asynqsource: the process stood still before the start")
	errDropped    = errors.New("asynqsource: asynq did not say what became of the task")
	errNotStarted = errors.New("asynqsource: asynq has not started the task")
	errPanic      = errors.New("the handler panicked")
)

// Handler makes the engine of a source: h is what a plain asynq.Server would run, cfg what it
// would be made with. Of cfg, TaskCheckInterval, DelayedTaskCheckInterval and ShutdownTimeout are
// not used: they are the consumer's. So is Concurrency, which asynqfx takes where the consumer's
// configuration says none. Queues may be left out; their weights are not used.
//
// A source has at most one engine, and needs none for handlers of the framework. It must be made
// before the first Open.
//
// All that is wrong is one error: no handler, StrictPriority, a queue that the source does not
// consume, a GroupGracePeriod that asynq would refuse. A second engine is another.
func (s *Source) Handler(h asynq.Handler, cfg asynq.Config) (*Engine, error) {
	var errs []error
	if missing(h) {
		errs = append(errs, errors.New("asynqsource: no handler: want an asynq.Handler, a *asynq.ServeMux as a rule"))
	}
	if g := cfg.GroupGracePeriod; g != 0 && g < time.Second {
		errs = append(errs, fmt.Errorf("asynqsource: GroupGracePeriod %v: asynq wants at least a second", g))
	}
	if cfg.StrictPriority {
		errs = append(errs, errors.New("asynqsource: StrictPriority: queues take turns here; take it out, and give what is urgent a consumer of its own"))
	}
	for _, q := range slices.Sorted(maps.Keys(cfg.Queues)) {
		if !s.consumes(q) {
			errs = append(errs, fmt.Errorf("asynqsource: the server's Queues have %q, which the source does not consume: name it in Queues or Ingress of the source, or take it out", q))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	e := &Engine{source: s, handler: h, cfg: cfg, offers: make(chan *run), again: time.Tick(askTime), runs: make(map[runKey]*run)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine != nil {
		return nil, errors.New("asynqsource: the source has a handler already")
	}
	s.engine = e
	return e, nil
}

// missing reports whether h is nil, or one of asynq's that is nil inside: it would panic for each task,
// until all were archived.
func missing(h asynq.Handler) bool {
	switch h := h.(type) {
	case nil:
		return true
	case asynq.HandlerFunc:
		return h == nil
	case *asynq.ServeMux:
		return h == nil
	}
	return false
}

// start starts the server. The caller sees to it that it is down.
func (e *Engine) start(queues []string) error {
	cfg := e.cfg
	cfg.Queues = map[string]int{e.source.mark: 1}
	for _, q := range queues {
		cfg.Queues[q] = 1
	}
	cfg.StrictPriority = true // nothing to shuffle: the first queue is asked, and answers for all
	cfg.TaskCheckInterval = time.Millisecond
	cfg.ShutdownTimeout = dropTime // nothing runs when it is shut down, also where asynq waits for a handler that has ended its goroutine
	cfg.Concurrency = mostRuns     // nothing must wait between the consumer's question and the start
	e.hook(&cfg)
	quit := make(chan struct{})
	v, free := e.source.newView(e)
	server := asynq.NewServerFromRedisClient(v, cfg)
	e.mu.Lock()
	e.quit, e.server, e.free = quit, server, free
	e.mu.Unlock()
	if err := server.Start(asynq.HandlerFunc(e.process)); err != nil {
		return fmt.Errorf("asynqsource: start asynq's server: %w", err)
	}
	e.watch.Go(func() { e.sweep(quit) })
	return nil
}

// stop shuts the server down. Nothing runs any more.
func (e *Engine) stop() {
	e.mu.Lock()
	server, free := e.server, e.free
	close(e.quit)
	e.mu.Unlock()
	server.Shutdown()
	free()
	e.watch.Wait()
}

// Handle runs the handler with t and returns what asynq made of it: nil, a sources.RetryError
// with asynq's own delay, or a sources.DeadError. If ctx ended the run, or ended before it, the
// error is or wraps the cause of ctx. Handle returns when the handler has. It may be called
// concurrently; two runs of one task wait for each other.
func (e *Engine) Handle(ctx context.Context, t *sources.Task) error {
	begun := time.Now() // before the locks: a pause while one is waited for counts
	stream := e.source.holder(t.Grant, t.Token)
	if stream == nil {
		return notRun(errForeign)
	}
	raw, ok := stream.raw(int64(t.Receipt))
	if !ok {
		return notRun(errFinished)
	}
	r := &run{
		ctx: ctx, task: t, stream: stream, key: runKey{stream.queue, t.ID}, raw: raw, begun: begun,
		verdict: make(chan struct{}),
	}
	quit, err := e.enter(ctx, r)
	if err != nil {
		return err
	}
	select {
	case e.offers <- r:
	case <-ctx.Done():
		e.leave(r)
		return context.Cause(ctx)
	case <-quit:
		e.leave(r)
		return notRun(errClosing)
	}
	<-r.verdict // not ctx: it comes when the handler has returned
	e.leave(r)
	return r.outcome()
}

// notRun is the verdict on a task that was not run: it is not the task's fault.
func notRun(err error) error { return &sources.RetryError{Err: err, Counted: true} }

// enter waits until no other run of the task is under way.
func (e *Engine) enter(ctx context.Context, r *run) (quit chan struct{}, err error) {
	for {
		e.mu.Lock()
		former := e.runs[r.key]
		if former == nil {
			e.runs[r.key] = r
			quit = e.quit
			e.mu.Unlock()
			return quit, nil
		}
		e.mu.Unlock()
		select {
		case <-former.verdict:
			e.leave(former)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// leave takes r out of the runs, if nobody has done so yet.
func (e *Engine) leave(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[r.key] == r {
		delete(e.runs, r.key)
	}
}

// find returns the run of a task that is under way.
func (e *Engine) find(queue, id string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[runKey{queue, id}]
}

// called returns the run of a task whose handler was called, and what is closed when the context of that is over.
func (e *Engine) called(queue, id string) (r *run, over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r = e.runs[runKey{queue, id}]; r == nil || r.handling == nil {
		return nil, nil
	}
	return r, r.handling
}

// next is asynq's dequeue: it waits for a task that Handle has brought, but not for long: asynq asks
// again, and the lease counts from then.
func (e *Engine) next() (raw string, err error) {
	e.mu.Lock()
	quit := e.quit
	e.mu.Unlock()
	select {
	case r := <-e.offers:
		e.mu.Lock()
		r.handed = time.Now()
		e.mu.Unlock()
		return r.raw, nil
	case <-e.again:
		return "", redis.Nil
	case <-quit:
		return "", redis.Nil // asynq says nothing of it, and looks whether it is to stop
	}
}

// process is the handler that the server knows.
func (e *Engine) process(ctx context.Context, t *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	if err := ctx.Err(); err != nil {
		return err // asynq does not wait for it any more: another run may be under way
	}
	e.mu.Lock()
	r := e.runs[runKey{queue, id}]
	if r == nil || r.settled || r.started {
		e.mu.Unlock()
		return errTwice
	}
	r.started = true
	e.mu.Unlock()
	err := errPaused
	defer func() { e.over(r, err) }()
	switch {
	case r.ctx.Err() != nil:
		err = context.Cause(r.ctx)
	case elapsed(r.begun) < hopTime:
		err = errPanic
		err = sayable(e.call(ctx, r, t))
	}
	return err
}

// An unsayable is an error whose text is not UTF-8.
type unsayable struct{ error }

func (u unsayable) Error() string { return strings.ToValidUTF8(u.error.Error(), "?") }
func (u unsayable) Unwrap() error { return u.error }

// sayable is err with a text that asynq can write into a message. Of another it says nothing to
// anybody: the run would never count. What asynq asks err later, where a panic would end the process,
// is asked here, where it is one of the handler.
func sayable(err error) error {
	_ = errors.Is(err, asynq.SkipRetry)
	if err != nil && !utf8.ValidString(err.Error()) {
		return unsayable{err}
	}
	return err
}

// elapsed is how long ago t was, by whichever clock says more: one of them stands still
// while the machine sleeps.
func elapsed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}

// call calls the user's handler: its context ends with asynq's and with the consumer's.
func (e *Engine) call(ctx context.Context, r *run, t *asynq.Task) error {
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, contextKey{}, r))
	defer cancel(nil)
	stop := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	defer stop()
	e.mu.Lock()
	r.handling = ctx.Done()
	e.mu.Unlock()
	return e.handler.ProcessTask(ctx, t)
}

// over notes that the handler has returned.
func (e *Engine) over(r *run, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.ended, r.err = time.Now(), err
	if r.returned != nil {
		close(r.returned)
	}
}

// settle takes in what asynq says of a task. If the handler still runs, because its time
// is over and it does not care, it waits: neither the task nor its key may run beside
// it. asynq is never told of an error: it would say the same later, and might hit
// another run of the task.
func (e *Engine) settle(queue string, n *native) {
	if n.reason() == errTwice.Error() {
		return // it did not run: another that asynq has of the task does, or did
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.runs[runKey{queue, n.id()}]
	if r == nil || !n.follows(r.raw) {
		return
	}
	if r.started && r.ended.IsZero() {
		if r.returned == nil {
			r.returned = make(chan struct{})
		}
		returned := r.returned
		e.mu.Unlock()
		<-returned
		e.mu.Lock()
	}
	if !r.settled {
		r.conclude(n)
	}
}

// conclude gives the verdict. The caller holds the engine's lock.
func (r *run) conclude(n *native) {
	r.settled, r.native = true, n
	close(r.verdict)
}

// sweep gives a verdict on runs of which asynq says nothing: it drops what it wanted to
// say if it believes that its lease is over, which is a matter of its own clock, and
// what it cannot read.
func (e *Engine) sweep(quit chan struct{}) {
	tick := time.NewTicker(dropTime / 4)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
		case <-quit:
			return
		}
		now := time.Now()
		e.look(last, now)
		last = now
	}
}

// look is one look of sweep, which looked last at another time. If that is long ago the process stood still:
// asynq has had no time either, and is given what it has after a question.
func (e *Engine) look(last, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(last) > dropTime/2 {
		e.asked = now
	}
	for _, r := range e.runs {
		switch {
		case r.settled || r.telling > 0:
		case !r.ended.IsZero() && e.asking == 0 && now.Sub(r.ended) > dropTime && now.Sub(e.asked) > dropTime:
			r.conclude(nil)
		case !r.started && !r.handed.IsZero() && now.Sub(r.handed) > startTime:
			r.conclude(&native{kind: kindRequeue})
		}
	}
}

// outcome is the verdict as a handler's error. The stream keeps what asynq said, for
// the settlement that follows.
func (r *run) outcome() error {
	err := r.err
	if errors.Is(err, errPanic) {
		err = r.native.panicked()
	}
	switch {
	case errors.Is(err, errPaused):
		return r.again(err) // whatever asynq makes of it: the handler was not called
	case r.native == nil && err == nil:
		return nil
	case r.native == nil && errors.Is(err, errPanic) && !errors.Is(r.ctx.Err(), context.Canceled):
		return r.unsaid(err)
	case r.native == nil:
		return r.again(fmt.Errorf("%w: %w", errDropped, err))
	case r.cut(): // what asynq makes of that does not count
		return fmt.Errorf("%w: %w", context.Cause(r.ctx), err)
	}
	r.stream.said(int64(r.task.Receipt), r.task.Run(), r.native)
	if err == nil {
		err = context.DeadlineExceeded
	}
	switch r.native.kind {
	case kindDone, kindComplete:
		return nil
	case kindRetry:
		return &sources.RetryError{After: r.native.after(time.Now()), Err: err, Counted: true}
	case kindArchive:
		return &sources.DeadError{Err: err}
	}
	return r.again(errNotStarted)
}

// unsaid is the verdict on a run that panicked and of which asynq says nothing, since what it
// panicked with is no text: what asynq would have said.
func (r *run) unsaid(err error) error {
	m, _ := parseMessage(r.raw) // it was read before
	if m.retried >= m.most {
		return &sources.DeadError{Err: err}
	}
	delay := r.stream.source.engine.retryDelay(m.retried, err, asynq.NewTask(m.typ, m.payload))
	said := []byte(failed(r.raw, m.retried+1, err.Error(), time.Now()))
	r.stream.said(int64(r.task.Receipt), r.task.Run(), &native{kind: kindRetry, args: []any{r.task.ID, said}})
	return &sources.RetryError{After: max(0, delay), Err: err, Counted: true}
}

// again is the verdict on a run that does not count: the task stays as it is.
func (r *run) again(err error) error {
	r.stream.said(int64(r.task.Receipt), r.task.Run(), &native{kind: kindRequeue})
	return notRun(err)
}

// cut reports whether the handler was ended from outside. The consumer's own timeout is no such end.
func (r *run) cut() bool {
	return errors.Is(r.ctx.Err(), context.Canceled) && r.err != nil && !r.wanted()
}

// wanted reports whether the handler has said what is to become of the task.
func (r *run) wanted() bool {
	return errors.Is(r.err, asynq.SkipRetry) || errors.Is(r.err, asynq.RevokeTask)
}

package asynqsource

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// A self-test may take testTime, and as long as testTrips trips to the store do: it makes some 120, one after the other.
const (
	testTime  = 10 * time.Second
	testTrips = 200
)

const (
	// abandonedAfter is how long ago a self-test began whose queue is thrown away by those of other peers: more than
	// the clocks of two hosts are apart.
	abandonedAfter = 24 * time.Hour
	// mostAbandoned is how many of them a self-test throws away: a start is not to wait for thousands.
	mostAbandoned = 16
)

// A misfit is something about asynq or Redis that is not as the source relies on it.
type misfit struct{ what string }

func (m *misfit) Error() string { return m.what }

func misfits(format string, args ...any) error { return &misfit{fmt.Sprintf(format, args...)} }

// Modest reports whether the self-test found that our own scripts do not fit the
// version of asynq that is linked, so that asynq's own are used one by one, and why. It
// is known once Layout has returned.
func (s *Source) Modest() (modest bool, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modest.Load(), s.misfit
}

// check runs the self-test, once: on a queue of its own, which it throws away. It
// chooses between our own scripts and asynq's, and fails with an error that wraps
// partition.ErrConfig if the fence holds with neither.
func (s *Source) check(ctx context.Context) error {
	s.mu.Lock()
	tested := s.tested
	s.mu.Unlock()
	if tested {
		return nil
	}
	why := s.ownTrial(ctx)
	if redis.IsOOMError(why) {
		return nil // a full store takes no canaries, and who starts is to empty it: watch tries again
	}
	if _, misfits := errors.AsType[*misfit](why); misfits {
		err := s.trial(ctx, true)
		if _, misfits := errors.AsType[*misfit](err); misfits {
			return fmt.Errorf("asynqsource: the fence does not hold with this version of asynq or Redis: %w; and without our own scripts: %w (%w)",
				why, err, partition.ErrConfig)
		}
		if err != nil {
			return err
		}
		s.modest.Store(true)
	} else if why != nil {
		return fmt.Errorf("asynqsource: self-test: %w", why)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tested, s.misfit = true, why
	return nil
}

// ownTrial tries our own scripts, and again where they do not fit and did at the trial before, or there was none. A store
// or a process that stands still in the middle looks like another version of asynq, and what is found here is for good.
func (s *Source) ownTrial(ctx context.Context) error {
	for {
		why := s.trial(ctx, false)
		_, misfits := errors.AsType[*misfit](why)
		s.mu.Lock()
		before := s.doubted
		s.doubted = misfits
		s.mu.Unlock()
		if !misfits || before {
			return why
		}
	}
}

// A trial is one self-test at work.
type trial struct {
	src    *Source
	engine *Engine
	queue  string
	began  time.Time
	client *asynq.Client
	insp   *asynq.Inspector
}

// The canaries: what becomes of each, by its type.
const (
	canaryDone   = "done"
	canaryFails  = "fails"
	canarySkips  = "skips"
	canaryUnique = "unique"
	canaryKept   = "kept"
	canaryBoth   = "unique and kept"
	canaryParked = "parked" // by our own scripts
	canaryBuried = "buried"
)

var canaries = []string{canaryDone, canaryFails, canarySkips, canaryUnique, canaryKept, canaryBoth, canaryParked, canaryBuried}

var errCanary = errors.New("canary")

// trial runs the self-test in one of the two modes.
func (s *Source) trial(ctx context.Context, modest bool) (err error) {
	client, leave := s.masters()
	defer leave()
	began := time.Now()
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, testTime+testTrips*time.Since(began))
	defer cancel()
	t, err := s.newTrial(client, modest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.sweep(context.WithoutCancel(ctx))) }()
	if err = t.run(patient); err != nil && ctx.Err() != nil {
		return ctx.Err() // who asks has broken it off, which says nothing of asynq
	}
	if err == nil {
		t.sweepAbandoned(patient)
	}
	return err
}

// trialQueue is the queue of a self-test that begins then.
func trialQueue(name string, began time.Time) string {
	return fmt.Sprintf("%s:selftest:%d-%s", name, began.Unix(), rand.Text())
}

// trialBegan is when the self-test of name began whose queue this is.
func trialBegan(name, queue string) (began time.Time, ok bool) {
	rest, ours := strings.CutPrefix(queue, name+":selftest:")
	text, _, timed := strings.Cut(rest, "-")
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), ours && timed && err == nil
}

// sweepAbandoned throws away what is left of self-tests whose peers were killed, or whose store was away when they
// ended: asynq's tools would show their queues for ever. What is not thrown away now is so at a later start.
func (t *trial) sweepAbandoned(ctx context.Context) {
	known, _ := t.src.client.SMembers(ctx, queuestat.All).Result()
	swept := 0
	for _, queue := range known {
		began, ok := trialBegan(t.src.name, queue)
		if !ok || time.Since(began) < abandonedAfter {
			continue
		}
		old := &trial{src: t.src, queue: queue, began: began, insp: t.insp}
		if err := old.sweep(ctx); err != nil || swept+1 == mostAbandoned {
			return
		}
		swept++
	}
}

func (s *Source) newTrial(client redis.UniversalClient, modest bool) (t *trial, err error) {
	began := time.Now()
	queue := trialQueue(s.name, began)
	src := &Source{
		client: client, name: s.name, mark: s.mark, library: s.library, tested: true,
		streams: make(map[string]*stream), opening: make(chan struct{}, 1),
		cfg:    Config{Queues: []string{queue}, Connections: -1, Plain: Alarm}.withDefaults(),
		layout: partition.Config{Total: 1}.WithDefaults(),
	}
	src.layout.Total = 1
	src.modest.Store(modest)
	t = &trial{
		src: src, queue: queue, began: began,
		client: asynq.NewClientFromRedisClient(client), insp: asynq.NewInspectorFromRedisClient(client),
	}
	t.engine, err = src.Handler(asynq.HandlerFunc(t.handle), asynq.Config{
		Logger:         silence{log.New(io.Discard, "", 0)},
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	return t, err
}

// masters returns a client that reads where it has written, and what gives it back. What asynq's
// inspector sees of the canaries on a replica that lags says nothing of asynq.
func (s *Source) masters() (client redis.UniversalClient, leave func()) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok || !cluster.Options().ReadOnly {
		return s.client, func() {}
	}
	o := *cluster.Options()
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	own := redis.NewClusterClient(&o)
	return own, func() { own.Close() }
}

// silence is a logger of asynq that says nothing: what goes wrong is found by looking.
type silence struct{ *log.Logger }

func (silence) Debug(...any) {}
func (silence) Info(...any)  {}
func (silence) Warn(...any)  {}
func (silence) Error(...any) {}
func (silence) Fatal(...any) {}

func (t *trial) handle(_ context.Context, task *asynq.Task) error {
	switch task.Type() {
	case canaryFails:
		return errCanary
	case canarySkips:
		return fmt.Errorf("%w: %w", errCanary, asynq.SkipRetry)
	case canaryKept:
		_, err := task.ResultWriter().Write([]byte("result"))
		return err
	}
	return nil
}

func (t *trial) run(ctx context.Context) error {
	for _, c := range canaries {
		if err := t.enqueue(ctx, c); err != nil {
			return err
		}
	}
	tok := partition.Token{Epoch: 1, Session: "selftest-1"}
	st, err := t.src.Open(ctx, partition.Grant{Epoch: 1}, tok)
	if err != nil {
		return err
	}
	defer func() { // with a context that has ended: it frees what the stream holds here
		over, cancel := context.WithCancel(ctx)
		cancel()
		_ = st.Close(over) // only frees
	}()
	if err := t.meet(ctx); err != nil {
		return err
	}
	if err := t.work(ctx, st); err != nil {
		return err
	}
	if err := t.look(ctx); err != nil {
		return err
	}
	return t.fence(ctx, t.src.of(t.queue))
}

// meet waits until asynq has shown the script by which it takes tasks: a modest source
// needs it.
func (t *trial) meet(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for t.src.library.take() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return misfits("asynq does not ask for tasks")
		}
	}
	return nil
}

func (t *trial) enqueue(ctx context.Context, canary string) error {
	opts := []asynq.Option{asynq.Queue(t.queue), asynq.TaskID(canary), asynq.MaxRetry(3)}
	switch canary {
	case canaryUnique:
		opts = append(opts, asynq.Unique(time.Minute))
	case canaryKept:
		opts = append(opts, asynq.Retention(time.Minute))
	case canaryBoth:
		opts = append(opts, asynq.Unique(time.Minute), asynq.Retention(time.Minute))
	}
	_, err := t.client.EnqueueContext(ctx, asynq.NewTask(canary, []byte("canary")), opts...)
	return err
}

// work does what a consumer does with the canaries.
func (t *trial) work(ctx context.Context, st sources.Stream) error {
	var tasks []sources.Task
	for len(tasks) < len(canaries) {
		some, err := st.Fetch(ctx, len(canaries)-len(tasks))
		if err != nil {
			return t.judge(ctx, "fetch", err)
		}
		tasks = append(tasks, some...)
	}
	for i, task := range tasks {
		if task.ID != canaries[i] || task.Type != canaries[i] || string(task.Payload) != "canary" {
			return misfits("the tasks come as %q, want %q", ids(tasks), canaries)
		}
	}
	active, err := t.insp.ListActiveTasks(t.queue)
	if err != nil {
		return err
	}
	if len(active) != len(canaries) {
		return misfits("asynq sees %d active tasks, want %d", len(active), len(canaries))
	}
	for i := range tasks {
		d := sources.Settlement{Task: &tasks[i], Attempt: 1, Delay: time.Hour}
		switch tasks[i].Type {
		case canaryParked:
			d.Outcome, d.Reason = sources.Retry, errCanary.Error()
		case canaryBuried:
			d.Outcome, d.Reason = sources.Dead, errCanary.Error()
		default:
			err := errPaused
			for errors.Is(err, errPaused) { // which says nothing of asynq
				err = t.engine.Handle(ctx, &tasks[i])
			}
			if d.Outcome, d.Delay = sources.Asked(err); d.Outcome == sources.Retry {
				d.Outcome = sources.Requeue
			}
			if ctx.Err() != nil || d.Outcome == 0 {
				return t.judge(ctx, "run", err)
			}
		}
		if err := st.Settle(ctx, d); err != nil {
			return t.judge(ctx, "settle", err)
		}
	}
	return nil
}

// judge tells a store that does not answer from one that refuses, or waits for ever.
func (t *trial) judge(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil || redisconfig.Refused(err) || errors.Is(err, errReply) || errors.Is(err, sources.ErrFenced) || errors.Is(err, sources.ErrForgot) {
		return misfits("%s: %v", what, err)
	}
	return err
}

func ids(tasks []sources.Task) []string {
	list := make([]string, len(tasks))
	for i, t := range tasks {
		list[i] = t.ID
	}
	return list
}

// look compares what asynq's inspector sees with what should have become of the
// canaries.
func (t *trial) look(ctx context.Context) error {
	type sight struct {
		state   asynq.TaskState
		retried int
		lastErr string
		result  string
	}
	want := map[string]sight{
		canaryFails:  {asynq.TaskStateRetry, 1, errCanary.Error(), ""},
		canarySkips:  {asynq.TaskStateArchived, 0, errCanary.Error() + ": " + asynq.SkipRetry.Error(), ""},
		canaryKept:   {asynq.TaskStateCompleted, 0, "", "result"},
		canaryBoth:   {asynq.TaskStateCompleted, 0, "", ""},
		canaryParked: {asynq.TaskStateActive, 1, errCanary.Error(), ""},
		canaryBuried: {asynq.TaskStateArchived, 0, errCanary.Error(), ""},
	}
	for _, c := range canaries {
		info, err := t.insp.GetTaskInfo(t.queue, c)
		if errors.Is(err, asynq.ErrTaskNotFound) {
			if w, there := want[c]; there {
				return misfits("the canary %q is gone, it should be %v", c, w.state)
			}
			continue
		}
		if err != nil {
			return err
		}
		if got := (sight{info.State, info.Retried, info.LastErr, string(info.Result)}); got != want[c] {
			return misfits("asynq sees the canary %q as %+v, want %+v", c, got, want[c])
		}
	}
	info, err := t.insp.GetQueueInfo(t.queue)
	if err != nil {
		return err
	}
	got := [...]int{info.Pending, info.Active, info.Retry, info.Archived, info.Completed, info.Processed, info.Failed}
	if want := [...]int{0, 1, 1, 2, 2, 8, 4}; got != want {
		return misfits("asynq counts %v pending, active, retry, archived, completed, processed, failed, want %v", got, want)
	}
	locks, err := t.src.client.Exists(ctx, t.locks()...).Result()
	if err == nil && locks > 0 {
		return misfits("a unique task is done and its lock stands")
	}
	return err
}

// locks are those of the unique canaries: asynq makes them of the type and of the MD5
// of the payload.
func (t *trial) locks() []string {
	k := keysOf(t.queue)
	const sum = "1a93b59c9a4c9da9b85259447e678c76"
	return []string{k.prefix + "unique:" + canaryUnique + ":" + sum, k.prefix + "unique:" + canaryBoth + ":" + sum}
}

// fence lets another owner in and tries everything that was seen of asynq, and what our
// stream sends, under the old token.
func (t *trial) fence(ctx context.Context, old *stream) error {
	next := partition.Grant{Epoch: 2}
	if _, err := t.src.install(ctx, old.keys, next, partition.Token{Epoch: 2, Session: "selftest-2"}); err != nil {
		return t.judge(ctx, "open", err)
	}
	if err := t.enqueue(ctx, canaryDone); err != nil {
		return err
	}
	former, err := t.state()
	if err != nil {
		return err
	}
	k := old.keys
	v := &view{UniversalClient: t.src.client, source: t.src, engine: t.engine}
	for _, s := range t.src.library.all() {
		n := &native{script: s, keys: []string{k.pending, k.active, k.lease, k.retry}, args: []any{canaryParked, "x", 1, 1, 1, 1, 1}}
		if err := v.fenced(ctx, old, n).Err(); !refused(err) {
			return misfits("a script of asynq is not refused under an old token: it answers %v", err)
		}
	}
	for _, s := range []*script{extendScript, resultScript} {
		n := &native{script: s, keys: []string{k.lease}, args: []any{1, canaryParked}}
		if err := v.fenced(ctx, old, n).Err(); !refused(err) {
			return misfits("a write of asynq is not refused under an old token: it answers %v", err)
		}
	}
	if tasks, err := old.Fetch(ctx, 1); !errors.Is(err, sources.ErrFenced) {
		return misfits("a fetch under an old token returns %q, %v", ids(tasks), err)
	}
	later, err := t.state()
	if err == nil && later != former {
		return misfits("an old token changes %s to %s", former, later)
	}
	return err
}

// state is what asynq sees of the queue.
func (t *trial) state() (string, error) {
	info, err := t.insp.GetQueueInfo(t.queue)
	if err != nil {
		return "", err
	}
	var tasks []string
	for _, c := range canaries {
		if task, err := t.insp.GetTaskInfo(t.queue, c); err == nil {
			tasks = append(tasks, fmt.Sprintf("%s: %v", c, task.State))
		}
	}
	return fmt.Sprintf("%d pending, %d active, %d processed, %s", info.Pending, info.Active, info.Processed, strings.Join(tasks, ", ")), nil
}

// sweep throws the queue away. asynq removes none that has active tasks.
func (t *trial) sweep(ctx context.Context) error {
	k, now := keysOf(t.queue), time.Now()
	if err := t.src.client.Del(ctx, k.active).Err(); err != nil {
		return err
	}
	if err := t.insp.DeleteQueue(t.queue, true); err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
		return err
	}
	rest := []string{k.completed, k.archived, k.retry, k.fence, k.tries, k.suspects, k.processed, k.failed}
	for _, at := range [...]time.Time{t.began, now} {
		rest = append(rest, k.processed+day(at), k.failed+day(at))
	}
	for _, c := range canaries {
		rest = append(rest, k.task+c) // asynq leaves what is completed
	}
	return t.src.client.Del(ctx, slices.Concat(rest, t.locks())...).Err()
}

package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/internal/owning"
	"github.com/countoff/countoff/sources"
)

// A Config says how tasks are gathered. The zero value is ready.
type Config struct {
	// Size is how many tasks a batch has at most. Default 100.
	Size int
	// Parallel is how many batches run at once. Default 1.
	Parallel int
}

// A Func does some tasks, of different keys and in any order. It may run several times at once where
// Config.Parallel says so. The tasks, of which there is at least one, must not be changed.
//
// Nil says that all are done, and [Each] what each of them came to. After any other error, a panic or runtime.Goexit, it is
// called again with fewer of them, until it is known which of them fail alone: the error of that call is what
// the handler of that task returned (see [framework.Handler]). If none of the first two goes well alone, or
// later eight one after the other, all that are left fail. RetryAfter is for all of the call. So it should do all or nothing, or what may be done twice.
//
// ctx ends when that of one of the tasks does, with the same cause; it carries no values, and its deadline is
// that of the first of them. [framework.Owned] says of it whether all of them are this peer's. The tasks that are cancelled, or of partitions that are lost or have no more time to drain, are then
// judged as any are; the others, if they were not done, are in the next batch, and it costs them no try.
type Func func(ctx context.Context, tasks []*framework.Task) error

// New returns a handler that gathers tasks, and gives do as many as have come while it was busy. It says
// everything that is wrong with its arguments at once.
func New(cfg Config, do Func) (framework.Handler, error) {
	var errs []error
	for _, f := range []struct {
		name string
		n    *int
		def  int
	}{{"size", &cfg.Size, 100}, {"parallel", &cfg.Parallel, 1}} {
		if *f.n < 0 {
			errs = append(errs, fmt.Errorf("batch: %s %d: must not be negative", f.name, *f.n))
		}
		if *f.n == 0 {
			*f.n = f.def
		}
	}
	if do == nil {
		errs = append(errs, errors.New("batch: no function"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &gatherer{cfg: cfg, do: do, owned: framework.Owned}, nil
}

// JSON is a Func of one that wants the payloads decoded: vs[i] is of tasks[i]. A payload that cannot be decoded into a
// T becomes a dead letter, as with [framework.JSON], also beside those that do puts off; do does not see its task.
// What do says by Each is of its own tasks. For a nil do it returns nil.
func JSON[T any](do func(ctx context.Context, vs []T, tasks []*framework.Task) error) Func {
	if do == nil {
		return nil
	}
	return func(ctx context.Context, tasks []*framework.Task) error {
		vs, good := make([]T, 0, len(tasks)), make([]*framework.Task, 0, len(tasks))
		decode := framework.JSON(func(_ context.Context, v T, t *framework.Task) error {
			vs, good = append(vs, v), append(good, t)
			return nil
		})
		errs := make([]error, len(tasks))
		for i, t := range tasks {
			errs[i] = decode.Handle(ctx, t)
		}
		if len(good) == 0 {
			return Each(errs)
		}
		err := do(ctx, vs, good)
		_, told := told(err)
		asked, _ := sources.Asked(err)
		if err != nil && !told && (asked != sources.Retry || len(good) == len(tasks)) {
			return err // it is called again with fewer, or none of them is asked for now
		}
		of := each(err, len(good))
		for i, n := 0, 0; i < len(errs); i++ {
			if errs[i] == nil {
				errs[i] = of[n]
				n++
			}
		}
		if !told && err != nil {
			return &eachError{errs, err} // who is behind them is put off as well
		}
		return Each(errs)
	}
}

// Each is what a [Func] returns to say of each task what it came to: errs[i] is of tasks[i]. It is not nil, also if all
// of errs are: where they are fewer than the tasks, as after a loop that ended early, none of the tasks counts as done.
// Nor does one if it is joined with another error, as that of a commit: the batch has failed as a whole then.
func Each(errs []error) error { return &eachError{errs: errs} }

// An eachError has an error, or nil, for each task. It wraps none of them: that of one is not that of all.
type eachError struct {
	errs []error
	rest error // of those behind them, unasked; nil: they are asked
}

func (e *eachError) Error() string {
	failed := slices.DeleteFunc(slices.Clone(e.errs), func(err error) bool { return err == nil })
	if len(failed) == 0 {
		return fmt.Sprintf("none of %d tasks failed", len(e.errs))
	}
	return fmt.Sprintf("%d of %d tasks failed; the first: %v", len(failed), len(e.errs), failed[0])
}

// told returns what err says of each task, if it says that and no more: one that is joined with another, as with that
// of a commit in a deferred call, is of them all.
func told(err error) (*eachError, bool) {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // it goes down by itself, as errors.As does, but for the branches
		case *eachError:
			return e, true
		case interface{ Unwrap() []error }:
			all := e.Unwrap()
			if len(all) != 1 {
				return nil, false
			}
			err = all[0]
		default:
			err = errors.Unwrap(err)
		}
	}
	return nil, false
}

// each returns what err says of each of n tasks.
func each(err error, n int) []error {
	of, told := told(err)
	switch {
	case told && len(of.errs) == n:
		return of.errs
	case told:
		err = fmt.Errorf("batch: Each was given %d errors for %d tasks: %w", len(of.errs), n, of)
	}
	return slices.Repeat([]error{err}, n)
}

// A gatherer is the handler. Each call of Handle is an entry; the first of a batch runs it, for all
// of them, in the goroutine of its call.
type gatherer struct {
	cfg   Config
	do    Func
	owned func(context.Context) bool

	mu      sync.Mutex
	waiting []*entry // the oldest first
	running int      // batches
}

type entry struct {
	ctx  context.Context
	task *framework.Task
	in   *batch    // guarded by mu; nil: it waits
	turn chan turn // room for one
}

// A turn is what an entry hears: that it is to run a batch, or what its task came to.
type turn struct {
	lead *batch
	err  error
}

type batch struct {
	entries []*entry
	ctx     context.Context
	end     context.CancelCauseFunc
}

func (g *gatherer) Handle(ctx context.Context, t *framework.Task) error {
	e := &entry{ctx: ctx, task: t, turn: make(chan turn, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, e)
	g.start()
	g.mu.Unlock()
	ended := ctx.Done()
	for {
		select {
		case x := <-e.turn:
			if x.lead == nil {
				return x.err
			}
			g.run(e, x.lead)
		case <-ended:
			ended = nil // what it is part of hears of it once, and ends
			if g.quit(e) {
				return context.Cause(ctx)
			}
		}
	}
}

// quit takes e, whose context has ended, out of those that wait, and reports true, or ends the context of its batch.
func (g *gatherer) quit(e *entry) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.in != nil {
		e.in.end(context.Cause(e.ctx))
		return false
	}
	i := slices.Index(g.waiting, e)
	if i < 0 {
		return false // it has its turn
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// start gives turns, as many as there may be. The caller holds mu.
func (g *gatherer) start() {
	for g.running < g.cfg.Parallel {
		// Who was ended meanwhile, and is about to quit, is not to end those beside it.
		g.waiting = slices.DeleteFunc(g.waiting, (*entry).over)
		if len(g.waiting) == 0 {
			return
		}
		b := g.newBatch(g.take())
		g.running++
		b.entries[0].turn <- turn{lead: b}
	}
}

// take takes those of the next batch out of waiting, which is not empty. What is accused of a crash has none beside it.
func (g *gatherer) take() []*entry {
	if g.waiting[0].task.Crashes > 0 {
		first := g.waiting[0]
		g.waiting = slices.Delete(g.waiting, 0, 1)
		return []*entry{first}
	}
	taken := make([]*entry, 0, min(len(g.waiting), g.cfg.Size))
	g.waiting = slices.DeleteFunc(g.waiting, func(e *entry) bool {
		takes := len(taken) < cap(taken) && e.task.Crashes == 0
		if takes {
			taken = append(taken, e)
		}
		return takes
	})
	return taken
}

// over reports whether the context of e has ended, and tells e so if it has.
func (e *entry) over() bool {
	ended := e.ctx.Err() != nil
	if ended {
		e.turn <- turn{err: context.Cause(e.ctx)}
	}
	return ended
}

// newBatch is a batch of entries, whose deadline is the first of theirs. That it is over each of them sees to.
func (g *gatherer) newBatch(entries []*entry) *batch {
	b := &batch{entries: entries}
	ctx := joint{Context: context.Background(), owned: func() bool {
		return !slices.ContainsFunc(entries, func(e *entry) bool { return !g.owned(e.ctx) })
	}}
	for _, e := range entries {
		e.in = b
		if at, has := e.ctx.Deadline(); has && (ctx.at.IsZero() || at.Before(ctx.at)) {
			ctx.at = at
		}
	}
	b.ctx, b.end = context.WithCancelCause(ctx)
	return b
}

// A joint is the context of a batch, before anything ends it.
type joint struct {
	context.Context
	at    time.Time   // its deadline; zero: none
	owned func() bool // each of the tasks
}

func (j joint) Deadline() (time.Time, bool) { return j.at, !j.at.IsZero() }

// Value lets [framework.Owned] ask: the function is suspended with its process, and goes on before anybody ends its context.
func (j joint) Value(key any) any {
	if key == (owning.Key{}) {
		return j.owned
	}
	return nil
}

// run does b and tells its entries, of which lead is the first, what came of it.
func (g *gatherer) run(lead *entry, b *batch) {
	stop := context.AfterFunc(lead.ctx, func() { b.end(context.Cause(lead.ctx)) })
	tasks := make([]*framework.Task, len(b.entries))
	for i, e := range b.entries {
		tasks[i] = e.task
	}
	errs := make([]error, len(tasks))
	g.work(b, tasks, errs)
	stop()
	g.finish(b, errs)
	b.end(nil)
}

var errGoexit = errors.New("batch: the function ended its goroutine (runtime.Goexit)")

// mostInRow is how many that fail alone, one after the other, are taken to be bad themselves in a batch of which some went well.
const mostInRow = 8

// work does tasks and puts into errs what each came to. When all of them fail together it looks for the one that is to
// blame: it begins anew with the first alone, and takes twice as many each time that goes well, as TCP does after a loss
// (RFC 5681, slow start). Where the first two of a batch fail, each alone, it is not they: the rest fails with them, unasked.
// So it does where mostInRow fail alone, one after the other, after others went well. Once the context of b has ended, or is to, nothing is called any more.
func (g *gatherer) work(b *batch, tasks []*framework.Task, errs []error) {
	ctx := b.ctx
	size, most, failed := len(tasks), 2, 0
	for len(tasks) > 0 {
		if g.over(b) {
			copy(errs, slices.Repeat([]error{context.Cause(ctx)}, len(errs)))
			return
		}
		n := min(size, len(tasks))
		err := g.call(ctx, tasks[:n])
		said, told := told(err)
		asked, _ := sources.Asked(err)
		switch {
		case err == nil || told:
			of := each(err, n)
			copy(errs, of)
			if told && said.rest != nil {
				copy(errs[n:], slices.Repeat([]error{said.rest}, len(errs)-n))
				return
			}
			size = 2 * n
			if slices.Contains(of, nil) {
				most, failed = mostInRow, 0
			}
		case n > 1 && ctx.Err() != nil || asked == sources.Retry || n == 1 && asked == 0 && failed == most-1:
			if asked == sources.Dead {
				err = fmt.Errorf("%v", err) //nolint:errorlint // whose it is nobody finds out any more
			}
			copy(errs, slices.Repeat([]error{err}, len(errs)))
			return
		case n > 1:
			size = 1
			continue
		default:
			size = 1
			errs[0] = err
			if asked == 0 {
				failed++
			}
		}
		tasks, errs = tasks[n:], errs[n:]
	}
}

// over reports whether the context of b has ended. A process that was suspended past its lease may go on here before
// anybody has ended it: nothing begins meanwhile, since what b has may be another's. As a rule the end is due then; but
// the answer that renews the lease may have come in time, and be taken in just now.
func (g *gatherer) over(b *batch) bool {
	for slices.ContainsFunc(b.entries, func(e *entry) bool { return e.ctx.Done() != nil && !g.owned(e.ctx) }) {
		select {
		case <-b.ctx.Done():
			return true
		case <-time.After(10 * time.Millisecond):
		}
	}
	return b.ctx.Err() != nil
}

// call calls the function, in a goroutine of its own: this one is of the first entry, which may have been done by an
// earlier call. That the function ends its goroutine is an error, as a panic is.
func (g *gatherer) call(ctx context.Context, tasks []*framework.Task) error {
	ended := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { ended <- err }()
		err = g.result(ctx, tasks)
	}()
	return <-ended
}

// result is what the function returns, with errors that can be asked.
func (g *gatherer) result(ctx context.Context, tasks []*framework.Task) error {
	err := tried(func() error { return g.do(ctx, slices.Clone(tasks)) })
	of, told := told(err)
	if !told {
		return err
	}
	errs := slices.Clone(of.errs)
	for i, err := range errs {
		errs[i] = tried(func() error { return err })
	}
	return &eachError{errs, tried(func() error { return of.rest })}
}

// tried returns what do does. A panic is an error, and so is one of the error: its methods are code of the application
// too, and those of a nil pointer panic.
func tried(do func() error) error {
	h := framework.HandlerFunc(func(context.Context, *framework.Task) error {
		err := do()
		_ = failed(err)
		return err
	})
	return framework.Chain(h, framework.Recover()).Handle(context.Background(), nil)
}

// finish tells the entries of b what they came to.
//
// If its context ended since others must end, because they were lost or their drain was over, what was not done of the
// rest is first in the next batch: somebody else's end is no failure of theirs.
func (g *gatherer) finish(b *batch, errs []error) {
	ended := b.ctx.Err() != nil && interrupted(context.Cause(b.ctx))
	var again []*entry
	g.mu.Lock()
	for i, e := range b.entries {
		e.in = nil
		if ended && e.ctx.Err() == nil && failed(errs[i]) {
			again = append(again, e)
			continue
		}
		e.turn <- turn{err: errs[i]}
	}
	g.waiting = slices.Insert(g.waiting, 0, again...)
	g.running--
	g.start()
	g.mu.Unlock()
}

// failed reports whether err says no more than that the task was not done, or not before the context ended.
func failed(err error) bool {
	asked, _ := sources.Asked(err)
	return asked == 0 || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || interrupted(err)
}

// interrupted reports whether what ended by cause ended for the sake of one task, or of a partition: it is no try of others.
func interrupted(cause error) bool {
	return errors.Is(cause, framework.ErrLost) || errors.Is(cause, framework.ErrDrainOver) || errors.Is(cause, framework.ErrStopped) ||
		errors.Is(cause, framework.ErrCancelled)
}

package frameworkfx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/framework/zapobserver"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// The exit codes of Run.
const (
	ExitOK     = 0 // asked to stop, and handed everything over
	ExitFailed = 1 // a consumer, or something else of the application, could not go on
	ExitWrong  = 2 // what was provided is wrong: see StartError, partition.ErrName, transition.ErrTimes, ErrLayout and ErrRolls
	ExitConfig = 4 // the name is in use with another configuration
	ExitHard   = 6 // stopped before everything was handed over
)

// ExitCode returns the exit code for err, of [ExitOK] and the others.
func ExitCode(err error) int {
	_, wrong := errors.AsType[*StartError](err)
	_, unheard := errors.AsType[*transition.UnheardError](err)
	_, stuck := errors.AsType[*transition.StuckError](err)
	switch {
	case err == nil:
		return ExitOK
	case wrong, errors.Is(err, partition.ErrName), errors.Is(err, transition.ErrTimes), errors.Is(err, transition.ErrLayout), errors.Is(err, transition.ErrRolls):
		return ExitWrong
	case errors.Is(err, partition.ErrConfig):
		return ExitConfig
	case errors.Is(err, framework.ErrStopped), unheard, stuck:
		return ExitHard
	}
	return ExitFailed
}

// afterCut is what cancelled handlers get beyond their grace before Run gives up
// waiting for them, lastWord what a stop gets whose time is over, and its handlers' as well.
const (
	afterCut = time.Second
	lastWord = 100 * time.Millisecond
)

// Run runs an application of [Module] and opts until SIGINT or SIGTERM comes or a consumer cannot
// go on, and returns the code to exit with. If that is not [ExitOK] it says on stderr why.
//
// It owns the signals: the first begins to drain, a second one stops at once (handlers are
// cancelled), a third does not wait for anything. Those that come together are one (see
// signals.Together).
//
// The stop timeout is the longest one of the consumers and units, 28 s by default, whatever
// fx.StopTimeout says, also where a hook fails at the start. Consumers that have not been stopped by then, because a hook of the
// application took all of it, are stopped at once.
//
// fx's own events go to the application's *zap.Logger, if there is one, at the debug level. If
// there is none, what goes wrong with a consumer is written to stderr, a line each; provide
// zap.NewNop() to hear nothing.
func Run(opts ...fx.Option) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return run(signals.Listen(ctx, 3), os.Stderr, opts...)
}

func run(signals <-chan os.Signal, stderr io.Writer, opts ...fx.Option) int {
	locked := zapcore.Lock(zapcore.AddSync(stderr)) // events come from many goroutines
	stderr = locked
	p := &process{signals: signals}
	say := func(err error) {
		fmt.Fprintln(stderr, err)
		if panicked, ok := errors.AsType[*framework.PanicError](err); ok {
			fmt.Fprintf(stderr, "%s", panicked.Stack)
		}
	}
	fail := func(err error) int {
		if wrong, ok := errors.AsType[*StartError](err); ok {
			err = wrong // without the way it took through fx
		}
		say(err)
		return ExitCode(err)
	}
	var app *fx.App
	interrupted, err := attend(signals, func() error { // a constructor may wait, and fx has no time for it
		app = fx.New(append([]fx.Option{Module, fx.WithLogger(p.logger), unlogged, fx.Populate(&p.r), fx.Invoke(p.hook), lines(locked)}, opts...)...)
		return app.Err()
	})
	if err != nil {
		return fail(wired(err))
	}
	if interrupted {
		return ExitOK // nothing has begun
	}
	interrupted, err = p.start(app)
	if err != nil {
		left := p.abandon(err, interrupted)
		return fail(errors.Join(err, left))
	}
	var code int
	heard := true // of the first signal
	if !interrupted {
		select {
		case <-signals:
		case s := <-app.Wait():
			// fx listens for signals as well, and may be the first to tell of the one
			// that is still in our channel: there it is no second one.
			code, heard = s.ExitCode, false
		}
	}
	err = p.stop(p.stopOf(app), heard)
	if err = errors.Join(err, p.r.Err()); err == nil {
		return code
	}
	if code == ExitOK {
		return fail(err)
	}
	say(err)
	return code
}

// wired begins what fx says about a graph that cannot be built with its cause, which fx names
// last. What is missing, or there twice, is wrong with what was provided; a constructor may
// have failed for any reason.
func wired(err error) error {
	cause := dig.RootCause(err)
	if _, wrong := errors.AsType[*StartError](err); wrong || cause.Error() == err.Error() {
		return err
	}
	if _, graph := errors.AsType[dig.Error](cause); graph {
		if strings.HasPrefix(cause.Error(), "already provided") {
			cause = around(err, cause)
		}
		return &StartError{Faults: []error{cause, fmt.Errorf("which fx found so: %w", err)}}
	}
	return fmt.Errorf("cannot start: %w\n  which fx found so: %w", cause, err)
}

// around returns what wraps cause in err: it says of what is there twice what it is.
func around(err, cause error) error {
	for inner := errors.Unwrap(err); inner != nil && inner.Error() != cause.Error(); inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

// A process is what ends in several steps.
type process struct {
	r        *framework.Runtime
	signals  <-chan os.Signal
	starting *term                     // the time that the application has to start
	failed   atomic.Pointer[error]     // of a hook at the start, within that time
	asked    atomic.Pointer[time.Time] // when the consumers were asked to stop by the application
}

// hook is called when the runtime has its own hook: fx calls that one right after this.
//
// If another hook fails at the start, fx stops what it has started within what is left of the time to start, and
// once that is over says so and not what has failed. But to stop is another thing, and has its own time.
func (p *process) hook(l fx.Lifecycle) {
	l.Append(fx.StopHook(func() {
		now := time.Now()
		p.asked.Store(&now)
		p.starting.putOff(p.r.StopTimeout())
	}))
}

// abandon stops p after a start that failed with err. An application whose time to start is
// over stops nothing of what it has started: what the consumers have would wait for the lease.
func (p *process) abandon(err error, interrupted bool) error {
	if errors.Is(err, framework.ErrStopped) {
		return p.cutAll(p.patience())
	}
	if late := p.starting.Err(); p.failed.Load() != nil && errors.Is(late, context.DeadlineExceeded) {
		return errors.Join(&lateError{p.r.StopTimeout(), late}, p.cutAll(p.late())) // it has had its time to stop
	}
	return p.stop(p.stopConsumers, interrupted)
}

// stopConsumers stops them without the hooks of the application, and waits for them no longer than ctx, as fx does.
func (p *process) stopConsumers(ctx context.Context) error {
	stopped := make(chan error, 1)
	go func() { stopped <- p.r.Stop(ctx) }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rollBack is called when fx begins to stop what it has started, since a hook failed with err: from now on that has the
// time to stop, and once it is over fx says so and not what has failed.
func (p *process) rollBack(err error) {
	if p.starting.putOff(p.r.StopTimeout()) {
		p.failed.Store(&err)
	}
}

// patience is what handlers that are cancelled now get.
func (p *process) patience() time.Duration { return p.r.CancelGrace() + afterCut }

// late is what handlers still get when the stop timeout is over. If all of it was theirs they
// had their grace too: their contexts ended with the shutdown.
func (p *process) late() time.Duration {
	if asked := p.asked.Load(); asked != nil {
		return min(p.patience(), lastWord+time.Until(asked.Add(p.r.StopTimeout())))
	}
	return p.patience()
}

// cutAll stops the consumers hard.
func (p *process) cutAll(patience time.Duration) error {
	stopped := make(chan error, 1)
	go func() { stopped <- p.r.Stop(context.Background()) }()
	return p.cut(stopped, patience)
}

// start starts app and reports whether a signal came meanwhile.
func (p *process) start(app *fx.App) (interrupted bool, err error) {
	p.starting = newTerm(app.StartTimeout())
	defer p.starting.cancel()
	interrupted, err = attend(p.signals, func() error {
		err := app.Start(p.starting)
		switch failed := p.failed.Load(); {
		case err == nil || p.starting.Err() == nil:
		case failed != nil:
			err = *failed
		default:
			err = fmt.Errorf("the application has not started within %v: %w", app.StartTimeout(), err)
		}
		return err
	})
	if failed := p.failed.Load(); failed != nil && errors.Is(err, framework.ErrStopped) && !errors.Is(err, *failed) {
		err = errors.Join(*failed, err) // a second signal came while what had started was stopped
	}
	return interrupted, err
}

// errGoexit is what a constructor that ended its goroutine counts as: fx says the same of a hook.
var errGoexit = errors.New("a constructor ended its goroutine (runtime.Goexit, as FailNow of testing does)")

// attend waits for do, but not after a second signal, and reports whether one came meanwhile.
func attend(signals <-chan os.Signal, do func() error) (interrupted bool, err error) {
	ended := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() {
			if p := recover(); p != nil {
				panic(p) // it ends the process, and Run has no last word before
			}
			ended <- err
		}()
		err = do()
	}()
	select {
	case err := <-ended:
		return false, err
	case <-signals:
	}
	select {
	case err := <-ended:
		return true, err
	case <-signals:
		return true, fmt.Errorf("%w while starting", framework.ErrStopped)
	}
}

// stop stops p by do: softly, at once after another signal, and without waiting after
// one more. heard says that the signal that began it was taken out of signals.
func (p *process) stop(do func(context.Context) error, heard bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.r.StopTimeout())
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- do(ctx) }()
	for again := false; !again; {
		select {
		case err := <-stopped:
			if err != nil && ctx.Err() != nil && !errors.Is(err, framework.ErrStopped) {
				err = errors.Join(&lateError{p.r.StopTimeout(), err}, p.cutAll(p.late())) // fx calls no other hook then
			}
			return err
		case <-p.signals:
			again, heard = heard, true
		}
	}
	return p.cut(stopped, p.patience())
}

// stopOf is the stop of app. fx calls no other hook behind one that ended its goroutine: then the consumers are
// stopped without theirs.
func (p *process) stopOf(app *fx.App) func(context.Context) error {
	return func(ctx context.Context) error {
		err := app.Stop(ctx)
		if err != nil && ctx.Err() == nil && p.asked.Load() == nil {
			err = errors.Join(fmt.Errorf("a hook of the stop ended its goroutine (runtime.Goexit, as FailNow of testing does): %w", err), p.stopConsumers(ctx))
		}
		return err
	}
}

// A lateError is that of a stop whose time was over, whoever in the application it waited for.
type lateError struct {
	within time.Duration
	err    error
}

func (e *lateError) Error() string {
	return fmt.Sprintf("the application has not stopped within %v: %v", e.within, e.err)
}

func (e *lateError) Unwrap() []error { return []error{framework.ErrStopped, e.err} }

// cut turns the stop that is under way hard and returns what that one does, without waiting
// longer than patience, or after another signal.
func (p *process) cut(stopped <-chan error, patience time.Duration) error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	ours := make(chan error, 1)
	go func() { ours <- p.r.Stop(now) }()
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case err := <-stopped:
		return err
	case <-over.C:
	case <-p.signals:
	}
	select {
	case <-ours:
		return fmt.Errorf("%w at once, without the hooks of the application that have not returned", framework.ErrStopped)
	default:
		return fmt.Errorf("%w at once, with handlers still running", framework.ErrStopped)
	}
}

// logger makes fx write to the application's logger, if it has one.
func (p *process) logger(in struct {
	fx.In
	Logger *zap.Logger `optional:"true"`
}) fxevent.Logger {
	if in.Logger == nil {
		return listener{fxevent.NopLogger, p}
	}
	l := &fxevent.ZapLogger{Logger: in.Logger.Named("fx")}
	l.UseLogLevel(zapcore.DebugLevel)
	l.UseErrorLevel(zapcore.DebugLevel) // Run says why the application ends, without the way it took through fx
	return listener{l, p}
}

// A listener hears what fx tells nobody but its logger.
type listener struct {
	fxevent.Logger
	p *process
}

func (l listener) LogEvent(e fxevent.Event) {
	if back, begins := e.(*fxevent.RollingBack); begins {
		l.p.rollBack(back.StartErr)
	}
	l.Logger.LogEvent(e)
}

// unlogged is where fx writes all that it has done so far if the application's logger cannot be
// made, which is some thirty lines: nowhere. Run says why it does not start.
var unlogged = fx.Logger(nowhere{})

type nowhere struct{}

func (nowhere) Printf(string, ...any) {}

// lines writes what goes wrong to stderr if the application has no logger: a peer that
// waits for its store, or for a plain server to go, must not do so in silence.
func lines(stderr zapcore.WriteSyncer) fx.Option {
	return fx.Provide(fx.Annotate(func(p struct {
		fx.In
		Logger *zap.Logger `optional:"true"`
	}) framework.Observer {
		if p.Logger != nil {
			return framework.Observers{} // the logger tells; no ObserverFunc, which would cost each run an allocation
		}
		cfg := zap.NewProductionEncoderConfig()
		cfg.EncodeTime, cfg.EncodeDuration = zapcore.ISO8601TimeEncoder, zapcore.StringDurationEncoder
		log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(cfg), stderr, zapcore.WarnLevel))
		return beforeTheEnd{framework.Observers{zapobserver.New(log)}}
	}, fx.ResultTags(ObserverGroup)))
}

// beforeTheEnd is not told why a consumer ends: who stops it gets the error, and Run says at the
// end why the application could not go on.
type beforeTheEnd struct{ framework.Observers } // which is told of runs by value

func (o beforeTheEnd) Observe(e framework.Event) {
	switch e := e.(type) {
	case framework.Stopped:
		return
	case framework.Coordinated:
		if _, refused := e.Event.(transition.ConfigRefused); refused {
			return
		}
	}
	o.Observers.Observe(e)
}

// Logger provides the application with a *zap.Logger that writes JSON to stderr
// from level on.
func Logger(level zapcore.Level) fx.Option {
	return fx.Provide(func() (*zap.Logger, error) {
		cfg := zap.NewProductionConfig()
		cfg.Level = zap.NewAtomicLevelAt(level)
		cfg.Sampling = nil // each line tells of another task or partition
		return cfg.Build()
	})
}

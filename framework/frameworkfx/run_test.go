package frameworkfx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// A program is an application being run.
type program struct {
	signals chan os.Signal
	stderr  saying
	code    chan int
}

// saying is a buffer that is read while somebody may still write.
type saying struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func launch(opts ...fx.Option) *program {
	p := &program{signals: make(chan os.Signal, 3), code: make(chan int, 1)}
	go func() { p.code <- run(p.signals, &p.stderr, opts...) }()
	return p
}

func (p *program) exits(t *testing.T, want int, says string) {
	t.Helper()
	select {
	case code := <-p.code:
		if code != want || !strings.Contains("\n"+p.stderr.String(), says) {
			t.Errorf("exit code %d, said %q; want %d and %q", code, p.stderr.String(), want, says)
		}
		if want == ExitOK && p.stderr.String() != "" {
			t.Errorf("said %q although nothing is wrong", p.stderr.String())
		}
	case <-time.After(40 * time.Second):
		t.Fatal("it does not end")
	}
}

var (
	layout = partition.Config{Total: 1}
	timing = transition.Timing{Lease: 2500 * time.Millisecond, Settle: 10 * time.Millisecond}
)

// consumer is a source with one task and a ledger that begins at once.
func consumer(t *testing.T, h func(context.Context, *framework.Task) error) fx.Option {
	t.Helper()
	return consumerOf(t, memledger.New(layout, timing, memledger.Options{}), h)
}

func consumerOf(t *testing.T, ledger transition.Ledger, h func(context.Context, *framework.Task) error) fx.Option {
	t.Helper()
	store, err := memsource.New(memsource.Config{Partitions: layout})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Push(sources.Task{ID: "1", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	return fx.Options(
		From("test", store, ledger),
		Configure("test", framework.Config{Timing: timing, PodGrace: time.Minute}),
		Otherwise("test", h),
	)
}

func TestASignalDrains(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	p := launch(consumer(t, func(context.Context, *framework.Task) error {
		close(started)
		<-release
		return nil
	}))
	<-started
	p.signals <- syscall.SIGTERM
	close(release)
	p.exits(t, ExitOK, "")
}

// awayLedger does not answer any more once away is set, or answers with wrong.
type awayLedger struct {
	transition.Ledger
	wrong error
	away  atomic.Bool
}

func (l *awayLedger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	if l.away.Load() {
		return transition.Answer{}, cmp.Or(l.wrong, errors.New("connection refused"))
	}
	return l.Ledger.Sync(ctx, r)
}

// A deploy whose peers cannot say that they leave was no orderly one: what they had waits for
// the lease.
func TestASignalWithoutAStore(t *testing.T) {
	ledger := &awayLedger{Ledger: memledger.New(layout, timing, memledger.Options{})}
	handled := make(chan struct{})
	p := launch(consumerOf(t, ledger, func(context.Context, *framework.Task) error {
		ledger.away.Store(true)
		close(handled)
		return nil
	}))
	<-handled
	p.signals <- syscall.SIGTERM
	p.exits(t, ExitHard, "\nstop consumer \"test\": the ledger has not answered")
}

// What goes wrong while a program stops is what it ends with.
func TestASignalAndAFailure(t *testing.T) {
	ledger := &awayLedger{Ledger: memledger.New(layout, timing, memledger.Options{}), wrong: fmt.Errorf("5 partitions: %w", partition.ErrConfig)}
	started, release := make(chan struct{}), make(chan struct{})
	p := launch(consumerOf(t, ledger, func(context.Context, *framework.Task) error {
		close(started)
		<-release
		return nil
	}))
	<-started
	p.signals <- syscall.SIGTERM
	for len(p.signals) > 0 {
		runtime.Gosched()
	}
	ledger.away.Store(true)
	close(release)
	p.exits(t, ExitConfig, "\nconsumer \"test\": 5 partitions")
}

// Why a program ends is its last line, and no line of the log before.
func TestWhyItEndsIsSaidOnce(t *testing.T) {
	for name, c := range map[string]struct {
		wrong error
		code  int
		why   string
	}{
		"what it had was not taken back": {nil, ExitHard, "the ledger has not answered"},
		"it cannot go on":                {fmt.Errorf("5 partitions: %w", partition.ErrConfig), ExitConfig, "5 partitions"},
	} {
		t.Run(name, func(t *testing.T) {
			ledger := &awayLedger{Ledger: memledger.New(layout, timing, memledger.Options{}), wrong: c.wrong}
			handled := make(chan struct{})
			p := launch(consumerOf(t, ledger, func(context.Context, *framework.Task) error {
				ledger.away.Store(true)
				close(handled)
				return nil
			}))
			<-handled
			if c.wrong == nil {
				p.signals <- syscall.SIGTERM
			}
			p.exits(t, c.code, c.why)
			if n := strings.Count(p.stderr.String(), c.why); n != 1 {
				t.Errorf("said %d times: %s", n, p.stderr.String())
			}
		})
	}
}

// An application may stop its consumers and start them again, as for maintenance. It ends as
// before if one of them cannot go on then.
func TestAFailureAfterARestart(t *testing.T) {
	ledger := &awayLedger{Ledger: memledger.New(layout, timing, memledger.Options{}), wrong: fmt.Errorf("5 partitions: %w", partition.ErrConfig)}
	handled := make(chan struct{})
	var r *framework.Runtime
	p := launch(fx.Populate(&r), consumerOf(t, ledger, func(context.Context, *framework.Task) error {
		close(handled)
		return nil
	}))
	<-handled
	if err := r.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	ledger.away.Store(true)
	p.exits(t, ExitConfig, "5 partitions")
}

// fx listens for signals, too, and may tell of one before the program has heard it: one
// signal is one, whoever is first.
func TestOneSignalIsNoSecondOne(t *testing.T) {
	for range 8 { // who is first, the handler or a hard stop, is chance
		oneSignalTwice(t)
	}
}

func oneSignalTwice(t *testing.T) {
	t.Helper()
	var shut fx.Shutdowner
	started, release := make(chan struct{}), make(chan struct{})
	p := launch(fx.Populate(&shut), consumer(t, func(ctx context.Context, _ *framework.Task) error {
		close(started)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	<-started
	if err := shut.Shutdown(); err != nil { // as fx does when it hears one
		t.Fatal(err)
	}
	p.signals <- syscall.SIGTERM
	for len(p.signals) > 0 {
		runtime.Gosched()
	}
	close(release)
	p.exits(t, ExitOK, "")
}

// survey notes that it was asked. It is a framework.Survey, whose D this package has no other use for.
func survey[D any](context.Context, []partition.ID) ([]D, error) {
	surveyed.Store(true)
	return nil, nil
}

var surveyed atomic.Bool

// What a source says of its data is asked for: who watches over the coverage would look at the ledger alone.
func TestTheSurveyOfASourceIsAsked(t *testing.T) {
	first := make(chan os.Signal, 1) // see below
	signal.Notify(first, syscall.SIGUSR1)
	defer signal.Stop(first)
	synctest.Test(t, func(t *testing.T) {
		store, err := memsource.New(memsource.Config{Partitions: layout})
		if err != nil {
			t.Fatal(err)
		}
		surveyed.Store(false)
		p := launch(
			fx.Provide(fx.Annotate(func() Source {
				s := Source{Consumer: "test", Source: store, Ledger: memledger.New(layout, timing, memledger.Options{})}
				s.Survey = survey
				return s
			}, fx.ResultTags(SourceGroup))),
			Configure("test", framework.Config{Timing: timing, PodGrace: time.Minute}),
			Otherwise("test", func(context.Context, *framework.Task) error { return nil }),
		)
		time.Sleep(time.Minute)
		if !surveyed.Load() {
			t.Error("nobody asks")
		}
		p.signals <- syscall.SIGTERM
		p.exits(t, ExitOK, "")
	})
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	started := make(chan struct{})
	cause := make(chan error, 1)
	p := launch(consumer(t, func(ctx context.Context, _ *framework.Task) error {
		close(started)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	}))
	<-started
	p.signals <- syscall.SIGTERM
	p.signals <- syscall.SIGTERM
	p.exits(t, ExitHard, "stopped hard")
	if err := <-cause; !errors.Is(err, framework.ErrStopped) {
		t.Errorf("the handler was told %v", err)
	}
}

// So does a second one while the application still starts.
func TestASecondSignalWhileStarting(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	cause := make(chan error, 1)
	p := launch(
		consumer(t, func(ctx context.Context, _ *framework.Task) error {
			close(started)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		}),
		fx.Invoke(func(l fx.Lifecycle) { l.Append(fx.StartHook(func() { <-release })) }),
	)
	defer close(release)
	<-started
	p.signals <- syscall.SIGTERM
	p.signals <- syscall.SIGTERM
	p.exits(t, ExitHard, "stopped while starting")
	select {
	case err := <-cause:
		if !errors.Is(err, framework.ErrStopped) {
			t.Errorf("the handler was told %v", err)
		}
	default:
		t.Error("the handler was told nothing, and runs")
	}
}

// Also where the signals come while a start that has failed is taken back: what has failed is said.
func TestASecondSignalWhileAFailedStartDrains(t *testing.T) {
	started, told := make(chan struct{}), make(chan struct{})
	p := launch(
		consumer(t, func(ctx context.Context, _ *framework.Task) error {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		}),
		fx.Invoke(func(l fx.Lifecycle) {
			l.Append(fx.StopHook(func() { close(told); <-started }))
			l.Append(fx.StartHook(func() error {
				<-started
				return errors.New("no such database")
			}))
		}),
	)
	<-told
	p.signals <- syscall.SIGTERM
	p.signals <- syscall.SIGTERM
	p.exits(t, ExitHard, "\nno such database\n")
	if said := p.stderr.String(); !strings.Contains(said, "stopped while starting") {
		t.Errorf("said %q", said)
	}
}

// So does a second one while the application is still built: a constructor may wait for ever, and
// fx has no time for it. After the first one what was built is not started any more.
func TestSignalsWhileBuilding(t *testing.T) {
	for name, c := range map[string]struct {
		signals int
		code    int
		says    string
	}{
		"one": {1, ExitOK, ""},
		"two": {2, ExitHard, "stopped while starting"},
	} {
		t.Run(name, func(t *testing.T) {
			building, release := make(chan struct{}), make(chan struct{})
			p := launch(
				fx.Invoke(func(l fx.Lifecycle) {
					close(building)
					<-release
					l.Append(fx.StartHook(func() { t.Error("it is started") }))
				}),
				consumer(t, func(context.Context, *framework.Task) error { return nil }),
			)
			free := sync.OnceFunc(func() { close(release) })
			defer free()
			<-building
			for range c.signals {
				p.signals <- syscall.SIGTERM
			}
			if c.signals == 1 {
				for end := time.Now().Add(30 * time.Second); len(p.signals) > 0 && time.Now().Before(end); {
					runtime.Gosched() // it is to be heard
				}
				free()
			}
			p.exits(t, c.code, c.says)
		})
	}
}

// What fails after the first signal, while the application is still built, is told all the same.
func TestAFailureAfterASignalWhileBuilding(t *testing.T) {
	building, release := make(chan struct{}), make(chan struct{})
	p := launch(
		fx.Invoke(func() error {
			close(building)
			<-release
			return errors.New("no such database")
		}),
		consumer(t, func(context.Context, *framework.Task) error { return nil }),
	)
	<-building
	p.signals <- syscall.SIGTERM
	for end := time.Now().Add(30 * time.Second); len(p.signals) > 0 && time.Now().Before(end); {
		runtime.Gosched() // it is to be heard
	}
	close(release)
	p.exits(t, ExitFailed, "no such database")
}

// A start whose time is over says so, and how long it was.
func TestALateStartIsSaid(t *testing.T) {
	launch(
		fx.StartTimeout(20*time.Millisecond),
		consumer(t, func(context.Context, *framework.Task) error { return nil }),
		fx.Invoke(func(l fx.Lifecycle) {
			l.Append(fx.StartHook(func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}))
		}),
	).exits(t, ExitFailed, "the application has not started within 20ms")
}

// Of a start that fails the consumers have their whole time to stop, and it is said what has failed, also where that
// takes longer than the start may, and with a logger of the application for fx, so that ours hears nothing.
func TestAStartThatFailsDrains(t *testing.T) {
	first := make(chan os.Signal, 1) // see TestAHandlerThatNeverReturnsEndsWithTheStopTimeout
	signal.Notify(first, syscall.SIGUSR1)
	defer signal.Stop(first)
	synctest.Test(t, func(t *testing.T) {
		started, cut := make(chan struct{}), make(chan error, 1)
		p := launch(
			fx.StartTimeout(5*time.Second),
			fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
			consumer(t, func(ctx context.Context, _ *framework.Task) error {
				close(started)
				select {
				case <-time.After(20 * time.Second): // in fake time
					cut <- nil
				case <-ctx.Done():
					cut <- context.Cause(ctx)
				}
				return nil
			}),
			fx.Invoke(func(l fx.Lifecycle) {
				l.Append(fx.StartHook(func() error {
					<-started
					return errors.New("no such database")
				}))
			}),
		)
		p.exits(t, ExitFailed, "\nno such database\n")
		if err := <-cut; err != nil {
			t.Errorf("the handler was cut off: %v", err)
		}
	})
}

// Also of a start that fails a handler that never returns takes no longer than the time to stop, and a hook that takes
// its time to stop may: what has failed is said.
func TestAStartThatFailsEnds(t *testing.T) {
	first := make(chan os.Signal, 1) // see TestAHandlerThatNeverReturnsEndsWithTheStopTimeout
	signal.Notify(first, syscall.SIGUSR1)
	defer signal.Stop(first)
	const toStop = 27250 * time.Millisecond
	for name, c := range map[string]struct {
		never bool // the handler returns
		slow  time.Duration
		fails func() error
		code  int
		says  []string
		took  time.Duration // of what begins with the failure
	}{
		"a handler never returns": {true, 0, func() error { return errors.New("no such database") }, ExitHard,
			[]string{"no such database\n", "has not stopped within 27.25s"}, toStop + lastWord},
		"a hook stops slowly": {false, 8 * time.Second, func() error { return errors.New("no such database") }, ExitFailed,
			[]string{"no such database\n"}, 8 * time.Second},
		"both": {true, 8 * time.Second, func() error { return errors.New("no such database") }, ExitHard,
			[]string{"no such database\n", "has not stopped within 27.25s"}, 8*time.Second + toStop + lastWord},
		"it starts late, and a handler never returns": {true, 0, func() error { time.Sleep(6 * time.Second); return nil }, ExitHard,
			[]string{"has not started within 5s", "has not stopped within 27.25s"}, 5*time.Second + toStop + time.Minute/4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started, release := make(chan struct{}), make(chan struct{})
				if !c.never {
					close(release)
				}
				var begun time.Time
				p := launch(
					fx.StartTimeout(5*time.Second),
					consumer(t, func(context.Context, *framework.Task) error {
						close(started)
						<-release
						return nil
					}),
					fx.Invoke(func(l fx.Lifecycle) {
						l.Append(fx.StopHook(func() { time.Sleep(c.slow) })) // in fake time
						l.Append(fx.StartHook(func() error {
							<-started
							begun = time.Now()
							return c.fails()
						}))
					}),
				)
				p.exits(t, c.code, "")
				for _, want := range c.says {
					if said := p.stderr.String(); !strings.Contains(said, want) {
						t.Errorf("said %q, want %q", said, want)
					}
				}
				if took := time.Since(begun); took > c.took {
					t.Errorf("it took %v", took)
				}
				if c.never {
					close(release)
				}
			})
		})
	}
}

// A term ends when its time is over, unless that was put off, and no later than it is cancelled.
func TestTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		over := newTerm(time.Second)
		time.Sleep(900 * time.Millisecond) // in fake time
		over.putOff(2 * time.Second)
		child, cancel := context.WithCancel(over)
		defer cancel()
		<-child.Done()
		if end, _ := over.Deadline(); time.Since(begun) != 2900*time.Millisecond || !end.Equal(time.Now()) || !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Errorf("after %v, with the deadline %v: %v", time.Since(begun), end, child.Err())
		}
		cancelled := newTerm(time.Second)
		cancelled.cancel()
		cancelled.putOff(time.Minute)
		if <-cancelled.Done(); !errors.Is(cancelled.Err(), context.Canceled) {
			t.Error(cancelled.Err())
		}
	})
}

// A logger writes what is of its level, or above, however often it is said.
func TestALoggerHasItsLevel(t *testing.T) {
	var log *zap.Logger
	if err := fx.New(fx.NopLogger, Logger(zapcore.ErrorLevel), fx.Populate(&log)).Err(); err != nil {
		t.Fatal(err)
	}
	if log.Core().Enabled(zapcore.WarnLevel) || !log.Core().Enabled(zapcore.ErrorLevel) {
		t.Errorf("its level is %v", log.Level())
	}
	for i := range 1000 {
		if log.Check(zapcore.ErrorLevel, "task failed") == nil {
			t.Fatalf("line %d is left out", i)
		}
	}
}

// A constructor that ends its goroutine, as a helper of a test that fails does, is no reason to wait for ever.
func TestAConstructorThatEndsItsGoroutine(t *testing.T) {
	p := launch(
		fx.Invoke(func() { runtime.Goexit() }),
		consumer(t, func(context.Context, *framework.Task) error { return nil }),
	)
	p.exits(t, ExitFailed, "a constructor ended its goroutine")
}

// Nor is such a hook, behind which fx calls no other one: what the consumers have is handed over all the same.
func TestAHookThatEndsItsGoroutine(t *testing.T) {
	ledger := memledger.New(layout, timing, memledger.Options{})
	handled := make(chan struct{})
	p := launch(
		consumerOf(t, ledger, func(context.Context, *framework.Task) error {
			close(handled)
			return nil
		}),
		fx.Invoke(func(l fx.Lifecycle) { l.Append(fx.StopHook(runtime.Goexit)) }),
	)
	<-handled
	p.signals <- syscall.SIGTERM
	p.exits(t, ExitFailed, "\na hook of the stop ended its goroutine")
	census, err := ledger.Census(t.Context())
	if err != nil || len(census.Sessions) != 1 || census.Sessions[0].State.String() != "gone" {
		t.Errorf("nothing was handed over: %+v, %v", census.Sessions, err)
	}
}

// An observer that panics ends the process in order, and where it did so is said.
func TestAnObserverThatPanics(t *testing.T) {
	p := launch(
		consumer(t, func(context.Context, *framework.Task) error { return nil }),
		Observe(func(e framework.Event) {
			if _, is := e.(framework.Started); is {
				panic("boom")
			}
		}),
	)
	p.exits(t, ExitFailed, "the observer panicked: boom (told of framework.Started)\ngoroutine ")
}

func TestAHandlerThatIgnoresEverythingDoesNotHoldTheProcess(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	p := launch(consumer(t, func(context.Context, *framework.Task) error {
		close(started)
		<-release
		close(ended)
		return nil
	}))
	<-started
	p.signals <- syscall.SIGTERM
	p.signals <- syscall.SIGTERM
	p.signals <- syscall.SIGTERM
	p.exits(t, ExitHard, "with handlers still running")
	close(release)
	<-ended
}

// What a second signal does not wait for any more is said: a hook of the application is no handler.
func TestAHookThatDoesNotReturnIsNoHandler(t *testing.T) {
	first := make(chan os.Signal, 1) // see below
	signal.Notify(first, syscall.SIGUSR1)
	defer signal.Stop(first)
	synctest.Test(t, func(t *testing.T) {
		handled, stopping, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
		p := launch(
			consumer(t, func(context.Context, *framework.Task) error {
				close(handled)
				return nil
			}),
			fx.Invoke(func(l fx.Lifecycle) {
				l.Append(fx.StopHook(func() {
					close(stopping)
					<-release
				}))
			}),
		)
		<-handled
		p.signals <- syscall.SIGTERM
		<-stopping
		p.signals <- syscall.SIGTERM
		p.exits(t, ExitHard, "stopped at once, without the hooks of the application that have not returned")
		close(release)
	})
}

// A platform that was told of the stop timeout kills who takes longer: a handler that was
// cancelled with the shutdown, and had its grace, is not waited for again.
func TestAHandlerThatNeverReturnsEndsWithTheStopTimeout(t *testing.T) {
	// fx listens for signals, and what the first who listens starts must not belong to a bubble.
	first := make(chan os.Signal, 1)
	signal.Notify(first, syscall.SIGUSR1)
	defer signal.Stop(first)
	synctest.Test(t, func(t *testing.T) {
		started, release := make(chan struct{}), make(chan struct{})
		p := launch(consumer(t, func(context.Context, *framework.Task) error {
			close(started)
			<-release
			return nil
		}))
		<-started
		begun := time.Now()
		p.signals <- syscall.SIGTERM
		p.exits(t, ExitHard, "has not stopped within 27.25s")
		if took := time.Since(begun); took > 27250*time.Millisecond+lastWord {
			t.Errorf("it took %v", took)
		}
		close(release)
	})
}

// down is a source that does not answer.
type down struct {
	sources.Source
	asked chan struct{}
}

func (d down) Layout(context.Context) (partition.Config, error) {
	d.asked <- struct{}{}
	return partition.Config{}, errors.New("the store is down")
}

// A peer that waits for its store says so, whether the application has thought of a
// logger or not, and at most once.
func TestWhatIsWrongIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		opt  fx.Option
		says int
	}{
		"without a logger":    {fx.Options(), 1},
		"the logger tells it": {fx.Provide(zap.NewNop), 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{})
			p := launch(c.opt,
				From("test", down{asked: asked}, memledger.New(partition.Config{Total: 1}, transition.Timing{}, memledger.Options{})),
				Configure("test", framework.Config{PodGrace: time.Minute}),
				Otherwise("test", func(context.Context, *framework.Task) error { return nil }),
			)
			<-asked
			<-asked // the first failure was told
			p.signals <- syscall.SIGTERM
			if code := <-p.code; code != ExitOK {
				t.Errorf("exit code %d", code)
			}
			if n := strings.Count(p.stderr.String(), "the store is down"); n < c.says || n > 2*c.says {
				t.Errorf("said %q", p.stderr.String())
			}
		})
	}
}

// Why it does not start is said once, on stderr; the way it took through fx is debug.
func TestWhyItDoesNotStartIsNoErrorOfTheLog(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	launch(fx.Provide(func() *zap.Logger { return zap.New(core) }),
		Otherwise("test", func(context.Context, *framework.Task) error { return nil }),
	).exits(t, ExitWrong, "no source")
	for _, l := range lines.All() {
		if l.Level != zapcore.DebugLevel {
			t.Errorf("the log has %v %s", l.Level, l.Message)
		}
	}
	if lines.Len() == 0 {
		t.Error("fx says nothing")
	}
}

// A logger that cannot be made is why it does not start, and said once: without all that fx has
// done until then, which it writes to the stderr of the process.
func TestALoggerThatCannotBeMadeIsSaidOnce(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	said := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(read)
		said <- all
	}()
	stderr := os.Stderr
	os.Stderr = write
	launch(fx.Provide(func() (*zap.Logger, error) { return nil, errors.New("no place for the log") }),
		consumer(t, func(context.Context, *framework.Task) error { return nil }),
	).exits(t, ExitFailed, "\ncannot start: no place for the log\n")
	os.Stderr = stderr
	write.Close()
	if all := <-said; len(all) > 0 {
		t.Errorf("beside that is said\n%s", all)
	}
}

// Of what is provided twice, as a logger by the application and by Logger, the first line says what it is.
func TestWhatIsProvidedTwiceIsNamed(t *testing.T) {
	launch(fx.Provide(zap.NewNop), Logger(zapcore.InfoLevel),
		consumer(t, func(context.Context, *framework.Task) error { return nil }),
	).exits(t, ExitWrong, "\ncannot start:\n  cannot provide *zap.Logger from [0]: already provided by ")
}

// controlledBy gives the one consumer another control.
func controlledBy(control framework.Control, more ...framework.Option) fx.Option {
	return fx.Decorate(fx.Annotate(func(all []Setting) []Setting {
		all[0].Options = append(append(all[0].Options, framework.WithControl(control)), more...)
		return all
	}, fx.ParamTags(SettingGroup), fx.ResultTags(SettingGroup)))
}

type ledgerOfAnother struct{ transition.Ledger }

func (ledgerOfAnother) Name() string { return "other" }

// unnumbered never says anything.
type unnumbered struct{}

func (unnumbered) Index(ctx context.Context, _ func(partition.View)) error {
	<-ctx.Done()
	return nil
}

func TestExitCodesSayWhy(t *testing.T) {
	if code := ExitCode(nil); code != ExitOK {
		t.Errorf("without an error: %d", code)
	}
	t.Run("what was provided is wrong", func(t *testing.T) {
		launch(Otherwise("test", func(context.Context, *framework.Task) error { return nil })).
			exits(t, ExitWrong, `consumer "test": no source`)
	})
	t.Run("nobody provides what a handler needs", func(t *testing.T) {
		type database struct{}
		launch(
			consumer(t, func(context.Context, *framework.Task) error { return nil }),
			Handle("test", "mail", func(*database) framework.HandlerFunc { return nil }),
		).exits(t, ExitWrong, "\ncannot start:\n  missing type: *frameworkfx.database\n  which fx found so: could not build")
	})
	t.Run("what a handler needs cannot be made", func(t *testing.T) {
		type database struct{}
		launch(
			consumer(t, func(context.Context, *framework.Task) error { return nil }),
			fx.Provide(func() (*database, error) { return nil, errors.New("no such database") }),
			Handle("test", "mail", func(*database) framework.HandlerFunc { return nil }),
		).exits(t, ExitFailed, "\ncannot start: no such database\n  which fx found so: could not build")
	})
	t.Run("the name is in use with another configuration", func(t *testing.T) {
		store, err := memsource.New(memsource.Config{Partitions: partition.Config{Total: 2}})
		if err != nil {
			t.Fatal(err)
		}
		mine := memledger.New(partition.Config{Total: 1}, transition.Timing{}, memledger.Options{}).
			As(partition.Config{Total: 2}, transition.Timing{})
		launch(
			From("test", store, mine),
			Configure("test", framework.Config{PodGrace: time.Minute}),
			Otherwise("test", func(context.Context, *framework.Task) error { return nil }),
		).exits(t, ExitConfig, partition.ErrConfig.Error())
	})
	other := memledger.New(layout, transition.Timing{Lease: 2 * timing.Lease}, memledger.Options{})
	t.Run("the ledger was made for another lease", func(t *testing.T) {
		launch(consumerOf(t, other, func(context.Context, *framework.Task) error { return nil })).
			exits(t, ExitWrong, "\ncannot start:\n  consumer \"test\": transition: the ledger was made for a lease of")
	})
	t.Run("the ledger that is made later was made for another lease", func(t *testing.T) {
		control := func(partition.Config) (transition.Ledger, partition.Indexer, error) { return other, nil, nil }
		launch(
			consumer(t, func(context.Context, *framework.Task) error { return nil }),
			controlledBy(control),
		).exits(t, ExitWrong, "\nconsumer \"test\": transition: the ledger was made for a lease of")
	})
	t.Run("another indexer than the rolls is given what only they have", func(t *testing.T) {
		control := func(partition.Config) (transition.Ledger, partition.Indexer, error) {
			return memledger.New(layout, timing, memledger.Options{}), unnumbered{}, nil
		}
		launch(
			consumer(t, func(context.Context, *framework.Task) error { return nil }),
			controlledBy(control, framework.WithPeer("", 4), framework.WithTags("gpu")),
		).exits(t, ExitWrong, "\nconsumer \"test\": transition: weight 4 needs the ledger's rolls: another indexer counts every peer once; leave it out, "+
			"or run more peers where there is more room\nconsumer \"test\": transition: tags gpu need the ledger's rolls")
	})
	t.Run("the ledger was made for other partitions", func(t *testing.T) {
		large := memledger.New(partition.Config{Total: 2}, timing, memledger.Options{})
		launch(consumerOf(t, large, func(context.Context, *framework.Task) error { return nil })).
			exits(t, ExitWrong, "\nconsumer \"test\": make the ledger: transition: the ledger was made for 2 partitions")
	})
	t.Run("the ledger that is made later was made for another name", func(t *testing.T) {
		control := func(partition.Config) (transition.Ledger, partition.Indexer, error) {
			return ledgerOfAnother{memledger.New(layout, timing, memledger.Options{})}, nil, nil
		}
		launch(
			consumer(t, func(context.Context, *framework.Task) error { return nil }),
			controlledBy(control),
		).exits(t, ExitWrong, "\nconsumer \"test\": make the ledger: partition: the ledger was made for the name \"other\"")
	})
	t.Run("a unit's handler outlasts the stop", func(t *testing.T) {
		if code := ExitCode(fmt.Errorf("stop units: %w", &transition.StuckError{})); code != ExitHard {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("something else of the application failed", func(t *testing.T) {
		launch(
			consumer(t, func(context.Context, *framework.Task) error { return nil }),
			fx.Invoke(func(l fx.Lifecycle) {
				l.Append(fx.StartHook(func() error { return errors.New("port in use") }))
			}),
		).exits(t, ExitFailed, "port in use")
	})
	t.Run("something else of the application does not start in time", func(t *testing.T) {
		launch(
			consumer(t, func(context.Context, *framework.Task) error { return nil }),
			fx.StartTimeout(100*time.Millisecond),
			fx.Invoke(func(l fx.Lifecycle) {
				l.Append(fx.StartHook(func(ctx context.Context) error {
					<-ctx.Done()
					return fmt.Errorf("reach the database: %w", ctx.Err())
				}))
			}),
		).exits(t, ExitFailed, "deadline exceeded")
	})
	t.Run("a time of its own was over", func(t *testing.T) {
		if code := ExitCode(fmt.Errorf("make the ledger: ask for a certificate: %w", context.DeadlineExceeded)); code != ExitFailed {
			t.Errorf("exit code %d", code)
		}
	})
	for what, c := range map[string]struct {
		stop   func(context.Context) error
		within time.Duration
		code   int
		says   string
	}{
		"something else of the application does not stop in time": {func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, 200 * time.Millisecond, ExitHard, "has not stopped within 200ms"},
		"something else of the application had less time to stop": {func(context.Context) error {
			return fmt.Errorf("say goodbye: %w", context.DeadlineExceeded)
		}, 30 * time.Second, ExitFailed, "say goodbye"},
	} {
		t.Run(what, func(t *testing.T) {
			store, err := memsource.New(memsource.Config{Partitions: layout})
			if err != nil {
				t.Fatal(err)
			}
			short := timing
			short.Drain, short.Shutdown, short.CancelGrace = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
			started := make(chan struct{})
			ledger := memledger.New(layout, short, memledger.Options{})
			p := launch(
				From("test", store, ledger),
				Configure("test", framework.Config{Timing: short, PodGrace: time.Minute, StopTimeout: c.within}),
				Otherwise("test", func(context.Context, *framework.Task) error { return nil }),
				fx.Invoke(func(l fx.Lifecycle) { l.Append(fx.StartStopHook(func() { close(started) }, c.stop)) }),
			)
			<-started
			joined(t, ledger)
			p.signals <- syscall.SIGTERM
			p.exits(t, c.code, c.says)
			census, err := ledger.Census(t.Context())
			if err != nil || len(census.Sessions) != 1 || census.Sessions[0].State.String() != "gone" {
				t.Errorf("nothing was handed over: %+v, %v", census.Sessions, err)
			}
		})
	}
	t.Run("the application shuts itself down", func(t *testing.T) {
		launch(
			consumer(t, func(context.Context, *framework.Task) error { return nil }),
			fx.Invoke(func(l fx.Lifecycle, s fx.Shutdowner) {
				l.Append(fx.StartHook(func() error { return s.Shutdown(fx.ExitCode(42)) }))
			}),
		).exits(t, 42, "")
	})
}

// With a logger, too, a run is told by value: one observer that takes it as an Event costs each
// task an allocation.
func TestRunsAreToldByValue(t *testing.T) {
	type room struct {
		fx.In
		All []framework.Observer `group:"countoff.observers"`
	}
	for name, logger := range map[string]fx.Option{"a logger": fx.Supply(zap.NewNop()), "none": fx.Options()} {
		var all []framework.Observer
		app := fx.New(fx.NopLogger, logger, lines(zapcore.AddSync(io.Discard)), fx.Invoke(func(r room) { all = r.All }))
		if err := app.Err(); err != nil {
			t.Fatal(err)
		}
		observer := (&Params{Observers: all, Logger: zap.NewNop()}).observer()
		for _, o := range append(all, observer) {
			if _, ok := o.(framework.HandledObserver); !ok {
				t.Errorf("%s: %T is told of runs by Observe", name, o)
			}
		}
	}
}

// joined waits until the ledger knows a peer: who is told to stop before leaves nothing behind.
func joined(t *testing.T, ledger transition.Ledger) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); ; <-tick.C {
		census, err := ledger.Census(t.Context())
		if err == nil && len(census.Sessions) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody has joined within 10 s: %v", err)
		}
	}
}

package frameworkfx_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var layout = partition.Config{Total: 4}

// quick is the shortest lease there may be, for tests that wait in real time.
var quick = transition.Timing{Lease: 2500 * time.Millisecond, Settle: 10 * time.Millisecond}

func memory(t *testing.T) (*memsource.Store, *memledger.Ledger) {
	t.Helper()
	store, err := memsource.New(memsource.Config{Partitions: layout})
	if err != nil {
		t.Fatal(err)
	}
	return store, memledger.New(layout, quick, memledger.Options{})
}

func done(context.Context, *framework.Task) error { return nil }

// A greeter is a handler with a dependency.
type greeter struct{ greet func(string) }

func newGreeter(greet func(string)) *greeter { return &greeter{greet} }

func (g *greeter) Handle(_ context.Context, t *framework.Task) error {
	g.greet(t.Type + " " + t.ID)
	return nil
}

func TestHandlersSourcesAndMiddlewareJoinByGroups(t *testing.T) {
	store, ledger := memory(t)
	for _, typ := range []string{"welcome", "farewell", "other"} {
		if err := store.Push(sources.Task{ID: "1", Type: typ, Key: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	greeted := make(chan string, 10)
	wrap := func(mark string) framework.Middleware {
		return func(next framework.Handler) framework.Handler {
			return framework.HandlerFunc(func(ctx context.Context, t *framework.Task) error {
				greeted <- mark
				return next.Handle(ctx, t)
			})
		}
	}
	core, lines := observer.New(zapcore.InfoLevel)
	seen := make(chan framework.Event, 1000)
	app := fxtest.New(t,
		frameworkfx.Module,
		frameworkfx.From("mails", store, ledger),
		frameworkfx.Configure("mails", framework.Config{Timing: quick, PodGrace: time.Minute}),
		frameworkfx.Handle("mails", "welcome", newGreeter),
		frameworkfx.Handle("mails", "farewell", newGreeter),
		frameworkfx.Otherwise("mails", func(greet func(string)) (framework.Handler, error) {
			return framework.HandlerFunc(func(_ context.Context, t *framework.Task) error { greet("any " + t.ID); return nil }), nil
		}),
		frameworkfx.Use("mails", 2, wrap("inner")),
		frameworkfx.Use("", math.MinInt, wrap("outer")),
		frameworkfx.Observe(func() framework.ObserverFunc { return func(e framework.Event) { seen <- e } }),
		fx.Supply(func(s string) { greeted <- s }),
		fx.Provide(func() *zap.Logger { return zap.New(core) }),
	)
	app.RequireStart()
	var got []string
	for range 9 {
		got = append(got, <-greeted)
	}
	app.RequireStop()
	want := "outer inner welcome 1 outer inner farewell 1 outer inner any 1"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("handled %q, want %q", s, want)
	}
	if lines.FilterMessage("peer started").Len() != 1 {
		t.Errorf("the logger got %v", lines.All())
	}
	if len(seen) == 0 {
		t.Error("the observer heard nothing")
	}
}

// A variable that is misspelt is one that nothing reads, and nothing else would say so.
func TestAMisspeltVariableIsTold(t *testing.T) {
	for name, meant := range map[string]string{
		"COUNTOFF_DEPLOYMNET": "COUNTOFF_DEPLOYMENT", "COUNTOF_DEPLOYMENT": "COUNTOFF_DEPLOYMENT", "COUNTOFF_GRAC": "COUNTOFF_GRACE",
		"COUNTOFF_DEPLOYMENT": "", "COUNTOFF_NAME": "", "COUNTOFF_REDIS_URL": "", // the command's, and the peer's own
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "blue")
			store, ledger := memory(t)
			core, lines := observer.New(zapcore.WarnLevel)
			app := fxtest.New(t, frameworkfx.Module,
				frameworkfx.From("mails", store, ledger),
				frameworkfx.Configure("mails", framework.Config{Timing: quick, PodGrace: time.Minute}),
				frameworkfx.Otherwise("mails", func(context.Context, *framework.Task) error { return nil }),
				fx.Provide(func() *zap.Logger { return zap.New(core) }),
			)
			app.RequireStart().RequireStop()
			var got []string
			for _, l := range lines.All() {
				if strings.Contains(l.Message, "did you mean") {
					got = append(got, l.Message)
				}
			}
			if meant == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || meant == "" || !strings.Contains(got[0], name+" is set") || !strings.Contains(got[0], meant+"?") {
				t.Errorf("it tells %q, want %q", got, meant)
			}
		})
	}
}

// What fx has started of an application whose time to start was over runs on, also after its Stop. The
// runtime is stopped all the same.
func TestALateStartIsStoppedByTheRuntime(t *testing.T) {
	store, ledger := memory(t)
	if err := store.Push(sources.Task{ID: "1", Key: "ann"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var r *framework.Runtime
	app := fx.New(fx.NopLogger, frameworkfx.Module, fx.Populate(&r),
		frameworkfx.From("mails", store, ledger),
		frameworkfx.Configure("mails", framework.Config{Timing: quick, PodGrace: time.Minute}),
		frameworkfx.Otherwise("mails", func(context.Context, *framework.Task) error { cancel(); return nil }),
		fx.Invoke(func(l fx.Lifecycle) {
			l.Append(fx.StartHook(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		}),
	)
	if err := app.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("it starts: %v", err)
	}
	if err := errors.Join(app.Stop(t.Context()), r.Stop(t.Context())); err != nil {
		t.Error(err)
	}
}

// A source of an application without observers is told of none: it would call nil.
func TestNobodyIsNoObserver(t *testing.T) {
	store, ledger := memory(t)
	app := fx.New(fx.NopLogger, frameworkfx.Module,
		fx.Provide(fx.Annotate(func() frameworkfx.Source {
			return frameworkfx.Source{Consumer: "mails", Source: store, Ledger: ledger, Listen: func(o framework.Observer) { t.Errorf("it is to tell %v", o) }}
		}, fx.ResultTags(frameworkfx.SourceGroup))),
		frameworkfx.Configure("mails", framework.Config{Timing: quick, PodGrace: time.Minute}),
		frameworkfx.Otherwise("mails", done),
	)
	if err := app.Err(); err != nil {
		t.Error(err)
	}
}

type parcel struct{ Weight int }

func TestEverythingThatIsWrongIsListedAtOnce(t *testing.T) {
	store, ledger := memory(t)
	app := fx.New(
		fx.NopLogger,
		frameworkfx.Module,
		// mails: two handlers of a type, two defaults, a nil one, a bad number, budgets
		frameworkfx.From("mails", store, ledger),
		frameworkfx.Handle("mails", "welcome", done),
		frameworkfx.Handle("mails", "welcome", done),
		frameworkfx.Otherwise("mails", done),
		frameworkfx.Otherwise("mails", done),
		frameworkfx.Handle("mails", "farewell", nil),
		frameworkfx.Handle("mails", "parcel", func(context.Context, parcel, *framework.Task) error { return nil }),
		frameworkfx.Handle("mails", "postcard", "a text"),
		frameworkfx.Otherwise("letters", "a text"),
		frameworkfx.Configure("mails", framework.Config{Concurrency: -1, HandlerTimeout: -time.Second}),
		// orders: no handler, no ledger
		frameworkfx.From("orders", store, nil),
		// bills: no source
		frameworkfx.Handle("bills", "bill", done),
		frameworkfx.Configure("bills", framework.Config{HandlerTimeout: time.Hour, Concurrency: 1_000_000}),
		// letters: a nil middleware
		frameworkfx.From("letters", store, ledger),
		frameworkfx.Otherwise("letters", done),
		frameworkfx.Use("letters", 7, nil),
		// nobody who listens, to any of them
		frameworkfx.Observe(func() framework.Observer { return nil }),
		// two sources, a broken one, a bad name, twice configured
		frameworkfx.From("no name", store, ledger),
		frameworkfx.From("no name", nil, ledger),
		frameworkfx.Otherwise("no name", done),
		frameworkfx.Configure("no name", framework.Config{}),
		frameworkfx.Configure("no name", framework.Config{}),
	)
	err := app.Err()
	var wrong *frameworkfx.StartError
	if !errors.As(err, &wrong) {
		t.Fatalf("the application says %v", err)
	}
	for _, want := range []string{
		`consumer "mails": framework: two handlers for type "welcome"`,
		`consumer "mails": framework: two default handlers`,
		`the handler for type "farewell" is missing`,
		`the handler for type "parcel": func(context.Context, frameworkfx_test.parcel, *sources.Task) error is neither`,
		"framework.JSON makes a handler",
		`the handler for type "postcard": string is no handler`,
		`consumer "letters": the default handler: string is no handler`,
		"concurrency -1: want 1 to 65536",
		"concurrency 1000000: want 1 to 65536",
		`consumer "mails": framework: handler timeout -1s: must not be negative`,
		`consumer "orders": framework: no handler at all`,
		`consumer "bills": no source`,
		`consumer "letters": its middleware of order 7 is nil`,
		"handler timeout 1h0m0s is longer than the drain 30s",
		`consumer "no name": 2 sources, want one`,
		`consumer "no name": its source is nil`,
		`consumer "no name": configured 2 times`,
		`name "no name": want 1 to 64 characters`,
		"an observer is nil",
	} {
		if !strings.Contains(wrong.Error(), want) {
			t.Errorf("%q is not listed in:\n%v", want, wrong)
		}
	}
	if n := len(wrong.Faults); n != 20 {
		t.Errorf("%d faults, want 20:\n%v", n, wrong)
	}
	if code := frameworkfx.ExitCode(err); code != frameworkfx.ExitWrong {
		t.Errorf("exit code %d", code)
	}
}

// What was provided for no name, as where a variable is not set, is not left out in silence.
func TestWhatIsForNoNameIsListed(t *testing.T) {
	store, ledger := memory(t)
	for what, opt := range map[string]fx.Option{
		"a source":  frameworkfx.From("", store, ledger),
		"a handler": frameworkfx.Otherwise("", done),
		"a setting": frameworkfx.Configure("", framework.Config{}),
	} {
		app := fx.New(fx.NopLogger, frameworkfx.Module, frameworkfx.From("mails", store, ledger), frameworkfx.Otherwise("mails", done), opt)
		if err := app.Err(); err == nil || !strings.Contains(err.Error(), `name "": want 1 to 64 characters`) {
			t.Errorf("%s for no name: %v", what, err)
		}
	}
}

func TestNoLedgerIsListed(t *testing.T) {
	store, _ := memory(t)
	app := fx.New(fx.NopLogger, frameworkfx.Module, frameworkfx.From("mails", store, nil), frameworkfx.Otherwise("mails", done))
	if err := app.Err(); err == nil || !strings.Contains(err.Error(), "no ledger") {
		t.Errorf("the application says %v", err)
	}
}

// Consumers that would count off against each other over one ledger are refused, each pair in a line of
// the list.
func TestOneLedgerOfSeveralConsumersIsListed(t *testing.T) {
	store, ledger := memory(t)
	opts := []fx.Option{fx.NopLogger, frameworkfx.Module}
	for _, name := range []string{"a", "b", "c"} {
		opts = append(opts, frameworkfx.From(name, store, ledger), frameworkfx.Otherwise(name, done),
			frameworkfx.Configure(name, framework.Config{Timing: quick}))
	}
	err, ok := errors.AsType[*frameworkfx.StartError](fx.New(opts...).Err())
	if !ok || len(err.Faults) != 2 || !strings.HasPrefix(err.Faults[1].Error(), `framework: the consumers "b" and "c" have one ledger`) {
		t.Errorf("%v", err)
	}
}

func TestNothingProvided(t *testing.T) {
	app := fx.New(fx.NopLogger, frameworkfx.Module)
	if err := app.Err(); err == nil || !strings.Contains(err.Error(), "no consumer: provide a source and a handler") {
		t.Errorf("the application says %v", err)
	}
}

// Health checks join by the group; of several all must pass.
func TestHealthChecksJoinByTheGroup(t *testing.T) {
	store, ledger := memory(t)
	others, othersLedger := memory(t)
	seen := make(chan framework.Event, 1000)
	app := fxtest.New(t,
		frameworkfx.Module,
		frameworkfx.From("mails", store, ledger),
		frameworkfx.Configure("mails", framework.Config{Timing: quick, PodGrace: time.Minute}),
		frameworkfx.Otherwise("mails", done),
		fx.Supply("no room on the disk"),
		frameworkfx.Healthy("", func() func(context.Context) error { return func(context.Context) error { return nil } }),
		frameworkfx.Healthy("mails", func(lacks string) func(context.Context) error {
			return func(context.Context) error { return errors.New(lacks) }
		}),
		frameworkfx.From("others", others, othersLedger),
		frameworkfx.Configure("others", framework.Config{Timing: quick, PodGrace: time.Minute}),
		frameworkfx.Otherwise("others", done),
		frameworkfx.Healthy("others", func() func(context.Context) error {
			return func(context.Context) error { return errors.New("not asked") }
		}),
		frameworkfx.Observe(func() framework.Observer {
			return framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.Checked); ok && e.Consumer == "mails" {
					seen <- e
				}
			})
		}),
	)
	app.RequireStart()
	defer app.RequireStop()
	if e, ok := (<-seen).(framework.Checked); !ok || e.Err == nil || e.Err.Error() != "no room on the disk" {
		t.Errorf("checked: %v", e.Err)
	}
}

// So does one that is an option of the consumer, and takes the place of none: what it replaced would
// be asked by nobody.
func TestHealthChecksJoinThoseOfOptions(t *testing.T) {
	store, ledger := memory(t)
	asked := make(chan string, 100)
	check := func(what string) func(context.Context) error {
		return func(context.Context) error { asked <- what; return nil }
	}
	app := fxtest.New(t,
		frameworkfx.Module,
		frameworkfx.From("mails", store, ledger),
		frameworkfx.Configure("mails", framework.Config{Timing: quick, PodGrace: time.Minute},
			framework.WithHealth(check("an option")), framework.WithHealth(nil), framework.WithHealth(check("another"))),
		frameworkfx.Otherwise("mails", done),
		frameworkfx.Healthy("mails", check("the group")),
	)
	app.RequireStart()
	defer app.RequireStop()
	if all := map[string]bool{<-asked: true, <-asked: true, <-asked: true}; len(all) != 3 {
		t.Errorf("asked: %v, want all three", all)
	}
}

// A middleware or numbers of a name that nobody has would be of no handler.
func TestASlipOfTheNameIsRefused(t *testing.T) {
	store, ledger := memory(t)
	for what, opt := range map[string]fx.Option{
		"Use":       frameworkfx.Use("mials", 1, framework.Recover()),
		"Configure": frameworkfx.Configure("mials", framework.Config{}),
	} {
		app := fx.New(fx.NopLogger, frameworkfx.Module, frameworkfx.From("mails", store, ledger), frameworkfx.Otherwise("mails", done), opt)
		var wrong *frameworkfx.StartError
		if err := app.Err(); !errors.As(err, &wrong) || !strings.Contains(wrong.Error(), `consumer "mials": no source`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// An error that wraps two is one: its own words are not lost.
func TestAnErrorThatWrapsTwoIsOne(t *testing.T) {
	why := fmt.Errorf("it says %w, and then %w", errors.New("no"), errors.New("never"))
	app := fx.New(fx.NopLogger, frameworkfx.Module, frameworkfx.Otherwise("mails", done),
		fx.Supply(fx.Annotate(frameworkfx.Source{Consumer: "mails", Err: errors.Join(why, errors.New("no URL"))}, fx.ResultTags(frameworkfx.SourceGroup))))
	var wrong *frameworkfx.StartError
	if !errors.As(app.Err(), &wrong) {
		t.Fatalf("the application says %v", app.Err())
	}
	for _, want := range []string{`consumer "mails": it says no, and then never`, `consumer "mails": no URL`} {
		if !strings.Contains(wrong.Error(), want) {
			t.Errorf("%q is not said:\n%v", want, wrong)
		}
	}
}

// A check of a name that nobody has would check nobody.
func TestAHealthCheckOfNobodyIsRefused(t *testing.T) {
	store, ledger := memory(t)
	well := func() func(context.Context) error { return func(context.Context) error { return nil } }
	app := fx.New(
		fx.NopLogger,
		frameworkfx.Module,
		frameworkfx.From("mails", store, ledger),
		frameworkfx.Otherwise("mails", done),
		unitsOf("sites", framework.UnitsConfig{Source: noUnits{}, Handler: idle, Control: memoryControl}),
		frameworkfx.Healthy("", well),
		frameworkfx.Healthy("sites", well),
		frameworkfx.Healthy("mails", func() func(context.Context) error { return nil }),
		frameworkfx.Healthy("mails", "a text"),
		frameworkfx.Healthy("mials", well),
	)
	var wrong *frameworkfx.StartError
	if !errors.As(app.Err(), &wrong) {
		t.Fatalf("the application says %v", app.Err())
	}
	for _, want := range []string{`consumer "mials": no source`, `consumer "mials": framework: no handler`, `"mails": its health check is nil`, `"mails": string is neither a health check`} {
		if !strings.Contains(wrong.Error(), want) {
			t.Errorf("%q is not said:\n%v", want, wrong)
		}
	}
	if n := len(wrong.Faults); n != 4 {
		t.Errorf("%d faults, want 4:\n%v", n, wrong)
	}
}

// noUnits is a list with nothing in it.
type noUnits struct{}

func (noUnits) Layout(context.Context) (partition.Config, error) { return layout, nil }
func (noUnits) Units(context.Context) ([]string, error)          { return nil, nil }

func idle(context.Context, framework.Unit) error { return nil }

func memoryControl(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
	return memledger.New(layout, quick, memledger.Options{}), nil, nil
}

func unitsOf(name string, cfg framework.UnitsConfig) fx.Option {
	return fx.Provide(fx.Annotate(
		func() frameworkfx.Units { return frameworkfx.Units{Name: name, Config: cfg} },
		fx.ResultTags(frameworkfx.UnitsGroup)))
}

// The observers of the application hear of peers of units too, beside their own, and of what a source has to
// tell by itself.
func TestObserversHearOfUnitsAndSources(t *testing.T) {
	heard := make(chan string, 100)
	observer := func(who string) framework.ObserverFunc {
		return func(e framework.Event) {
			if e, ok := e.(framework.Started); ok {
				heard <- who + " of " + e.Consumer
			}
		}
	}
	store, ledger := memory(t)
	units := framework.UnitsConfig{Source: noUnits{}, Handler: idle, Control: memoryControl, Timing: quick}
	own := units
	own.Observer = observer("their own")
	app := fxtest.New(t,
		frameworkfx.Module,
		frameworkfx.Observe(observer("the application's")),
		unitsOf("one", units),
		unitsOf("two", own),
		fx.Provide(fx.Annotate(func() frameworkfx.Source {
			return frameworkfx.Source{Consumer: "mail", Source: store, Ledger: ledger, Listen: func(o framework.Observer) {
				o.Observe(framework.Started{Consumer: "the source"})
			}}
		}, fx.ResultTags(frameworkfx.SourceGroup))),
		frameworkfx.Configure("mail", framework.Config{Timing: quick}, framework.WithObserver(observer("the consumer's"))),
		frameworkfx.Otherwise("mail", done),
	)
	app.RequireStart()
	defer app.RequireStop()
	missing := map[string]bool{
		"the application's of one": true, "the application's of two": true, "their own of two": true,
		"the application's of mail": true, "the application's of the source": true,
		"the consumer's of mail": true, "the consumer's of the source": true,
	}
	for len(missing) > 0 {
		select {
		case who := <-heard:
			if !missing[who] {
				t.Fatalf("heard by %s, and waited for %v", who, missing)
			}
			delete(missing, who)
		case <-time.After(30 * time.Second):
			t.Fatalf("not heard by %v", missing)
		}
	}
}

// Peers of units are asked as consumers are: by the checks of all, by those of their name, and
// by their own.
func TestHealthChecksAreOfUnitsToo(t *testing.T) {
	asked := make(chan string, 100)
	check := func(what string) func(context.Context) error {
		return func(context.Context) error { asked <- what; return nil }
	}
	app := fxtest.New(t,
		frameworkfx.Module,
		unitsOf("sites", framework.UnitsConfig{
			Source: noUnits{}, Handler: idle, Control: memoryControl, Timing: quick, Health: check("its own"),
		}),
		frameworkfx.Healthy("", func() func(context.Context) error { return check("all") }),
		frameworkfx.Healthy("sites", func() func(context.Context) error { return check("sites") }),
	)
	app.RequireStart()
	defer app.RequireStop()
	if all := map[string]bool{<-asked: true, <-asked: true, <-asked: true}; !all["its own"] || !all["all"] || !all["sites"] {
		t.Errorf("asked: %v", all)
	}
}

// Peers that would count off against each other are listed with all else that is wrong.
func TestTwoOfOneNameAreListedAtOnce(t *testing.T) {
	store, ledger := memory(t)
	units := framework.UnitsConfig{Source: noUnits{}, Handler: idle, Control: memoryControl, Timing: quick}
	app := fx.New(
		fx.NopLogger,
		frameworkfx.Module,
		unitsOf("sites", units), unitsOf("sites", units), unitsOf("sites", units),
		unitsOf("mails", units),
		frameworkfx.From("mails", store, ledger),
		frameworkfx.Configure("mails", framework.Config{Timing: quick}),
		frameworkfx.Otherwise("mails", done),
		frameworkfx.Otherwise("bills", done),
	)
	var wrong *frameworkfx.StartError
	if !errors.As(app.Err(), &wrong) {
		t.Fatalf("the application says %v", app.Err())
	}
	for _, want := range []string{`units "sites": provided 3 times`, `units "mails": a consumer has the name`, `consumer "bills": no source`} {
		if !strings.Contains(wrong.Error(), want) {
			t.Errorf("%q is not listed in:\n%v", want, wrong)
		}
	}
	if n := len(wrong.Faults); n != 3 {
		t.Errorf("%d faults, want 3:\n%v", n, wrong)
	}
}

// A meter is an observer with a state.
type meter struct{ events int }

func (m *meter) Observe(framework.Event) { m.events++ }

// What is nil, or makes nil, is listed, and ends neither the build nor each task.
func TestWhatIsNilIsListed(t *testing.T) {
	store, ledger := memory(t)
	none := func(framework.Handler) framework.Handler { return nil }
	var deaf func(framework.Event)
	for what, c := range map[string]struct {
		opt  fx.Option
		want string
	}{
		"an option":             {frameworkfx.Configure("mails", framework.Config{}, nil), "an option is nil"},
		"a health check":        {frameworkfx.Healthy("mails", nil), "its health check is nil"},
		"an observer":           {frameworkfx.Observe(nil), "an observer is nil"},
		"an observer's func":    {frameworkfx.Observe(deaf), "an observer is nil"},
		"an observer's pointer": {frameworkfx.Observe((*meter)(nil)), "an observer is nil"},
		"an observer that is made only if it is asked for": {frameworkfx.Observe(func() *meter { return nil }), "an observer is nil"},
		"a handler's pointer":                              {frameworkfx.Handle("mails", "bill", (*framework.Mux)(nil)), `the handler for type "bill" is missing`},
		"a source's pointer, beside what else is wrong": {fx.Options(frameworkfx.From("bills", (*memsource.Store)(nil), ledger), frameworkfx.Use("bills", 1, nil)),
			`consumer "bills": its source is nil`},
		"what makes a handler": {frameworkfx.Handle("mails", "bill", (func() framework.Handler)(nil)),
			`the handler for type "bill" is missing`},
		"what makes the default handler": {frameworkfx.Otherwise("mails", (func() framework.Handler)(nil)), "the default handler is missing"},
		"what makes a health check":      {frameworkfx.Healthy("mails", (func() func(context.Context) error)(nil)), "its health check is nil"},
		"what makes an observer":         {frameworkfx.Observe((func() framework.Observer)(nil)), "an observer is nil"},
		"of a middleware":                {frameworkfx.Use("mails", 2, none), "its middleware of order 2 returns no handler"},
		"below a middleware": {fx.Options(frameworkfx.Use("mails", 2, none), frameworkfx.Use("mails", 1, framework.Recover())),
			"its middleware of order 2 returns no handler"},
	} {
		app := fx.New(fx.NopLogger, frameworkfx.Module, frameworkfx.From("mails", store, ledger), frameworkfx.Otherwise("mails", done), c.opt)
		if err := app.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What was given as an observer or a health check and is none is called so, and is no affair of fx.
func TestWhatDoesNotFitIsListed(t *testing.T) {
	store, ledger := memory(t)
	for what, opt := range map[string]fx.Option{
		"string is neither an observer":                    frameworkfx.Observe("a text"),
		"func(*testing.T) is neither an observer":          frameworkfx.Observe(func(*testing.T) {}),
		`"mails": int is neither a health check`:           frameworkfx.Healthy("mails", 5),
		`"mails": func() error is neither a health check`:  frameworkfx.Healthy("mails", func() error { return nil }),
		`"mails": func() string is neither a health check`: frameworkfx.Healthy("", func() string { return "well" }),
	} {
		app := fx.New(fx.NopLogger, frameworkfx.Module, frameworkfx.From("mails", store, ledger), frameworkfx.Otherwise("mails", done), opt,
			frameworkfx.Handle("bills", "bill", done))
		err := app.Err()
		if code := frameworkfx.ExitCode(err); code != frameworkfx.ExitWrong || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), `"bills": no source`) {
			t.Errorf("want %q, and what else is wrong; got the code %d of %v", what, code, err)
		}
	}
}

// Observers and health checks may be given as they are, as handlers may.
func TestWhatIsThereNeedsNoConstructor(t *testing.T) {
	store, ledger := memory(t)
	asked, started := make(chan struct{}, 100), make(chan struct{}, 2)
	hears := func(e framework.Event) {
		if _, ok := e.(framework.Started); ok {
			started <- struct{}{}
		}
	}
	app := fxtest.New(t,
		frameworkfx.Module,
		frameworkfx.From("mails", store, ledger),
		frameworkfx.Configure("mails", framework.Config{Timing: quick}),
		frameworkfx.Otherwise("mails", done),
		frameworkfx.Healthy("mails", func(context.Context) error { asked <- struct{}{}; return nil }),
		frameworkfx.Observe(framework.ObserverFunc(hears)),
		frameworkfx.Observe(hears),
	)
	app.RequireStart()
	defer app.RequireStop()
	<-asked
	<-started
	<-started
}

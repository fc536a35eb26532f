package framework_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

func TestBudgets(t *testing.T) {
	const s = time.Second
	timing := func(drain, shutdown time.Duration) transition.Timing {
		return transition.Timing{Drain: drain, Shutdown: shutdown}
	}
	for _, c := range []struct {
		name string
		cfg  framework.Config
		want string // "ok", or what is said, parts separated by |
	}{
		{"the defaults", framework.Config{}, "ok"},
		{"the defaults in a pod of 30 s", framework.Config{PodGrace: 30 * s}, "ok"},
		{"the defaults in a pod of 28 s", framework.Config{PodGrace: 28 * s}, "ok"},
		{"the defaults in a pod of 27 s", framework.Config{PodGrace: 27 * s}, "stop timeout 28s is longer than the pod grace 27s: the platform would kill the process while it drains (raise its grace, and COUNTOFF_GRACE with it, or shorten the shutdown)"},
		{"a handler timeout that fits", framework.Config{HandlerTimeout: 20 * s}, "ok"},
		{"as long as the shutdown", framework.Config{HandlerTimeout: 25 * s}, "ok"},
		{"longer than the shutdown", framework.Config{HandlerTimeout: 26 * s}, "longer than the shutdown 25s"},
		{"longer than both", framework.Config{HandlerTimeout: 31 * s}, "longer than the drain 30s|longer than the shutdown 25s"},
		{"a short drain", framework.Config{HandlerTimeout: 10 * s, Timing: timing(5*s, 25*s)}, "handler timeout 10s is longer than the drain 5s"},
		{"a drain longer than the shutdown is cut", framework.Config{Timing: timing(time.Hour, 25*s)}, "ok"},
		{"a long shutdown", framework.Config{Timing: timing(0, 100*s), PodGrace: 2 * time.Minute}, "ok"},
		{"a long shutdown in a short pod", framework.Config{Timing: timing(0, 100*s), PodGrace: 30 * s}, "stop timeout 1m43s is longer than the pod grace 30s"},
		{"a stop timeout that fits", framework.Config{StopTimeout: 26 * s}, "ok"},
		{"a stop timeout that does not", framework.Config{StopTimeout: 25 * s}, "shutdown 25s and cancel grace 1s do not fit in the stop timeout 25s"},
		{"fx's own default", framework.Config{StopTimeout: 15 * s}, "do not fit in the stop timeout 15s"},
		{"fx's own default, with a shutdown for it", framework.Config{StopTimeout: 15 * s, Timing: timing(0, 12*s)}, "ok"},
		{"a longer cancel grace", framework.Config{StopTimeout: 27 * s, Timing: transition.Timing{Lease: 30 * s, CancelGrace: 3 * s}}, "do not fit in the stop timeout 27s"},
		{"a cancel grace too long for the lease", framework.Config{Timing: transition.Timing{Lease: 5 * s, CancelGrace: 3 * s}}, "too short for a cancel grace of 3s"},
		{"a lease too short", framework.Config{Timing: transition.Timing{Lease: s}}, "the least lease is 2."},
		{"a settle time too long for the lease", framework.Config{Timing: transition.Timing{Lease: 3 * s, Settle: 2 * s}}, "at most half the lease"},
		{"negative times", framework.Config{HandlerTimeout: -s, StopTimeout: -s, PodGrace: -s},
			"handler timeout -1s: must not be negative|stop timeout -1s: must not be negative|pod grace -1s: must not be negative"},
		{"concurrency", framework.Config{Concurrency: -1}, "concurrency -1: want 1 to 65536"},
		{"tries and delays", framework.Config{Retry: framework.RetryPolicy{Tries: -1, First: time.Minute, Max: s}}, "Retry.Tries -1|Retry.Max 1s: less than Retry.First, 1m0s"},
		{"a retry that never comes", framework.Config{Retry: framework.RetryPolicy{Max: 1<<63 - 1}}, "at most a year"},
		{"no limits", framework.Config{HandlerTimeout: 1<<63 - 1, StopTimeout: 1<<63 - 1, PodGrace: 1<<63 - 1, Timing: timing(1<<63-1, 1<<63-1)},
			"handler timeout 2562047h47m16.854775807s: at most a year|stop timeout 2562047h47m16.854775807s: at most a year|" +
				"pod grace 2562047h47m16.854775807s: at most a year|drain 2562047h47m16.854775807s: at most a year|shutdown 2562047h47m16.854775807s: at most a year"},
		{"no limit to a shutdown", framework.Config{Timing: timing(0, 1<<63-1)}, "shutdown 2562047h47m16.854775807s: at most a year"},
		{"everything at once", framework.Config{HandlerTimeout: 40 * s, StopTimeout: 20 * s, PodGrace: 10 * s},
			"longer than the drain|longer than the shutdown|do not fit in the stop timeout|longer than the pod grace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.cfg.Validate()
			if c.want == "ok" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("taken, want %q", c.want)
			}
			wants := strings.Split(c.want, "|")
			for _, want := range wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not said in:\n%v", want, err)
				}
			}
			if lines := strings.Count(err.Error(), "\n") + 1; lines != len(wants) {
				t.Errorf("%d findings, want %d:\n%v", lines, len(wants), err)
			}
		})
	}
}

func TestRetryDelays(t *testing.T) {
	p := framework.RetryPolicy{}.WithDefaults()
	for _, c := range []struct {
		tries  int
		random float64
		want   time.Duration
	}{
		{1, 0.5, time.Second},
		{2, 0.5, 2 * time.Second},
		{6, 0.5, 32 * time.Second},
		{7, 0.5, time.Minute},
		{1000, 0.5, time.Minute},
		{1, 0, 800 * time.Millisecond},
		{7, 0.999999999, 72 * time.Second},
	} {
		if got := p.Delay(c.tries, c.random).Round(time.Millisecond); got != c.want {
			t.Errorf("after %d tries, at %v: %v, want %v", c.tries, c.random, got, c.want)
		}
	}
}

func TestPodGraceFromTheEnvironment(t *testing.T) {
	store, err := memsource.New(memsource.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ledger := memledger.New(partition.Config{}, transition.Timing{}, memledger.Options{})
	for _, c := range []struct {
		value string
		want  time.Duration
		err   string
	}{
		{"", 0, ""},
		{"30", 30 * time.Second, ""},
		{"45s", 45 * time.Second, ""},
		{"10", 0, "longer than the pod grace 10s"},
		{"soon", 0, `COUNTOFF_GRACE="soon": want seconds or a duration`},
		{"-5", 0, `COUNTOFF_GRACE="-5": want seconds or a duration`},
	} {
		t.Run(fmt.Sprintf("%q", c.value), func(t *testing.T) {
			t.Setenv(framework.GraceVariable, c.value)
			h := framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil })
			got, err := framework.New("test", store, h, framework.WithLedger(ledger))
			switch {
			case c.err == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.err == "" && got.Config().PodGrace != c.want:
				t.Errorf("pod grace %v, want %v", got.Config().PodGrace, c.want)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("said %v, want %q", err, c.err)
			}
		})
	}
}

func TestNewSaysAllThatIsWrong(t *testing.T) {
	_, err := framework.New("no name", nil, nil, framework.WithConfig(framework.Config{Concurrency: -1}), framework.WithPeer("_", 0),
		framework.WithTags("eu", "gpu large", "g!u"))
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{
		`consumer "no name": partition: name "no name"`,
		`consumer "no name": framework: no source`,
		`consumer "no name": framework: no handler`,
		`consumer "no name": framework: no ledger`,
		`consumer "no name": framework: weight 0`,
		`consumer "no name": partition: peer id "_"`,
		`consumer "no name": framework: concurrency -1`,
		`consumer "no name": framework: tag "gpu large": want one tag in each argument`,
		`consumer "no name": partition: tag "g!u"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said in:\n%v", want, err)
		}
	}
}

// otherSource and otherLedger are of a name of their own.
type otherSource struct{ sources.Source }

func (otherSource) Name() string { return "other" }

type otherLedger struct{ transition.Ledger }

func (otherLedger) Name() string { return "other" }

// A consumer whose parts look under two names shares out with the peers of one name the tasks of the
// other: what those peers get of them nobody works on.
func TestPartsOfAnotherName(t *testing.T) {
	h := framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil })
	f := newFleet(t, 1)
	store, ledger := f.store, memledger.New(partition.Config{}, transition.Timing{}, memledger.Options{})
	control := func(partition.Config) (transition.Ledger, partition.Indexer, error) {
		return otherLedger{ledger}, nil, nil
	}
	said := func(err error, parts ...string) {
		t.Helper()
		for _, part := range parts {
			want := fmt.Sprintf(`the %s was made for the name "other", not for "mine"`, part)
			if !errors.Is(err, partition.ErrName) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	_, err := framework.New("mine", otherSource{store}, h, framework.WithLedger(otherLedger{ledger}))
	said(err, "source", "ledger")
	if _, err := framework.New("other", otherSource{store}, h, framework.WithLedger(otherLedger{ledger})); err != nil {
		t.Errorf("parts of one name: %v", err)
	}
	c, err := framework.New("mine", store, h, framework.WithControl(control))
	if err != nil {
		t.Fatal(err)
	}
	said(c.Run(t.Context()), "ledger")
	_, err = framework.NewShare("mine", framework.ShareConfig{Ledger: otherLedger{ledger}})
	said(err, "ledger")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	said(framework.Single(ctx, "mine", framework.ShareConfig{Ledger: otherLedger{ledger}}, func(context.Context, partition.Token) error { return nil }, nil), "ledger")
}

// What a constructor returns beside an error is a nil pointer.
func TestWhatIsNilInsideIsMissing(t *testing.T) {
	_, consumer := framework.New("mine", (*otherSource)(nil), nil, framework.WithLedger((*otherLedger)(nil)))
	_, units := framework.NewUnits("mine", framework.UnitsConfig{Source: (*otherUnits)(nil)})
	_, share := framework.NewShare("mine", framework.ShareConfig{Ledger: (*otherLedger)(nil)})
	err := errors.Join(consumer, units, share)
	for _, want := range []string{"no source\n", "no handler\n", "no ledger: see", "no source of units\n", "share \"mine\": transition: no ledger"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestMux(t *testing.T) {
	say := func(what string) framework.Handler {
		return framework.HandlerFunc(func(context.Context, *framework.Task) error { return fmt.Errorf("%s", what) })
	}
	t.Run("picks by type", func(t *testing.T) {
		m, err := framework.NewMux(framework.On("a", say("A")), framework.Otherwise(say("any")), framework.On("", say("none")))
		if err != nil {
			t.Fatal(err)
		}
		for typ, want := range map[string]string{"a": "A", "": "none", "b": "any"} {
			if err := m.Handle(t.Context(), &framework.Task{Type: typ}); err.Error() != want {
				t.Errorf("type %q: %v, want %s", typ, err, want)
			}
		}
	})
	t.Run("a type without a handler is a dead letter", func(t *testing.T) {
		m, err := framework.NewMux(framework.On("a", say("A")))
		if err != nil {
			t.Fatal(err)
		}
		err = m.Handle(t.Context(), &framework.Task{Type: "b"})
		if o, _ := sources.Asked(err); o != sources.Dead || err.Error() != `no handler for type "b"` {
			t.Errorf("%v: %v", o, err)
		}
	})
	t.Run("says all that is wrong", func(t *testing.T) {
		_, err := framework.NewMux(framework.On("a", say("1")), framework.On("a", say("2")), framework.On("a", say("3")), framework.On("b", nil),
			framework.Otherwise(say("4")), framework.Otherwise(say("5")), framework.Otherwise(nil))
		want := "framework: two handlers for type \"a\"\nframework: the handler for type \"b\" is missing\n" +
			"framework: two default handlers\nframework: the default handler is missing"
		if err == nil || err.Error() != want {
			t.Errorf("said %v, want %s", err, want)
		}
		if _, err := framework.NewMux(); err == nil || err.Error() != "framework: no handler at all" {
			t.Errorf("of no route it says %v", err)
		}
	})
}

// A service is a handler with a state.
type service struct{ handled int }

func (s *service) Handle(context.Context, *framework.Task) error { s.handled++; return nil }

// A handler that would panic for each task, until all of them are dead letters, is found
// missing when it is given.
func TestAHandlerThatIsNilInside(t *testing.T) {
	f := newFleet(t, 1)
	for name, h := range map[string]framework.Handler{
		"a function": framework.HandlerFunc(nil),
		"a mux":      (*framework.Mux)(nil), // as NewMux returns it with an error
		"a service":  (*service)(nil),
		"JSON":       framework.JSON[int](nil),
		"a chain":    framework.Chain(framework.HandlerFunc(nil), framework.Recover()),
		"middleware": framework.Chain(&service{}, framework.Recover(), nil),
	} {
		if _, err := framework.New("test", f.store, h, framework.WithLedger(f.ledger)); err == nil || !strings.Contains(err.Error(), "no handler") {
			t.Errorf("%s that is nil: %v", name, err)
		}
		if _, err := framework.NewMux(framework.On("a", h), framework.Otherwise(h)); err == nil || strings.Count(err.Error(), "missing") != 2 {
			t.Errorf("%s that is nil, in a mux: %v", name, err)
		}
	}
}

func TestJSON(t *testing.T) {
	type order struct {
		Number int
	}
	var got order
	h := framework.JSON(func(_ context.Context, o order, _ *framework.Task) error {
		got = o
		return nil
	})
	if err := h.Handle(t.Context(), &framework.Task{Payload: []byte(`{"Number":7}`)}); err != nil || got.Number != 7 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, payload := range []string{"", "no json", `{"Number":"seven"}`, `{"Number":7} and more`} {
		err := h.Handle(t.Context(), &framework.Task{Payload: []byte(payload)})
		if o, _ := sources.Asked(err); o != sources.Dead || !strings.Contains(err.Error(), "payload is no JSON of framework_test.order") {
			t.Errorf("payload %q: %v, %v; want a dead letter that says why", payload, o, err)
		}
	}
}

func TestMiddlewareOrder(t *testing.T) {
	var order []string
	mark := func(s string) framework.Middleware {
		return func(next framework.Handler) framework.Handler {
			return framework.HandlerFunc(func(ctx context.Context, t *framework.Task) error {
				order = append(order, s)
				return next.Handle(ctx, t)
			})
		}
	}
	var seen error
	h := framework.Chain(
		framework.HandlerFunc(func(ctx context.Context, _ *framework.Task) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("no deadline")
			}
			panic("boom")
		}),
		mark("first"), mark("second"),
		framework.Log(func(_ context.Context, _ *framework.Task, _ time.Duration, err error) { seen = err }),
		framework.Recover(), framework.Log(nil), framework.Timeout(time.Minute), framework.Timeout(0))
	err := h.Handle(t.Context(), &framework.Task{})
	if fmt.Sprint(order) != "[first second]" || err == nil || seen != err {
		t.Errorf("order %v, error %v, logged %v", order, err, seen)
	}
}

// A handler that begins last in a stop has less than the shutdown. One whose timeout is longer
// than that is cancelled by some stops, which is said at the start.
func TestAHandlerTimeoutThatAStopMayCut(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		cfg  framework.Config
		want string
	}{
		{framework.Config{}, ""},
		{framework.Config{HandlerTimeout: 20 * s}, ""},
		{framework.Config{HandlerTimeout: 21 * s}, "handler timeout 21s: what a stopping peer starts last has 20s of the shutdown, is cancelled then and runs again at the next owner: a shutdown of 26s has room for it"},
		{framework.Config{HandlerTimeout: 300 * s, Timing: transition.Timing{Drain: 300 * s, Shutdown: 305 * s}}, ""},
		{framework.Config{HandlerTimeout: 15 * s, Timing: transition.Timing{Lease: time.Minute}}, "has 12.5s of the shutdown, is cancelled then and runs again at the next owner: a shutdown of 30s has room for it"},
		{framework.Config{HandlerTimeout: 15 * s, Timing: transition.Timing{Lease: time.Minute, Shutdown: 30 * s}}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1)
			f.ledger = memledger.New(f.layout, c.cfg.Timing, memledger.Options{})
			c.cfg.PodGrace = time.Hour
			a := f.consumer("a", f.handler("a", 0), framework.WithConfig(c.cfg))
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := a.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			told := eventsOf[framework.Warned](f, "a")
			if c.want == "" && len(told) > 0 || c.want != "" && (len(told) != 1 || !strings.Contains(told[0].Warning, c.want)) {
				t.Errorf("%v of %v: told %+v, want %q", c.cfg.HandlerTimeout, a.Config().Timing, told, c.want)
			}
		})
	}
}

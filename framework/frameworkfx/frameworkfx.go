package frameworkfx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/zapobserver"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
)

// The value groups.
const (
	HandlerGroup    = `group:"countoff.handlers"`    // of Route
	SourceGroup     = `group:"countoff.sources"`     // of Source
	MiddlewareGroup = `group:"countoff.middlewares"` // of Middleware
	SettingGroup    = `group:"countoff.settings"`    // of Setting
	ObserverGroup   = `group:"countoff.observers"`   // of framework.Observer
	HealthGroup     = `group:"countoff.health"`      // of Health
	UnitsGroup      = `group:"countoff.units"`       // of Units
)

// A Route is one handler of a consumer.
type Route struct {
	Consumer string
	framework.Route
	Err error // why there is no handler; see Source.Err
}

// A Source is where a consumer's tasks come from and what it counts off with.
type Source struct {
	Consumer string
	Source   sources.Source
	// Control makes the consumer's control for its timing. Nil: the consumer's
	// setting has one among its options.
	Control func(transition.Timing) framework.Control
	// Ledger is the ledger, if it is there already: then Control is not asked.
	Ledger transition.Ledger
	// Survey lets whoever watches over the coverage look at the data too; see
	// framework.WithSurvey. Nil: at the ledger alone.
	Survey framework.Survey
	// Listen is given the consumer's observer, for what the source itself has to
	// tell; see [framework.Consumer.Observer]. Nil: nothing.
	Listen func(framework.Observer)
	// Concurrency is how many handlers run at once where the consumer's setting does
	// not say. 0: the framework's default.
	Concurrency int
	// Close frees what was opened for the source, where New fails: fx stops nothing of an
	// application that it could not build. Nil: nothing was.
	Close func()
	// Err is why there is no source: it is listed with all else that is wrong, while the
	// error of a constructor would hide the rest.
	Err error
}

// A Middleware wraps the handlers of a consumer, of all if Consumer is empty. Value groups have
// no order, so each says its own: the least is the outermost. Which of equal ones is the outer
// one is not defined.
type Middleware struct {
	Consumer string
	Order    int
	Wrap     framework.Middleware
}

// A Health says whether the peer of a consumer, or of units of that name, is well; of all if
// Consumer is empty. See framework.WithHealth. Of several checks all must return nil, in the time
// of one.
type Health struct {
	Consumer string
	Check    func(context.Context) error
	Err      error // why there is none; see Source.Err
}

// A Setting is what a consumer is told beside its source and handlers. Two for one consumer are
// an error.
type Setting struct {
	Consumer string
	Config   framework.Config
	Options  []framework.Option
}

// Units are a name whose peers share long-running work; see framework.Units.
type Units struct {
	Name   string
	Config framework.UnitsConfig
	Close  func() // frees what was opened for them; see Source.Close
	Err    error  // why there are none; see Source.Err
}

// Params is what New takes from the application.
type Params struct {
	fx.In
	Routes      []Route              `group:"countoff.handlers"`
	Sources     []Source             `group:"countoff.sources"`
	Middlewares []Middleware         `group:"countoff.middlewares"`
	Settings    []Setting            `group:"countoff.settings"`
	Observers   []framework.Observer `group:"countoff.observers"`
	Health      []Health             `group:"countoff.health"`
	Units       []Units              `group:"countoff.units"`
	Logger      *zap.Logger          `optional:"true"`
	Lifecycle   fx.Lifecycle
	Shutdowner  fx.Shutdowner
}

// Module provides a *framework.Runtime that starts and stops with the application.
// If the application has a *zap.Logger, what happens is written there under the
// name "countoff". A consumer that cannot go on shuts the application down with the
// exit code of its error (see [ExitCode]).
//
// An application that was stopped is started again only if it made its sources and clients itself:
// what redisfx and the like had opened is closed.
var Module = fx.Module("countoff",
	fx.Provide(New),
	fx.Invoke(func(*framework.Runtime) {}),
)

// A StartError is all that is wrong with what was provided.
type StartError struct{ Faults []error }

func (e *StartError) Error() string {
	lines := make([]string, 0, len(e.Faults)+1)
	lines = append(lines, "cannot start:")
	for _, f := range e.Faults {
		if line := f.Error(); !slices.Contains(lines, line) { // two rooms may have looked at one value
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n  ")
}

// Unwrap returns the faults.
func (e *StartError) Unwrap() []error { return e.Faults }

// New makes the runtime and hooks it into the application's life. If it fails, what was opened
// for the sources and units is closed.
func New(p Params) (*framework.Runtime, error) {
	r, err := p.runtime()
	if err != nil {
		p.close()
		return nil, err
	}
	p.hook(r)
	return r, nil
}

// close frees what was opened for an application that is not to be.
func (p Params) close() {
	for _, s := range p.Sources {
		if s.Close != nil {
			s.Close()
		}
	}
	for _, u := range p.Units {
		if u.Close != nil {
			u.Close()
		}
	}
}

func (p Params) runtime() (*framework.Runtime, error) {
	var all []*framework.Consumer
	var faults []error
	for _, name := range p.names() {
		c, err := p.consumer(name)
		if err != nil {
			faults = append(faults, leaves(err)...)
			continue
		}
		all = append(all, c)
	}
	var units []*framework.Units
	for _, u := range p.Units {
		made, err := p.units(u)
		if err != nil {
			faults = append(faults, leaves(err)...)
			continue
		}
		units = append(units, made)
	}
	faults = append(faults, p.namesakes()...)
	if slices.ContainsFunc(p.Observers, func(o framework.Observer) bool { return partition.Absent(o) }) {
		faults = append(faults, errors.New("an observer is nil: framework.Observers{} is one that hears nothing"))
	}
	for _, o := range p.Observers {
		if o, none := o.(misfit); none {
			faults = append(faults, fmt.Errorf("%s is neither an observer, func(framework.Event), nor a constructor of one", o.what))
		}
	}
	if len(p.names())+len(p.Units) == 0 {
		faults = append(faults, errors.New("no consumer: provide a source and a handler"))
	}
	if len(faults) > 0 {
		return nil, &StartError{Faults: faults}
	}
	r, err := framework.RuntimeOf(all, units)
	if err != nil {
		return nil, &StartError{Faults: leaves(err)}
	}
	return r, nil
}

// of says of each of the joined errors whose it is; kind is what has the name.
func of(kind, name string, err error) error {
	var all []error
	for _, e := range leaves(err) {
		all = append(all, fmt.Errorf("%s %q: %w", kind, name, e))
	}
	return errors.Join(all...)
}

// leaves are the errors that errors.Join made err of.
func leaves(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(several.Unwrap()...).Error() {
		return []error{err} // one error, though it may wrap two
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, leaves(e)...)
	}
	return all
}

// names are the consumers that anything was provided for, units apart.
func (p Params) names() []string {
	set := map[string]bool{}
	for _, r := range p.Routes {
		set[r.Consumer] = true
	}
	for _, s := range p.Sources {
		set[s.Consumer] = true
	}
	for _, s := range p.Settings {
		set[s.Consumer] = true
	}
	for _, m := range p.Middlewares {
		if m.Consumer != "" { // of all
			set[m.Consumer] = true
		}
	}
	for _, h := range p.Health {
		if h.Consumer != "" && !slices.ContainsFunc(p.Units, func(u Units) bool { return u.Name == h.Consumer }) {
			set[h.Consumer] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// namesakes are the names that not one peer has alone: those would count off against each other.
func (p Params) namesakes() (faults []error) {
	consumers, times := p.names(), map[string]int{}
	for _, u := range p.Units {
		times[u.Name]++
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		if n := times[name]; n > 1 {
			faults = append(faults, fmt.Errorf("units %q: provided %d times", name, n))
		}
		if slices.Contains(consumers, name) {
			faults = append(faults, fmt.Errorf("units %q: a consumer has the name", name))
		}
	}
	return faults
}

// consumer makes one consumer.
func (p Params) consumer(name string) (*framework.Consumer, error) {
	setting, errSetting := p.setting(name)
	source, errSource := p.source(name)
	handler, errHandler := p.handler(name)
	health, errHealth := p.health("consumer", name, nil)
	wrong := errors.Join(errSetting, errSource, errHandler, errHealth)
	if wrong != nil {
		// The numbers are checked all the same, with stand-ins for what is missing.
		handler, source = placeholder{}, Source{Source: placeholder{}, Control: placeholder{}.control}
	}
	if setting.Config.Concurrency == 0 {
		setting.Config.Concurrency = source.Concurrency
	}
	opts := []framework.Option{framework.WithConfig(setting.Config)}
	switch {
	case source.Ledger != nil:
		opts = append(opts, framework.WithLedger(source.Ledger))
	case source.Control != nil:
		opts = append(opts, framework.WithControl(source.Control(setting.Config.Timing)))
	}
	opts = append(opts, framework.WithSurvey(source.Survey), framework.WithHealth(health))
	opts = append(opts, setting.Options...)
	if o := p.observer(); o != nil {
		opts = append(opts, framework.WithObserver(o))
	}
	c, err := framework.New(name, source.Source, handler, opts...)
	if err := errors.Join(wrong, err); err != nil {
		return nil, err
	}
	if o := c.Observer(); o != nil && source.Listen != nil {
		source.Listen(o)
	}
	return c, nil
}

// units makes one peer of units.
func (p Params) units(u Units) (*framework.Units, error) {
	var errSource error
	if u.Err != nil {
		errSource = of("units", u.Name, u.Err)
		u.Config.Source, u.Config.Control = placeholder{}, placeholder{}.control(u.Config.Timing) // as in consumer
	}
	if o := p.observer(); o != nil {
		u.Config.Observer = framework.Observers{u.Config.Observer, o}
	}
	var errHealth error
	u.Config.Health, errHealth = p.health("units", u.Name, u.Config.Health)
	made, err := framework.NewUnits(u.Name, u.Config)
	return made, errors.Join(errSource, errHealth, err)
}

func (p Params) setting(name string) (s Setting, err error) {
	n := 0
	for _, v := range p.Settings {
		if v.Consumer == name {
			s = v
			n++
		}
	}
	if n > 1 {
		err = fmt.Errorf("consumer %q: configured %d times", name, n)
	}
	return s, err
}

func (p Params) source(name string) (s Source, err error) {
	n := 0
	var errs []error
	for _, v := range p.Sources {
		if v.Consumer != name {
			continue
		}
		s = v
		n++
		switch {
		case v.Err != nil:
			errs = append(errs, of("consumer", name, v.Err))
		case partition.Absent(v.Source):
			errs = append(errs, fmt.Errorf("consumer %q: its source is nil", name))
		}
	}
	switch {
	case n == 0:
		errs = append(errs, fmt.Errorf("consumer %q: no source", name))
	case n > 1:
		errs = append(errs, fmt.Errorf("consumer %q: %d sources, want one", name, n))
	}
	return s, errors.Join(errs...)
}

// health is own and all checks of that name as one, or nil if there are none. kind is what has
// the name.
func (p Params) health(kind, name string, own func(context.Context) error) (func(context.Context) error, error) {
	var checks []func(context.Context) error
	var wrong []error
	if own != nil {
		checks = append(checks, own)
	}
	for _, h := range p.Health {
		if h.Consumer != name && h.Consumer != "" {
			continue
		}
		switch {
		case h.Err != nil:
			wrong = append(wrong, fmt.Errorf("%s %q: %w", kind, name, h.Err))
		case h.Check == nil:
			wrong = append(wrong, fmt.Errorf("%s %q: its health check is nil", kind, name))
		}
		checks = append(checks, h.Check)
	}
	if len(wrong) > 0 || len(checks) == 0 {
		return nil, errors.Join(wrong...)
	}
	return func(ctx context.Context) error {
		errs := make([]error, len(checks))
		for i, check := range checks {
			errs[i] = check(ctx)
		}
		return errors.Join(errs...)
	}, nil
}

// observer is all observers of the application as one, or nil.
func (p Params) observer() framework.Observer {
	all := slices.Clone(p.Observers)
	if p.Logger != nil {
		all = append(all, zapobserver.New(p.Logger.Named("countoff")))
	}
	if len(all) == 0 {
		return nil
	}
	return framework.Observers(all)
}

// warn tells what is odd about all peers.
func (p Params) warn(warnings []string) {
	o, names := p.observer(), p.names()
	for _, u := range p.Units {
		names = append(names, u.Name)
	}
	for _, w := range warnings {
		for _, name := range names {
			if o != nil {
				o.Observe(framework.Warned{Consumer: name, Warning: w})
			}
		}
	}
}

func (p Params) handler(name string) (framework.Handler, error) {
	var routes []framework.Route
	var wrong []error
	for _, r := range p.Routes {
		if r.Consumer != name {
			continue
		}
		if r.Err != nil {
			wrong = append(wrong, r.Err)
			r.Handler = placeholder{}
		}
		routes = append(routes, r.Route)
	}
	mux, err := framework.NewMux(routes...)
	wrong = append(wrong, err)
	var wraps []Middleware
	for _, m := range p.Middlewares {
		if m.Consumer != name && m.Consumer != "" {
			continue
		}
		if m.Wrap == nil {
			wrong = append(wrong, fmt.Errorf("its middleware of order %d is nil", m.Order))
		}
		wraps = append(wraps, m)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, of("consumer", name, err)
	}
	slices.SortStableFunc(wraps, func(a, b Middleware) int { return cmp.Compare(a.Order, b.Order) })
	handler := framework.Handler(mux)
	for _, m := range slices.Backward(wraps) { // the first is the outermost
		if handler = framework.Chain(handler, m.Wrap); handler == nil {
			return nil, fmt.Errorf("consumer %q: its middleware of order %d returns no handler", name, m.Order)
		}
	}
	return handler, nil
}

// hook starts and stops r with the application. OnStart does not wait for any
// store: a peer that cannot reach its own says so, and is not ready.
func (p Params) hook(r *framework.Runtime) {
	enough := func() {}
	p.Lifecycle.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			enough = r.Ended(func(err error) {
				if err != nil {
					// It fails only if nobody listens, and then nobody would hear.
					_ = p.Shutdowner.Shutdown(fx.ExitCode(ExitCode(err)))
				}
			})
			p.warn(misspelt(os.Environ()))
			err := r.Start(ctx)
			if err != nil {
				enough()
			}
			return err
		},
		OnStop: func(ctx context.Context) error {
			err := r.Stop(ctx)
			enough()
			return err
		},
	})
}

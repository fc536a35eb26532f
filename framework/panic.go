package framework

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/countoff/countoff/sources"
)

// A PanicError is the error that a panic of a handler, a health check, a job, a source, an observer or a list of units counts as.
type PanicError struct {
	What  string // what panicked, as in "the health check"; empty: the handler
	Value any    // what it panicked with
	Stack []byte // where
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%s panicked: %v", cmp.Or(e.What, "the handler"), e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// catch is to be deferred: it makes the error of a panic, and says that what panicked.
func catch(what string, err *error) {
	if v := recover(); v != nil {
		*err = panicked(what, v)
	}
}

// panicked is the error of a panic of what with v, while its stack stands.
func panicked(what string, v any) *PanicError {
	e := &PanicError{What: what, Value: v, Stack: debug.Stack()}
	e.mend()
	return e
}

// mend tries whether the value can be asked what it wraps. If that panics, as it may where the
// value is an error with a nil pointer in it, only its text is kept: whoever asks e later is not to
// panic as well.
func (e *PanicError) mend() {
	defer func() {
		if recover() != nil {
			e.Value = fmt.Sprint(e.Value) // which does not
		}
	}()
	_, _ = sources.Asked(e)
	_ = cancelled(e)
}

// tried returns err, which the application returned, after it has called its methods: they are code
// of the application, too, and panic if there is a nil pointer in it. Here, where the caller has
// deferred catch, that does no harm; in an observer that asks the error it would end the process.
func tried(err error) error {
	if err != nil {
		_, _ = sources.Asked(err)
		_ = err.Error()
	}
	return err
}

// errGoexit is what code of the application that ended its goroutine counts as.
var errGoexit = errors.New("it ended its goroutine (runtime.Goexit)")

// apart calls do, which is code of the application that is called what, in a goroutine of its own,
// and sends once what it returned. If do panics, or ends its goroutine, that is an error, and takes
// nothing of the caller with it.
func apart(what string, do func() error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { ended <- err }()
		defer catch(what, &err)
		err = tried(do())
	}()
	return ended
}

// guarded are observers each of which panics alone: it keeps no event from the others. When they have been told of it,
// failed is told why, and of which event.
type guarded struct {
	all    []*told
	failed func(error)
}

// told is one of them. After a panic it is told nothing more: it may have left a lock held, and the end of its consumer
// would wait for that.
type told struct {
	observer Observer
	handled  HandledObserver // observer, if it is one: asked once, and not for each task
	broken   atomic.Bool
}

// guard guards each of those that o is made of.
func guard(o Observer, failed func(error)) Observer {
	if o == nil {
		return nil
	}
	g := &guarded{failed: failed}
	g.add(o)
	return g
}

func (g *guarded) add(o Observer) {
	switch o := o.(type) {
	case nil:
	case Observers:
		for _, one := range o {
			g.add(one)
		}
	default:
		handled, _ := o.(HandledObserver)
		g.all = append(g.all, &told{observer: o, handled: handled})
	}
}

// Observe tells in the goroutine of the caller: another one would cost more than what it is told.
func (g *guarded) Observe(e Event) {
	var why error
	for _, t := range g.all {
		if err := t.of(e); err != nil {
			why = cmp.Or(why, err)
		}
	}
	if why != nil {
		g.failed(why)
	}
}

// ObserveHandled makes no Event of e, which would be an allocation for each task.
func (g *guarded) ObserveHandled(e Handled) {
	var why error
	for _, t := range g.all {
		if err := t.ofRun(&e); err != nil {
			why = cmp.Or(why, err)
		}
	}
	if why != nil {
		g.failed(why)
	}
}

func (t *told) of(e Event) (err error) {
	if !t.broken.Load() {
		defer t.caught(e, &err)
		t.observer.Observe(e)
	}
	return err
}

func (t *told) ofRun(e *Handled) (err error) {
	if t.broken.Load() {
		return nil
	}
	defer t.caught(Handled{}, &err)
	if t.handled != nil {
		t.handled.ObserveHandled(*e)
	} else {
		t.observer.Observe(*e)
	}
	return nil
}

// caught is to be deferred where t is told of an event like e: it makes the error of a panic.
func (t *told) caught(e Event, err *error) {
	if v := recover(); v != nil {
		t.broken.Store(true)
		*err = fmt.Errorf("%w (told of %T)", panicked("the observer", v), e)
	}
}

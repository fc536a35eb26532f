package framework

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// A Route says which handler gets the tasks of a type.
type Route struct {
	Type    string // of the task
	Any     bool   // the default: gets the tasks of every other type
	Handler Handler
}

// On routes the tasks of type typ to h.
func On(typ string, h Handler) Route { return Route{Type: typ, Handler: h} }

// Otherwise routes the tasks that no other route takes to h.
func Otherwise(h Handler) Route { return Route{Any: true, Handler: h} }

// A Mux is a handler that picks another by the task's type. A task of a type that
// has no handler, where there is no default, becomes a dead letter: nothing is
// lost, and nothing waits for a handler that never comes.
type Mux struct {
	byType    map[string]Handler
	otherwise Handler
}

// NewMux makes a mux of routes. It says everything that is wrong with them at
// once: no route at all, a missing handler, two handlers for one type, two
// defaults.
func NewMux(routes ...Route) (*Mux, error) {
	m := &Mux{byType: make(map[string]Handler, len(routes))}
	var errs []error
	if len(routes) == 0 {
		errs = append(errs, errors.New("framework: no handler at all"))
	}
	twice := map[string]bool{}
	for _, r := range routes {
		_, taken := m.byType[r.Type]
		switch {
		case r.Any && missing(r.Handler):
			errs = append(errs, errors.New("framework: the default handler is missing"))
		case missing(r.Handler):
			errs = append(errs, fmt.Errorf("framework: the handler for type %q is missing", r.Type))
		case r.Any && m.otherwise != nil:
			errs = append(errs, errors.New("framework: two default handlers"))
		case r.Any:
			m.otherwise = r.Handler
		case taken && !twice[r.Type]:
			twice[r.Type] = true
			errs = append(errs, fmt.Errorf("framework: two handlers for type %q", r.Type))
		case !taken:
			m.byType[r.Type] = r.Handler
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// Handle hands t to the handler of its type.
func (m *Mux) Handle(ctx context.Context, t *Task) error {
	h := m.byType[t.Type]
	if h == nil {
		h = m.otherwise
	}
	if h == nil {
		return Dead(fmt.Errorf("no handler for type %q", t.Type))
	}
	return h.Handle(ctx, t)
}

// JSON makes a handler of a function that wants the payload decoded. A payload that cannot be
// decoded into a T becomes a dead letter, whole, with the reason. For a nil f it returns nil.
func JSON[T any](f func(ctx context.Context, v T, t *Task) error) Handler {
	if f == nil {
		return nil
	}
	return HandlerFunc(func(ctx context.Context, t *Task) error {
		var v T
		if err := json.Unmarshal(t.Payload, &v); err != nil {
			return Dead(fmt.Errorf("payload is no JSON of %v: %w", reflect.TypeFor[T](), err))
		}
		return f(ctx, v, t)
	})
}

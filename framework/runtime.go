package framework

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/transition"
)

// A Runtime runs several consumers of one process, and what else is a peer there. All
// methods may be called concurrently.
type Runtime struct {
	consumers []*Consumer
	units     []*Units
}

// A member is what a runtime runs.
type member interface {
	Name() string
	Stop(context.Context) error
	Run(context.Context) error
	Ready() error
	Err() error
	StopTimeout() time.Duration
	CancelGrace() time.Duration
	runs() life
}

// A life is what a runtime starts a member by, and hears of its ends: its sessions.
type life interface {
	free(context.Context) error
	begin()
	hear(do func(error)) (enough func())
}

// NewRuntime makes a runtime of consumers. It fails if there is none, if one is nil or if two
// have the same name or were given the same ledger: they would count off against each other.
func NewRuntime(consumers ...*Consumer) (*Runtime, error) { return RuntimeOf(consumers, nil) }

// RuntimeOf is NewRuntime for processes that have peers of units too, or only those.
func RuntimeOf(consumers []*Consumer, units []*Units) (*Runtime, error) {
	if slices.Contains(consumers, nil) || slices.Contains(units, nil) {
		return nil, errors.New("framework: a consumer or a peer of units is nil")
	}
	r := &Runtime{consumers: slices.Clone(consumers), units: slices.Clone(units)}
	var errs []error
	if len(r.members()) == 0 {
		errs = append(errs, errors.New("framework: no consumer"))
	}
	names := map[string]bool{}
	for _, m := range r.members() {
		if names[m.Name()] {
			errs = append(errs, fmt.Errorf("framework: two consumers of the name %q", m.Name()))
		}
		names[m.Name()] = true
	}
	whose := map[transition.Ledger]string{}
	for _, c := range r.consumers {
		if c.ledger == nil || !reflect.ValueOf(c.ledger).Comparable() {
			continue
		}
		if other, taken := whose[c.ledger]; taken && other != c.name {
			errs = append(errs, fmt.Errorf("framework: the consumers %q and %q have one ledger, and each would get a part of the partitions: make one for each", other, c.name))
		}
		whose[c.ledger] = c.name
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Runtime) members() []member {
	all := make([]member, 0, len(r.consumers)+len(r.units))
	for _, c := range r.consumers {
		all = append(all, c)
	}
	for _, u := range r.units {
		all = append(all, u)
	}
	return all
}

// Consumers returns the consumers.
func (r *Runtime) Consumers() []*Consumer { return slices.Clone(r.consumers) }

// Units returns the peers of units.
func (r *Runtime) Units() []*Units { return slices.Clone(r.units) }

// StopTimeout is how long an orderly stop of all may take.
func (r *Runtime) StopTimeout() time.Duration {
	var most time.Duration
	for _, m := range r.members() {
		most = max(most, m.StopTimeout())
	}
	return most
}

// CancelGrace is the longest that cancelled handlers may take to return.
func (r *Runtime) CancelGrace() time.Duration {
	var most time.Duration
	for _, m := range r.members() {
		most = max(most, m.CancelGrace())
	}
	return most
}

// Ended has do called, from now on, whenever a run of a consumer or of a peer of units ends: with
// why it could not go on, or nil after a stop. do is called just before the end can be seen
// elsewhere, perhaps for several at once. It must be fast and must not wait for that end, as
// Start and Stop do. enough takes do out again. It may be called by do, and does not wait for a
// call under way; Stop does.
func (r *Runtime) Ended(do func(error)) (enough func()) {
	var all []func()
	for _, m := range r.members() {
		all = append(all, m.runs().hear(do))
	}
	return func() {
		for _, enough := range all {
			enough()
		}
	}
}

// Start starts all consumers that do not run already. ctx bounds the wait for the end of earlier
// runs (see [Consumer.Start]): if it ends first nothing is started.
func (r *Runtime) Start(ctx context.Context) error {
	if err := r.each(func(c member) error { return c.runs().free(ctx) }); err != nil {
		return fmt.Errorf("framework: nothing was started: %w", err)
	}
	for _, m := range r.members() {
		m.runs().begin()
	}
	return nil
}

// Stop stops all consumers side by side; see [Consumer.Stop].
func (r *Runtime) Stop(ctx context.Context) error {
	return r.each(func(c member) error { return c.Stop(ctx) })
}

// Run starts all consumers, waits until ctx ends or one of them cannot go on, and stops them. One
// that is stopped on its own ends none of the others. It returns why they could not go on, and
// what the stops returned.
func (r *Runtime) Run(ctx context.Context) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	return r.each(func(c member) error {
		err := c.Run(run)
		if err != nil {
			cancel()
		}
		return err
	})
}

// Ready returns nil if every consumer is ready, otherwise what is missing.
func (r *Runtime) Ready() error {
	return r.each(member.Ready)
}

// Err returns why consumers could not go on; nil if none has ended by itself.
func (r *Runtime) Err() error {
	return r.each(member.Err)
}

// each does do for all side by side and returns all errors.
func (r *Runtime) each(do func(member) error) error {
	all := r.members()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { errs[i] = do(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

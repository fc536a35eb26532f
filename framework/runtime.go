package framework

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A Runtime runs several consumers of one process. All methods may be called
// concurrently.
type Runtime struct {
	consumers []*Consumer
}

// NewRuntime makes a runtime of consumers. It fails if there is none or if two
// have the same name: they would count off against each other.
func NewRuntime(consumers ...*Consumer) (*Runtime, error) {
	var errs []error
	if len(consumers) == 0 {
		errs = append(errs, errors.New("framework: no consumer"))
	}
	names := map[string]bool{}
	for _, c := range consumers {
		if names[c.name] {
			errs = append(errs, fmt.Errorf("framework: two consumers of the name %q", c.name))
		}
		names[c.name] = true
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Runtime{consumers: consumers}, nil
}

// Consumers returns the consumers.
func (r *Runtime) Consumers() []*Consumer { return r.consumers }

// Start starts all consumers; see [Consumer.Start].
func (r *Runtime) Start(ctx context.Context) error {
	return r.each(func(c *Consumer) error { return c.Start(ctx) })
}

// Stop stops all consumers side by side; see [Consumer.Stop].
func (r *Runtime) Stop(ctx context.Context) error {
	return r.each(func(c *Consumer) error { return c.Stop(ctx) })
}

// Run starts all consumers, waits until ctx ends or one of them cannot go on, and
// stops them. It returns why, or what Stop returned.
func (r *Runtime) Run(ctx context.Context) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	return r.each(func(c *Consumer) error {
		defer cancel()
		return c.Run(run)
	})
}

// Ready returns nil if every consumer is ready, otherwise what is missing.
func (r *Runtime) Ready() error {
	return r.each((*Consumer).Ready)
}

// Err returns why consumers could not go on.
func (r *Runtime) Err() error {
	return r.each((*Consumer).Err)
}

// each does do for all consumers side by side and returns all errors.
func (r *Runtime) each(do func(*Consumer) error) error {
	errs := make([]error, len(r.consumers))
	var wg sync.WaitGroup
	for i, c := range r.consumers {
		wg.Go(func() { errs[i] = do(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

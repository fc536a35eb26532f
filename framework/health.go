package framework

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/countoff/countoff/transition"
)

// checkup asks once a beat how the peer is, until ctx ends.
func (s *session) checkup(ctx context.Context, co *transition.Coordinator) {
	beat := s.c.cfg.Timing.Beat()
	first := true
	for {
		inner, cancel := context.WithTimeout(ctx, beat)
		err := runCheck(inner, s.c.health)
		cancel()
		if ctx.Err() != nil {
			return // that it was interrupted says nothing
		}
		co.Report(err == nil)
		was := s.ill.Load()
		if err == nil {
			s.ill.Store(nil)
		} else {
			s.ill.Store(&err)
		}
		if first || (was == nil) != (err == nil) {
			s.observe(Checked{Consumer: s.c.name, Err: err})
		}
		first = false
		if !sleep(ctx, beat) {
			return
		}
	}
}

func runCheck(ctx context.Context, check func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return check(ctx)
}

// healthy says why the peer is not well, as far as is known.
func (s *session) healthy() error {
	if err := s.ill.Load(); err != nil {
		return fmt.Errorf("unwell: %w", *err)
	}
	return nil
}

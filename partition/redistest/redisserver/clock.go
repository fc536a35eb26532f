package redisserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrNoFaketime means that the clock of a server cannot be stepped.
var ErrNoFaketime = errors.New("no libfaketime: install it, as in: apt-get install faketime")

// StartSteppable starts it on a clock that Step steps, where that is possible: after an error it is not
// running, and Start runs it on the machine's clock.
func (s *Server) StartSteppable(ctx context.Context) error {
	if err := s.fake(); err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		s.env = nil
		return fmt.Errorf("redis-server does not run on libfaketime: %w", err)
	}
	return nil
}

// fake prepares s to run on a clock that Step steps. Only its wall clock is faked.
func (s *Server) fake() error {
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		return ErrNoFaketime
	}
	// A Redis that is linked with jemalloc asks for the time before libfaketime can
	// tell it: with the C library's own malloc before it there is no such question.
	libc := filepath.Join(filepath.Dir(filepath.Dir(found[0])), "libc.so.6")
	s.env = []string{
		"LD_PRELOAD=" + found[0] + ":" + libc, "FAKETIME_TIMESTAMP_FILE=" + s.clock(),
		"FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1",
	}
	return s.Step(0)
}

func (s *Server) clock() string { return filepath.Join(s.dir, "clock") }

// Step sets how far the server's wall clock is ahead of the machine's.
func (s *Server) Step(ahead time.Duration) error {
	if s.env == nil {
		return ErrNoFaketime
	}
	next := s.clock() + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.clock())
}

// sweep removes what libfaketime leaves behind of a process that was killed.
func (s *Server) sweep(pid int) {
	if s.env != nil {
		_ = os.Remove(fmt.Sprintf("/dev/shm/faketime_shm_%d", pid)) // it may not be there
		_ = os.Remove(fmt.Sprintf("/dev/shm/sem.faketime_sem_%d", pid))
	}
}

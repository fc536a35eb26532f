package sourcetest

import (
	"context"
	"errors"

	"github.com/countoff/countoff/sources"
)

// forgot sets the store back under an owner. It must notice before it does harm:
// where the lost writes were, other tasks are now.
func forgot(s *scene) {
	if s.h.Snapshot == nil {
		s.Skipf("the harness cannot set the store back")
	}
	for _, lost := range []struct {
		what  string
		write func(o *owner, got []sources.Task)
	}{
		{"a settled task", func(o *owner, got []sources.Task) { o.end(sources.Done, got[0]) }},
		{"a retry", func(o *owner, got []sources.Task) { o.end(sources.Retry, got[0]) }},
		{"a requeue", func(o *owner, got []sources.Task) { o.end(sources.Requeue, got[0]) }},
	} {
		s.push(here, s.tasks(here, "t", 3)...)
		o := s.owner(here)
		got := o.take(2)
		restore := s.snapshot()
		lost.write(o, got)
		restore()
		s.noticed("lost "+lost.what, o, got...)
		s.expect("after losing "+lost.what+", the next owner", s.cleared(3), "t0", "t1", "t2")
	}

	if s.h.PushesStay {
		return
	}
	s.push(here, s.tasks(here, "t", 1)...)
	o := s.owner(here)
	restore := s.snapshot()
	s.push(here, s.tasks(here, "lost", 1)...)
	got := o.take(2)
	s.expect("fetch", got, "t0", "lost0")
	restore()
	s.push(here, s.tasks(here, "v", 1)...) // where lost0 was
	s.noticed("lost a push", o, got...)
	s.expect("after losing a push, the next owner", s.cleared(2), "t0", "v0")
}

// forgotGrant has the store forget that an epoch was opened: the ledger, set back as
// well, grants it again. Two tokens have the same epoch then.
func forgotGrant(s *scene) {
	if s.h.Snapshot == nil {
		s.Skipf("the harness cannot set the store back")
	}
	s.push(here, s.tasks(here, "t", 2)...)
	restore := s.snapshot()
	old := s.owner(here)
	restore()
	s.epoch--
	o := s.owner(here)
	ctx, cancel := s.soon()
	defer cancel()
	if tasks, err := old.fetch(ctx, 1); err == nil {
		s.Errorf("the forgotten owner fetched %v", names(tasks))
	}
	got := o.take(1)
	stolen := got[0]
	own(&stolen)
	stolen.Grant, stolen.Token = old.g, old.tok
	if err := old.stream.Settle(ctx, settlements(sources.Done, stolen)...); err == nil {
		s.Errorf("the forgotten owner settled")
	}
	o.close()
	s.expect("the next owner", s.owner(here).take(2), "t0", "t1")
}

func (s *scene) snapshot() (restore func()) {
	s.Helper()
	ctx, cancel := s.soon()
	defer cancel()
	set, err := s.h.Snapshot(ctx)
	if err != nil {
		s.Fatalf("snapshot: %v", err)
	}
	return func() {
		s.Helper()
		ctx, cancel := s.soon()
		defer cancel()
		if err := set(ctx); err != nil {
			s.Fatalf("restore: %v", err)
		}
	}
}

func (s *scene) noticed(what string, o *owner, got ...sources.Task) {
	s.Helper()
	void := func(err error) bool { return errors.Is(err, sources.ErrForgot) || errors.Is(err, sources.ErrFenced) }
	err := s.insist("settle", func(ctx context.Context) error { return o.stream.Settle(ctx, settlements(sources.Done, got...)...) })
	if !void(err) {
		s.Errorf("%s: settle returned %v, want %q", what, err, sources.ErrForgot)
	}
	err = s.insist("fetch", func(ctx context.Context) error { _, err := o.fetch(ctx, 1); return err })
	if !void(err) {
		s.Errorf("%s: fetch returned %v, want %q", what, err, sources.ErrForgot)
	}
}

// cleared has a new owner do n tasks.
func (s *scene) cleared(n int) []sources.Task {
	s.Helper()
	o := s.owner(here)
	got := o.rest(n)
	o.close()
	return got
}

package sourcetest

import (
	"context"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/sources"
)

func closeGivesBack(s *scene) {
	s.push(here, s.tasks(here, "t", 5)...)
	o := s.owner(here)
	got := o.take(4)
	o.end(sources.Done, got[2])
	o.close()
	s.push(here, s.tasks(here, "u", 1)...)
	s.expect("the next owner", s.owner(here).take(5), "t0", "t1", "t3", "t4", "u0")
}

// Many at once: after a crash they would come one by one. And often, for brokers bury what they have handed out
// some ten times.
func closeIsNoCrash(s *scene) {
	s.push(here, s.tasks(here, "t", 4)...)
	for range 12 {
		o := s.owner(here)
		got := o.take(4)
		s.expect("the next owner", got, "t0", "t1", "t2", "t3")
		for _, t := range got {
			if t.Crashes != 0 || t.Attempt != 1 {
				s.Errorf("%s says attempt %d and crashes %d, want 1 and 0", name(t), t.Attempt, t.Crashes)
			}
		}
		o.close()
	}
}

func closedStream(s *scene) {
	s.push(here, s.tasks(here, "t", 3)...)
	o := s.owner(here)
	got := o.take(1)
	o.close()
	ctx, cancel := s.soon()
	defer cancel()
	if tasks, err := o.stream.Fetch(ctx, 1); err == nil {
		s.Errorf("a closed stream fetched %v", names(tasks))
	}
	if err := o.stream.Settle(ctx, settlements(sources.Done, got...)...); err == nil {
		s.Errorf("a closed stream settled")
	}
	s.expect("the next owner", s.owner(here).take(3), "t0", "t1", "t2")
}

// Whoever closes so has lost the partition, or does not know: it is to end as if it had died.
func closeSaysNothing(s *scene) {
	s.push(here, s.tasks(here, "t", 3)...)
	o := s.owner(here)
	o.take(2)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_ = o.stream.Close(ctx) // may say that it sent nothing
	o.open()                // of a fence that was cleared the epoch is over
	s.expect("the same owner", o.take(3), "t0", "t1", "t2")
}

// The first ownership is to start what belongs to the client and stays.
func closeLeavesNoGoroutine(s *scene) {
	p := s.peer()
	work := func() {
		a, b := s.ownerOn(p, here), s.ownerOn(p, there)
		s.push(here, s.tasks(here, "t", 2)...)
		got := a.take(2)
		a.end(sources.Done, got...)
		a.nothing("everything is done")
		ctx, cancel := context.WithCancel(s.Context())
		waiting := b.fetching(ctx, 1)
		cancel()
		<-waiting
		b.close()
		a.close()
		// Those that were lost, too: of one its owner knows, of the other it does not. And what was never opened.
		a, b = s.ownerOn(p, here), s.ownerOn(p, there)
		_ = a.stream.Close(ctx) // may say that it sent nothing
		other := s.ownerOn(p, there)
		b.close()
		if _, err := p.Source.Open(s.Context(), b.g, b.tok); err == nil {
			s.Errorf("open %v succeeds after %v", b.g, other.g)
		}
		other.close()
	}
	work()
	known := []goleak.Option{goleak.IgnoreCurrent()}
	for _, f := range s.h.Goroutines {
		known = append(known, goleak.IgnoreAnyFunction(f))
	}
	work()
	var leak error
	for end := time.Now().Add(s.h.Patience); time.Now().Before(end); {
		if leak = goleak.Find(known...); leak == nil { // looks for a while
			return
		}
	}
	s.Errorf("after all streams were closed: %v", leak)
}

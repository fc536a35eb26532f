package sourcetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countoff/countoff/sources"
)

// An ear hears what is to be cancelled.
type ear chan []string

// listen has a new ear hear what o is told.
func (o *owner) listen() ear {
	o.s.Helper()
	st := o.stream
	if w, ok := st.(watchedStream); ok {
		st = w.Stream
	}
	c, ok := st.(sources.Cancelable)
	if !ok {
		o.s.Fatalf("the harness has tasks cancelled, and %T is no sources.Cancelable", st)
	}
	e := make(ear, 1000)
	ctx, cancel := o.s.soon()
	defer cancel()
	c.Cancelled(ctx, func(why map[string]string) []string {
		for id, text := range why {
			if text != whyCancelled {
				o.s.Errorf("%s is to be cancelled because %q, want %q", id, text, whyCancelled)
			}
		}
		e <- slices.Sorted(maps.Keys(why))
		return nil
	})
	return e
}

const whyCancelled = "the suite wants it"

func (s *scene) cancel(ids ...string) {
	s.Helper()
	ctx, cancel := s.soon()
	defer cancel()
	if err := s.h.Cancel(ctx, whyCancelled, ids...); err != nil {
		s.Fatalf("cancel %q: %v", ids, err)
	}
}

// hears waits until what was heard last is want.
func (s *scene) hears(e ear, want ...string) {
	s.Helper()
	late := time.NewTimer(s.h.Patience)
	defer late.Stop()
	for last := "nothing"; ; {
		select {
		case got := <-e:
			if slices.Equal(got, want) {
				return
			}
			last = fmt.Sprintf("%q", got)
		case <-late.C:
			s.Fatalf("who has the partition is to hear that %q are to be cancelled; the last that was heard is %s", want, last)
		}
	}
}

func cancelledIsHeard(s *scene) {
	if s.h.Cancel == nil {
		s.Skipf("nobody can cancel tasks of the source")
	}
	s.push(here, s.tasks(here, "t", 3)...)
	s.cancel("t1")
	o := s.owner(here)
	e := o.listen()
	if len(e) == 0 {
		s.Fatalf("nothing was heard before Cancelled returned")
	}
	s.hears(e, "t1")
	s.cancel("t0", "t2")
	s.hears(e, "t0", "t1", "t2")
	got := o.take(3)
	o.settle(sources.Settlement{Task: &got[2], Outcome: sources.Retry, Attempt: 1})
	o.end(sources.Done, got[0])
	o.end(sources.Dead, got[1])
	s.hears(e, "t2")
	o.close()
	e = s.owner(here).listen()
	if len(e) == 0 {
		s.Fatalf("the next owner hears nothing before Cancelled returns")
	}
	s.hears(e, "t2")
}

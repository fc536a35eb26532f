package sourcetest

import (
	"context"
	"slices"
	"time"

	"github.com/countoff/countoff/sources"
)

func crashLosesNothing(s *scene) {
	s.push(here, s.tasks(here, "t", 6)...)
	o := s.owner(here)
	got := o.take(4)
	o.end(sources.Done, got[1])
	o.crash()
	s.expect("the next owner", s.owner(here).rest(5), "t0", "t2", "t3", "t4", "t5")
}

func crashAlone(s *scene) {
	s.needs(CountCrashes)
	s.push(here, s.tasks(here, "t", 6)...)
	o := s.owner(here)
	o.take(3)
	o.crash()
	o = s.owner(here)
	for _, want := range []string{"t0", "t1", "t2"} {
		ctx, cancel := s.soon()
		got, err := o.fetch(ctx, 10)
		cancel()
		if err != nil {
			s.Fatalf("fetch: %v", err)
		}
		s.expect("fetch of a suspect", got, want)
		o.nothing("a suspect runs alone")
		if want == "t1" {
			o.end(sources.Dead, got...)
		} else {
			o.end(sources.Done, got...)
		}
	}
	s.expect("the others", o.rest(3), "t3", "t4", "t5")
}

// Nothing was fetched, so everything can be had without settling one.
func crashIdle(s *scene) {
	s.needs(CountCrashes)
	s.push(here, s.tasks(here, "t", 3)...)
	for range 5 {
		s.owner(here).crash()
	}
	o := s.owner(here)
	got := o.take(3)
	s.expect("the last owner", got, "t0", "t1", "t2")
	for _, t := range got {
		if t.Crashes != 0 {
			s.Errorf("%s says %d crashes, it was never started", name(t), t.Crashes)
		}
	}
}

// A suspect that came back, even with a retry, was not what ended the next owner.
func crashCleared(s *scene) {
	s.needs(CountCrashes)
	s.needs(RetryInPlace)
	s.push(here, s.tasks(here, "t", 1)...)
	o := s.owner(here)
	o.take(1)
	o.crash()
	o = s.owner(here)
	o.end(sources.Retry, o.take(1)...)
	o.crash()
	got := s.owner(here).take(1)
	s.expect("the next owner", got, "t0")
	if got[0].Crashes != 0 || got[0].Attempt != 2 {
		s.Errorf("t0 says crashes %d and attempt %d, want 0 and 2: its run had ended", got[0].Crashes, got[0].Attempt)
	}
}

// The same for one that went to the end of the log.
func crashRequeued(s *scene) {
	s.needs(CountCrashes)
	s.needs(RequeueToEnd)
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	o.take(1)
	o.crash()
	o = s.owner(here)
	o.end(sources.Requeue, o.take(1)...)
	s.expect("together", o.take(2), "t1", "t0")
	o.close()
	o = s.owner(here)
	got := o.take(2)
	s.expect("after a hand-over, together", got, "t1", "t0")
	s.push(here, s.tasks(here, "u", 1)...)
	o.end(sources.Done, got[0])
	o.end(sources.Requeue, got[1])
	got = o.take(1)
	s.expect("before the requeued", got, "u0")
	o.end(sources.Done, got...)
	o.crash() // while t0 is in the log, behind u0
	s.push(here, s.tasks(here, "v", 1)...)
	s.owner(here).take(2)
}

// What waits for its retry cannot have been running when its owner died. It must
// not hold up what was.
func crashWaiting(s *scene) {
	s.needs(RetryInPlace)
	s.push(here, s.tasks(here, "t", 4)...)
	o := s.owner(here)
	got := o.take(3)
	o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour})
	o.crash()
	o = s.owner(here)
	var ended, waiting []string
	for len(ended) < 3 {
		t := o.take(1)[0]
		if name(t) == "t0" {
			waiting = append(waiting, "t0")
			if t.NotBefore.Before(time.Now().Add(time.Hour / 2)) {
				s.Errorf("t0 must not start before an hour has passed, it says %v", t.NotBefore)
			}
			continue
		}
		ended = append(ended, name(t))
		o.end(sources.Done, t)
	}
	if !slices.Equal(ended, []string{"t1", "t2", "t3"}) || len(waiting) > 1 {
		s.Errorf("after a crash came %v, and %v to wait, want t1, t2, t3 and t0 once", ended, waiting)
	}
}

// Its owner before had not got that far when it died, so that it is no suspect: it may be fetched before one.
func crashWaitingBeside(s *scene) {
	s.needs(RetryInPlace)
	const soon = 100 * time.Millisecond
	s.push(here, s.tasks(here, "t", 3)...)
	o := s.owner(here)
	got := o.take(2)
	o.settle(sources.Settlement{Task: &got[1], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour})
	o.close()
	o = s.owner(here)
	got = o.take(1)
	s.expect("the next owner", got, "t0")
	o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Retry, Attempt: 1, Delay: soon})
	o.crash()
	o = s.owner(here)
	for came := make(map[string]bool); !came["t0"] || !came["t2"]; {
		t := o.take(1)[0]
		came[name(t)] = true
		if name(t) != "t1" {
			o.end(sources.Done, t)
		}
	}
}

// Its caller could not start it. The rest goes on, but nothing of its key; once it
// could start, it waits until nothing else runs.
func crashAside(s *scene) {
	s.needs(CountCrashes)
	s.needs(RetryInPlace)
	tasks := s.tasks(here, "t", 5)
	tasks[1].Key, tasks[3].Key = tasks[0].Key, tasks[0].Key
	s.push(here, tasks...)
	o := s.owner(here)
	o.take(2)
	o.crash()
	o = s.owner(here)
	retried := o.take(1)
	s.expect("the first suspect", retried, "t0")
	o.end(sources.Retry, retried...)
	other := o.take(2)
	s.expect("what is no suspect nor behind one", other, "t2", "t4")
	o.nothing("the rest is behind t0, of its key")
	o.end(sources.Done, other[0])
	o.end(sources.Done, retried...)
	o.nothing("a suspect waits until nothing else runs")
	o.end(sources.Done, other[1])
	suspect := o.take(1)
	s.expect("the second suspect", suspect, "t1")
	o.nothing("a suspect runs alone")
	o.end(sources.Done, suspect...)
	s.expect("what was behind it", o.take(1), "t3")
}

// What it had in hand, behind a task of its key that failed, cannot start before that has ended, and so does not run.
func crashBehindRetry(s *scene) {
	s.needs(CountCrashes)
	s.needs(RetryInPlace)
	tasks := s.tasks(here, "t", 5)
	tasks[1].Key = tasks[0].Key
	tasks[3].Key = tasks[2].Key
	s.push(here, tasks...)
	o := s.owner(here)
	o.take(2)
	o.crash()
	o = s.owner(here)
	first := o.take(1)
	s.expect("the first suspect", first, "t0")
	o.end(sources.Retry, first...)
	other := o.take(2)
	s.expect("what is no suspect nor behind one", other, "t2", "t3")
	o.settle(sources.Settlement{Task: &other[0], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour})
	o.end(sources.Done, first...)
	suspect := o.take(1)
	s.expect("the suspect, as nothing runs", suspect, "t1")
	o.end(sources.Done, suspect...)
	s.expect("the rest", o.take(1), "t4")
}

// The caller may have started the retry again beside the suspect: nobody knows
// which of them ended it.
func crashBeside(s *scene) {
	s.needs(CountCrashes)
	s.needs(RetryInPlace)
	tasks := s.tasks(here, "t", 3)
	tasks[1].Key = tasks[0].Key
	s.push(here, tasks...)
	o := s.owner(here)
	o.take(3)
	o.crash()
	o = s.owner(here)
	first := o.take(1)
	o.end(sources.Retry, first...)
	retried := o.take(1)
	s.expect("the suspect of another key", retried, "t2")
	o.end(sources.Retry, retried...)
	o.end(sources.Done, first...)
	s.expect("the last suspect", o.take(1), "t1")
	o.crash()
	for _, t := range s.owner(here).rest(2) {
		if t.Crashes != 0 {
			s.Errorf("%s says %d crashes, but it may have been the other one", name(t), t.Crashes)
		}
	}
}

// Each owner starts what it gets and dies. Only t1 is to blame: whoever runs
// something else lives long enough to settle it.
func crashPoison(s *scene) {
	s.needs(CountCrashes)
	s.dead(here) // skips where they cannot be read
	tasks := s.tasks(here, "t", 4)
	s.push(here, tasks...)
	first := s.owner(here)
	first.take(4)
	first.crash()
	crashes := 0
	left := []string{"t0", "t2", "t3"}
	for deaths := 0; ; deaths++ {
		if deaths > 12 {
			s.Fatalf("t1 killed %d owners that ran nothing else and is no dead letter", deaths)
		}
		o := s.owner(here)
		if len(s.dead(here)) > 0 {
			s.survivors(o, left)
			break
		}
		got := o.takeOrDead(left)
		if deaths == 0 {
			s.expect("the first suspect", got, "t0")
			o.close() // a hand-over acquits nobody and accuses nobody
			o = s.owner(here)
			got = o.take(1)
			s.expect("the first suspect, again", got, "t0")
			o.end(sources.Retry, got...) // an innocent that fails is still no poison
			got = o.take(1)
		}
		for got != nil && name(got[0]) != "t1" {
			if got[0].Crashes != 0 {
				s.Errorf("%s says %d crashes, it did nothing", name(got[0]), got[0].Crashes)
			}
			left = slices.DeleteFunc(left, func(n string) bool { return n == name(got[0]) })
			o.end(sources.Done, got...)
			got = o.takeOrDead(left)
		}
		if got == nil {
			s.survivors(o, nil)
			break
		}
		if got[0].Crashes < crashes || got[0].Crashes > deaths {
			s.Errorf("t1 says %d crashes after it killed %d owners and said %d before", got[0].Crashes, deaths, crashes)
		}
		crashes = got[0].Crashes
		o.nothing("a suspect runs alone")
		o.crash()
	}
	letters := s.dead(here)
	if len(letters) != 1 || name(letters[0].Task) != "t1" || letters[0].Reason == "" {
		s.Fatalf("the dead letters are %+v, want t1 with a reason", letters)
	}
	if s.h.Buried == nil {
		return
	}
	if told := s.h.Buried.All(); len(told) != 1 || told[0].Grant.ID != here || told[0].Grant.Epoch != s.epoch || told[0].Tasks != 1 || told[0].Reason != letters[0].Reason {
		s.Errorf("the sources told of %+v, want of the dead letter when it was made: %+v", told, letters)
	}
}

// What a task was charged with is its own until it ends, whatever else happens to it.
func crashKept(s *scene) {
	s.needs(CountCrashes)
	s.push(here, s.tasks(here, "t", 1)...)
	for range 2 { // the second owner has a suspect, alone
		o := s.owner(here)
		o.take(1)
		o.crash()
	}
	o := s.owner(here)
	look := func(after string) []sources.Task {
		s.Helper()
		got := o.take(1)
		if got[0].Crashes != 1 {
			s.Errorf("%s: %s says %d crashes, want 1", after, name(got[0]), got[0].Crashes)
		}
		return got
	}
	look("after its owner died with a suspect alone")
	o.close()
	o = s.owner(here)
	got := look("after a hand-over")
	if s.can(RetryInPlace) {
		o.end(sources.Retry, got...)
		o.close()
		o = s.owner(here)
		got = look("after a run that failed")
	}
	if s.can(RequeueToEnd) {
		o.end(sources.Requeue, got...)
		look("after it went to the end")
	}
}

// takeOrDead takes a task, or returns nil if none but t1 was left and that is a dead letter: a source may bury it beside
// what it hands out, and not while it is opened.
func (o *owner) takeOrDead(left []string) []sources.Task {
	o.s.Helper()
	if len(left) > 0 {
		return o.take(1)
	}
	for end := time.Now().Add(o.s.h.Patience); ; {
		ctx, cancel := context.WithTimeout(o.s.Context(), o.s.h.Moment)
		tasks, err := o.fetch(ctx, 1)
		cancel()
		switch {
		case err == nil:
			return tasks
		case len(o.s.dead(o.g.ID)) > 0:
			return nil
		case time.Now().After(end):
			o.s.Fatalf("t1 is neither handed out nor a dead letter after %v: %v", o.s.h.Patience, err)
		}
	}
}

// survivors checks that left, and nothing else, comes and is charged with nothing.
func (s *scene) survivors(o *owner, left []string) {
	s.Helper()
	for len(left) > 0 {
		got := o.take(1)
		i := slices.Index(left, name(got[0]))
		if i < 0 || got[0].Crashes != 0 {
			s.Fatalf("after t1 became a dead letter: got %s with %d crashes, want %s with none", name(got[0]), got[0].Crashes, left)
		}
		left = slices.Delete(left, i, i+1)
		o.end(sources.Done, got...)
	}
	o.nothing("t1 is a dead letter, and the others are done")
}

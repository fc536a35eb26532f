package sourcetest

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/sources"
)

// slack is how far the store's clock and ours may be taken apart by reading them.
const slack = time.Second

// manyRuns is more than fits into 16 bits: of a task that is tried once a second, those of a day.
const manyRuns = 100_000

func retryKeepsPlace(s *scene) {
	s.needs(RetryInPlace)
	tasks := s.tasks(here, "t", 5)
	for i := range tasks {
		tasks[i].Key = tasks[0].Key
	}
	s.push(here, tasks...)
	o := s.owner(here)
	got := o.take(4)
	before := time.Now()
	o.settle(
		sources.Settlement{Task: &got[0], Outcome: sources.Done, Attempt: 1},
		sources.Settlement{Task: &got[1], Outcome: sources.Retry, Attempt: 1, Delay: time.Hour, Reason: "busy"},
		sources.Settlement{Task: &got[2], Outcome: sources.Retry, Attempt: 1, Delay: time.Minute, Reason: "busy"},
	)
	o.settle(sources.Settlement{Task: &got[2], Outcome: sources.Retry, Attempt: 2, Delay: time.Hour, Reason: "still"})
	after := time.Now()
	o.close()
	got = s.owner(here).take(4)
	s.expect("the next owner", got, "t1", "t2", "t3", "t4")
	for i, t := range got[:2] {
		if runs := i + 1; t.Attempt != runs+1 || t.FirstError != "busy" || t.Crashes != 0 {
			s.Errorf("%s ran %d times: it says attempt %d, first error %q, crashes %d, want %d, %q, 0", name(t), runs, t.Attempt, t.FirstError, t.Crashes, runs+1, "busy")
		}
		if nb := t.NotBefore; nb.Before(before.Add(time.Hour-slack)) || nb.After(after.Add(time.Hour+slack)) {
			s.Errorf("%s must not start before %v, want an hour after %v", name(t), nb, before)
		}
	}
	for _, t := range got[2:] {
		if t.Attempt != 1 || t.NotBefore.After(time.Now()) {
			s.Errorf("%s never ran: it says attempt %d, not before %v", name(t), t.Attempt, t.NotBefore)
		}
	}
}

func retryAttemptRises(s *scene) {
	s.needs(RetryInPlace)
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	got := o.take(2)
	say := func(attempt int, delay time.Duration, reason string) {
		o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Retry, Attempt: attempt, Delay: delay, Reason: reason})
	}
	say(1, 0, "first")
	before := time.Now()
	say(2, time.Hour, "second")
	say(1, 0, "first") // says itself again, late
	o.close()
	o = s.owner(here)
	got = o.take(2)
	s.expect("the next owner", got, "t0", "t1")
	if got[0].Attempt != 3 || got[0].FirstError != "first" {
		s.Errorf("t0 ran twice: it says attempt %d and first error %q, want 3 and %q", got[0].Attempt, got[0].FirstError, "first")
	}
	if nb := got[0].NotBefore; nb.Before(before.Add(time.Hour - slack)) {
		s.Errorf("t0 was to wait an hour after its second run, and the first said itself again: it must not start before %v, want an hour after %v", nb, before)
	}
	say(3, 0, "third")
	o.crash()
	o = s.owner(here)
	got = o.rest(2)
	i := slices.IndexFunc(got, func(t sources.Task) bool { return name(t) == "t0" })
	if i < 0 || got[i].Attempt != 4 || got[i].FirstError != "first" {
		s.Errorf("after three runs and a crash: got %+v, want t0 with attempt 4 and first error %q", got, "first")
	}
	// Of two runs only the second was said: it took the place of the first.
	s.push(here, s.tasks(here, "v", 1)...)
	got = o.take(1)
	own(&got[0]).FirstError = "first" // as a caller does that keeps a task
	o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Retry, Attempt: 2, Reason: "second"})
	o.close()
	o = s.owner(here)
	got = o.rest(1)
	s.expect("the next owner", got, "v0")
	if got[0].Attempt != 3 || got[0].FirstError != "first" {
		s.Errorf("of two runs only the second was said: attempt %d and first error %q, want 3 and %q", got[0].Attempt, got[0].FirstError, "first")
	}
	s.push(here, s.tasks(here, "w", 1)...)
	got = o.take(1)
	say(manyRuns, 0, "busy")
	o.close()
	o = s.owner(here)
	got = o.rest(1)
	s.expect("the next owner", got, "w0")
	if got[0].Attempt != manyRuns+1 {
		s.Errorf("w0 ran %d times: it says attempt %d, want %d", manyRuns, got[0].Attempt, manyRuns+1)
	}
	if !s.can(RequeueToEnd) {
		return
	}
	s.push(here, s.tasks(here, "u", 1)...)
	got = o.take(1)
	o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Retry, Attempt: 1, Reason: "first"})
	own(&got[0]).FirstError = "first" // as a caller does that keeps a task
	o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Requeue, Attempt: 2, Reason: "second"})
	if got = o.take(1); got[0].Attempt != 3 || got[0].FirstError != "first" {
		s.Errorf("after a retry and a requeue: attempt %d and first error %q, want 3 and %q", got[0].Attempt, got[0].FirstError, "first")
	}
}

func waitIsNoAttempt(s *scene) {
	says := func(who string, t sources.Task, attempt, waits int, first string) {
		if t.Attempt != attempt || t.Waits != waits || t.FirstError != first {
			s.Errorf("%s: %s says attempt %d, waits %d, first error %q, want %d, %d, %q", who, name(t), t.Attempt, t.Waits, t.FirstError, attempt, waits, first)
		}
	}
	if s.can(RequeueToEnd) {
		s.push(here, s.tasks(here, "u", 1)...)
		o := s.owner(here)
		got := o.take(1)
		o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Requeue, Attempt: 1, Waits: 1})
		got = o.take(1)
		if got[0].Attempt != 1 || got[0].FirstError != "" {
			s.Errorf("u0 went to the end, for it waits: it says attempt %d, first error %q, want 1 and none", got[0].Attempt, got[0].FirstError)
		}
		o.end(sources.Done, got...)
		o.close()
	}
	s.needs(RetryInPlace)
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	got := o.take(2)
	say := func(i, attempt, waits int, reason string) {
		o.settle(sources.Settlement{Task: &got[i], Outcome: sources.Retry, Attempt: attempt, Waits: waits, Reason: reason})
	}
	say(0, 1, 1, "")
	say(0, 2, 1, "busy")
	say(0, 3, 2, "")
	say(0, 1, 1, "") // says itself again, late
	say(1, 1, 1, "")
	o.close()
	o = s.owner(here)
	got = o.take(2)
	s.expect("the next owner", got, "t0", "t1")
	says("after a wait, a failure and a wait", got[0], 2, 2, "busy")
	says("after a wait", got[1], 1, 1, "")
	say(0, 4, 3, "")
	say(1, 2, 1, "gone")
	o.crash()
	o = s.owner(here)
	got = o.rest(2)
	slices.SortFunc(got, func(a, b sources.Task) int { return strings.Compare(name(a), name(b)) })
	s.expect("the owner after a crash", got, "t0", "t1")
	says("after one more wait, and a crash", got[0], 2, 3, "busy")
	says("after a failure, and a crash", got[1], 2, 1, "gone")
	s.push(here, s.tasks(here, "w", 1)...)
	got = o.take(1)
	say(0, manyRuns, manyRuns, "")
	o.close()
	o = s.owner(here)
	got = o.rest(1)
	s.expect("the next owner", got, "w0")
	says("after many waits", got[0], 1, manyRuns, "")
	if s.h.Dead == nil {
		return
	}
	s.push(here, s.tasks(here, "v", 1)...)
	got = o.take(1)
	say(0, 1, 1, "")
	own(&got[0]).Waits = 1 // as a caller does that keeps a task
	o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Dead, Attempt: 2, Waits: 1, Reason: "no use"})
	if letters := s.dead(here); len(letters) != 1 || letters[0].Task.Attempt != 1 && letters[0].Task.Attempt != 0 { // 0: the harness knows nothing of it
		s.Errorf("the dead letters are %+v, want v0 with attempt 1", letters)
	}
}

func retryIsKept(s *scene) {
	s.push(here, s.tasks(here, "t", 3)...)
	o := s.owner(here)
	got := o.take(3)
	o.end(sources.Retry, got[0], got[2])
	o.nothing("the caller keeps what it retries")
	o.end(sources.Done, got[0])
	o.end(sources.Dead, got[2])
	o.close()
	s.expect("the next owner", s.owner(here).take(1), "t1")
	if s.h.Dead != nil {
		if letters := s.dead(here); len(letters) != 1 || name(letters[0].Task) != "t2" {
			s.Errorf("the dead letters are %v, want t2", letters)
		}
	}
}

func requeueToEnd(s *scene) {
	s.needs(RequeueToEnd)
	s.push(here, s.tasks(here, "t", 3)...)
	o := s.owner(here)
	got := o.take(1)
	s.expect("fetch", got, "t0")
	o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Requeue, Attempt: 1, Reason: "later"})
	got = o.take(3)
	s.expect("the rest and then the requeued", got, "t1", "t2", "t0")
	if t := got[2]; t.Attempt != 2 || t.FirstError != "later" {
		s.Errorf("t0 ran once: it says attempt %d and first error %q, want 2 and %q", t.Attempt, t.FirstError, "later")
	}
	if s.can(KeepBytes) && got[2].ID != "t0" {
		s.Errorf("t0 came back as %q", got[2].ID)
	}
	o.settle(sources.Settlement{Task: &got[2], Outcome: sources.Requeue, Attempt: 2, Reason: "still"})
	o.close()
	o = s.owner(here)
	got = o.take(3)
	s.expect("the next owner", got, "t1", "t2", "t0")
	if t := got[2]; t.Attempt != 3 || t.FirstError != "later" {
		s.Errorf("t0 ran twice: it says attempt %d and first error %q, want 3 and %q", t.Attempt, t.FirstError, "later")
	}
	o.end(sources.Done, got[:2]...)
	o.settle(sources.Settlement{Task: &got[2], Outcome: sources.Requeue, Attempt: manyRuns, Reason: "still"})
	got = o.take(1)
	s.expect("the requeued", got, "t0")
	if got[0].Attempt != manyRuns+1 {
		s.Errorf("t0 ran %d times: it says attempt %d, want %d", manyRuns, got[0].Attempt, manyRuns+1)
	}
	o.end(sources.Done, got...)
	o.nothing("everything is done")
}

func requeueAfterDelay(s *scene) {
	s.needs(RequeueDelay)
	const delay = 200 * time.Millisecond
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	got := o.take(2)
	before := time.Now()
	o.settle(
		sources.Settlement{Task: &got[1], Outcome: sources.Requeue, Attempt: 1, Delay: time.Hour},
		sources.Settlement{Task: &got[0], Outcome: sources.Requeue, Attempt: 1, Delay: delay},
	)
	again := o.take(1) // waits for it
	s.expect("fetch", again, "t0")
	// A millisecond is what a store may round away.
	if waited := time.Since(before); waited < delay-time.Millisecond {
		s.Errorf("t0 came back after %v, want %v", waited, delay)
	}
	o.nothing("the other comes back in an hour")

	// Another owner may be given them in their places, if they say that they must not start yet.
	due := map[string]time.Time{"t1": before.Add(time.Hour)}
	requeue := func() {
		due["t0"] = time.Now().Add(delay)
		o.settle(sources.Settlement{Task: &again[0], Outcome: sources.Requeue, Attempt: again[0].Attempt, Delay: delay})
	}
	next := func() {
		s.Helper()
		o = s.owner(here)
		for {
			again = o.take(1)
			t := again[0]
			if at := due[name(t)]; time.Until(at) > time.Millisecond && (t.NotBefore.IsZero() || t.NotBefore.Before(at.Add(-slack))) {
				s.Errorf("%s came to the next owner %v too soon, and says that it must not start before %v", name(t), time.Until(at), t.NotBefore)
			}
			if name(t) == "t0" {
				return
			}
		}
	}
	requeue()
	o.close()
	next()
	requeue()
	o.crash()
	next()
}

func requeueOldReceipt(s *scene) {
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	old := o.take(2)
	o.end(sources.Requeue, old[0])
	for _, outcome := range []sources.Outcome{sources.Done, sources.Requeue, sources.Dead} {
		o.end(outcome, old[0])
	}
	o.end(sources.Done, old[1])
	got := o.take(1)
	s.expect("the new delivery", got, "t0")
	o.nothing("there is one new delivery")
	o.end(sources.Done, old[0])
	o.close()
	o = s.owner(here)
	got = o.take(1)
	s.expect("the new delivery, to the next owner", got, "t0")
	o.end(sources.Done, got...)
	o.nothing("everything is done")
}

// Whoever runs it again is to know as much as who ran it first.
func comesAgainWhole(s *scene) {
	s.needs(KeepBytes)
	task := s.tasks(here, "t", 1)[0]
	task.Type, task.Delivery = "mail", &sources.Delivery{Headers: map[string]string{"trace": "ab\ncd"}}
	task.ID, task.Key = long, s.longKey(here)
	s.push(here, task)
	o := s.owner(here)
	got := o.take(1)
	whole := func(after string) {
		s.Helper()
		got = o.take(1)
		if t := got[0]; t.ID != task.ID || t.Type != task.Type || t.Key != task.Key || !bytes.Equal(t.Payload, task.Payload) || t.Born != task.Born || !maps.Equal(t.Headers, task.Headers) {
			s.Errorf("after %s it is %s of type %q, key %s, payload %q, headers %q, born %v: not what was pushed, %s of key %s",
				after, brief(t.ID), t.Type, brief(t.Key), t.Payload, t.Headers, t.Born, brief(task.ID), brief(task.Key))
		}
	}
	if s.can(RetryInPlace) {
		o.end(sources.Retry, got...)
		o.close()
		o = s.owner(here)
		whole("a retry")
	}
	o.crash()
	o = s.owner(here)
	whole("a crash")
	if s.can(RequeueToEnd) {
		o.end(sources.Requeue, got...)
		whole("a requeue")
	}
	if s.can(RequeueDelay) {
		o.settle(sources.Settlement{Task: &got[0], Outcome: sources.Requeue, Attempt: got[0].Attempt, Delay: time.Millisecond})
		whole("a requeue with a delay")
	}
}

package sourcetest

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/countoff/countoff/sources"
)

func settled(s *scene) {
	s.push(here, s.tasks(here, "t", 6)...)
	o := s.owner(here)
	o.end(sources.Done, o.take(2)...)
	o.close()
	o = s.owner(here)
	got := o.take(2)
	s.expect("after a hand-over", got, "t2", "t3")
	o.end(sources.Done, got...)
	o.crash()
	s.expect("after a crash", s.owner(here).take(2), "t4", "t5")
}

func settleTwice(s *scene) {
	s.push(here, s.tasks(here, "t", 5)...)
	o := s.owner(here)
	got := o.take(4)
	last := got[3]
	got = got[:3]
	o.end(sources.Done, got...)
	for _, outcome := range []sources.Outcome{sources.Done, sources.Retry, sources.Requeue, sources.Dead} {
		o.end(outcome, got...)
		o.end(outcome, got[1], got[1])
	}
	s.expect("fetch", o.take(1), "t4")
	o.nothing("what was settled before was settled again")
	o.end(sources.Done, got[0], last, got[1]) // as a caller whose last call had no answer
	o.close()
	o = s.owner(here)
	s.expect("the next owner", o.take(1), "t4")
	o.nothing("the others were settled")
	if s.h.Dead != nil && len(s.dead(here)) > 0 {
		s.Errorf("a task that was done became a dead letter")
	}
}

func settleNothing(s *scene) {
	o := s.owner(here)
	o.settle()
	s.push(here, s.tasks(here, "t", 1)...)
	got := o.take(1)
	o.settle()
	o.end(sources.Done, got...)
}

// As many as a consumer may say at once, of one that was busy for a while.
func settleMany(s *scene) {
	const many = 120 // more than brokers take in one request that have a limit for it
	s.push(here, s.tasks(here, "t", many)...)
	o := s.owner(here)
	o.end(sources.Done, o.take(many)...)
	o.close()
	s.owner(here).nothing("everything was settled")
}

// The caller forgets an outcome once it was told nil.
func settleEnded(s *scene) {
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	got := o.take(2)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if err := o.stream.Settle(ctx, settlements(sources.Done, got[0])...); err != nil {
		o.end(sources.Done, got[0])
	}
	o.close()
	s.expect("the next owner", s.owner(here).take(1), "t1")
}

func settledOutOfOrder(s *scene) {
	s.push(here, s.tasks(here, "t", 10)...)
	o := s.owner(here)
	got := o.take(9)
	for _, i := range []int{7, 2, 4, 8} {
		o.end(sources.Done, got[i])
	}
	o.close()
	s.expect("the next owner", s.owner(here).take(6), "t0", "t1", "t3", "t5", "t6", "t9")
}

func settledForGood(s *scene) {
	s.push(here, s.tasks(here, "t", 8)...)
	open := []string{"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"}
	for _, i := range []int{3, 1, 4, 2, 0} { // of those that are open
		o := s.owner(here)
		got := o.take(len(open))
		s.expect("the next owner", got, open...)
		o.end(sources.Done, got[i])
		o.close()
		open = slices.Delete(open, i, i+1)
	}
	s.expect("the last owner", s.owner(here).take(len(open)), open...)
}

func settleOverlapsFetch(s *scene) {
	s.push(here, s.tasks(here, "t", 20)...)
	o := s.owner(here)
	got := o.take(20)
	ctx, cancel := s.soon()
	defer cancel()
	waiting := o.fetching(ctx, 10)
	s.waits(waiting)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for _, t := range got[i*5 : i*5+5] {
				if err := o.stream.Settle(ctx, settlements(sources.Done, t)...); err != nil {
					s.Errorf("settle %s while a fetch waits: %v", name(t), err)
				}
			}
		})
	}
	wg.Wait()
	s.push(here, s.tasks(here, "u", 1)...)
	a := <-waiting
	if a.err != nil {
		s.Fatalf("fetch while others settle: %v", a.err)
	}
	s.expect("fetch", a.tasks, "u0")
	o.end(sources.Done, a.tasks...)
	o.close()
	s.owner(here).nothing("everything was settled")
}

// A Fetch that waits learns of what the same stream has just set free.
func settleWakes(s *scene) {
	free := func(o *owner, outcome sources.Outcome, t sources.Task, want string) {
		s.Helper()
		ctx, cancel := s.soon()
		defer cancel()
		waiting := o.fetching(ctx, 10)
		s.waits(waiting)
		o.end(outcome, t)
		a := <-waiting
		if a.err != nil {
			s.Fatalf("fetch after a settle as %v: %v", outcome, a.err)
		}
		s.expect("fetch", a.tasks, want)
	}
	o := s.owner(here)
	s.push(here, s.tasks(here, "t", 2)...)
	got := o.take(2)
	if s.can(RequeueToEnd) {
		free(o, sources.Requeue, got[0], "t0")
	}
	if s.can(CountCrashes) {
		o.crash()
		o = s.owner(here)
		got = o.take(1)
		want := map[string]string{"t0": "t1", "t1": "t0"}[name(got[0])]
		free(o, sources.Done, got[0], want)
	}
}

func deadLetter(s *scene) {
	s.dead(here) // skips where they cannot be read
	tasks := s.tasks(here, "t", 3)
	tasks[1].Type, tasks[1].Delivery = "mail", &sources.Delivery{Headers: map[string]string{"trace": "ab\ncd"}}
	tasks[1].Key, tasks[1].Payload = s.longKey(here), s.largest()
	reason := "550 no such user: " + strings.Repeat("long ", 200)
	s.push(here, tasks...)
	o := s.owner(here)
	got := o.take(3)
	o.settle(sources.Settlement{Task: &got[1], Outcome: sources.Retry, Attempt: 1, Reason: "421 try later"})
	own(&got[1]).FirstError = "421 try later" // as a caller does that keeps a task
	o.settle(sources.Settlement{Task: &got[1], Outcome: sources.Dead, Attempt: 2, Reason: reason})
	letters := s.dead(here)
	if len(letters) != 1 {
		s.Fatalf("%d dead letters, want 1", len(letters))
	}
	d := letters[0]
	if d.Reason != reason {
		s.Errorf("the reason is %q, want %q", d.Reason, reason)
	}
	if !bytes.Equal(d.Task.Payload, tasks[1].Payload) {
		s.Errorf("the payload of %d bytes is not what was pushed, it has %d", len(tasks[1].Payload), len(d.Task.Payload))
	}
	if s.can(KeepBytes) && (d.Task.ID != tasks[1].ID || d.Task.Type != "mail" || d.Task.Key != tasks[1].Key || d.Task.Headers["trace"] != "ab\ncd" || d.Task.Born != tasks[1].Born) {
		s.Errorf("the dead letter %q of type %q, key %s, headers %q, born %v is not what was pushed", d.Task.ID, d.Task.Type, brief(d.Task.Key), d.Task.Headers, d.Task.Born)
	}
	if d.Task.Attempt != 2 && d.Task.Attempt != 0 { // 0: the harness knows nothing of it
		s.Errorf("the dead letter says attempt %d, want 2, as it was told", d.Task.Attempt)
	}
	o.close()
	s.expect("the next owner", s.owner(here).take(2), "t0", "t2")
}

// Whoever puts them back into their queue goes by it.
func deadInOrder(s *scene) {
	s.dead(here) // skips where they cannot be read
	s.needs(DeadInOrder)
	s.push(here, s.tasks(here, "t", 6)...)
	var want []string
	for _, gives := range [][]int{{4, 1}, {3, 0}} { // up, of those that are open
		o := s.owner(here)
		got := o.take(6 - len(want))
		for _, i := range gives {
			o.end(sources.Dead, got[i])
			want = append(want, name(got[i]))
		}
		o.close()
	}
	var got []sources.Task
	for _, letter := range s.dead(here) {
		got = append(got, letter.Task)
	}
	s.expect("the dead letters", got, want...)
}

// A reason is the text of an error, and that may be whatever a server has answered. A settle
// that is refused because of it is said again for ever, and its partition stands still.
func reasonOfAnyBytes(s *scene) {
	const reason = "it answered: \x00\xff\xc3"
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	t := o.take(1)[0]
	o.settle(sources.Settlement{Task: &t, Outcome: sources.Retry, Attempt: 1, Reason: reason})
	own(&t).FirstError = reason // as a caller does that keeps a task
	o.settle(sources.Settlement{Task: &t, Outcome: sources.Dead, Attempt: 2, Reason: reason})
	if s.h.Dead != nil {
		if letters := s.dead(here); len(letters) != 1 || !strings.HasPrefix(letters[0].Reason, "it answered: ") {
			s.Errorf("the dead letters are %+v, want one, whose reason is %q, or that with other characters for those that are no text", letters, reason)
		}
	}
	o.close()
	s.expect("the next owner", s.owner(here).take(1), "t1")
}

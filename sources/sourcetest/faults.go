package sourcetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// faultClauses are the clauses of requests that go wrong: whatever happens to one,
// saying it again puts everything right.
func faultClauses() []clause {
	list := []clause{{"a request that comes late does come", lateDoesCome}}
	for _, kind := range []Kind{Lost, Failed, Late} {
		for _, c := range []struct {
			op    Op
			check func(s *scene, kind Kind, when moment)
			late  []moment // at which a late request could do harm
		}{
			{Open, faultyOpen, []moment{working, closed, succeeded}},
			{Fetch, faultyFetch, []moment{working, closed, succeeded}},
			{Settle, faultySettle, []moment{working, closed, succeeded}},
			{Close, faultyClose, []moment{succeeded}},
		} {
			if kind != Late {
				list = append(list, clause{fmt.Sprintf("%s, and %s", c.op, kind), func(s *scene) { c.check(s, kind, never) }})
				continue
			}
			for _, when := range c.late {
				list = append(list, clause{fmt.Sprintf("%s, and %s, %s", c.op, kind, when), func(s *scene) { c.check(s, kind, when) }})
			}
		}
	}
	return append(list,
		clause{"open, and no answer comes", unansweredOpen},
		clause{"fetch, and no answer comes", unansweredFetch},
		clause{"settle, and no answer comes", unansweredSettle},
		clause{"close, and no answer comes", unansweredClose},
		clause{"a settle that nobody repeated changes nothing after close", settleGivenUp},
		clause{"a suspect that could not be handed out is not accused", suspectNotHandedOut},
		clause{"a fetch that comes late accuses nobody", lateFetchAccusesNobody},
	)
}

// A moment is when a late request is executed.
type moment string

const (
	never     moment = ""
	working   moment = "while its owner works"
	closed    moment = "after its owner closed"
	succeeded moment = "after the next owner opened"
)

// faulty returns a peer that suffers a fault, or skips the clause.
func (s *scene) faulty(op Op, kind Kind) (Peer, Fault) {
	s.Helper()
	p := s.peer()
	if p.Inject == nil {
		s.Skipf("the harness injects no faults")
	}
	return p, p.Inject(op, kind)
}

// faultyInstall returns a peer whose next request to install a fence suffers a fault: what
// it asks or loads once, before its first open, is behind it, and has suffered one, too.
func (s *scene) faultyInstall(kind Kind) (Peer, Fault) {
	s.Helper()
	p := s.peer()
	if p.Inject == nil {
		s.Skipf("the harness injects no faults")
	}
	before := kind
	if kind == Late {
		before = Failed // nobody would let it come
	}
	f := p.Inject(Open, before)
	s.ownerOn(p, there).close()
	s.hit(f)
	return p, p.Inject(Open, kind)
}

// at lets the late request come if it is time.
func (s *scene) at(now, when moment, f Fault) {
	s.Helper()
	if now != when {
		return
	}
	s.hit(f)
	f.Release()
}

// hit checks that the clause has tested something.
func (s *scene) hit(f Fault) {
	s.Helper()
	if !f.Hit() {
		s.Fatalf("the harness was told to inject a fault, and no request suffered it")
	}
}

// lateDoesCome is about the harness: one that sends a late request with the context of its
// sender sends nothing, and the clauses of late requests would hold for every source.
func lateDoesCome(s *scene) {
	p, f := s.faultyInstall(Late)
	g, tok := s.grant(here)
	ctx, cancel := s.soon()
	st, err := p.Source.Open(ctx, g, tok)
	if err == nil {
		defer st.Close(ctx)
	}
	cancel()
	s.hit(f)
	if err == nil {
		return // it was said again inside
	}
	f.Release()
	ctx, cancel = s.soon()
	defer cancel()
	st, err = s.peer().Source.Open(ctx, g, partition.Token{Epoch: g.Epoch, Session: s.session()})
	if err == nil {
		_ = st.Close(ctx)
		s.Fatalf("the open that came late installs no fence: does it come with the context of its sender (see Line.Do), or is what came late only read, and so no Open?")
	}
	s.mustFail("an open of the epoch that came late", err, sources.ErrFenced)
}

func faultyOpen(s *scene, kind Kind, when moment) {
	s.push(here, s.tasks(here, "t", 4)...)
	p, f := s.faultyInstall(kind)
	o := s.ownerOn(p, here)
	s.hit(f)
	got := o.take(3)
	s.expect("fetch", got, "t0", "t1", "t2")
	s.at(working, when, f)
	o.end(sources.Done, got[1])
	s.expect("fetch", o.take(1), "t3")
	o.close()
	s.at(closed, when, f)
	o = s.owner(here)
	s.at(succeeded, when, f)
	s.handedOver(o, "t0", "t2", "t3")
}

// handedOver checks that a partition came from a closed stream and works.
func (s *scene) handedOver(o *owner, want ...string) {
	s.Helper()
	got := o.take(len(want)) // all at once: nothing is a suspect
	s.expect("the next owner", got, want...)
	for _, t := range got {
		if t.Crashes != 0 {
			s.Errorf("%s says %d crashes, and there was none", name(t), t.Crashes)
		}
	}
	o.end(sources.Done, got...)
	s.push(here, s.tasks(here, "last", 1)...)
	got = o.take(1)
	s.expect("the next owner", got, "last0")
	o.end(sources.Done, got...)
	o.close()
	s.owner(here).nothing("everything is done")
}

func faultyFetch(s *scene, kind Kind, when moment) {
	s.push(here, s.tasks(here, "t", 6)...)
	p, f := s.faulty(Fetch, kind)
	o := s.ownerOn(p, here)
	var got []sources.Task
	for len(got) < 4 {
		what := fmt.Sprintf("fetch, said again since %s, when %v had come of t0 to t3,", kind, names(got))
		if err := s.insist(what, func(ctx context.Context) error {
			tasks, err := o.fetch(ctx, 4-len(got))
			got = append(got, tasks...)
			return err
		}); err != nil {
			s.Fatalf("fetch: %v", err)
		}
	}
	s.hit(f)
	s.expect("fetch", got, "t0", "t1", "t2", "t3")
	s.at(working, when, f)
	o.end(sources.Done, got[0], got[2])
	s.expect("fetch", o.take(1), "t4")
	o.close()
	s.at(closed, when, f)
	o = s.owner(here)
	s.at(succeeded, when, f)
	s.handedOver(o, "t1", "t3", "t4", "t5")
}

func faultySettle(s *scene, kind Kind, when moment) {
	s.push(here, s.tasks(here, "t", 6)...)
	p, f := s.faulty(Settle, kind)
	o := s.ownerOn(p, here)
	got := o.take(6)
	done := settlements(sources.Done, got[0])
	if s.can(RetryInPlace) {
		done = append(done, settlements(sources.Retry, got[1])...)
	}
	if s.can(RequeueToEnd) {
		done = append(done, settlements(sources.Requeue, got[2])...)
	} else {
		done = append(done, settlements(sources.Done, got[2])...)
	}
	done = append(done, settlements(sources.Dead, got[3])...)
	o.settle(done...)
	s.hit(f)
	// The owner goes on: by now the late request is out of date in all it says.
	if s.can(RequeueToEnd) {
		again := o.take(1)
		s.expect("the requeued task", again, "t2")
		o.end(sources.Done, again...)
	}
	if s.can(RetryInPlace) {
		o.settle(sources.Settlement{Task: &got[1], Outcome: sources.Retry, Attempt: 2, Reason: "again"})
	}
	s.at(working, when, f)
	o.nothing("each task was handed out")
	o.close()
	s.at(closed, when, f)
	o = s.owner(here)
	s.at(succeeded, when, f)
	if s.can(RetryInPlace) {
		t := o.take(1)[0]
		if name(t) != "t1" || t.Attempt != 3 || t.FirstError != "no luck with t1" {
			s.Errorf("the next owner got %s with attempt %d and first error %q, want t1, 3, %q", name(t), t.Attempt, t.FirstError, "no luck with t1")
		}
		o.end(sources.Done, t)
	} else {
		o.end(sources.Done, o.take(1)...)
	}
	s.handedOver(o, "t4", "t5")
	if s.h.Dead != nil {
		if letters := s.dead(here); len(letters) != 1 || name(letters[0].Task) != "t3" {
			s.Errorf("the dead letters are %+v, want t3 once", letters)
		}
	}
}

func faultyClose(s *scene, kind Kind, when moment) {
	s.push(here, s.tasks(here, "t", 4)...)
	p, f := s.faulty(Close, kind)
	o := s.ownerOn(p, here)
	got := o.take(3)
	o.end(sources.Done, got[1])
	o.close()
	s.hit(f)
	o = s.owner(here)
	got = o.take(1)
	s.expect("the next owner", got, "t0")
	s.at(succeeded, when, f)
	o.end(sources.Done, got...)
	s.handedOver(o, "t2", "t3")
}

func settleGivenUp(s *scene) {
	s.push(here, s.tasks(here, "t", 2)...)
	p, f := s.faulty(Settle, Late)
	o := s.ownerOn(p, here)
	got := o.take(2)
	ctx, cancel := s.soon()
	defer cancel()
	if err := o.stream.Settle(ctx, settlements(sources.Done, got[0])...); err == nil {
		return // it was said again inside: nothing was given up
	}
	s.hit(f)
	o.close()
	o = s.owner(here)
	if got = o.take(1); name(got[0]) == "t1" {
		return // close has settled it, which it may
	}
	s.expect("the next owner", got, "t0")
	f.Release()
	o.close()
	s.expect("the owner after it", s.owner(here).take(2), "t0", "t1")
}

// The owner dies with nothing in its hands.
func suspectNotHandedOut(s *scene) {
	s.needs(CountCrashes)
	s.push(here, s.tasks(here, "t", 2)...)
	first := s.owner(here)
	first.take(2)
	first.crash()
	p, f := s.faulty(Fetch, Failed)
	o := s.ownerOn(p, here)
	ctx, cancel := s.soon()
	defer cancel()
	_, err := o.fetch(ctx, 1)
	o.crash()
	if err == nil {
		return // it was said again inside, and t0 was handed out
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		s.hit(f)
	}
	got := s.owner(here).take(1)
	if name(got[0]) != "t0" || got[0].Crashes != 0 {
		s.Errorf("got %s with %d crashes, want t0 without: no owner has started it alone", name(got[0]), got[0].Crashes)
	}
}

// t0 is handed out alone and comes back; then the request that singled it out
// arrives a second time.
func lateFetchAccusesNobody(s *scene) {
	s.needs(CountCrashes)
	s.needs(RetryInPlace)
	s.push(here, s.tasks(here, "t", 2)...)
	first := s.owner(here)
	first.take(1)
	first.crash()
	p, f := s.faulty(Fetch, Late)
	o := s.ownerOn(p, here)
	var got []sources.Task
	if err := s.insist("fetch", func(ctx context.Context) (err error) { got, err = o.fetch(ctx, 1); return err }); err != nil {
		s.Fatalf("fetch: %v", err)
	}
	s.hit(f)
	s.expect("the suspect", got, "t0")
	o.end(sources.Retry, got...)
	s.expect("what follows", o.take(1), "t1")
	f.Release()
	o.crash()
	for _, t := range s.owner(here).rest(2) {
		if t.Crashes != 0 {
			s.Errorf("%s says %d crashes: it did not run alone when its owner died", name(t), t.Crashes)
		}
	}
}

// unanswered makes a call whose request gets no answer, with a context that ends soon: a call that goes on
// keeps its partition from being handed over, and its process from ending. Then it lets the request go.
func (s *scene) unanswered(p Peer, op Op, call func(ctx context.Context) error) {
	s.Helper()
	f := p.Inject(op, Hung)
	defer f.Release()
	ctx, cancel := context.WithTimeout(s.Context(), s.h.Moment)
	defer cancel()
	err := call(ctx) // which is watched
	switch {
	case !f.Hit():
		s.Skipf("the harness lets no request for %s hang: Line.DoContext does", op)
	case err == nil:
		s.Fatalf("%s returned no error, and its request has no answer", op)
	}
}

func (s *scene) hanging() Peer {
	s.Helper()
	p := s.peer()
	if p.Inject == nil {
		s.Skipf("the harness injects no faults")
	}
	return p
}

func unansweredOpen(s *scene) {
	p := s.hanging()
	s.ownerOn(p, there).close() // what is asked once, before the first
	g, tok := s.grant(here)
	o := &owner{s: s, peer: p, g: g, tok: tok}
	s.unanswered(p, Open, o.tryOpen)
	s.push(here, s.tasks(here, "t", 1)...)
	o.open()
	s.expect("fetch after an open that was said again", o.take(1), "t0")
}

func unansweredFetch(s *scene) {
	p := s.hanging()
	o := s.ownerOn(p, here)
	s.push(here, s.tasks(here, "t", 1)...)
	s.unanswered(p, Fetch, func(ctx context.Context) error { _, err := o.fetch(ctx, 1); return err })
	s.expect("fetch, said again", o.take(1), "t0")
}

func unansweredSettle(s *scene) {
	p := s.hanging()
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.ownerOn(p, here)
	got := o.take(2)
	s.unanswered(p, Settle, func(ctx context.Context) error { return o.stream.Settle(ctx, settlements(sources.Done, got[0])...) })
	o.end(sources.Done, got[0])
	o.close()
	s.expect("the next owner", s.owner(here).take(1), "t1")
}

func unansweredClose(s *scene) {
	p := s.hanging()
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.ownerOn(p, here)
	s.expect("fetch", o.take(2), "t0", "t1")
	s.unanswered(p, Close, o.stream.Close)
	o.close()
	s.expect("the next owner", s.owner(here).take(2), "t0", "t1")
}

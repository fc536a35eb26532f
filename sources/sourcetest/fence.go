package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

func fencesFetch(s *scene) {
	s.push(here, s.tasks(here, "t", 3)...)
	old := s.owner(here)
	s.owner(here)
	ctx, cancel := s.soon()
	defer cancel()
	tasks, err := old.fetch(ctx, 3)
	if err == nil {
		s.Fatalf("the old owner fetched %v", names(tasks))
	}
	s.mustFail("fetch of the old owner", err, sources.ErrFenced)

	// The same for one that waited when the new owner came: it may learn of it late,
	// but must not be given a task.
	old = s.owner(there)
	waiting := old.fetching(ctx, 3)
	s.waits(waiting)
	s.owner(there)
	s.push(there, s.tasks(there, "t", 1)...)
	if a := <-waiting; a.err == nil {
		s.Fatalf("the old owner, which waited, fetched %v", names(a.tasks))
	}
}

// A peer may get a partition again. What its first ownership still sends is as void
// as a stranger's.
func fencesItself(s *scene) {
	s.push(here, s.tasks(here, "t", 2)...)
	old := s.owner(here)
	got := old.take(1)
	s.epoch++
	again := &owner{s: s, peer: old.peer, g: partition.Grant{ID: here, Epoch: s.epoch}, tok: partition.Token{Epoch: s.epoch, Session: old.tok.Session}}
	again.open()
	err := s.insist("settle", func(ctx context.Context) error {
		return old.stream.Settle(ctx, settlements(sources.Done, got...)...)
	})
	s.mustFail("settle of the first ownership", err, sources.ErrFenced)
	old.close()
	s.expect("the second ownership", again.rest(2), "t0", "t1")
}

func fencesSettle(s *scene) {
	s.push(here, s.tasks(here, "t", 4)...)
	old := s.owner(here)
	got := old.take(4)
	owner := s.owner(here)
	for _, o := range []sources.Outcome{sources.Done, sources.Retry, sources.Requeue, sources.Dead} {
		err := s.insist("settle", func(ctx context.Context) error { return old.stream.Settle(ctx, settlements(o, got...)...) })
		s.mustFail("settle of the old owner as "+o.String(), err, sources.ErrFenced)
	}
	tasks := owner.rest(4)
	s.expect("the new owner", tasks, "t0", "t1", "t2", "t3")
	for _, t := range tasks {
		if t.Attempt != 1 || t.FirstError != "" {
			s.Errorf("%s has attempt %d and first error %q by an owner that was fenced", name(t), t.Attempt, t.FirstError)
		}
	}
	if s.h.Dead != nil && len(s.dead(here)) > 0 {
		s.Errorf("there are dead letters by an owner that was fenced")
	}
}

// A fence that is looked at before the change, and not in one step with it, lets a settle through
// that was on its way when the new owner came.
func fencesInTheMoment(s *scene) {
	for round := range 6 {
		momentOfAnOpen(s, round)
	}
}

func momentOfAnOpen(s *scene, round int) {
	const settlers, calls, of = 6, 4, 4 // fewer tasks than settleMany has: some brokers hand out only so many
	tasks := s.tasks(here, fmt.Sprint("r", round, "-"), settlers*calls*of+1)
	end := name(tasks[len(tasks)-1]) // the old owner leaves it: behind it is nothing more
	s.push(here, tasks...)
	old := s.owner(here)
	got := old.take(len(tasks))
	settled := make([][]sources.Task, settlers) // and that was answered
	begun := make(chan struct{}, settlers*calls)
	var all sync.WaitGroup
	defer all.Wait() // also where the new owner fails
	for i := range settlers {
		mine := got[i*calls*of : (i+1)*calls*of]
		all.Go(func() {
			for some := range slices.Chunk(mine, of) {
				begun <- struct{}{}
				ctx, cancel := s.soon()
				err := old.stream.Settle(ctx, settlements(sources.Done, some...)...)
				cancel()
				if err != nil {
					return
				}
				settled[i] = append(settled[i], some...)
			}
		})
	}
	for range 1 + round {
		<-begun
	}
	heir := s.owner(here)
	var came []sources.Task
	for len(came) == 0 || name(came[len(came)-1]) != end {
		ctx, cancel := s.soon()
		some, err := heir.fetch(ctx, len(tasks))
		cancel()
		if err != nil {
			s.Fatalf("fetch of the new owner: %v", err)
		}
		came = append(came, some...)
		if len(some) == 1 { // it may be one that is handed out alone
			heir.end(sources.Done, some...)
		}
	}
	all.Wait()
	for _, t := range slices.Concat(settled...) {
		if slices.Contains(names(came), name(t)) {
			s.Fatalf("%s was handed to a new owner, and yet a settle of the old one was answered with success: is the fence compared in one step with the change?", name(t))
		}
	}
	heir.end(sources.Done, came...)
	heir.close()
}

func fencesClose(s *scene) {
	s.push(here, s.tasks(here, "t", 3)...)
	old := s.owner(here)
	owner := s.owner(here)
	got := owner.take(1)
	old.close() // succeeds: there is nothing to close
	owner.end(sources.Done, got...)
	s.expect("the new owner", owner.take(2), "t1", "t2")
	heir := s.owner(here) // the owner did not close: what it had is under suspicion
	s.expect("the next owner", heir.rest(2), "t1", "t2")
}

func fencesOnePartition(s *scene) {
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	s.owner(there) // with a greater epoch
	got := o.take(2)
	s.expect("fetch", got, "t0", "t1")
	o.end(sources.Done, got...)
}

func openAgain(s *scene) {
	s.push(here, s.tasks(here, "t", 5)...)
	o := s.owner(here)
	before := o.take(2)
	o.end(sources.Done, before[0])
	o.open()
	// Not after a crash: t1 is no suspect, so all can be had without settling one.
	s.expect("fetch of the second stream", o.take(4), "t1", "t2", "t3", "t4")
}

// refused opens a partition and checks which epoch the refusal names.
func (s *scene) refused(id partition.ID, tok partition.Token, stored partition.Epoch) {
	s.Helper()
	g := partition.Grant{ID: id, Epoch: tok.Epoch}
	p := s.peer()
	err := s.insist("open", func(ctx context.Context) error {
		st, err := p.Source.Open(ctx, g, tok)
		if err == nil {
			_ = st.Close(ctx) // the clause has failed already
		}
		return err
	})
	s.mustFail(fmt.Sprintf("open %v, where %v stands", g, stored), err, sources.ErrFenced)
	var fenced *sources.FencedError
	if !errors.As(err, &fenced) {
		s.Fatalf("open %v: the refusal %v is no FencedError", g, err)
	}
	if fenced.Stored != stored {
		s.Errorf("open %v: the refusal names epoch %v, but %v stands", g, fenced.Stored, stored)
	}
	if fenced.Grant != g {
		s.Errorf("open %v: the refusal is about %v", g, fenced.Grant)
	}
}

func openSmaller(s *scene) {
	s.push(here, s.tasks(here, "t", 2)...)
	s.epoch = 41
	o := s.owner(here)
	s.refused(here, partition.Token{Epoch: 41, Session: s.session()}, 42)
	s.refused(here, partition.Token{Epoch: 1, Session: o.tok.Session}, 42)
	s.expect("the owner that stands", o.take(2), "t0", "t1")
	s.epoch = 1 << 40 // numbers must not be compared as text, nor lose digits
	big := s.owner(here)
	s.refused(here, partition.Token{Epoch: 999_999, Session: s.session()}, big.tok.Epoch)
}

func openSameEpoch(s *scene) {
	s.push(here, s.tasks(here, "t", 2)...)
	o := s.owner(here)
	s.refused(here, partition.Token{Epoch: o.tok.Epoch, Session: s.session()}, o.tok.Epoch)
	s.refused(here, partition.Token{Epoch: o.tok.Epoch, Session: o.tok.Session[:31]}, o.tok.Epoch)
	s.expect("the owner that stands", o.take(2), "t0", "t1")
}

func openClosed(s *scene) {
	o := s.owner(here)
	o.close()
	s.refused(here, partition.Token{Epoch: o.tok.Epoch, Session: s.session()}, o.tok.Epoch)
	s.refused(here, o.tok, o.tok.Epoch)
}

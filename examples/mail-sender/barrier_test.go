package main_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/countoff/countoff/framework/status"
)

// With a barrier before every roll: one joins, one leaves, one is killed, and one comes and is
// killed again and again, under the same promises.
func TestBarrier(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	workers := s.barrierWorkers("w0", "w1", "w2")
	f := s.feed(60)
	s.work("w3", "--barrier")
	s.shared(4)
	workers[0].leave()
	s.shared(3)
	s.until("the victim to be sending", func() error { return s.sending("w1") })
	workers[1].kill()
	s.shared(2)
	for range 3 { // it is taken into a roll, or dies before, and comes again
		flapping := s.work("flapping", "--barrier")
		s.until("the flapping one to be there", func() error { return s.present("flapping") })
		flapping.kill()
	}
	s.shared(2)
	f.stop()
	if doubled := s.settled("w1", "flapping"); len(doubled) > 0 {
		t.Errorf("doubled by peers that were not killed: %v", doubled)
	}
	if got := s.client.HGet(t.Context(), "{"+s.name+"}:config", "barrier").Val(); got != "yes" {
		t.Errorf("the name says barrier %q", got)
	}
	if out, code := run(t, "mail-sender", "work", "--redis", s.url(), "--smtp", s.box.URL(), "--http", "", "--id", "other"); code != 4 {
		t.Errorf("a peer without a barrier beside them: exit code %d\n%s", code, out)
	}
}

// While one is stopped for longer than its lease the rest stand, and status says for whom they
// wait; then it comes back.
func TestBarrierWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	workers, at := s.barrierWorkers("w2", "w3"), freePort(t)
	s.work("w4", "--barrier", "--http", at)
	s.shared(3)
	f := s.feed(60)
	workers[0].signal(syscall.SIGSTOP)
	put(t, at+"/weight", "2") // a roll that w2 does not hear of; a peer that has yet to start may come when w2 counts as dead
	s.until("a barrier that waits for w2", func() error {
		st, err := status.Read(t.Context(), s.client, s.name)
		if err != nil {
			return err
		}
		if b := st.Barrier; b == nil || len(b.Behind) != 1 || b.Behind[0].Peer != "w2" {
			return fmt.Errorf("the barrier is %+v", b)
		}
		return nil
	})
	put(t, at+"/weight", "1")
	s.shared(2)
	workers[0].signal(syscall.SIGCONT)
	s.shared(3)
	f.stop()
	if doubled := s.settled("w2"); len(doubled) > 0 {
		t.Errorf("doubled by peers that were never stopped: %v", doubled)
	}
}

// barrierWorkers starts peers that want a barrier before every roll, and waits until they share all
// partitions.
func (s *stage) barrierWorkers(ids ...string) (workers []*worker) {
	s.t.Helper()
	for _, id := range ids {
		workers = append(workers, s.work(id, "--barrier"))
	}
	s.shared(len(ids))
	return workers
}

// present returns nil while the store knows a living session of peer.
func (s *stage) present(peer string) error {
	st, err := status.Read(s.t.Context(), s.client, s.name)
	if err != nil {
		return err
	}
	for _, p := range st.Peers {
		if p.ID == peer && p.Present() {
			return nil
		}
	}
	return fmt.Errorf("%s is not there", peer)
}

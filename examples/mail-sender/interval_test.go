package main_test

import (
	"fmt"
	"syscall"
	"testing"
)

// intervalWorkers starts n peers with the indexer that counts peers off in each interval, and
// waits until they share all partitions.
func (s *stage) intervalWorkers(n int) (workers []*worker) {
	s.t.Helper()
	for i := range n {
		workers = append(workers, s.work(fmt.Sprintf("w%d", i), "--indexer", "interval", "--interval", "1s"))
	}
	s.shared(n)
	return workers
}

// With the indexer that counts peers off in each interval: one joins, one leaves and one is
// killed, under the same promises.
func TestIndexerInterval(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	workers := s.intervalWorkers(3)
	f := s.feed(60)
	s.work("w3", "--indexer", "interval", "--interval", "1s")
	s.shared(4)
	workers[0].leave()
	s.shared(3)
	s.until("the victim to be sending", func() error { return s.sending("w1") })
	workers[1].kill()
	s.shared(2)
	f.stop()
	if doubled := s.settled("w1"); len(doubled) > 0 {
		t.Errorf("doubled by peers that were not killed: %v", doubled)
	}
}

// With the same indexer one is stopped for longer than its lease, and comes back.
func TestIndexerIntervalAndAPause(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	workers := s.intervalWorkers(2)
	f := s.feed(60)
	s.until("the victim to be sending", func() error { return s.sending("w1") })
	workers[1].signal(syscall.SIGSTOP)
	s.shared(1)
	workers[1].signal(syscall.SIGCONT)
	s.shared(2)
	f.stop()
	if doubled := s.settled("w1"); len(doubled) > 0 {
		t.Errorf("doubled by peers that were never stopped: %v", doubled)
	}
}

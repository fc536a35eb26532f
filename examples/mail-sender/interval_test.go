package main_test

import (
	"fmt"
	"syscall"
	"testing"
)

// With the indexer that counts peers off in each interval: one joins, one leaves, one is
// killed and one is stopped for longer than its lease, under the same promises.
func TestIndexerInterval(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	var workers []*worker
	for i := range 3 {
		workers = append(workers, s.work(fmt.Sprintf("w%d", i), "--indexer", "interval", "--interval", "1s"))
	}
	s.shared(3)
	f := s.feed(60)
	s.work("w3", "--indexer", "interval", "--interval", "1s")
	s.shared(4)
	workers[0].leave()
	s.shared(3)
	s.until("the victim to be sending", func() error { return s.sending("w1") })
	workers[1].kill()
	s.shared(2)
	workers[2].signal(syscall.SIGSTOP)
	s.shared(1)
	workers[2].signal(syscall.SIGCONT)
	s.shared(2)
	f.stop()
	if doubled := s.settled("w1", "w2"); len(doubled) > 0 {
		t.Errorf("doubled by peers that were neither killed nor stopped: %v", doubled)
	}
}

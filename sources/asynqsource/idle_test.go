package asynqsource

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

// An empty queue costs at most two requests a second, whatever asynq's server does about
// it, and a task that comes is found all the same.
func TestIdleCost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it watches for some seconds")
	}
	const queues, window = 16, 6 * time.Second
	s := newStore(t)
	s.UniversalClient = redistest.Server(t).Client() // of its own: requests are counted
	ran := make(chan time.Time, 1)
	p := s.run(t, Config{Partitions: queues}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		ran <- time.Now()
		return nil
	}), asynq.Config{})
	for id := range partition.ID(queues) {
		t.Cleanup(p.serve(id, partition.Epoch(id)+1).stop)
	}
	requests := func() (n int) {
		// What scripts call is counted by Redis as well, under other names.
		for name, stat := range s.InfoMap(t.Context(), "commandstats").Val()["Commandstats"] {
			switch name {
			case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_blmove", "cmdstat_publish", "cmdstat_subscribe", "cmdstat_smembers":
				var calls int
				if _, err := fmt.Sscanf(stat, "calls=%d", &calls); err != nil {
					t.Fatal(err)
				}
				n += calls
			}
		}
		return n
	}
	s.enqueue(t, 3, asynq.NewTask("t", nil))
	<-ran
	before := requests()
	<-time.After(window)
	if n, most := requests()-before, 2*queues*int(window/time.Second); n > most {
		t.Errorf("%d requests in %v for %d empty queues, want at most %d", n, window, queues, most)
	} else {
		t.Logf("%.1f requests a second for %d empty queues", float64(n)/window.Seconds(), queues)
	}
	began := time.Now()
	s.enqueue(t, 7, asynq.NewTask("t", nil))
	select {
	case at := <-ran:
		t.Logf("a task that came was started after %v", at.Sub(began))
	case <-time.After(wait):
		t.Error("a task that came was not found")
	}
}

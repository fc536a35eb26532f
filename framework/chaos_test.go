package framework_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworktest"
)

// Peers come, go, are killed and cut off at random while tasks fail, panic and take
// their time: nothing is lost, nothing overlaps, keys keep their order.
func TestPeersUnderRandomFaults(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(seed), 1))
				f := frameworktest.New(t, frameworktest.Config{Partitions: 8})
				handler := framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
					n := len(task.ID) + task.Attempt + int(task.ID[len(task.ID)-1])
					select {
					case <-time.After(time.Duration(n%7) * 30 * time.Millisecond):
					case <-ctx.Done():
						return context.Cause(ctx)
					}
					switch {
					case task.Attempt > 2:
						return nil
					case n%11 == 0:
						panic("boom")
					case n%13 == 0:
						return framework.RetryAfter(100*time.Millisecond, errors.New("busy"))
					case n%17 == 0:
						return errors.New("refused")
					}
					return nil
				})
				var alive []*frameworktest.Peer
				peers, pushed := 0, 0
				start := func() {
					peers++
					alive = append(alive, f.Start(fmt.Sprintf("peer%d", peers), handler,
						framework.WithConfig(framework.Config{Concurrency: 1 + r.IntN(8)})))
				}
				start()
				start()
				for range 25 {
					for range r.IntN(60) {
						pushed++
						key := fmt.Sprintf("key%d", r.IntN(30))
						if r.IntN(5) == 0 {
							key = ""
						}
						f.Push(framework.Task{ID: fmt.Sprint(pushed), Key: key})
					}
					time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
					i := r.IntN(len(alive))
					switch p := alive[i]; {
					case len(alive) < 2 || r.IntN(3) == 0:
						start()
					case r.IntN(3) == 0:
						p.Stop()
						alive = append(alive[:i], alive[i+1:]...)
					case r.IntN(3) == 0:
						p.Kill()
						alive = append(alive[:i], alive[i+1:]...)
					default:
						p.Cut()
						time.Sleep(time.Duration(r.IntN(15000)) * time.Millisecond)
						p.Heal()
					}
				}
				f.Wait(10 * time.Minute)
				f.Check()
				if dead := f.Dead(); len(dead) > 0 {
					t.Errorf("%d dead letters, the first: %s", len(dead), dead[0].Reason)
				}
			})
		})
	}
}

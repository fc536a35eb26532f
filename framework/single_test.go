package framework_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
)

// A job that is taken over when its peer leaves stays where it is when that comes back; with
// a home it is handed back, and one that only comes by takes it from nobody.
func TestSingleIsKeptOrHandedBack(t *testing.T) {
	for what, c := range map[string]struct {
		strategy partition.Strategy
		want     string // who has it when ann is back
	}{"kept": {nil, "bob"}, "handed back": {partition.First{}, "ann"}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSharers(t, 1)
				var mu sync.Mutex
				running := ""
				peer := func(name string) context.CancelFunc {
					ctx, stop := context.WithCancel(t.Context())
					cfg := s.cfg(name)
					cfg.Strategy = c.strategy
					s.all.Go(func() {
						if err := framework.Single(ctx, "backup", cfg, func(ctx context.Context, _ partition.Token) error {
							mu.Lock()
							if running != "" {
								t.Errorf("%s and %s run at once", name, running)
							}
							running = name
							mu.Unlock()
							<-ctx.Done()
							mu.Lock()
							running = ""
							mu.Unlock()
							return nil
						}, nil); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					})
					time.Sleep(20 * time.Second)
					return stop
				}
				runs := func(want string) {
					t.Helper()
					mu.Lock()
					defer mu.Unlock()
					if running != want {
						t.Errorf("%s has the job, want %s", running, want)
					}
				}
				leave := peer("ann")
				stopBob := peer("bob")
				runs("ann")
				leave()
				time.Sleep(20 * time.Second)
				runs("bob")
				stopCid := peer("cid")
				runs("bob")
				stopAnn := peer("ann")
				runs(c.want)
				stopAnn()
				stopBob()
				stopCid()
				s.all.Wait()
			})
		})
	}
}

// A job that ends its goroutine has failed: it is told, and runs again.
func TestSingleWhoseJobEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		ctx, stop := context.WithCancel(t.Context())
		var told []error
		runs := 0
		var left error
		returned := false
		s.all.Go(func() {
			left = framework.Single(ctx, "backup", s.cfg("ann"), func(ctx context.Context, _ partition.Token) error {
				if runs++; runs == 1 {
					runtime.Goexit()
				}
				<-ctx.Done()
				return nil
			}, func(err error) { told = append(told, err) })
			returned = true
		})
		time.Sleep(20 * time.Second)
		stop()
		s.all.Wait()
		if runs != 2 || len(told) != 2 || told[0] == nil || told[1] != nil {
			t.Errorf("it ran %d times, and was told to have ended with %v", runs, told)
		}
		if !returned || left != nil {
			t.Errorf("returned %t, with %v", returned, left)
		}
	})
}

package framework_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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

// A job that returns at once runs again ever later, as long as it is here; where it is taken away and
// comes back it runs at once.
func TestSingleWhoseJobReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		cfg := s.cfg("ann")
		cut := &cutLedger{Ledger: cfg.Ledger}
		cfg.Ledger = cut
		ctx, stop := context.WithCancel(t.Context())
		var began []time.Time
		s.all.Go(func() {
			if err := framework.Single(ctx, "backup", cfg, func(ctx context.Context, _ partition.Token) error {
				if began = append(began, time.Now()); len(began) == 10 {
					<-ctx.Done()
				}
				return nil
			}, nil); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(began) != 10 {
			t.Fatalf("it ran %d times in a minute, want 10, of which the last goes on", len(began))
		}
		wait := 20 * time.Millisecond
		for i, at := range began[1:] {
			if got := at.Sub(began[i]); got != wait {
				t.Errorf("run %d came after %v, want %v", i+2, got, wait)
			}
			wait = min(2*wait, 2*time.Second)
		}
		cut.off.Store(true)
		time.Sleep(time.Minute)
		cut.off.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(began); n < 13 || began[11].Sub(began[10]) != 20*time.Millisecond {
			t.Errorf("it ran %d times, %v apart after it was away", n, began[10:])
		}
		stop()
		s.all.Wait()
	})
}

// A panic of what is told of the job is its caller's, who may go on: the job is another peer's then,
// and no zombie keeps it.
func TestSingleWhoseObserverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		ctx, stop := context.WithCancel(t.Context())
		s.all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is not its caller's")
				}
			}()
			_ = framework.Single(ctx, "backup", s.cfg("ann"), func(context.Context, partition.Token) error { return nil },
				func(error) { panic("closed") })
		})
		time.Sleep(20 * time.Second)
		var runs atomic.Int32
		s.all.Go(func() {
			if err := framework.Single(ctx, "backup", s.cfg("bob"), func(ctx context.Context, _ partition.Token) error {
				runs.Add(1)
				<-ctx.Done()
				return nil
			}, nil); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(20 * time.Second)
		if n := runs.Load(); n != 1 {
			t.Errorf("after ann's panic bob ran it %d times, want once", n)
		}
		stop()
		s.all.Wait()
	})
}

// What is no single job is refused at once.
func TestWhatIsNoSingleJob(t *testing.T) {
	s := newSharers(t, 1)
	if err := framework.Single(t.Context(), "backup", s.cfg("ann"), nil, nil); err == nil || !strings.Contains(err.Error(), "no job") {
		t.Errorf("without a job: %v", err)
	}
	cfg := s.cfg("ann")
	cfg.Partitions.Total = 2
	none := func(context.Context, partition.Token) error { return nil }
	if err := framework.Single(t.Context(), "backup", cfg, none, nil); err == nil || !strings.Contains(err.Error(), "want 1") {
		t.Errorf("of two partitions: %v", err)
	}
}

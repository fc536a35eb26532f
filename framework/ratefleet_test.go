package framework_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworktest"
)

// All peers together keep to the rate while some come, leave, die and are cut off: in no span of
// time does more start than the rate allows, with what may be saved up.
func TestRateOverAllPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, most = 50, 5 // peers at most
		f := frameworktest.New(t, frameworktest.Config{Partitions: 64})
		quick := framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil })
		limit := framework.WithConfig(framework.Config{Rate: framework.Rate{Tasks: rate * 60, Per: time.Minute}, Concurrency: 4})
		for i := range 4000 {
			f.Push(framework.Task{ID: fmt.Sprint(i), Key: fmt.Sprint(i % 200)})
		}
		began := time.Now()
		ann := f.Start("ann", quick, limit)
		f.Start("ben", quick, limit)
		time.Sleep(8 * time.Second)
		f.Start("cid", quick, limit)
		dan := f.Start("dan", quick, limit)
		time.Sleep(8 * time.Second)
		ann.Kill()
		time.Sleep(20 * time.Second)
		dan.Stop()
		time.Sleep(5 * time.Second)
		f.Start("eve", quick, limit)
		f.Wait(5 * time.Minute)
		f.Check()

		runs := f.Runs()
		for _, span := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute} {
			bound, at := int(rate*(span+100*time.Millisecond).Seconds())+most, 0
			for first := range runs {
				for at < len(runs) && runs[at].Began.Sub(runs[first].Began) < span {
					at++
				}
				if n := at - first; n > bound {
					t.Errorf("%d tasks started within %v, %v after the beginning: want %d at most", n, span, runs[first].Began.Sub(began), bound)
					break
				}
			}
		}
		// The work is spread evenly, so but for the takeover little of the rate is left unused.
		if took := time.Since(began); took > 105*time.Second {
			t.Errorf("4000 tasks took %v at 50/s", took)
		}
	})
}

package frameworktest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworktest"
)

// A handler of an application, and the test of what a crash does to it.
func TestInvoicesSurviveACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		invoice := framework.HandlerFunc(func(context.Context, *framework.Task) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		f := frameworktest.New(t, frameworktest.Config{})
		ann := f.Start("ann", invoice)
		f.Start("ben", invoice)
		f.WaitReady(time.Minute)
		for i := range 200 {
			f.Push(framework.Task{ID: fmt.Sprint(i), Key: fmt.Sprintf("customer-%d", i%20)})
		}
		time.Sleep(50 * time.Millisecond)
		ann.Kill()
		f.Wait(time.Minute)
		f.Check()
	})
}

package redisfx_test

import (
	"context"
	"fmt"
	"os"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/sources/jobs"
)

// A task that comes every night, once for all peers of "billing". See docs/jobs.md.
func ExampleJob() {
	closeDay := func(_ context.Context, t *framework.Task) error {
		_, tick, _ := jobs.Tick(t) // 03:00 of the day, also if it runs late or again
		fmt.Println("closing the day that ended before", tick)
		return nil
	}
	main := func() {
		os.Exit(frameworkfx.Run(
			redisfx.Source("billing", redisfx.Config{URL: "redis://localhost:6379"}),
			redisfx.Job("billing", jobs.Entry{
				Name:   "close-day",
				Spec:   "0 3 * * *",
				Zone:   "Europe/Berlin",
				Missed: jobs.Once,
			}, closeDay),
		))
	}
	_ = main
}

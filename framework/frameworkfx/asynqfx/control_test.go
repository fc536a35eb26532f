package asynqfx_test

import (
	"context"
	"testing"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/asynqfx"
	"github.com/countoff/countoff/framework/frameworkfx/internal/controltest"
	"github.com/countoff/countoff/sources/asynqsource"
)

// A lease that waits for a connection is lost where tasks hold all of them.
func TestTheLedgerWaitsForNoTasks(t *testing.T) {
	t.Parallel()
	controltest.Waits(t, func(url string) (func(context.Context) error, framework.Control) {
		return controltest.Source(t, asynqfx.Source("mail", asynqfx.Config{URL: url, Source: asynqsource.Config{Queues: []string{"mail"}}}))
	})
}

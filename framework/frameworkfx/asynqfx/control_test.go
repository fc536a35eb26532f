package asynqfx_test

import (
	"context"
	"testing"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/asynqfx"
	"github.com/countoff/countoff/framework/frameworkfx/internal/controltest"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource"
)

// A lease that waits for a connection is lost where tasks hold all of them.
func TestTheLedgerWaitsForNoTasks(t *testing.T) {
	t.Parallel()
	controltest.Waits(t, func(url string) (func(context.Context) error, framework.Control) {
		return controltest.Source(t, asynqfx.Source("mail", asynqfx.Config{URL: url, Source: asynqsource.Config{Queues: []string{"mail"}}}))
	})
}

// Two deployments under one name are found out by what their ledgers say, and what the ledger changed
// waits for the replicas.
func TestTheLedgerIsToldOfTheDeployment(t *testing.T) {
	t.Parallel()
	mini, _ := redistest.Mini(t)
	url := "redis://" + mini.Addr()
	_, control := controltest.Source(t, asynqfx.Source("mail", asynqfx.Config{
		URL: url, Deployment: "ours", WaitReplicas: 2, Source: asynqsource.Config{Queues: []string{"mail"}},
	}))
	controltest.Declares(t, control, "ours", 2)
}

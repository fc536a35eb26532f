package kafkafx_test

import (
	"context"
	"testing"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/internal/controltest"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/kafkasource"
)

// A lease that waits for a connection is lost where what is done of the topic holds all of them.
func TestTheLedgerWaitsForNoTasks(t *testing.T) {
	t.Parallel()
	controltest.Waits(t, func(url string) (func(context.Context) error, framework.Control) {
		return controltest.Source(t, kafkafx.Source("mail", kafkafx.Config{URL: "kafka://127.0.0.1:1", Redis: url, Source: kafkasource.Config{Topic: "mail"}}))
	})
}

// Two deployments under one name are found out by what their ledgers say, and what the ledger changed
// waits for the replicas.
func TestTheLedgerIsToldOfTheDeployment(t *testing.T) {
	t.Parallel()
	mini, _ := redistest.Mini(t)
	url := "redis://" + mini.Addr()
	_, control := controltest.Source(t, kafkafx.Source("mail", kafkafx.Config{
		URL: "kafka://127.0.0.1:1", Redis: url, Deployment: "ours", WaitReplicas: 2, Source: kafkasource.Config{Topic: "mail"},
	}))
	controltest.Declares(t, control, "ours", 2)
}

package redisfx_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/internal/controltest"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition/redistest"
)

// A lease that waits for a connection is lost where tasks hold all of them.
func TestTheLedgerWaitsForNoTasks(t *testing.T) {
	t.Parallel()
	for what, options := range map[string]func(url string) []fx.Option{
		"of a URL": func(url string) []fx.Option {
			return []fx.Option{redisfx.Source("mail", redisfx.Config{URL: url})}
		},
		"of the application's URL": func(url string) []fx.Option {
			return []fx.Option{redisfx.Client(url), redisfx.Source("mail", redisfx.Config{})}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			controltest.Waits(t, func(url string) (func(context.Context) error, framework.Control) {
				return controltest.Source(t, options(url)...)
			})
		})
	}
}

// Whoever has another client in place of the one of a URL, as tests do, means all: a ledger elsewhere than
// the tasks would be no one's there.
func TestTheLedgerIsWhereTheTasksAre(t *testing.T) {
	t.Parallel()
	for what, with := range map[string]func(other redis.UniversalClient) fx.Option{
		"replaced": func(other redis.UniversalClient) fx.Option {
			return fx.Replace(fx.Annotate(other, fx.As(new(redis.UniversalClient))))
		},
		"decorated": func(other redis.UniversalClient) fx.Option {
			return fx.Decorate(func(redis.UniversalClient) redis.UniversalClient { return other })
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, other := redistest.Mini(t)
			_, control := controltest.Source(t, redisfx.Client("redis://127.0.0.1:1"), with(other), redisfx.Source("mail", redisfx.Config{}))
			controltest.Syncs(t, control, "with a client that is "+what)
		})
	}
}

// Two deployments under one name are found out by what their ledgers say, and what the ledger changed
// waits for the replicas.
func TestTheLedgerIsToldOfTheDeployment(t *testing.T) {
	t.Parallel()
	mini, _ := redistest.Mini(t)
	url := "redis://" + mini.Addr()
	_, control := controltest.Source(t, redisfx.Source("mail", redisfx.Config{URL: url, Deployment: "ours", WaitReplicas: 2}))
	controltest.Declares(t, control, "ours", 2)
}

package redisfx_test

import (
	"context"
	"testing"

	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/internal/controltest"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
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

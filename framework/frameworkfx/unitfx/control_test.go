package unitfx_test

import (
	"context"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/internal/controltest"
	"github.com/countoff/countoff/framework/frameworkfx/unitfx"
)

// A lease that waits for a connection is lost where other calls hold all of them.
func TestTheLedgerWaitsForNoList(t *testing.T) {
	t.Parallel()
	controltest.Waits(t, func(url string) (func(context.Context) error, framework.Control) {
		var made []frameworkfx.Units
		app := fxtest.New(t, unitfx.Units("sites", unitfx.Config{URL: url}, func(context.Context, framework.Unit) error { return nil }),
			fx.Invoke(fx.Annotate(func(all []frameworkfx.Units) { made = all }, fx.ParamTags(frameworkfx.UnitsGroup))))
		app.RequireStart()
		t.Cleanup(func() { app.RequireStop() })
		if len(made) != 1 || made[0].Err != nil {
			t.Fatalf("%+v, want one", made)
		}
		return func(ctx context.Context) error {
			_, err := made[0].Config.Source.Layout(ctx)
			return err
		}, made[0].Config.Control
	})
}

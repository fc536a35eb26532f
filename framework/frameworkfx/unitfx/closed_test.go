package unitfx_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/unitfx"
)

// What was opened from a URL is closed where the application cannot be built: fx stops nothing
// of that, and a program that tries again would have one more each time.
func TestWhatWasOpenedForNothingIsClosed(t *testing.T) {
	t.Parallel()
	var made []frameworkfx.Units
	app := fx.New(
		fx.NopLogger,
		frameworkfx.Module,
		fx.Decorate(fx.Annotate(func(all []frameworkfx.Units) []frameworkfx.Units { made = all; return all },
			fx.ParamTags(frameworkfx.UnitsGroup), fx.ResultTags(frameworkfx.UnitsGroup))),
		unitfx.Units("mail", unitfx.Config{URL: "redis://127.0.0.1:1"}, framework.UnitHandler(nil)),
	)
	if wrong := (*frameworkfx.StartError)(nil); !errors.As(app.Err(), &wrong) {
		t.Fatalf("it is built without a handler: %v", app.Err())
	}
	if len(made) != 1 {
		t.Fatalf("%d lists, want one", len(made))
	}
	if _, err := made[0].Config.Source.Units(t.Context()); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("its Redis client says %v, want that it is closed", err)
	}
}

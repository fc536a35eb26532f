package asynqfx_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/asynqfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/asynqsource"
)

// What was opened from a URL is closed where the application cannot be built: fx stops nothing
// of that, and a program that tries again would have one more each time.
func TestWhatWasOpenedForNothingIsClosed(t *testing.T) {
	t.Parallel()
	var made []frameworkfx.Source
	app := fx.New(
		fx.NopLogger,
		frameworkfx.Module,
		fx.Decorate(fx.Annotate(func(all []frameworkfx.Source) []frameworkfx.Source { made = all; return all },
			fx.ParamTags(frameworkfx.SourceGroup), fx.ResultTags(frameworkfx.SourceGroup))),
		asynqfx.Source("mail", asynqfx.Config{URL: "redis://127.0.0.1:1", Source: asynqsource.Config{Queues: []string{"mail"}}}),
	)
	if wrong := (*frameworkfx.StartError)(nil); !errors.As(app.Err(), &wrong) {
		t.Fatalf("it is built without a handler: %v", app.Err())
	}
	if len(made) != 1 {
		t.Fatalf("%d sources, want one", len(made))
	}
	if _, err := made[0].Survey(t.Context(), []partition.ID{0}); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("its Redis client says %v, want that it is closed", err)
	}
}

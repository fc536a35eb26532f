package redisfx_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition"
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
		redisfx.Source("mail", redisfx.Config{URL: "redis://127.0.0.1:1"}),
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

// fx starts an application again that was stopped, and makes nothing anew: with clients that are closed its
// peers would try for ever.
func TestWhatWasStoppedIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	const url = "redis://127.0.0.1:1"
	for name, opened := range map[string]fx.Option{
		"by the source": redisfx.Source("mail", redisfx.Config{URL: url}),
		"for all":       fx.Options(redisfx.Client(url), redisfx.Source("mail", redisfx.Config{})),
	} {
		app := fx.New(
			fx.NopLogger, frameworkfx.Module, opened,
			frameworkfx.Otherwise("mail", func(context.Context, *framework.Task) error { return nil }),
		)
		if err := errors.Join(app.Start(t.Context()), app.Stop(t.Context())); err != nil {
			t.Fatal(err)
		}
		if err := app.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "make a new one") {
			t.Errorf("opened %s and closed, it starts again: %v", name, err)
		}
		if err := app.Stop(t.Context()); err != nil {
			t.Errorf("opened %s, the stop after a start that was refused: %v", name, err)
		}
	}
}

package kafkafx_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/fx"

	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/kafkasource"
)

// clients are those that were made and closed.
type clients struct{ made, closed atomic.Int32 }

func (c *clients) OnNewClient(*kgo.Client)    { c.made.Add(1) }
func (c *clients) OnClientClosed(*kgo.Client) { c.closed.Add(1) }

// What was opened from a URL is closed where the application cannot be built: fx stops nothing
// of that, and a program that tries again would have one more each time.
func TestWhatWasOpenedForNothingIsClosed(t *testing.T) {
	t.Parallel()
	for _, progress := range []kafkafx.Progress{kafkafx.InRedis, kafkafx.InKafka} {
		t.Run("progress in "+string(progress), func(t *testing.T) {
			t.Parallel()
			kafka := new(clients)
			var made []frameworkfx.Source
			app := fx.New(
				fx.NopLogger,
				frameworkfx.Module,
				fx.Decorate(fx.Annotate(func(all []frameworkfx.Source) []frameworkfx.Source { made = all; return all },
					fx.ParamTags(frameworkfx.SourceGroup), fx.ResultTags(frameworkfx.SourceGroup))),
				kafkafx.Source("mail", kafkafx.Config{
					URL: "kafka://127.0.0.1:1", Redis: "redis://127.0.0.1:1", Progress: progress,
					Source: kafkasource.Config{Topic: "mail", Options: []kgo.Opt{kgo.WithHooks(kafka)}},
				}),
			)
			if wrong := (*frameworkfx.StartError)(nil); !errors.As(app.Err(), &wrong) {
				t.Fatalf("it is built without a handler: %v", app.Err())
			}
			if made, closed := kafka.made.Load(), kafka.closed.Load(); made == 0 || made != closed {
				t.Errorf("%d Kafka clients were made, and %d closed", made, closed)
			}
			if len(made) != 1 {
				t.Fatalf("%d sources, want one", len(made))
			}
			if progress == kafkafx.InKafka {
				return
			}
			if _, err := made[0].Survey(t.Context(), []partition.ID{0}); !errors.Is(err, redis.ErrClosed) {
				t.Errorf("its Redis client says %v, want that it is closed", err)
			}
		})
	}
}

package kafkafx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/asynqfx"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

// A clerk is one handler for tasks of every source: "ann 3" is the third line of ann. It
// writes down what it was given; a line with "again" fails once, one with "never" always.
type clerk struct {
	mu    sync.Mutex
	lines map[string][]string // by who
	left  int
	done  chan struct{}
}

var errNever = errors.New("this can never be done")

func (c *clerk) write(line string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	who, what, _ := strings.Cut(line, " ")
	failed := slices.Contains(c.lines[who], what)
	c.lines[who] = append(c.lines[who], what)
	switch {
	case strings.HasSuffix(what, "again") && !failed:
		return errors.New("not now")
	case strings.HasSuffix(what, "never"):
		c.end()
		return errNever
	}
	c.end()
	return nil
}

func (c *clerk) end() {
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

// Handle is the clerk as a handler of the framework's.
func (c *clerk) Handle(_ context.Context, t *framework.Task) error {
	err := c.write(string(t.Payload))
	if errors.Is(err, errNever) {
		return framework.Dead(err)
	}
	return err
}

// ProcessTask is the clerk as a handler of asynq's.
func (c *clerk) ProcessTask(_ context.Context, t *asynq.Task) error {
	err := c.write(string(t.Payload()))
	if errors.Is(err, errNever) {
		return fmt.Errorf("%w: %w", asynq.SkipRetry, err)
	}
	return err
}

// One handler does the same whatever its tasks come from: each line once, in the order
// of who it is of, one that fails again before those after it.
func TestOneHandlerForEverySource(t *testing.T) {
	const total = 4
	who := []string{"ann", "bob", "cleo"}
	want := []string{"1", "2 again", "2 again", "3", "4 never", "5", "6"}
	send := slices.Compact(slices.Clone(want))
	quiet := asynq.Config{
		Logger:         silent{log.New(io.Discard, "", 0)},
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond },
	}
	type place struct {
		client redis.UniversalClient
		name   string
	}
	each := func(t *testing.T, enqueue func(key, line string)) {
		t.Helper()
		for _, what := range send {
			for _, key := range who {
				enqueue(key, key+" "+what)
			}
		}
	}
	ofAsynq := func(t *testing.T, p place) func() {
		return func() {
			producer, err := asynqsource.NewClient(t.Context(), p.client, p.name, asynqsource.ClientConfig{})
			if err != nil {
				t.Fatal(err)
			}
			each(t, func(key, line string) {
				if _, err := producer.Enqueue(key, asynq.NewTask("line", []byte(line))); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	for _, c := range []struct {
		source string
		hash   partition.Hash
		// with wires the source and the clerk, and returns what sends the lines.
		with func(t *testing.T, p place, c *clerk) (fx.Option, func())
	}{
		{"Redis lists", "", func(t *testing.T, p place, c *clerk) (fx.Option, func()) {
			return fx.Options(redisfx.Source(p.name, redisfx.Config{}), frameworkfx.Otherwise(p.name, c.Handle)), func() {
				producer, err := redissource.NewProducer(t.Context(), p.client, p.name, redissource.ProducerConfig{})
				if err != nil {
					t.Fatal(err)
				}
				each(t, func(key, line string) {
					if _, err := producer.Enqueue(t.Context(), redissource.Message{Key: key, Payload: []byte(line)}); err != nil {
						t.Fatal(err)
					}
				})
				if err := producer.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}},
		{"Kafka", partition.Murmur2, func(t *testing.T, p place, c *clerk) (fx.Option, func()) {
			broker := kafkatest.New(t)
			topic, producer := broker.Topic(total), broker.Client()
			cfg := kafkafx.Config{
				URL:    "kafka://" + strings.Join(broker.Seeds(), ","),
				Source: kafkasource.Config{Topic: topic, Look: 50 * time.Millisecond, Mirror: 50 * time.Millisecond},
			}
			return fx.Options(kafkafx.Source(p.name, cfg), frameworkfx.Otherwise(p.name, c.Handle)), func() {
				each(t, func(key, line string) {
					record := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(line)}
					if err := producer.ProduceSync(t.Context(), record).FirstErr(); err != nil {
						t.Fatal(err)
					}
				})
			}
		}},
		{"asynq", "", func(t *testing.T, p place, c *clerk) (fx.Option, func()) {
			return fx.Options(asynqfx.Source(p.name, asynqfx.Config{}), frameworkfx.Otherwise(p.name, c.Handle)), ofAsynq(t, p)
		}},
		{"asynq, by its mux", "", func(t *testing.T, p place, c *clerk) (fx.Option, func()) {
			mux := asynq.NewServeMux()
			mux.Handle("line", c)
			return asynqfx.Mux(p.name, asynqfx.Config{Server: quiet}, mux), ofAsynq(t, p)
		}},
	} {
		t.Run(c.source, func(t *testing.T) {
			p := place{redistest.New(t), redistest.Name(t)}
			if _, err := redisledger.Init(t.Context(), p.client, p.name, partition.Config{Total: total, Hash: c.hash}); err != nil {
				t.Fatal(err)
			}
			clerk := &clerk{lines: make(map[string][]string), left: len(send) * len(who), done: make(chan struct{})}
			wired, produce := c.with(t, p, clerk)
			app := fxtest.New(t, frameworkfx.Module, fx.Provide(func() redis.UniversalClient { return p.client }), wired,
				frameworkfx.Configure(p.name, framework.Config{
					Retry:    framework.RetryPolicy{First: 10 * time.Millisecond},
					Timing:   quick.Timing,
					PodGrace: time.Minute,
				}))
			app.RequireStart()
			produce()
			select {
			case <-clerk.done:
			case <-time.After(patience):
				t.Error("not all lines were written")
			}
			app.RequireStop() // all that ran is settled: nothing more can be begun
			clerk.mu.Lock()
			defer clerk.mu.Unlock()
			for _, key := range who {
				if got := clerk.lines[key]; !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", key, got, want)
				}
			}
		})
	}
}

// Sources of two kinds are not given one name: each would have a part of the partitions.
func TestANameHasOneKindOfSource(t *testing.T) {
	broker := kafkatest.New(t)
	topic := broker.Topic(1)
	sources := map[redisconfig.Kind]func(name string) fx.Option{
		redisconfig.Lists: func(name string) fx.Option { return redisfx.Source(name, redisfx.Config{}) },
		redisconfig.Asynq: func(name string) fx.Option { return asynqfx.Source(name, asynqfx.Config{}) },
		redisconfig.Topic: func(name string) fx.Option {
			return kafkafx.Source(name, kafkafx.Config{
				URL: "kafka://" + strings.Join(broker.Seeds(), ","), Source: kafkasource.Config{Topic: topic},
			})
		},
	}
	producers := map[redisconfig.Kind]func(ctx context.Context, client redis.UniversalClient, name string) error{
		redisconfig.Lists: func(ctx context.Context, client redis.UniversalClient, name string) error {
			producer, err := redissource.NewProducer(ctx, client, name, redissource.ProducerConfig{})
			if err == nil {
				err = producer.Close(ctx)
			}
			return err
		},
		redisconfig.Asynq: func(ctx context.Context, client redis.UniversalClient, name string) error {
			_, err := asynqsource.NewClient(ctx, client, name, asynqsource.ClientConfig{})
			return err
		},
	}
	for first := range sources {
		t.Run(string(first), func(t *testing.T) {
			client, name := redistest.New(t), redistest.Name(t)
			if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 1, Hash: partition.Murmur2}); err != nil {
				t.Fatal(err)
			}
			client.HSet(t.Context(), redisconfig.Key(name), "kind", string(first)) // with this hash only a topic writes its own
			start := func(kind redisconfig.Kind) *fxtest.App {
				app := fxtest.New(t, frameworkfx.Module, fx.Provide(func() redis.UniversalClient { return client }), sources[kind](name),
					frameworkfx.Otherwise(name, func(context.Context, *framework.Task) error { return nil }),
					frameworkfx.Configure(name, quick))
				app.RequireStart()
				return app
			}
			own := start(first)
			for kind := range sources {
				if kind == first {
					continue
				}
				other := start(kind)
				select {
				case got := <-other.Wait():
					if got.ExitCode != frameworkfx.ExitConfig {
						t.Errorf("%v beside %v: it ends with %d", kind, first, got.ExitCode)
					}
				case <-time.After(patience):
					t.Errorf("%v beside %v: it goes on", kind, first)
				}
				_ = other.Stop(t.Context()) // says again why it ended
			}
			own.RequireStop()
			for kind, produce := range producers {
				if err := produce(t.Context(), client, name); errors.Is(err, partition.ErrConfig) != (kind != first) {
					t.Errorf("a producer of %v for %v: %v", kind, first, err)
				}
			}
		})
	}
}

// What a source buries without a handler is told of to the observers of its consumer.
func TestWhatNobodyIsHandedIsTold(t *testing.T) {
	for _, c := range []struct {
		source string
		with   func(name string) fx.Option
		put    func(ctx context.Context, client redis.UniversalClient, name string) error
	}{
		{"Redis lists", func(name string) fx.Option { return redisfx.Source(name, redisfx.Config{}) },
			func(ctx context.Context, client redis.UniversalClient, name string) error {
				return client.RPush(ctx, redissource.KeysOf(name, 0).Pending, "no task").Err()
			}},
		{"asynq", func(name string) fx.Option { return asynqfx.Source(name, asynqfx.Config{}) },
			func(ctx context.Context, client redis.UniversalClient, name string) error {
				task := asynqsource.QueueOf(name, 0)
				if err := client.HSet(ctx, "asynq:{"+task+"}:t:bad", "msg", "no task", "state", "pending").Err(); err != nil {
					return err
				}
				return client.LPush(ctx, "asynq:{"+task+"}:pending", "bad").Err()
			}},
	} {
		t.Run(c.source, func(t *testing.T) {
			client, name := redistest.New(t), redistest.Name(t)
			if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 1}); err != nil {
				t.Fatal(err)
			}
			if err := c.put(t.Context(), client, name); err != nil {
				t.Fatal(err)
			}
			told := make(undertaker, 1)
			app := fxtest.New(t, frameworkfx.Module, fx.Provide(func() redis.UniversalClient { return client }), c.with(name),
				fx.Supply(fx.Annotate(told, fx.As(new(framework.Observer)), fx.ResultTags(frameworkfx.ObserverGroup))),
				frameworkfx.Otherwise(name, func(context.Context, *framework.Task) error { return errNever }),
				frameworkfx.Configure(name, framework.Config{
					Timing:   quick.Timing,
					PodGrace: time.Minute,
				}))
			app.RequireStart()
			select {
			case b := <-told:
				if b.Consumer != name || b.Tasks != 1 || b.Reason == "" {
					t.Errorf("it was told %+v", b)
				}
			case <-time.After(patience):
				t.Error("nobody was told")
			}
			app.RequireStop()
		})
	}
}

// An undertaker is an observer that hears of burials.
type undertaker chan framework.Buried

func (u undertaker) Observe(e framework.Event) {
	if b, ok := e.(framework.Buried); ok {
		u <- b
	}
}

// silent is a logger of asynq that says nothing.
type silent struct{ *log.Logger }

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

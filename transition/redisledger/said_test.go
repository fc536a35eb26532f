package redisledger_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/redisledger"
)

// What kind of work a name has, and where, sources say at their start. A store that loses it while peers live on hears
// it from them, whatever the kind: tools would look for the tasks elsewhere, and the next peer might be of another kind.
func TestWhatSourcesSaidOutlivesALostConfiguration(t *testing.T) {
	cfg := partition.Config{Total: 4, Hash: partition.XXHash64}
	type say = func(ctx context.Context, client redis.UniversalClient, name string) error
	agree := func(k redisconfig.Kind) say {
		return func(ctx context.Context, client redis.UniversalClient, name string) error {
			_, err := k.Agree(ctx, client, name, cfg)
			return err
		}
	}
	kinds := map[redisconfig.Kind]say{
		redisconfig.Lists: agree(redisconfig.Lists),
		redisconfig.Asynq: func(ctx context.Context, client redis.UniversalClient, name string) error {
			err := agree(redisconfig.Asynq)(ctx, client, name)
			return errors.Join(err, client.HSet(ctx, redisconfig.Key(name), "queues", "critical\ndefault").Err())
		},
		redisconfig.Units: func(ctx context.Context, client redis.UniversalClient, name string) error {
			return errors.Join(agree(redisconfig.Units)(ctx, client, name), redisconfig.AgreeList(ctx, client, name, "sites"))
		},
		redisconfig.Topic: func(ctx context.Context, client redis.UniversalClient, name string) error {
			return redisconfig.ClaimTopic(ctx, client, name, cfg, redisconfig.Work{Topic: "orders", Progress: "kafka", Group: "ours"})
		},
	}
	for kind, say := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			s, m := miniStage(t)
			ctx, key := t.Context(), redisconfig.Key(s.name)
			makeName(t, s.client, s.name, cfg)
			l := newLedger(t, s.client, s.name, redisledger.Config{Config: cfg, Timing: someTiming})
			r := settled(t, l, session(1), 0, 1, 2, 3)
			if err := say(ctx, s.client, s.name); err != nil {
				t.Fatal(err)
			}
			r.Weight++ // a quiet Sync hears of nothing
			mustSync(t, l, r)
			want := s.client.HGetAll(ctx, key).Val()
			if want["kind"] != string(kind) {
				t.Fatalf("at first the configuration is %v", want)
			}
			mustSync(t, l, r)
			for what, lose := range map[string]func(){
				"the key":                      func() { m.Del(key) },
				"all that is kept":             m.FlushAll,
				"the key, and a producer came": func() { m.Del(key); _, _ = redisconfig.AgreePartitions(ctx, s.client, s.name, cfg) },
			} {
				lose()
				mustSync(t, l, r)
				if got := s.client.HGetAll(ctx, key).Val(); !maps.Equal(got, want) {
					t.Errorf("with %s lost the configuration is %v, want %v", what, got, want)
				}
			}
			// What a source of another kind has said since stands, and nothing of this one beside it.
			m.Del(key)
			if _, err := redisconfig.Kind("other").Agree(ctx, s.client, s.name, cfg); err != nil {
				t.Fatal(err)
			}
			r.Weight++
			mustSync(t, l, r)
			if got := s.client.HGetAll(ctx, key).Val(); got["kind"] != "other" || got["queues"]+got["list"]+got["topic"] != "" {
				t.Errorf("where another kind stands the configuration is %v", got)
			}
		})
	}
}

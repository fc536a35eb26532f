package kafkafx

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/transition/coverage"
)

// What a source has to tell comes to the observer of its consumer, as an event each, and to
// whom the application names instead.
func TestWhatASourceTellsIsObserved(t *testing.T) {
	t.Parallel()
	g := partition.Grant{ID: 3, Epoch: 7}
	where := framework.Where{Consumer: "orders", Grant: g}
	buried := sources.Buried{Grant: g, Tasks: 2, Reason: "gone"}
	var seen []framework.Event
	var observer framework.Observer = framework.ObserverFunc(func(e framework.Event) { seen = append(seen, e) })
	told := &told{name: "orders"}
	tell := func(cfg kafkasource.Config) {
		told.listen(&cfg)
		cfg.Stuck(kafkasource.Stuck{Grant: g, Key: "ann"})
		cfg.Stuck(kafkasource.Stuck{Grant: g, Over: true})
		cfg.Buried(buried)
		cfg.Warn(errors.New("odd"))
	}
	tell(kafkasource.Config{}) // before there is an observer nobody is told
	told.Listen(observer)
	tell(kafkasource.Config{})
	want := []framework.Event{
		framework.Blocked{Where: where, Key: "ann"}, framework.Unblocked{Where: where},
		framework.Buried{Consumer: "orders", Buried: buried}, framework.Warned{Consumer: "orders", Warning: "odd"},
	}
	if !slices.Equal(seen, want) {
		t.Errorf("it sees %+v, want %+v", seen, want)
	}
	seen = nil
	own := 0
	tell(kafkasource.Config{
		Stuck: func(kafkasource.Stuck) { own++ }, Buried: func(sources.Buried) { own++ }, Warn: func(error) { own++ },
	})
	if own != 4 || len(seen) != 0 {
		t.Errorf("the application is told %d times, want 4, and the observer %v", own, seen)
	}
}

// Whoever watches over a name sees who has its partitions open, wherever its progress is, and that nobody has one
// that was granted: an owner that may not go on where it is to be read never opens it, and nothing else shows that.
func TestWhatNobodyOpensIsSurveyed(t *testing.T) {
	t.Parallel()
	for _, progress := range []Progress{InRedis, InKafka} {
		t.Run("progress in "+string(progress), func(t *testing.T) {
			t.Parallel()
			b := kafkatest.New(t)
			client, name := redistest.New(t), kafkatest.Name(t)
			kept, err := Config{Progress: progress, Source: kafkasource.Config{Topic: b.Topic(3), Options: b.Options()}}.keep(name, client)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = kept.disconnect() })
			tok := partition.Token{Epoch: 7, Session: "ann"}
			for _, id := range []partition.ID{1, 2} {
				if _, err := kept.store.Open(t.Context(), partition.Grant{ID: id, Epoch: 7}, tok, 0); err != nil {
					t.Fatal(err)
				}
			}
			found := make(map[partition.ID]coverage.Datum)
			for range 3 { // of a cluster each look is at one
				data, err := kept.survey(t.Context(), []partition.ID{0, 1, 2})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range data {
					found[d.ID] = d
				}
			}
			want := map[partition.ID]coverage.Datum{
				0: {ID: 0, Waiting: true}, 1: {ID: 1, Fence: tok, Waiting: true}, 2: {ID: 2, Fence: tok, Waiting: true},
			}
			if !maps.Equal(found, want) {
				t.Errorf("the survey is %+v, want %+v", found, want)
			}
		})
	}
}

// A topic whose retention was shorter than an outage has lost all positions: the peers of a fleet, each with several
// partitions, tell of one, and leave who was refused for something else its place.
func TestAFleetThatOpensNothingTellsOnce(t *testing.T) {
	t.Parallel()
	b := kafkatest.New(t)
	client, name, topic := redistest.New(t), kafkatest.Name(t), b.Topic(2)
	for id := range partition.ID(2) {
		if err := client.HSet(t.Context(), redisprogress.Elsewhere(name, id).Fence, "b", 5).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		cfg := Config{Source: kafkasource.Config{Topic: topic, Options: b.Options()}}
		peer := named{sourceOf(t, name, client, cfg), client, name, cfg, new(atomic.Pointer[time.Time])}
		for id := range partition.ID(2) {
			_, err := peer.Open(t.Context(), partition.Grant{ID: id, Epoch: 1}, partition.Token{Epoch: 1, Session: "s"})
			if lost := (*kafkasource.OutOfRangeError)(nil); !errors.As(err, &lost) {
				t.Errorf("it opens %v with %v", id, err)
			}
		}
	}
	if told := client.LRange(t.Context(), redisconfig.RefusedKey(name), 0, -1).Val(); len(told) != 1 {
		t.Errorf("it is told %d times: %q", len(told), told)
	}
}

// A note that Redis did not take is left with the next attempt, and not minutes later.
func TestANoteThatFailedIsLeftByTheNextAttempt(t *testing.T) {
	t.Parallel()
	b := kafkatest.New(t)
	client, name, topic := redistest.New(t), kafkatest.Name(t), b.Topic(1)
	if err := client.HSet(t.Context(), redisprogress.Elsewhere(name, 0).Fence, "b", 5).Err(); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Source: kafkasource.Config{Topic: topic, Options: b.Options()}}
	source := sourceOf(t, name, client, cfg)
	away := redistest.New(t)
	if err := away.Close(); err != nil {
		t.Fatal(err)
	}
	noted := new(atomic.Pointer[time.Time])
	for told, notes := range []redis.UniversalClient{away, client} {
		peer := named{source, notes, name, cfg, noted}
		if _, err := peer.Open(t.Context(), partition.Grant{ID: 0, Epoch: 1}, partition.Token{Epoch: 1, Session: "s"}); err == nil {
			t.Fatal("it is opened")
		}
		if n := client.LLen(t.Context(), redisconfig.RefusedKey(name)).Val(); n != int64(told) {
			t.Errorf("after attempt %d it is told %d times, want %d", told+1, n, told)
		}
	}
}

// sourceOf returns a source of name whose progress is in client.
func sourceOf(t *testing.T, name string, client redis.UniversalClient, cfg Config) *kafkasource.Source {
	t.Helper()
	kept, err := cfg.keep(name, client)
	if err != nil {
		t.Fatal(err)
	}
	source, err := kafkasource.New(name, kept.store, cfg.Source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	})
	return source
}

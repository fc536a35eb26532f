package kafkafx

import (
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkaprogress"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
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
	told.observer.Store(&observer)
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

// Whoever watches over a name whose progress is in Kafka sees who has its partitions open there.
func TestFencesInKafkaAreSurveyed(t *testing.T) {
	t.Parallel()
	b := kafkatest.New(t)
	topic, name := b.Topic(3), kafkatest.Name(t)
	store, err := kafkaprogress.NewStore(name, kafkaprogress.Config{Topic: topic, Options: b.Options()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Disconnect() })
	tok := partition.Token{Epoch: 7, Session: "ann"}
	for _, id := range []partition.ID{1, 2} {
		if _, err := store.Open(t.Context(), partition.Grant{ID: id, Epoch: 7}, tok, 0); err != nil {
			t.Fatal(err)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // is not asked
	t.Cleanup(func() { _ = client.Close() })
	kept, err := Config{Progress: InKafka, Source: kafkasource.Config{Topic: topic, Options: b.Options()}}.keep(name, client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.disconnect() })
	data, err := kept.survey(t.Context(), []partition.ID{0, 1, 2})
	if err != nil || !slices.Equal(data, []coverage.Datum{{ID: 1, Fence: tok}, {ID: 2, Fence: tok}}) {
		t.Errorf("the survey is %+v, %v", data, err)
	}
}

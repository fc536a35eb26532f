package redisfx

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/internal/late"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redissource"
)

// What a source has to tell comes to the observer of its consumer, as an event each, and to
// whom the application names instead.
func TestWhatASourceTellsIsObserved(t *testing.T) {
	t.Parallel()
	g := partition.Grant{ID: 3, Epoch: 7}
	where := framework.Where{Consumer: "orders", Grant: g}
	buried := sources.Buried{Grant: g, Tasks: 2, Reason: "gone"}
	odd := errors.New("odd")
	tick := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	var seen []framework.Event
	var to framework.Observer = framework.ObserverFunc(func(e framework.Event) { seen = append(seen, e) })
	observer := new(late.Observer)
	tell := func(cfg redissource.Config) {
		listen(&cfg, "orders", observer)
		cfg.Stuck(redissource.Stuck{Grant: g, Key: "ann"})
		cfg.Stuck(redissource.Stuck{Grant: g, Over: true})
		cfg.Ticked(redissource.Ticked{Grant: g, Job: "sweep", Tick: tick, Late: time.Second, Fired: 2, Passed: true})
		cfg.Ticked(redissource.Ticked{Grant: g, Err: odd, Again: time.Minute})
		cfg.Buried(buried)
		cfg.Warn(odd)
	}
	tell(redissource.Config{}) // before there is an observer nobody is told
	observer.Listen(to)
	tell(redissource.Config{})
	want := []framework.Event{
		framework.Blocked{Where: where, Key: "ann"}, framework.Unblocked{Where: where},
		framework.JobTicked{Where: where, Job: "sweep", Tick: tick, Late: time.Second, Fired: 2, Passed: true},
		framework.JobsFailed{Where: where, Err: odd, Again: time.Minute},
		framework.Buried{Consumer: "orders", Buried: buried}, framework.Warned{Consumer: "orders", Warning: "odd"},
	}
	if !slices.Equal(seen, want) {
		t.Errorf("it sees %+v, want %+v", seen, want)
	}
	seen = nil
	own := 0
	tell(redissource.Config{
		Stuck: func(redissource.Stuck) { own++ }, Ticked: func(redissource.Ticked) { own++ },
		Buried: func(sources.Buried) { own++ }, Warn: func(error) { own++ },
	})
	if own != 6 || len(seen) != 0 {
		t.Errorf("the application is told %d times, want 6, and the observer %v", own, seen)
	}
}

package asynqfx

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx/internal/late"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/asynqsource"
)

// What a source has to tell comes to the observer of its consumer, as an event each, and to
// whom the application names instead. A plain server that is found again and again is told of with
// each look of the source, not with each start that is refused in between.
func TestWhatASourceTellsIsObserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		buried := sources.Buried{Grant: partition.Grant{ID: 3, Epoch: 7}, Tasks: 2, Reason: "gone"}
		plain, other := asynqsource.Plain{ID: "aa"}, asynqsource.Plain{ID: "bb"}
		warned := func(p asynqsource.Plain) framework.Event {
			return framework.Warned{Consumer: "orders", Warning: (&asynqsource.PlainError{Plain: p}).Error()}
		}
		var seen []framework.Event
		var to framework.Observer = framework.ObserverFunc(func(e framework.Event) { seen = append(seen, e) })
		observer := new(late.Observer)
		tell := func(cfg asynqsource.Config) {
			listen(&cfg, "orders", observer)
			cfg.Buried(buried)
			cfg.Found(plain)
			cfg.Found(plain)
			cfg.Found(other)
			time.Sleep(time.Minute)
			cfg.Found(plain)
		}
		tell(asynqsource.Config{}) // before there is an observer nobody is told
		observer.Listen(to)
		tell(asynqsource.Config{})
		want := []framework.Event{framework.Buried{Consumer: "orders", Buried: buried}, warned(plain), warned(other), warned(plain)}
		if !slices.Equal(seen, want) {
			t.Errorf("it sees %+v, want %+v", seen, want)
		}
		seen = nil
		own := 0
		tell(asynqsource.Config{Found: func(asynqsource.Plain) { own++ }, Buried: func(sources.Buried) { own++ }})
		if own != 5 || len(seen) != 0 {
			t.Errorf("the application is told %d times, want 5, and the observer %v", own, seen)
		}
	})
}

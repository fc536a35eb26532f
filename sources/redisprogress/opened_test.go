package redisprogress_test

import (
	"fmt"
	"testing"

	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// What was settled since it was opened is open no more, whichever way it was known.
func TestOpenedWithoutWhatHasEnded(t *testing.T) {
	for pos, want := range map[int64]string{
		3: "[5 8] [{1 }] map[6:2]",            // the base has passed it
		5: "[5 8] [{1 } {3 }] map[3:1 6:2]",   // was done before
		6: "[5 6 8] [{1 } {3 }] map[3:1]",     // in order
		9: "[5 8 9] [{1 } {3 }] map[3:1 6:2]", // after all
		4: "[4 5 8] [{1 } {3 }] map[3:1 6:2]", // at the base
	} {
		o := redisprogress.Opened{
			Opened: progress.Opened{Base: 4, Done: []int64{5, 8}},
			Tried:  map[int64]redisprogress.Tried{3: {Tries: 1}, 6: {Tries: 2}},
			Lifted: []redisprogress.Lifted{{Position: 1}, {Position: 3}},
		}
		o.Ended(pos)
		tries := make(map[int64]int)
		for x, t := range o.Tried {
			tries[x] = t.Tries
		}
		if got := fmt.Sprint(o.Done, o.Lifted, tries); got != want {
			t.Errorf("without %d: %s, want %s", pos, got, want)
		}
	}
}

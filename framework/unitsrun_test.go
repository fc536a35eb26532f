package framework_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
)

// A keptList is a source that returns the list it keeps, and not a copy of it.
type keptList struct {
	*town
	all []string
}

func (l keptList) Units(context.Context) ([]string, error) { return l.all, nil }

// What a source returns is its own: it is read, and not put in order where it lies.
func TestTheListIsLeftToItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		list := keptList{w, []string{"b", "a", "two\nlines", "a", "c"}}
		before := slices.Clone(list.all)
		var told atomic.Int32
		ann, _ := w.enter("ann", func(c *framework.UnitsConfig) {
			c.Source = list
			c.Observer = framework.ObserverFunc(func(e framework.Event) {
				if _, ok := e.(framework.UnitsTroubled); ok {
					told.Add(1)
				}
			})
		})
		time.Sleep(20 * time.Second)
		if !slices.Equal(list.all, before) {
			t.Errorf("the source has %q, it had %q", list.all, before)
		}
		_, starts := w.table()
		if len(starts) != 3 || starts["a"] != 1 || starts["b"] != 1 || starts["c"] != 1 || told.Load() != 1 {
			t.Errorf("started %v; told %d times of what is no unit", starts, told.Load())
		}
		w.leave(ann)
	})
}

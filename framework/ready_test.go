package framework

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/countoff/countoff/partition"
)

// A peer is not ready while a stream of its share is not open, or is lost and its handlers run; what it
// has not got yet it waits for. What people see of each grant agrees with that.
func TestWhatIsReadyAndWhatIsSeenOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spy{}
		var down atomic.Bool
		s.onOpen = func(context.Context) error {
			if down.Load() {
				return errors.New("disk full")
			}
			return nil
		}
		release := make(chan struct{})
		b := newBench(t, benchConfig{partitions: 5, source: s.over}, func(context.Context, *Task) error { <-release; return nil })
		c := &Consumer{}
		c.sessions.last, c.sessions.began = &session{pool: b.pool}, true
		for _, id := range []partition.ID{3, 1, 0} {
			if err := b.store.PushTo(id, task("a", int(id)), task("a", 10+int(id))); err != nil {
				t.Fatal(err)
			}
			b.grantAndWork(id)
		}
		down.Store(true)
		b.grant(2)
		synctest.Wait()
		b.Drain(partition.Grant{ID: 3, Epoch: 1}, func() {})
		b.Abort(partition.Grant{ID: 1, Epoch: 2}, errLease, func() {})
		synctest.Wait()
		if bad := b.unready([]partition.ID{0, 1, 2, 3, 4}); !slices.Equal(bad, []partition.ID{1, 2}) {
			t.Errorf("%v are not served, want what is lost and what is not open, 1 and 2", bad)
		}
		want := []LaneStatus{
			{Grant: partition.Grant{ID: 0, Epoch: 3}, State: "serving", Running: 1, Waiting: 1},
			{Grant: partition.Grant{ID: 1, Epoch: 2}, State: "lost", Running: 1},
			{Grant: partition.Grant{ID: 2, Epoch: 4}, State: "opening"},
			{Grant: partition.Grant{ID: 3, Epoch: 1}, State: "draining", Running: 1},
		}
		if got := c.Lanes(); !slices.Equal(got, want) {
			t.Errorf("seen is\n%+v, want\n%+v", got, want)
		}
		close(release)
		synctest.Wait()
		b.stop()
		back := map[partition.ID]int{}
		for _, e := range of[Drained](b.seen) {
			back[e.Where.Grant.ID] = e.GivenBack
		}
		for _, e := range of[Dropped](b.seen) {
			back[e.Where.Grant.ID] = e.Tasks
		}
		if want := map[partition.ID]int{0: 0, 1: 2, 2: 0, 3: 1}; !maps.Equal(back, want) {
			t.Errorf("the next owners get %v, want %v", back, want)
		}
	})
}

// Of many partitions the first are named, and how many more there are.
func TestManyPartitionsAreFew(t *testing.T) {
	t.Parallel()
	var ids []partition.ID
	for id := range partition.ID(11) {
		ids = append(ids, id)
	}
	for n, want := range map[int]string{1: "[0]", 8: "[0 1 2 3 4 5 6 7]", 11: "[0 1 2 3 4 5 6 7] and 3 more"} {
		if got := few(ids[:n]); got != want {
			t.Errorf("%d are %q, want %q", n, got, want)
		}
	}
}

package frameworktest

import (
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/framework"
)

// Check fails the test if one of the promises was broken, by what was seen from
// outside:
//
//   - lost: a task was pushed, and neither did a handler of a peer that lived return
//     nil for it nor is it open or a dead letter;
//   - doubled: a task was done twice, and not because a peer was killed or cut off;
//   - overlap: two handlers ran at once for one key or one task, except that of a
//     killed peer;
//   - order: the tasks of a key were first started in another order than they were
//     pushed in. Those with a NotBefore start when they are due and are left out, as are
//     dead letters that never started. A consumer with Config.Pass gives that up; do not Check it.
//
// A dead letter breaks none: a test whose handlers are to give nothing up, as one that panics
// each time does, looks at Dead as well.
func (f *Fleet) Check() {
	f.t.Helper()
	if unnamed := f.unnamed(); unnamed != "" {
		f.t.Errorf("frameworktest: %s: give each an ID that no other has, which Check tells them apart by", unnamed)
		return
	}
	runs := f.Runs()
	f.checkLost(runs)
	f.checkDoubled(runs)
	f.checkOverlap(runs)
	f.checkOrder(runs)
}

// unnamed says which of the tasks that were pushed has no ID of its own.
func (f *Fleet) unnamed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string]bool{}
	for i, t := range f.pushed {
		if t.ID == "" || seen[t.ID] {
			return fmt.Sprintf("task %d of those that were pushed has the ID %q", i+1, t.ID)
		}
		seen[t.ID] = true
	}
	return ""
}

func (f *Fleet) checkLost(runs []Run) {
	f.t.Helper()
	if f.Open() > 0 {
		return // it may be one of these
	}
	ended := map[string]bool{}
	for _, r := range runs {
		if r.Err == nil && !r.Ended.IsZero() && !r.Killed {
			ended[r.Task.ID] = true
		}
	}
	for _, d := range f.Dead() {
		ended[d.Task.ID] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.pushed {
		if !ended[t.ID] {
			f.t.Errorf("task %s is lost", t.ID)
		}
	}
}

func (f *Fleet) checkDoubled(runs []Run) {
	f.t.Helper()
	done := map[string]string{}
	for _, r := range runs {
		if r.Err != nil || r.Ended.IsZero() || r.Killed || r.lost() {
			continue
		}
		if first, twice := done[r.Task.ID]; twice {
			f.t.Errorf("task %s was done twice, by %s and by %s", r.Task.ID, first, r.Peer)
		}
		done[r.Task.ID] = r.Peer
	}
}

// lost reports whether the run's peer was ever unable to say what became of it.
func (r *Run) lost() bool { return r.peer.troubled.Load() }

func (f *Fleet) checkOverlap(runs []Run) {
	f.t.Helper()
	byKey := map[string][]Run{}
	for _, r := range runs {
		if r.Killed {
			continue
		}
		key := "key " + r.Task.Key
		if r.Task.Key == "" {
			key = "task " + r.Task.ID
		}
		byKey[key] = append(byKey[key], r)
	}
	for key, runs := range byKey {
		slices.SortStableFunc(runs, func(a, b Run) int { return a.Began.Compare(b.Began) })
		for i, r := range runs[1:] {
			former := runs[i]
			if former.Ended.IsZero() || r.Began.Before(former.Ended) {
				f.t.Errorf("%s: %s began task %s at %s while %s ran task %s", key, r.Peer, r.Task.ID,
					r.Began.Format(time.StampMilli), former.Peer, former.Task.ID)
			}
		}
	}
}

func (f *Fleet) checkOrder(runs []Run) {
	f.t.Helper()
	var started []framework.Task
	seen, buried := map[string]bool{}, map[string]bool{}
	for _, r := range runs {
		if !seen[r.Task.ID] {
			seen[r.Task.ID] = true
			started = append(started, r.Task)
		}
	}
	for _, d := range f.Dead() {
		buried[d.Task.ID] = !seen[d.Task.ID]
	}
	f.mu.Lock()
	pushed := slices.Clone(f.pushed)
	f.mu.Unlock()
	unordered := map[string]bool{}
	for _, t := range pushed {
		unordered[t.ID] = t.Delivery != nil && !t.NotBefore.IsZero() || buried[t.ID]
	}
	leave := func(t framework.Task) bool { return unordered[t.ID] }
	want, got := byKey(slices.DeleteFunc(pushed, leave)), byKey(slices.DeleteFunc(started, leave))
	for key, ids := range got {
		if first := want[key]; !slices.Equal(ids, first[:min(len(ids), len(first))]) {
			f.t.Errorf("key %s: first started in the order %v, pushed as %v", key, ids, first)
		}
	}
}

func byKey(tasks []framework.Task) map[string][]string {
	m := map[string][]string{}
	for _, t := range tasks {
		if t.Key != "" {
			m[t.Key] = append(m[t.Key], t.ID)
		}
	}
	return m
}

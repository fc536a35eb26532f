package logstream

import (
	"slices"
	"sort"

	"github.com/countoff/countoff/sources"
)

// Held are the tasks that were taken in and not handed out, by position, which is their
// receipt. The zero value is none.
type Held struct {
	tasks []sources.Task // behind them, up to the capacity, all is zero
}

// Len is how many there are.
func (h *Held) Len() int { return len(h.tasks) }

// Grow makes room for n more.
func (h *Held) Grow(n int) { h.tasks = slices.Grow(h.tasks, n) }

// Next adds a task and returns its place, which is zero: a task is large, and made where it
// stays. The place is good until the next call.
func (h *Held) Next() *sources.Task {
	n := len(h.tasks)
	if n < cap(h.tasks) {
		h.tasks = h.tasks[:n+1]
	} else {
		h.tasks = append(h.tasks, sources.Task{})
	}
	return &h.tasks[n]
}

// Take takes out those at positions, all of which are there, and appends them to tasks.
func (h *Held) Take(tasks []sources.Task, positions []int64) []sources.Task {
	if len(positions) == 0 {
		return tasks
	}
	if len(tasks) == 0 && len(positions) == len(h.tasks) { // the same: both are by position
		tasks, h.tasks = h.tasks, nil
		return tasks
	}
	tasks = slices.Grow(tasks, len(positions))
	for _, pos := range positions {
		i := sort.Search(len(h.tasks), func(i int) bool { return int64(h.tasks[i].Receipt) >= pos })
		tasks = append(tasks, h.tasks[i])
		if i == 0 {
			h.tasks[0] = sources.Task{}
			h.tasks = h.tasks[1:]
		} else {
			h.tasks = slices.Delete(h.tasks, i, i+1)
		}
	}
	return tasks
}

package memsource

import (
	"slices"

	"github.com/countoff/countoff/sources"
)

// none is the position of no task.
const none = -1

// A hand is what a stream holds: tasks that were read and wait, and tasks that the
// caller has.
type hand struct {
	held []found // in the order of the log
	out  map[int64]*given
	solo int64 // the suspect that was handed out and has not come back, or none
}

// given is a task that the caller has.
type given struct {
	key    string
	parked bool // it failed and waits for its retry
}

// A choice is what may be handed out next.
type choice struct {
	tasks []found
	// blocked says that nothing may be handed out before something is settled.
	blocked bool
}

func newHand() hand { return hand{out: make(map[int64]*given), solo: none} }

// settled notes an answered outcome.
func (h *hand) settled(pos int64, o sources.Outcome) {
	g := h.out[pos]
	if g == nil {
		return
	}
	if h.solo == pos {
		h.solo = none
	}
	if o == sources.Retry {
		g.parked = true
	} else {
		delete(h.out, pos)
	}
}

// choose takes what may start out of the held tasks, at most limit.
//
// Suspects go one at a time: nothing else is handed out before the end of each was
// answered, so that a crash of the peer points at one task. A suspect
// behind an open task of its own key steps aside, since the caller could not start
// it; the tasks of its key that follow wait with it.
func (h *hand) choose(limit int) choice {
	if h.solo != none {
		return choice{blocked: true}
	}
	if i := h.suspect(); i >= 0 {
		if h.running() {
			return choice{blocked: true}
		}
		c := choice{tasks: []found{h.held[i]}}
		h.solo = h.held[i].pos
		h.held = slices.Delete(h.held, i, i+1)
		h.give(c.tasks)
		return c
	}
	var c choice
	behind := make(map[string]bool) // keys of suspects that step aside
	h.held = slices.DeleteFunc(h.held, func(f found) bool {
		if f.suspect || behind[f.task.Key] {
			behind[f.task.Key] = f.task.Key != ""
			return false
		}
		if len(c.tasks) == limit {
			return false
		}
		c.tasks = append(c.tasks, f)
		return true
	})
	h.give(c.tasks)
	return c
}

func (h *hand) give(tasks []found) {
	for _, f := range tasks {
		h.out[f.pos] = &given{key: f.task.Key, parked: !f.task.NotBefore.IsZero()}
	}
}

// suspect returns the first held suspect that could start at once, or -1.
func (h *hand) suspect() int {
	if !slices.ContainsFunc(h.held, func(f found) bool { return f.suspect }) {
		return -1
	}
	open := make(map[string]bool)
	for _, g := range h.out {
		open[g.key] = g.key != ""
	}
	for i, f := range h.held {
		if f.suspect && !open[f.task.Key] {
			return i
		}
		open[f.task.Key] = f.task.Key != ""
	}
	return -1
}

// running reports whether the caller has a task that waits neither for a retry nor behind one of its key.
func (h *hand) running() bool {
	parked := make(map[string]int64) // the first of each key
	for pos, g := range h.out {
		if first, ok := parked[g.key]; g.parked && g.key != "" && (!ok || pos < first) {
			parked[g.key] = pos
		}
	}
	for pos, g := range h.out {
		if first, ok := parked[g.key]; !g.parked && (!ok || pos < first) {
			return true
		}
	}
	return false
}

package progresstest

import (
	"fmt"
	"slices"
)

// A task is the truth about one task.
type task struct {
	id     int
	key    uint64
	poison bool

	running   *run  // on a peer that honours its lease
	runs      []int // attempts that were begun
	finals    int   // runs that ended with done or dead
	done      int   // ... with done
	answered  int   // tries whose retry or requeue was answered
	requeued  bool  // gave up its place
	places    int   // where the store has it
	buried    bool  // as a dead letter
	elsewhere bool  // ... that the store does not keep
	lost      bool  // its push was lost with the store
}

// element is the task as the log carries it.
func (t *task) element(tries, crashes int) string {
	return fmt.Sprintf("%d %d %d", t.id, tries, crashes)
}

func (w *world) parse(element string) (t *task, tries, crashes int) {
	var id int
	if _, err := fmt.Sscanf(element, "%d %d %d", &id, &tries, &crashes); err != nil || id >= len(w.tasks) {
		w.violated("M: an element %q", element)
	}
	return w.tasks[id], tries, crashes
}

// check looks at what the store keeps.
func (w *world) check() {
	st := w.store.State()
	for _, t := range w.tasks {
		t.places, t.buried = 0, t.elsewhere
	}
	if w.list {
		for i, e := range st.Pending {
			if pos := st.Base + int64(i); !slices.Contains(st.Done, pos) {
				t, _, _ := w.parse(e)
				t.places++
			}
		}
	} else {
		for pos := st.Base; pos < w.end; pos++ {
			if !slices.Contains(st.Done, pos) {
				w.at[pos].places++
			}
		}
	}
	for _, l := range st.Lifted {
		w.at[l.Position].places++
	}
	if len(st.Lifted) > w.cfg.Lifted {
		w.violated("%d positions are lifted, %d may be", len(st.Lifted), w.cfg.Lifted)
	}
	for _, e := range st.Delayed {
		t, _, _ := w.parse(e)
		t.places++
	}
	for _, e := range st.Dead {
		t, _, _ := w.parse(e)
		t.places++
		t.buried = true
	}
	for _, t := range w.tasks {
		switch {
		case (t.lost || t.elsewhere) && t.places == 0:
		case t.places > 1:
			w.violated("I3: t%d is in %d places", t.id, t.places)
		case t.places == 0 && t.done == 0:
			w.violated("I3: t%d is lost", t.id)
		}
	}
}

// read checks what was taken for position pos.
func (w *world) read(p *peer, pos int64, t *task) {
	if w.at[pos] != t {
		w.violated("M: %v takes t%d for position %d, where t%d is", p, t.id, pos, w.at[pos].id)
	}
}

// start checks the start of a run.
func (w *world) start(p *peer, r *run) {
	t := r.task
	w.say("%v starts t%d at %d, attempt %d", p, t.id, r.pos, r.attempt)
	if st := w.store.State(); r.pos >= st.Gate && r.pos >= st.Base && w.mix != Failover {
		w.violated("C1: t%d starts at %d, the store knows of starts below %d", t.id, r.pos, st.Gate)
	}
	if t.running != nil {
		w.violated("I4: t%d starts at %v while it runs at %v", t.id, p, t.running.peer)
	}
	// After a fail-over an older token may stand for a moment, and what its owner
	// says is true, but the newer owner has not read it.
	if r.attempt <= t.answered && w.mix != Failover {
		w.violated("A1: t%d starts its attempt %d, %d were answered", t.id, r.attempt, t.answered)
	}
	if w.mix == Calm {
		if slices.Contains(t.runs, r.attempt) || t.finals > 0 {
			w.violated("I5: t%d starts attempt %d after %v, and %d ends", t.id, r.attempt, t.runs, t.finals)
		}
	}
	for _, o := range w.tasks {
		if o == t || o.key != t.key || t.key == 0 {
			continue
		}
		if o.running != nil {
			w.violated("O2: t%d starts while t%d of its key runs", t.id, o.id)
		}
		if o.id < t.id && !o.requeued && !t.requeued && o.finals == 0 && !o.lost && !o.buried {
			w.violated("O1: t%d starts before t%d of its key is done", t.id, o.id)
		}
	}
	t.running = r
	t.runs = append(t.runs, r.attempt)
}

// charged checks what tasks are charged with.
func (w *world) charged(p *peer, pos int64, crashes int) {
	if t := w.at[pos]; w.mix == Poison && crashes > 0 && !t.poison {
		w.violated("C1: %v finds t%d charged with %d crashes; it did nothing", p, t.id, crashes)
	}
}

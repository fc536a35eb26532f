package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/countoff/countoff/sources"
)

// A day is a random workload: peers come and go, tasks succeed and fail, requests
// go wrong, and a model knows what must have become of each task.
type day struct {
	name  string
	rough bool // owners die, are replaced without knowing it, and forget to repeat
}

var (
	quiet = day{name: "a day without a crash: every task is done once, in order"}
	rough = day{name: "a day with crashes: no task is lost, none is out of order", rough: true}
)

// A fate is what the model knows of a task.
type fate struct {
	key     string
	ended   int  // runs to an end: done or dead
	final   bool // the end was answered
	unsure  bool // it ended, its owner died and nobody knows whether the store has heard
	buried  bool // it ended as a dead letter
	retries int
	alone   bool // an owner has died while it had nothing else
}

// An item is a task that the owner has.
type item struct {
	task    sources.Task
	name    string // as it came: a payload that changes in hand is told, and ends nothing
	attempt int
	said    *sources.Settlement // outcome that is not answered yet
}

type world struct {
	*scene
	day    day
	rng    *rand.Rand
	fates  map[string]*fate
	keys   map[string][]string // the tasks of a key in the order they were pushed
	owner  *owner
	items  []*item
	late   []Fault
	ghosts []ghost
}

// A ghost is an owner that was replaced and does not know.
type ghost struct {
	*owner
	items []*item
}

func (d day) run(s *scene, seed uint64) {
	w := &world{scene: s, day: d, rng: rand.New(rand.NewPCG(seed, 0)), fates: make(map[string]*fate), keys: make(map[string][]string)}
	defer func() {
		if s.Failed() {
			s.Logf("again with: -sourcetest.seed=%d", seed)
		}
	}()
	w.succeed()
	for range 250 {
		w.step()
	}
	w.evening()
}

func (w *world) step() {
	switch n := w.rng.IntN(100); {
	case n < 12:
		w.enqueue(1 + w.rng.IntN(5))
	case n < 30:
		w.fetch(1 + w.rng.IntN(8))
	case n < 65:
		w.work()
	case n < 82:
		w.report(w.rng.IntN(8) == 0)
	case n < 88:
		w.release()
	case n < 92:
		w.handOver()
	case n < 96 && w.day.rough:
		w.die()
	case w.day.rough:
		w.haunt()
	}
}

func (w *world) enqueue(n int) {
	for range n {
		name := fmt.Sprint("t", len(w.fates))
		f := &fate{}
		if w.rng.IntN(4) > 0 {
			f.key = w.scene.key(here, w.rng.IntN(5))
			w.keys[f.key] = append(w.keys[f.key], name)
		}
		w.fates[name] = f
		w.push(here, sources.Task{ID: name, Key: f.key, Payload: []byte(name)})
	}
}

// fetch fetches. If the owner has nothing and something is left to do, a task must
// come.
func (w *world) fetch(limit int) {
	wait := w.h.Moment / 5
	if len(w.items) == 0 && w.left() > 0 {
		wait = w.h.Patience
	}
	w.maybe(Fetch)
	var tasks []sources.Task
	err := w.insist("fetch", func(context.Context) error {
		ctx, cancel := context.WithTimeout(w.Context(), wait)
		defer cancel()
		var err error
		tasks, err = w.owner.fetch(ctx, limit)
		if errors.Is(err, context.DeadlineExceeded) && wait != w.h.Patience {
			return nil
		}
		return err
	})
	if err != nil {
		w.Fatalf("fetch: %v", err)
	}
	for _, t := range tasks {
		f := w.fates[name(t)]
		switch {
		case f == nil:
			w.Fatalf("fetched %q, which was never pushed", name(t))
		case f.final:
			w.Fatalf("fetched %s, which had ended, and that was answered", name(t))
		case slices.ContainsFunc(w.items, func(i *item) bool { return i.name == name(t) }):
			w.Fatalf("fetched %s, which is in hand", name(t))
		case t.Attempt < f.retries+1:
			w.Errorf("%s says attempt %d after %d answered retries", name(t), t.Attempt, f.retries)
		}
		w.items = append(w.items, &item{task: t, name: name(t), attempt: t.Attempt - 1})
	}
}

// left counts the tasks that are certainly not over.
func (w *world) left() int {
	n := 0
	for _, f := range w.fates {
		if !f.final && !f.unsure {
			n++
		}
	}
	return n
}

// work runs one of the tasks in hand that may start: the first of its key.
func (w *world) work() {
	var ready []*item
	busy := make(map[string]bool)
	for _, i := range w.items {
		key := w.fates[i.name].key
		over := i.said != nil && i.said.Outcome != sources.Retry
		if i.said == nil && !busy[key] {
			ready = append(ready, i)
		}
		busy[key] = busy[key] || key != "" && !over
	}
	if len(ready) == 0 {
		return
	}
	w.start(ready[w.rng.IntN(len(ready))])
}

func (w *world) start(i *item) {
	f := w.fates[i.name]
	for _, earlier := range w.keys[f.key] {
		if earlier == name(i.task) {
			break
		}
		if w.fates[earlier].ended == 0 {
			w.Errorf("%s starts before %s of its key has ended", name(i.task), earlier)
		}
	}
	if f.ended > 0 && !w.day.rough {
		w.Errorf("%s runs again after it ended", name(i.task))
	}
	i.attempt++
	o := sources.Done
	switch n := w.rng.IntN(20); {
	case n == 0:
		o = sources.Dead
	case n < 4 && w.can(RetryInPlace):
		o = sources.Retry
	case n < 6 && f.key == "" && w.can(RequeueToEnd):
		o = sources.Requeue
	}
	i.said = &sources.Settlement{Task: &i.task, Outcome: o, Attempt: i.attempt, Reason: "a bad day"}
	if o == sources.Done || o == sources.Dead {
		f.ended++
		f.buried = f.buried || o == sources.Dead
	}
}

// report settles some of what ended, or all of it.
func (w *world) report(all bool) {
	var said []*item
	for _, i := range w.items {
		if i.said != nil && (all || w.rng.IntN(3) > 0) {
			said = append(said, i)
		}
	}
	w.maybe(Settle)
	w.owner.settle(w.settlements(said)...)
	for _, i := range said {
		w.answered(i)
	}
}

func (w *world) settlements(items []*item) []sources.Settlement {
	var done []sources.Settlement
	for _, i := range items {
		if i.said != nil {
			done = append(done, *i.said)
		}
	}
	w.rng.Shuffle(len(done), func(a, b int) { done[a], done[b] = done[b], done[a] })
	return done
}

func (w *world) answered(i *item) {
	f := w.fates[i.name]
	switch i.said.Outcome {
	case sources.Retry:
		f.retries++
		i.said = nil
		return
	case sources.Requeue:
		f.retries++
	default:
		f.final = true
	}
	w.items = slices.DeleteFunc(w.items, func(j *item) bool { return j == i })
}

// maybe lets the next request go wrong, now and then.
func (w *world) maybe(op Op) {
	if w.owner.peer.Inject == nil || w.rng.IntN(4) > 0 {
		return
	}
	kind := []Kind{Lost, Failed, Late}[w.rng.IntN(3)]
	w.late = append(w.late, w.owner.peer.Inject(op, kind))
}

func (w *world) release() {
	if len(w.late) == 0 {
		return
	}
	i := w.rng.IntN(len(w.late))
	w.late[i].Release()
	w.late = slices.Delete(w.late, i, i+1)
}

func (w *world) handOver() {
	w.report(true)
	w.maybe(Close)
	w.owner.close()
	w.succeed()
}

// succeed grants the partition to somebody else.
func (w *world) succeed() {
	w.items = nil
	g, tok := w.grant(here)
	w.owner = &owner{s: w.scene, peer: w.peer(), g: g, tok: tok}
	w.maybe(Open)
	w.owner.open()
}

// die ends the owner, or only replaces it. A task may be what killed its owner
// once: twice could make a dead letter of it.
func (w *world) die() {
	if len(w.items) == 1 {
		f := w.fates[w.items[0].name]
		if f.alone {
			return
		}
		f.alone = true
	}
	if w.owner.peer.Inject != nil && w.rng.IntN(2) == 0 {
		w.maybe(Settle)
		ctx, cancel := w.soon()
		err := w.owner.stream.Settle(ctx, w.settlements(w.items)...)
		cancel()
		for _, i := range slices.Clone(w.items) {
			switch {
			case i.said == nil:
			case err == nil:
				w.answered(i)
			case i.said.Outcome == sources.Done || i.said.Outcome == sources.Dead:
				w.fates[i.name].unsure = true
			}
		}
	}
	if w.rng.IntN(2) == 0 {
		w.owner.crash()
	} else {
		w.ghosts = append(w.ghosts, ghost{w.owner, w.items})
	}
	w.succeed()
}

// haunt lets an owner act that was replaced.
func (w *world) haunt() {
	if len(w.ghosts) == 0 {
		return
	}
	g := w.ghosts[w.rng.IntN(len(w.ghosts))]
	ctx, cancel := w.soon()
	defer cancel()
	switch w.rng.IntN(3) {
	case 0:
		if len(g.items) == 0 {
			return
		}
		var done []sources.Settlement
		for _, i := range g.items {
			done = append(done, settlements(sources.Done, i.task)...)
		}
		err := w.insist("settle", func(ctx context.Context) error { return g.stream.Settle(ctx, done...) })
		w.mustFail("settle of an owner that was replaced", err, sources.ErrFenced)
	case 1:
		if tasks, err := g.fetch(ctx, 3); err == nil {
			w.Errorf("an owner that was replaced fetched %v", names(tasks))
		}
	case 2:
		g.close()
		w.ghosts = slices.DeleteFunc(w.ghosts, func(other ghost) bool { return other.owner == g.owner })
	}
}

// evening finishes everything and counts.
func (w *world) evening() {
	for w.left() > 0 {
		w.fetch(8)
		for range len(w.items) {
			w.work()
		}
		w.report(true)
	}
	for _, f := range w.late {
		f.Release()
	}
	w.owner.close()
	w.succeed()
	for { // what nobody was sure of
		ctx, cancel := context.WithTimeout(w.Context(), w.h.Moment)
		got, err := w.owner.fetch(ctx, 10)
		cancel()
		if err != nil {
			break
		}
		for _, t := range got {
			if f := w.fates[name(t)]; f == nil || !f.unsure {
				w.Errorf("%s comes although all was settled", name(t))
			}
		}
		w.owner.end(sources.Done, got...)
	}
	for task, f := range w.fates {
		if f.ended == 0 || f.ended > 1 && !w.day.rough {
			w.Errorf("%s ended %d times", task, f.ended)
		}
	}
	if w.h.Dead == nil {
		return
	}
	buried := make(map[string]int)
	for _, d := range w.dead(here) {
		buried[name(d.Task)]++
	}
	for task, f := range w.fates {
		if buried[task] > 1 || buried[task] == 1 && !f.buried || buried[task] == 0 && f.buried && !w.day.rough {
			w.Errorf("%s is %d times among the dead letters, ended there: %v", task, buried[task], f.buried)
		}
	}
}

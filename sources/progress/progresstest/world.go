package progresstest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// A Mix says which faults a world has. Requests are lost, repeated and late in all
// of them.
type Mix string

// The mixes.
const (
	Calm     Mix = "calm"     // peers only hand over
	Poison   Mix = "poison"   // one task kills whoever runs it
	Rough    Mix = "rough"    // peers crash, and lose their lease without knowing
	Failover Mix = "failover" // and the store loses its last writes
)

// Mixes are all of them.
var Mixes = []Mix{Calm, Poison, Rough, Failover}

const (
	crashLimit = 2
	days       = 400  // steps with faults
	evening    = 4000 // steps without, by which everything must be over
)

// A world is one run.
type world struct {
	rng   *rand.Rand
	mix   Mix
	list  bool // the store keeps the elements
	store Store
	cfg   progress.Config

	tasks     []*task
	want      int             // tasks to be pushed
	keys      int             // 0 is no key
	at        map[int64]*task // by the position they were pushed to
	end       int64           // of the log
	epoch     partition.Epoch
	owner     *peer   // who was granted the log and has not lost it, as the ledger sees it
	ghosts    []*peer // lost it and do not know
	late      []func()
	installed partition.Epoch // whose token may settle; 0: nobody's
	newest    partition.Epoch // that was ever installed
	calm      bool            // no more faults
	clock     int             // seconds
	log       []string
}

// A violation ends a run.
type violation struct{ what string }

// Run runs the world of seed over an empty store and returns what it did, and what
// was violated, or "".
func Run(mix Mix, seed uint64, store Store, list bool) (transcript, violated string) {
	rng := rand.New(rand.NewPCG(seed, 17))
	w := &world{
		rng: rng, mix: mix, list: list, store: store, at: map[int64]*task{},
		want: 3 + rng.IntN(10), keys: 1 + rng.IntN(4),
		cfg: progress.Config{Window: 2 + rng.IntN(6), Lifted: 2 + rng.IntN(8)},
	}
	defer func() {
		transcript = strings.Join(w.log, "\n")
		if v := recover(); v != nil {
			f, ok := v.(violation)
			if !ok {
				panic(fmt.Sprintf("%v\nseed %d, mix %s\n%s", v, seed, mix, transcript))
			}
			violated = f.what
		}
	}()
	for range days {
		w.step()
	}
	w.night()
	return
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) violated(format string, args ...any) {
	panic(violation{fmt.Sprintf(format, args...)})
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// now is the time on every clock.
func (w *world) now() time.Time { return time.Unix(int64(w.clock), 0) }

func (w *world) step() {
	w.clock++
	switch n := w.rng.IntN(100); {
	case n < 12:
		w.push()
	case n < 15:
		w.move()
	case n < 24:
		w.arrive()
	case n < 28:
		w.disaster()
	case n < 36 && len(w.ghosts) > 0:
		w.ghosts[w.rng.IntN(len(w.ghosts))].act()
	case w.owner == nil:
		w.claim()
	default:
		w.owner.act()
	}
}

// interfere is what happens between two commands of one pipeline.
func (w *world) interfere(p *peer) {
	for range w.rng.IntN(3) {
		switch w.rng.IntN(4) {
		case 0:
			w.push()
		case 1:
			w.move()
		case 2:
			w.arrive()
		case 3:
			p.work()
		}
	}
}

func (w *world) push() {
	if len(w.tasks) == w.want {
		return
	}
	t := &task{id: len(w.tasks), key: uint64(w.rng.IntN(w.keys))}
	if w.mix == Poison && t.id == 1 {
		t.poison = true
	}
	w.tasks = append(w.tasks, t)
	w.append(t.element(0, 0))
	w.say("push t%d key %d at %d", t.id, t.key, w.end-1)
}

// append notes an element at the end of the log.
func (w *world) append(element string) {
	t, _, _ := w.parse(element)
	if w.list {
		w.store.Push(element)
	}
	w.at[w.end] = t
	w.end++
}

func (w *world) move() {
	for _, element := range w.store.Move() {
		t, tries, _ := w.parse(element)
		w.at[w.end] = t
		w.say("t%d, %d tries, moves to %d", t.id, tries, w.end)
		w.end++
	}
}

// arrive executes a request that was late.
func (w *world) arrive() {
	if len(w.late) == 0 {
		return
	}
	i := w.rng.IntN(len(w.late))
	execute := w.late[i]
	w.late = append(w.late[:i], w.late[i+1:]...)
	execute()
	w.check()
}

// claim grants the log to a new peer.
func (w *world) claim() {
	w.epoch++
	w.owner = newPeer(w, partition.Token{Epoch: w.epoch, Session: "s"})
	w.say("%v is granted", w.owner)
}

func (w *world) disaster() {
	p := w.owner
	switch {
	case p == nil || w.mix == Calm || w.mix == Poison:
	case w.mix == Failover && w.chance(40):
		w.failOver()
	case w.chance(50):
		w.say("%v crashes", p)
		p.die()
		w.owner = nil
	default:
		w.say("%v loses its lease", p)
		p.lapse()
		w.ghosts = append(w.ghosts, p)
		w.owner = nil
	}
}

// failOver sets the store back to a moment that has just been, and lets it go on
// from there: what happens in between is what the replica did not have.
func (w *world) failOver() {
	s, ok := w.store.(Snapshotter)
	if !ok {
		return
	}
	restore, end, installed, newest := s.Snapshot(), w.end, w.installed, w.newest
	at := maps.Clone(w.at)
	w.say("-- from here on lost")
	for range 1 + w.rng.IntN(12) {
		switch {
		case w.chance(20):
			w.push()
		case w.chance(10):
			w.move()
		case w.owner != nil:
			w.owner.act()
		}
	}
	restore()
	w.at, w.end, w.installed, w.newest = at, end, installed, newest
	w.late = nil // a request belongs to its connection
	kept := map[*task]bool{}
	st := w.store.State()
	for _, e := range st.Pending {
		t, _, _ := w.parse(e)
		kept[t] = true
	}
	for _, l := range st.Lifted {
		t, _, _ := w.parse(l.Element)
		kept[t] = true
	}
	for _, e := range append(st.Delayed, st.Dead...) {
		t, _, _ := w.parse(e)
		kept[t] = true
	}
	for _, t := range w.tasks {
		t.answered = 0
		t.lost = t.lost || !kept[t] && t.done == 0
	}
	w.say("-- the store fails over")
}

// night ends all faults and lets one peer finish.
func (w *world) night() {
	w.calm = true
	w.say("-- no more faults")
	for len(w.tasks) < w.want {
		w.push()
	}
	for n := 0; ; n++ {
		w.clock++
		for range 20 {
			w.arrive()
		}
		w.move()
		if w.finished() {
			break
		}
		if n > evening {
			w.violated("progress: after %d steps without faults not everything is over", n)
		}
		if w.owner == nil {
			w.claim()
		}
		w.owner.act()
	}
	// Nothing is left behind.
	for n := 0; w.owner != nil; n++ {
		w.owner.draining = true
		w.owner.act()
		if n > evening {
			w.violated("progress: the last owner cannot close")
		}
	}
	st := w.store.State()
	for i := range st.Pending { // a last owner that had nothing more to say leaves what is done
		if !slices.Contains(st.Done, st.Base+int64(i)) {
			w.violated("progress: position %d is open", st.Base+int64(i))
		}
	}
	if len(st.Lifted) > 0 || st.Tries > 0 || w.list && len(st.Done) > len(st.Pending) {
		w.violated("progress: left behind: %+v", st)
	}
}

// finished reports whether every task is over, as far as the store knows.
func (w *world) finished() bool {
	w.check()
	for _, t := range w.tasks {
		if t.places > 0 && !(t.buried && w.list) && !t.lost {
			return false
		}
	}
	return w.owner == nil || w.owner.log == nil || w.owner.log.Seq() == w.owner.log.Answered()
}

package progresstest

import (
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// A peer has one ownership of the log and works on it as a runtime does: handlers
// of one key one at a time and in order, everything else at once.
type peer struct {
	w        *world
	tok      partition.Token
	log      *progress.Log  // nil: not open yet
	read     map[int64]*run // not handed out
	lane     []*run         // handed out and not final
	content  map[uint64]string
	tried    map[int64]Tried
	below    int64    // the suspects
	said     []func() // says again what a handler's end was
	draining bool
	ghost    bool // lost its lease: starts nothing
	over     bool
}

type run struct {
	peer    *peer
	pos     int64
	task    *task
	tries   int // as the envelope says
	attempt int // of the run that is on, or was last
	crashes int
	due     time.Time // as the store said when the log was opened
	state   string    // "", "running", "parked"
}

func newPeer(w *world, tok partition.Token) *peer {
	return &peer{w: w, tok: tok, read: map[int64]*run{}, content: map[uint64]string{}}
}

func (p *peer) String() string { return fmt.Sprint("p", p.tok.Epoch) }

// act does one thing.
func (p *peer) act() {
	w := p.w
	switch {
	case p.over:
	case p.log == nil:
		if !p.ghost {
			p.open()
		}
	case p.ghost:
		p.trip(0)
	case p.draining:
		p.drain()
	case w.chance(4) && !w.calm:
		w.say("%v drains", p)
		p.draining = true
	case w.chance(45):
		p.fetch(1 + w.rng.IntN(4))
	default:
		p.work()
	}
}

// fault decides what becomes of a request.
func (w *world) fault() string {
	if w.calm || w.chance(60) {
		return "ok"
	}
	return []string{"lost", "late", "failed", "resent", "twice"}[w.rng.IntN(5)]
}

func (p *peer) open() {
	w := p.w
	fault := w.fault()
	w.say("%v opens: %s", p, fault)
	switch fault {
	case "failed":
		return
	case "late":
		w.late = append(w.late, func() {
			w.say("the open of %v comes late", p)
			w.install(p)
		})
		return
	case "lost":
		w.install(p)
		return
	case "twice":
		w.late = append(w.late, func() {
			w.say("the open of %v comes again", p)
			w.install(p)
		})
	}
	o := w.install(p)
	w.check()
	if o.Refused {
		w.say("refused")
		p.lose()
		return
	}
	p.log, p.tried, p.below = progress.New(w.cfg, o.Opened), o.Tried, o.Suspects
	for _, l := range o.Lifted {
		p.log.AddLifted(l.Position, w.at[l.Position].key)
		p.take(l.Position, w.element(l))
	}
}

// install executes an open.
func (w *world) install(p *peer) Opened {
	o := w.store.Open(p.tok)
	if o.Refused {
		return o
	}
	if p.tok.Epoch < w.newest {
		w.violated("I2: %v is installed after %d was", p, w.newest)
	}
	w.installed, w.newest = p.tok.Epoch, p.tok.Epoch
	return o
}

// uninstall executes a close.
func (w *world) uninstall(p *peer) {
	w.store.Close(p.tok)
	if w.installed == p.tok.Epoch {
		w.installed = 0
	}
}

// element returns what was lifted; without a list it is read again by its position.
func (w *world) element(l Lifted) string {
	if w.list {
		return l.Element
	}
	return w.at[l.Position].element(0, 0)
}

// take takes in an element that may still have to run.
func (p *peer) take(pos int64, element string) {
	w := p.w
	t, tries, crashes := w.parse(element)
	w.read(p, pos, t)
	r := &run{peer: p, pos: pos, task: t, tries: tries, attempt: tries, crashes: crashes}
	if had, ok := p.tried[pos]; ok {
		w.charged(p, pos, had.Crashes)
		if had.Tries > 0 {
			r.due = w.now().Add(time.Duration(w.rng.IntN(20)) * time.Second)
		}
		p.log.Tried(pos, had.Tries, r.due)
		r.attempt = max(tries, had.Tries)
		r.crashes += had.Crashes
	}
	if r.crashes > 0 {
		p.log.Accused(pos)
	}
	if r.crashes >= crashLimit {
		p.content[p.log.Settle(pos, progress.Dead, 0)] = t.element(r.attempt, r.crashes)
		w.say("%v buries t%d at %d", p, t.id, pos)
		t.finals++
		t.elsewhere = !w.list
		return
	}
	p.read[pos] = r
}

// fetch hands out what may start, or does a round trip for it.
func (p *peer) fetch(limit int) {
	if p.hand(limit) {
		return
	}
	p.trip(limit)
	p.hand(limit)
}

func (p *peer) hand(limit int) bool {
	if p.over || p.ghost {
		return false
	}
	hand := p.log.Hand(p.w.now(), limit, nil)
	if p.log.WantsPermit() && (p.w.calm || p.w.chance(50)) { // else another log of the process has it
		p.log.Permit(true)
		hand = p.log.Hand(p.w.now(), limit-len(hand), hand)
	} else if !p.log.WantsPermit() {
		p.log.Permit(false)
	}
	for _, pos := range hand {
		r := p.read[pos]
		if r == nil {
			p.w.violated("%v is handed position %d, which it has not read or which is final", p, pos)
		}
		if pos < p.below && r.due.After(p.w.now()) {
			p.w.violated("A1: %v is handed the suspect t%d before its time", p, r.task.id)
		}
		delete(p.read, pos)
		p.lane = append(p.lane, r)
	}
	return len(hand) > 0
}

// work starts or ends a handler.
func (p *peer) work() {
	if p.over || p.ghost || p.log == nil {
		return
	}
	if len(p.said) > 0 && p.w.chance(10) {
		p.said[p.w.rng.IntN(len(p.said))]()
	}
	var running, startable []*run
	busy := map[uint64]bool{}
	for _, r := range p.lane {
		switch {
		case r.state == "running":
			running = append(running, r)
		case !busy[r.task.key] && !r.due.After(p.w.now()):
			startable = append(startable, r)
		}
		busy[r.task.key] = r.task.key != 0
	}
	if n := len(startable); n > 0 && !p.draining && (len(running) == 0 || p.w.chance(60)) {
		r := startable[p.w.rng.IntN(n)]
		r.state = "running"
		r.attempt++
		p.w.start(p, r)
		return
	}
	if n := len(running); n > 0 {
		p.finish(running[p.w.rng.IntN(n)])
	}
}

func (p *peer) finish(r *run) {
	w, t := p.w, r.task
	if t.poison && (r.attempt > 3 || w.chance(60)) {
		w.say("t%d kills %v", t.id, p)
		p.die()
		w.owner = nil
		return
	}
	o := progress.Done
	switch n := w.rng.IntN(100); {
	case t.poison:
		o = progress.Retry // it never ends well
	case r.attempt > 3 || w.calm:
	case n < 25:
		o = progress.Retry
	case n < 35 && w.list && t.key == 0:
		o = progress.Requeue
	case n < 40 && w.list:
		o = progress.Dead
	}
	w.say("%v ends t%d at %d: %s", p, t.id, r.pos, outcomes[o])
	t.running = nil
	r.state = "parked"
	if o != progress.Retry {
		p.lane = slices.DeleteFunc(p.lane, func(l *run) bool { return l == r })
	}
	tries := r.attempt
	switch o {
	case progress.Done:
		t.done++
		t.finals++
	case progress.Dead:
		t.finals++
	case progress.Requeue:
		t.requeued = true
	}
	seq := p.log.Settle(r.pos, o, r.attempt)
	p.content[seq] = t.element(tries, r.crashes)
	p.said = append(p.said, func() { p.log.Settle(r.pos, o, tries) })
}

var outcomes = map[progress.Outcome]string{
	progress.Done: "done", progress.Retry: "retry", progress.Requeue: "requeue", progress.Dead: "dead",
}

// drain waits for the handlers, says the rest and closes.
func (p *peer) drain() {
	w := p.w
	if slices.ContainsFunc(p.lane, func(r *run) bool { return r.state == "running" }) {
		p.work()
		return
	}
	if p.log.Seq() != p.log.Answered() {
		p.trip(0)
		return
	}
	fault := w.fault()
	w.say("%v closes: %s", p, fault)
	execute := func() { w.uninstall(p) }
	switch fault {
	case "failed":
		return
	case "late":
		w.late = append(w.late, execute)
		return
	case "lost":
		execute()
		return
	case "twice":
		w.late = append(w.late, execute)
	}
	execute()
	p.over = true
	w.owner = nil
}

// lose ends the peer's ownership: its handlers are cancelled.
func (p *peer) lose() {
	w := p.w
	p.lapse()
	p.over = true
	if w.owner == p {
		w.owner = nil
	}
	w.ghosts = slices.DeleteFunc(w.ghosts, func(g *peer) bool { return g == p })
}

// die ends the process.
func (p *peer) die() { p.lose() }

// lapse ends the peer's lease: its handlers have returned by the time anybody else
// can have the log, and it starts nothing; but it may say what it still knows.
func (p *peer) lapse() {
	p.ghost = true
	for _, r := range p.lane {
		if r.task.running == r {
			r.task.running = nil
		}
	}
	p.lane = nil
}

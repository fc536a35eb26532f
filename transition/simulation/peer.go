package simulation

import (
	"fmt"
	"maps"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

const (
	maxDrift   = 500                   // ppm of a peer's clock
	lateTimer  = 80 * time.Millisecond // at most; Timing.Margin covers it
	fetchEvery = time.Second
	openTakes  = 10 * time.Millisecond // at most
)

// peer is one session: the real machine, and a tenant whose handlers always have
// work.
type peer struct {
	place    int // in World.peers
	name     string
	session  partition.Session
	machine  *machine.Machine
	born     time.Duration
	drift    int64 // ppm
	timing   transition.Timing
	gen      uint64
	crashed  bool
	left     bool
	bornDead bool
	weight   int  // it was told last
	idler    bool // it claims nothing, and has weight 0
	tags     partition.Tags
	unwell   bool // it reported last
	rests    bool // it knows that the name is paused
	stopping bool
	stopAt   time.Duration
	asleep   bool          // its process is stopped
	resumeAt time.Duration // until then
	cutUntil time.Duration // it does not reach the store, but works on
	// disturbed peers are not checked for U: they paused, or their lease lapsed.
	disturbed bool
	view      partition.View
	works     map[partition.ID]work
}

// work is a grant on a peer, from Serve until nothing of it runs.
type work struct {
	epoch   partition.Epoch
	roll    uint64 // that the peer worked under when it began
	running bool   // the fence is installed: handlers run
	ending  bool   // drain or abort
	// excused handlers are those of a process that was stopped while its lease ran
	// out: they go on for a moment when it wakes. The fence keeps them off the data.
	excused bool
}

func (p *peer) clone() *peer {
	c := *p
	c.machine = p.machine.Clone()
	c.works = maps.Clone(p.works)
	return &c
}

func (p *peer) String() string { return fmt.Sprintf("%s/%s", p.name, p.session) }

func (p *peer) runs() bool { return !p.crashed && !p.left }

func (p *peer) token(e partition.Epoch) partition.Token {
	return partition.Token{Epoch: e, Session: p.session}
}

// clock is the peer's own: it drifts and knows no other.
func (p *peer) clock(now time.Duration) machine.Instant {
	d := int64(now - p.born)
	return machine.Instant(int64(time.Hour) + d + d/1_000_000*p.drift)
}

// until is how long from now its clock takes to reach at.
func (p *peer) until(now time.Duration, at machine.Instant) time.Duration {
	d := at.Sub(p.clock(now))
	if d <= 0 {
		return 0
	}
	d = d/1_000_000*time.Duration(1_000_000-p.drift) + d%1_000_000
	for p.clock(now+d) < at {
		d += 10 * time.Microsecond
	}
	return d
}

// join starts a peer; with no name it is one that never was before.
func (w *World) join(name string, bornDead bool) {
	if name == "" {
		w.named++
		name = fmt.Sprintf("p%d", w.named)
	}
	if len(w.living()) == 0 {
		w.truth.died = w.now // without anybody to ask the store its clock stood still
	}
	p := &peer{
		place:    len(w.peers),
		name:     name,
		session:  partition.Session(fmt.Sprintf("s%d", len(w.peers)+1)),
		born:     w.now,
		drift:    int64(w.between(-maxDrift, maxDrift)),
		bornDead: bornDead,
		weight:   1,
		idler:    w.mix.Mingled && w.chance(0.15),
		timing:   w.timing,
		works:    make(map[partition.ID]work),
	}
	if n := len(w.mix.Leases); n > 0 {
		p.timing = transition.Timing{Lease: w.mix.Leases[w.between(0, n-1)]}.WithDefaults()
	}
	switch {
	case w.mix.Tagged:
		p.tags = tagged[w.between(0, len(tagged)-1)]
	case w.still:
		p.tags = tagged[p.place%2]
	}
	if p.idler {
		p.weight = 0
	}
	if w.mix.Impatient {
		p.timing.Drain, p.timing.Shutdown = 4*time.Second, 6*time.Second
	}
	p.machine = machine.New(machine.Config{
		ClaimNothing: p.idler,
		Tags:         p.tags,
		Session:      p.session,
		Peer:         p.name,
		Times:        p.timing.Times(),
		Viewed:       w.mix.Views,
		Barrier:      w.mix.Barrier,
		Seed:         uint64(w.between(0, 1<<62)),
	}, p.clock(w.now))
	w.peers = append(w.peers, p)
	w.say("%v joins, lease %v", p, p.timing.Lease)
	w.setWake(p)
	w.after(w.upTo(fetchEvery), event{kind: kFetch, peer: p.place})
}

// setWake schedules the peer's next look at its clock. Timers are late now and then.
func (w *World) setWake(p *peer) {
	at, ok := p.machine.Wake()
	if !ok {
		return
	}
	late := w.upTo(time.Millisecond)
	if w.chance(0.05) {
		late = w.upTo(lateTimer)
	}
	p.gen++
	w.after(p.until(w.now, at)+late, event{kind: kWake, peer: p.place, gen: p.gen})
}

// toPeer brings an event to a peer, when it is not paused.
func (w *World) toPeer(ev event) {
	p := w.peers[ev.peer]
	if !p.runs() {
		return
	}
	if p.asleep && (ev.kind != kResume || w.now < p.resumeAt) {
		ev.at = p.resumeAt
		w.schedule(ev)
		return
	}
	switch ev.kind {
	case kWake:
		if ev.gen == p.gen {
			w.step(p, machine.Ticked{})
		}
	case kAnswer:
		w.step(p, machine.Synced{Call: ev.call, Answer: *ev.answer})
	case kSyncFailed:
		w.step(p, machine.SyncFailed{Call: ev.call})
	case kCensusAnswer:
		w.sealOnTop(p, ev)
	case kSealed:
		w.step(p, machine.SealEnded{Call: ev.call, OK: ev.ok})
	case kHint:
		w.step(p, machine.Hinted{})
	case kOpened:
		w.opened(p, ev.grant)
	case kDrained:
		w.drained(p, ev.grant)
	case kFetch:
		w.fetch(p)
	case kView:
		if ev.view.Version > p.view.Version { // an indexer says one after the other
			w.step(p, machine.Viewed{View: *ev.view})
		}
	case kStop:
		p.stopAt = w.now
		w.say("%v is asked to stop", p)
		w.step(p, machine.Stop{Now: ev.ok})
	case kResume:
		w.resumed(p)
	}
}

// step steps the real machine and does what it says.
func (w *World) step(p *peer, ev machine.Event) {
	for _, e := range p.machine.Step(p.clock(w.now), ev) {
		w.effect(p, e, ev)
	}
	if p.runs() {
		w.setWake(p)
	}
}

func (w *World) effect(p *peer, e machine.Effect, ev machine.Event) {
	switch e := e.(type) {
	case machine.Sync:
		w.send(p, event{kind: kSync, peer: p.place, call: e.Call, request: &e.Request})
		if p.bornDead {
			w.after(2*latency, event{kind: kCrash, peer: p.place})
		}
	case machine.Seal:
		w.send(p, event{kind: kCensus, peer: p.place, call: e.Call})
	case machine.Serve:
		w.stats.Serves++
		w.say("%v serves %v", p, e.Grant)
		w.checkRest(p, e.Grant)
		p.works[e.Grant.ID] = work{epoch: e.Grant.Epoch, roll: p.view.Version}
		w.after(w.upTo(openTakes), event{kind: kOpened, peer: p.place, grant: e.Grant})
	case machine.Drain:
		w.stats.Drains++
		w.say("%v drains %v", p, e.Grant)
		w.checkDrain(p, e.Grant)
		w.end(p, e.Grant, w.returns(p))
	case machine.Abort:
		w.stats.Aborts++
		w.say("%v aborts %v: %v", p, e.Grant, e.Cause)
		if _, lost := ev.(machine.Lost); !lost {
			w.checkPause(p, e.Grant, e.Cause.String())
		}
		w.end(p, e.Grant, w.upTo(p.timing.CancelGrace))
	case machine.Adopt:
		w.say("%v adopts %d: index %d of %d, wish %v", p, e.View.Version, e.View.Index, e.View.Replicas, e.View.Wish)
		p.view = e.View
	case machine.Waits:
		w.say("%v stops for roll %d", p, e.Version)
	case machine.Released:
		if !w.truth.worked[token{e.Grant.ID, p.token(e.Grant.Epoch)}] {
			w.stats.Stray++
		}
	case machine.Lapsed:
		w.say("%v: its lease lapsed", p)
		if w.mix.steady() {
			w.violate("U", "%v lets its lease lapse, and nothing kept it from renewing it", p)
		}
		p.disturbed = true
	case machine.Left:
		w.say("%v has left, stuck %v", p, e.Stuck)
		p.left = true
		w.stats.Leave = max(w.stats.Leave, w.now-p.stopAt)
	case machine.Paused, machine.Resumed:
		_, p.rests = e.(machine.Paused)
		w.say("%v knows that the name is paused: %v", p, p.rests)
	case machine.GraceOpened, machine.Overdue, machine.Declared, machine.Dismissed, machine.Recalled:
	}
}

// returns is when the handlers of a drain return: the tenant cancels them at its end.
func (w *World) returns(p *peer) time.Duration {
	d := w.upTo(w.mix.Handler)
	if d > p.timing.Drain {
		d = p.timing.Drain + w.upTo(p.timing.CancelGrace)
	}
	return d
}

// end lets the handlers of g return in d.
func (w *World) end(p *peer, g partition.Grant, d time.Duration) {
	k := p.works[g.ID]
	if k.epoch != g.Epoch {
		w.violate("E", "%v ends %v, but works on epoch %v", p, g, k.epoch)
		return
	}
	k.ending = true
	p.works[g.ID] = k
	w.after(d, event{kind: kDrained, peer: p.place, grant: g})
}

// opened installs the fence; from now on handlers run.
func (w *World) opened(p *peer, g partition.Grant) {
	k := p.works[g.ID]
	if k.epoch != g.Epoch || k.ending {
		return
	}
	stored, ok := w.truth.open(g.ID, p.token(g.Epoch))
	if !ok {
		w.say("%v cannot open %v: epoch %v stands", p, g, stored)
		w.step(p, machine.Lost{Grant: g, Stored: stored})
		return
	}
	if w.truth.closed[token{g.ID, p.token(g.Epoch)}] {
		w.violate("E", "%v works again on %v, which it had given up", p, g)
	}
	k.running = true
	p.works[g.ID] = k
	w.truth.worked[token{g.ID, p.token(g.Epoch)}] = true
	if since, ok := w.truth.idle[g.ID]; ok && !w.calm {
		w.stats.Gap = max(w.stats.Gap, w.now-since)
	}
	delete(w.truth.idle, g.ID)
	w.worksAgain()
	w.checkAlone(g.ID)
	w.checkTable(p, k.roll)
}

// drained: nothing of g runs any more. A drain that was aborted ends twice; the
// second end finds nothing.
func (w *World) drained(p *peer, g partition.Grant) {
	k := p.works[g.ID]
	if k.epoch != g.Epoch {
		return
	}
	w.stopWork(p, g.ID)
	w.truth.closed[token{g.ID, p.token(g.Epoch)}] = true
	w.say("%v has drained %v", p, g)
	w.step(p, machine.Drained{Grant: g})
}

func (w *World) stopWork(p *peer, id partition.ID) {
	running := p.works[id].running
	delete(p.works, id)
	if running {
		w.truth.idle[id] = w.now
		w.stands()
	}
}

// fetch asks the data of everything in work: a fence that is not ours says so.
func (w *World) fetch(p *peer) {
	w.after(fetchEvery, event{kind: kFetch, peer: p.place})
	for _, id := range sortedKeys(p.works) {
		k := p.works[id]
		if !k.running || k.ending {
			continue
		}
		if stands := w.truth.fence[id]; stands != p.token(k.epoch) {
			g := partition.Grant{ID: id, Epoch: k.epoch}
			w.say("%v is fenced off %v by %v", p, g, stands)
			w.step(p, machine.Lost{Grant: g, Stored: stands.Epoch})
		}
	}
}

// pause stops the process of p for d.
func (w *World) pause(p *peer, d time.Duration) {
	w.say("%v is stopped for %v", p, d)
	p.asleep, p.resumeAt = true, max(p.resumeAt, w.now+d)
	p.disturbed = true
	for _, id := range sortedKeys(p.works) {
		if k := p.works[id]; k.ending { // a pause inside the cancel grace
			k.excused = true
			p.works[id] = k
		}
	}
	w.schedule(event{at: p.resumeAt, kind: kResume, peer: p.place})
}

// resumed is the first moment after a pause, before the process has looked at its
// clock.
func (w *World) resumed(p *peer) {
	if !p.asleep {
		return
	}
	w.say("%v goes on", p)
	p.asleep = false
	valid := p.machine.ValidUntil()
	lapsed := valid == 0 || p.clock(w.now) >= valid
	for _, id := range sortedKeys(p.works) {
		k := p.works[id]
		k.excused = k.excused || lapsed
		p.works[id] = k
		w.checkAlone(id)
	}
	w.step(p, machine.Ticked{})
}

func (w *World) crash(p *peer) {
	if !p.runs() {
		return
	}
	w.say("%v crashes", p)
	p.crashed, w.truth.died = true, w.now
	for _, id := range sortedKeys(p.works) {
		w.stopWork(p, id)
	}
}

package framework

import (
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// turnFor is how long a lane has its turn, while workers take its tasks one by one: what
// workers start one after the other then ends, and is settled, together. With turns of one
// task each, a hundred workers on 256 lanes end three tasks of each lane in the time in which
// settlements wait for each other: a round trip for three.
const turnFor = time.Millisecond

// A gate is what a pool asks of the coordinator, and tells it.
type gate interface {
	Valid(now time.Time) bool // the lease stands; asked before each start of a handler
	Has(id partition.ID) bool // the partition is being served; asked before each start
	Attend()                  // something runs that was started since the pool was idle
	Fenced(partition.Grant, partition.Epoch)
	Lost(partition.Grant, error)
}

// crew are the collaborators of a pool. They do not change.
type crew struct {
	name     string
	session  partition.Session
	source   sources.Source
	handler  Handler
	cfg      Config
	total    int // partitions of the name
	gate     gate
	observer Observer       // nil: nobody listens
	random   func() float64 // in [0,1)
	fatal    func(error)    // the consumer cannot go on; does not block
}

func (c *crew) observe(e Event) { observe(c.observer, e) }

// A pool shares a consumer's workers among the lanes of one session. It is the
// transition.Tenant.
//
// One lock guards all of it and of its lanes. It is held for some microseconds at most
// a time: never across a call of the source, a handler, an
// observer or the coordinator.
type pool struct {
	crew
	began    time.Time
	patience time.Duration // with a settlement that is not answered

	mu       sync.Mutex
	work     sync.Cond // workers wait here for ready tasks
	idle     int       // that many
	waking   bool      // one of them is on its way
	runs     []run     // what each worker has taken
	long     int       // that many of them have more than one task
	longs    []*run    // those, and such as were when recallAll came last
	line     line      // lanes with ready tasks; the first has its turn
	turned   time.Time // since then
	valve    valve     // what may start of the consumer's rate
	gated    []*lane   // lanes whose tasks were refused a start
	lanes    map[partition.ID]*lane
	refusals map[partition.ID]refusal // of partitions that their source has taken away
	units    int                      // that many of them are of units
	busy     int                      // lanes that hold tasks to start soon
	closed   bool
	stopBy   time.Time // the shutdown's end, once it has begun

	alarm   alarm
	lives   sync.WaitGroup // lanes and settlers
	workers sync.WaitGroup // and the alarm's goroutine
}

func newPool(c crew) *pool {
	p := &pool{
		crew:     c,
		began:    time.Now(),
		patience: c.cfg.Timing.CallTimeout(),

		runs:     make([]run, c.cfg.Concurrency),
		lanes:    map[partition.ID]*lane{},
		refusals: map[partition.ID]refusal{},
		valve:    newValve(c.cfg.Rate, c.total),
		alarm:    newAlarm(),
	}
	p.work.L = &p.mu
	p.workers.Add(len(p.runs) + 1)
	for i := range p.runs {
		go p.worker(i)
	}
	go p.watch()
	return p
}

// close waits until every lane is closed, then ends the workers. Serve does
// nothing any more.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.lives.Wait()
	p.mu.Lock()
	p.idle = 0
	p.work.Broadcast()
	p.mu.Unlock()
	close(p.alarm.end)
	p.workers.Wait()
}

// share is how many workers a lane can count on.
func (p *pool) share() int {
	return (len(p.runs) + max(p.busy, 1) - 1) / max(p.busy, 1)
}

// farthest is how far a lane may fetch ahead beside all the others. The caller holds mu.
func (p *pool) farthest() int {
	return min(max(mostTogether/max(len(p.lanes), 1), mostAhead/2), mostAhead)
}

// takeIn takes in what a lane has fetched.
func (p *pool) takeIn(l *lane, tasks []sources.Task, full bool) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	l.pace.arrived(full, now)
	l.phase.open += len(tasks)
	if l.over() {
		return
	}
	l.book.grow(len(tasks))
	unwanted := false
	for i := range tasks {
		unwanted = unwanted || len(l.unwanted) > 0 && l.unwantedOf(&tasks[i])
		l.book.add(&tasks[i], now)
	}
	if unwanted {
		p.bury(l, now)
	}
	p.changed(l)
}

// changed puts right what follows from a change of l's book: its place in the
// line, workers to wake, its share, its alarm.
func (p *pool) changed(l *lane) {
	if l.book.ready.n > 0 {
		p.line.join(l)
		p.rouse()
	}
	if busy := l.book.held > l.book.asleep; busy != l.phase.busy {
		l.phase.busy = busy
		if busy {
			p.busy++
		} else {
			p.busy--
		}
	}
	p.setAlarm(l)
	l.hurry()
	l.nudge()
	if l.over() {
		poke(l.wake)
	}
}

// rouse wakes a worker if there is something to start. It wakes the next one itself:
// so there come as many as it takes, and while handlers only compute not more than the
// machine runs at once. The caller holds mu.
func (p *pool) rouse() {
	if p.idle > 0 && !p.waking && (p.line.first != nil && !p.valve.shut || p.long > 0) {
		p.idle--
		p.waking = true
		p.work.Signal()
	}
}

// next waits until take finds tasks, or returns 0 when the pool is closed. now is the time, unless
// it has to wait. The caller holds mu.
func (p *pool) next(r *run, most int, now time.Time) (*lane, int) {
	for {
		if l, n := p.take(r, most, now); n > 0 {
			return l, n
		}
		if p.long > 0 {
			p.recallAll()
			continue
		}
		if p.closed {
			return nil, 0
		}
		p.waits(now)
		p.idle++ // whoever signals takes it back
		p.work.Wait()
		p.waking = false
		now = time.Now()
	}
}

// take makes ready tasks of one lane, at most so many, the run r: of the lanes that have some each
// has its turn. It returns 0 if none is ready or the consumer's rate lets none start. The caller
// holds mu.
func (p *pool) take(r *run, most int, now time.Time) (*lane, int) {
	for p.line.first != nil {
		l, n, may := p.line.first, 0, p.valve.most(most, now)
		if may == 0 && l.book.ready.n > 0 && !l.phase.gated {
			return nil, 0
		}
		for ; n < may && l.book.ready.n > 0 && !l.phase.gated; n++ {
			i := l.book.next()
			r.tasks[n].slot, r.tasks[n].task = i, l.book.entries.at(i).run()
		}
		dry := n == 0 || l.book.ready.n == 0
		if dry || most > 1 || now.Sub(p.turned) >= turnFor {
			p.turned = now
			p.line.leave()
			if !dry {
				p.line.join(l)
			}
		}
		if n > 0 {
			p.valve.start(n)
			if p.line.first == nil || p.idle == 0 {
				p.flows(now)
			}
			p.begin(r, l, n, now)
			l.nudge() // less is left to start
			p.rouse()
			return l, n
		}
	}
	return nil, 0
}

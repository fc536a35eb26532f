package framework_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/transition/memledger"
)

// A mix is one fleet, whose features and faults are drawn from a seed, held to all that is
// promised at once. It has three parts, a file each:
//
//   - mixmodel_test.go says what is promised, by what is seen from outside: runs of handlers,
//     what the source is told, and events;
//   - mixpeer_test.go has a peer: its handlers, and its bad ways to the store and the ledger;
//   - this file draws a mix and drives it: tasks come, and peers join, stop, are killed and cut off.
//
// A seed decides what is drawn, not how goroutines take turns: one that failed may go well
// the next time. So a failure tells all that led to it.
var (
	firstSeed = flag.Int("mix.first", 1, "the first seed of TestPeersUnderRandomFaults")
	seeds     = flag.Int("mix.seeds", 0, "run so many seeds of TestPeersUnderRandomFaults; default 80, with -short 10")
)

func TestPeersUnderRandomFaults(t *testing.T) {
	n := 80
	if testing.Short() {
		n = 10
	}
	if *seeds > 0 {
		n = *seeds
	}
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newMixFleet(t, uint64(seed))
				f.run()
				if t.Failed() {
					t.Logf("%+v\n%s", f.mix, f.model.story.String())
				}
			})
		})
	}
}

// A mix is what was drawn of a fleet.
type mix struct {
	partitions, keys, peers, rounds int
	cfg                             framework.Config
	barrier                         bool
	atMost, batchSize, batchPar     int
	kinds                           []string // of tasks
	faults                          []string
	badStore, badLedger, lateStore  int  // per mille of calls
	stubborn                        bool // some handlers do not return when their context ends
}

func newMix(r *rand.Rand) mix {
	oneIn := func(n int) bool { return r.IntN(n) == 0 }
	m := mix{
		partitions: 1 + r.IntN(10), keys: 1 + r.IntN(20), peers: 1 + r.IntN(4), rounds: 3 + r.IntN(12),
		barrier: oneIn(5), atMost: 1 + r.IntN(3), batchSize: 1 + r.IntN(6), batchPar: 1 + r.IntN(2), stubborn: oneIn(5),
	}
	m.cfg.Concurrency = 1 + r.IntN(12)
	m.cfg.Retry = framework.RetryPolicy{Tries: 1 + r.IntN(4), First: time.Duration(1+r.IntN(3000)) * time.Millisecond}
	m.cfg.Pass = oneIn(6)
	m.cfg.Timing.Lease = []time.Duration{3 * time.Second, 10 * time.Second}[r.IntN(2)]
	m.cfg.Timing.Drain = time.Duration(1+r.IntN(20)) * time.Second
	m.cfg.Timing.Shutdown = time.Duration(2+r.IntN(20)) * time.Second
	if oneIn(2) {
		m.cfg.HandlerTimeout = min(m.cfg.Timing.Drain, m.cfg.Timing.Shutdown, 3*time.Second) / 2
	}
	if oneIn(3) {
		m.cfg.Rate = framework.Rate{Tasks: 10 + r.IntN(100)}
	}
	m.cfg = m.cfg.WithDefaults()
	for _, bad := range []*int{&m.badStore, &m.badLedger, &m.lateStore} {
		if oneIn(3) {
			*bad = r.IntN(200)
		}
	}
	some := func(all ...string) []string {
		return slices.DeleteFunc(all, func(string) bool { return oneIn(2) })
	}
	m.kinds = append(some("few", "batch", "long", "chain", "quick"), "plain")
	m.faults = append(some("join", "stop", "restart", "hard", "kill", "cut", "pause", "drain", "weight", "cancel"), "none")
	return m
}

// A mixFleet drives the peers of a mix.
type mixFleet struct {
	mix
	r      *rand.Rand
	model  *model
	store  *memsource.Store
	ledger *memledger.Ledger
	peers  []*mixPeer
	pushed int

	canceller mixCanceller
}

func newMixFleet(t *testing.T, seed uint64) *mixFleet {
	r := rand.New(rand.NewPCG(seed, 3))
	m := newMix(r)
	layout := partition.Config{Total: m.partitions}
	// What a fetch brought counts as begun when a peer dies: a low limit would bury tasks that never ran.
	store, err := memsource.New(memsource.Config{Partitions: layout, CrashLimit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return &mixFleet{
		mix: m, r: r, canceller: mixCanceller{why: map[partition.ID]map[string]string{}}, model: newModel(t, m, seed), store: store,
		ledger: memledger.New(layout, m.cfg.Timing, memledger.Options{}),
	}
}

func (f *mixFleet) ms(below int) time.Duration {
	return time.Duration(f.r.IntN(below)) * time.Millisecond
}

func (f *mixFleet) run() {
	for range f.mix.peers {
		f.join()
	}
	for range f.rounds {
		for range f.r.IntN(40) {
			key, delay := fmt.Sprint("k", f.r.IntN(f.keys)), time.Duration(0)
			if f.r.IntN(4) == 0 {
				key = ""
			}
			if f.r.IntN(10) == 0 {
				delay = f.ms(8000)
			}
			f.push(fmt.Sprint("t", f.pushed), key, f.kinds[f.r.IntN(len(f.kinds))], delay)
			f.pushed++
		}
		time.Sleep(f.ms(5000))
		f.fault()
	}
	f.model.calmDown()
	for end := time.Now().Add(2 * time.Hour); f.open() > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(time.Minute) // for the last peers to be ready
	open := f.open()
	f.model.check(open == 0, "%d tasks are stuck", open)
	for _, p := range f.alive() {
		err := p.c.Ready()
		f.model.check(err == nil, "%s at rest: %v", p.name, err)
		for _, l := range p.c.Lanes() {
			f.model.check(open > 0 || l.Running+l.Ready+l.Waiting+l.Unsettled == 0, "%s at rest: %+v", p.name, l)
		}
	}
	for _, p := range f.alive() {
		f.stop(p)
	}
	var dead []memsource.DeadLetter
	for i := range f.partitions {
		dead = append(dead, f.store.Dead(partition.ID(i))...)
	}
	if open == 0 {
		f.model.atEnd(dead)
	}
}

func (f *mixFleet) push(id, key, kind string, delay time.Duration) {
	t := sources.Task{ID: id, Key: key, Type: kind}
	if delay > 0 {
		t.Delivery = &sources.Delivery{NotBefore: time.Now().Add(delay)}
	}
	f.model.push(t, func() error { return f.store.Push(t) })
}

func (f *mixFleet) open() int {
	n := 0
	for i := range f.partitions {
		open, delayed := f.store.Pending(partition.ID(i))
		n += open + delayed
	}
	return n
}

func (f *mixFleet) alive() (all []*mixPeer) {
	for _, p := range f.peers {
		if !p.gone {
			all = append(all, p)
		}
	}
	return all
}

func (f *mixFleet) join() {
	p := newMixPeer(f, fmt.Sprint("p", len(f.peers)))
	f.peers = append(f.peers, p)
	opts := []framework.Option{
		framework.WithConfig(f.cfg), framework.WithPeer(p.name, 1), framework.WithObserver(p),
		framework.WithLedger(mixLedger{f.ledger, p}),
	}
	if f.barrier {
		opts = append(opts, framework.WithBarrier())
	}
	c, err := framework.New("mix", mixSource{f.store.Via(p.link), p}, p.handler(), opts...)
	if err != nil {
		f.model.t.Fatal(err)
	}
	p.c = c
	if err := c.Start(context.Background()); err != nil {
		f.model.t.Fatal(err)
	}
}

// stop stops p politely, which may take longer than the shutdown only if something is in its way.
func (f *mixFleet) stop(p *mixPeer) {
	err := p.c.Stop(context.Background())
	f.model.check(err == nil || f.stubborn || f.badStore+f.badLedger+f.lateStore > 0, "stop of %s: %v", p.name, err)
}

// fault does something to one peer, or to all.
func (f *mixFleet) fault() {
	what := f.faults[f.r.IntN(len(f.faults))]
	alive := f.alive()
	p := alive[f.r.IntN(len(alive))]
	switch what { // the last peer stays
	case "stop", "hard", "kill", "drain":
		if len(alive) == 1 {
			return
		}
	}
	f.model.tell("--- %s %s", what, p.name)
	ctx := context.Background()
	switch what {
	case "join":
		if len(alive) < 6 {
			f.join()
		}
	case "stop":
		p.gone = true
		f.stop(p)
	case "restart":
		f.stop(p)
		err := p.c.Start(ctx)
		f.model.check(err == nil, "%s starts again: %v", p.name, err)
	case "hard":
		p.gone = true
		f.model.trouble(p)
		soon, cancel := context.WithTimeout(ctx, f.ms(2000))
		_ = p.c.Stop(soon) // it says that it was hard
		cancel()
	case "kill":
		p.gone = true
		f.model.kill(p)
		now, cancel := context.WithCancel(ctx)
		cancel()
		_ = p.c.Stop(now)
	case "cut":
		f.model.trouble(p)
		p.cut.Store(true)
		time.Sleep(f.ms(15000))
		p.cut.Store(false)
	case "pause":
		_ = f.ledger.Pause(ctx, partition.Pause{Since: time.Now(), Why: "mix"})
		time.Sleep(f.ms(20000))
		_ = f.ledger.Pause(ctx, partition.Pause{})
	case "drain":
		_ = f.ledger.Drain(ctx, partition.Drain{Peer: p.name, Since: time.Now()})
		time.Sleep(f.ms(20000))
		_ = f.ledger.Recall(ctx, p.name)
	case "weight":
		_ = p.c.SetWeight(1 + f.r.IntN(5))
	case "cancel":
		for range 1 + f.r.IntN(8) {
			f.cancelSome()
		}
	}
}

// cancelSome cancels a task: often one that runs, else one of the newest.
func (f *mixFleet) cancelSome() {
	id := fmt.Sprint("t", max(0, f.pushed-1-f.r.IntN(60)))
	if running := f.model.running(); len(running) > 0 && f.r.IntN(2) == 0 {
		id = running[f.r.IntN(len(running))]
	}
	if at, ok := f.model.partitionOf(id); ok {
		f.cancel(id, at)
	}
}

// cancel cancels the task id in the partition at, and returns once all peers have been told.
func (f *mixFleet) cancel(id string, at partition.ID) {
	if f.model.cancel(id) {
		f.want(at, id)
		f.model.toldOf(id)
	}
}

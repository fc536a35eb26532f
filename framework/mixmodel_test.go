package framework_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
)

// A model says what a fleet promises. Peers tell it what is seen of them from outside, in the
// methods below, and each says what must hold then.
type model struct {
	t    *testing.T
	mix  mix
	seed uint64

	mu     sync.Mutex
	tasks  map[string]*modelTask
	keys   map[string][]*modelTask // as they were pushed
	busy   map[string]*modelRun    // by key
	starts []*modelRun
	calm   bool // no more faults
	chance *rand.Rand
	failed int
	story  strings.Builder
}

type modelTask struct {
	sources.Task
	delayed   bool // it comes when it is due, whatever was pushed before
	runs      []*modelRun
	over      bool // the source has answered for Done or Dead
	tried     int  // and so often for a retry
	cancelled bool // somebody wants it out of the way
	told      bool // and every peer has been told
}

type modelRun struct {
	peer    *mixPeer
	grant   *modelGrant
	task    *modelTask
	ctx     context.Context
	attempt int
	began   time.Time
	ended   bool
	err     error
	cause   error // why its context had ended when it returned
	judged  bool  // Handled was told
	outcome sources.Outcome
	void    bool // its peer was killed: nobody hears what it comes to
}

// unheard says that what the run came to may be known to nobody, so that it is repeated.
func (r *modelRun) unheard() bool { return r.void || !r.grant.lost.IsZero() }

// A modelGrant is the books of a partition at a peer.
type modelGrant struct {
	fetched, ended, running int
	opened, halted, overdue bool
	draining, lost          time.Time
	over                    bool
	asking                  time.Time   // since when the source does not answer for what ended
	freed                   []*modelRun // without an outcome, and not handed over
}

func newModel(t *testing.T, m mix, seed uint64) *model {
	return &model{
		t: t, mix: m, seed: seed, chance: rand.New(rand.NewPCG(seed, 4)),
		tasks: map[string]*modelTask{}, keys: map[string][]*modelTask{}, busy: map[string]*modelRun{},
	}
}

// check fails the test unless ok.
func (m *model) check(ok bool, format string, args ...any) {
	if !ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.broken(format, args...)
	}
}

// broken says that a promise was. Only the first ones count: more follow from them. The caller holds mu.
func (m *model) broken(format string, args ...any) {
	m.t.Helper()
	m.note("BROKEN "+format, args...)
	if m.failed++; m.failed <= 5 {
		m.t.Errorf(format, args...)
	}
}

func (m *model) tell(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(format, args...)
}

// note writes the story of the fleet, as far as the first failure. The caller holds mu.
func (m *model) note(format string, args ...any) {
	if m.failed == 0 {
		m.story.WriteString(time.Now().Format("04:05.000 "))
		fmt.Fprintf(&m.story, format+"\n", args...)
	}
}

// dice fall the same way whenever the same is asked of a task.
func (m *model) dice(id string, attempt int, what string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, m.seed, id, attempt, what)
	return rand.New(rand.NewPCG(h.Sum64(), 7))
}

// plan is what a try of a task does, and how long it takes, wherever it runs.
func (m *model) plan(id, kind string, attempt int) (d time.Duration, what string) {
	r := m.dice(id, attempt, "plan")
	below := []int{1, 30, 400, 400}[r.IntN(4)]
	if kind == "long" {
		below = 8000
	}
	d = time.Duration(r.IntN(below))*time.Millisecond + 500*time.Microsecond // never as long as a timeout
	if kind == "quick" && r.IntN(4) > 0 {
		d = 0 // so that a worker takes several along
	}
	what = []string{"ok", "ok", "ok", "ok", "ok", "error", "panic", "after", "dead", "goexit", "handed over", "bad error"}[r.IntN(12)]
	if kind == "batch" && slices.Contains([]string{"goexit", "after", "panic"}, what) {
		what = "error"
	}
	return d, what
}

// fate is what becomes of a task, and at which try, whatever else happens to the fleet. It is not sure
// where that depends on waits and on the company in a batch.
func (m *model) fate(t *modelTask) (o sources.Outcome, attempt int, sure bool) {
	timeout := m.mix.cfg.HandlerTimeout
	if t.Type == "batch" || t.Type == "few" && timeout > 0 || m.mix.stubborn || t.cancelled {
		return 0, 0, false
	}
	for n := 1; ; n++ {
		d, what := m.plan(t.ID, t.Type, n)
		late := timeout > 0 && d > timeout
		switch {
		case what == "ok" && !late:
			return sources.Done, n, true
		case what == "dead" && !late, n >= m.mix.cfg.Retry.Tries:
			return sources.Dead, n, true
		}
	}
}

func (m *model) push(t sources.Task, store func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := &modelTask{Task: t, delayed: t.Delivery != nil}
	m.tasks[t.ID] = x
	if t.Key != "" {
		m.keys[t.Key] = append(m.keys[t.Key], x)
	}
	m.note("push %s key %q %s", t.ID, t.Key, t.Type)
	if err := store(); err != nil {
		m.broken("push %s: %v", t.ID, err)
	}
}

func (t *modelTask) lane() string { // of those that run one at a time
	if t.Key == "" {
		return "task " + t.ID
	}
	return "key " + t.Key
}

// begin is told before a handler is called. It returns nil at a dead peer, which does nothing.
func (m *model) begin(ctx context.Context, p *mixPeer, t *framework.Task) *modelRun {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.runs++
	x := m.tasks[t.ID]
	if p.killed {
		return nil
	}
	g := p.grant(t.Grant)
	r := &modelRun{peer: p, grant: g, task: x, ctx: ctx, attempt: t.Attempt, began: time.Now()}
	m.note("%s %v begins %s key %q try %d", p.name, t.Grant, t.ID, t.Key, t.Attempt)

	// Nothing begins in a partition that is to end, or whose source does not answer.
	before := func(at time.Time) bool { return !at.IsZero() && at.Before(time.Now()) }
	if before(g.draining) || before(g.lost) || g.over {
		m.broken("%s begins %s of %v, which is to end", p.name, t.ID, t.Grant)
	}
	if patience := m.mix.cfg.Timing.CallTimeout(); !g.asking.IsZero() && time.Since(g.asking) > patience {
		m.broken("%s begins %s of %v, whose source has not answered for %v", p.name, t.ID, t.Grant, time.Since(g.asking))
	}
	// One at a time, of a key and of a task.
	if b := m.busy[x.lane()]; b != nil && !b.void && !m.mix.stubborn {
		m.broken("%s begins %s while %s runs %s of %s", p.name, t.ID, b.peer.name, b.task.ID, x.lane())
	}
	m.busy[x.lane()] = r
	// In order.
	if !m.mix.cfg.Pass && !m.mix.stubborn && !x.delayed {
		for _, former := range m.keys[t.Key] {
			if former == x {
				break
			}
			if !former.delayed && !former.done() {
				m.broken("%s begins %s before %s of its key %s has ended", p.name, t.ID, former.ID, t.Key)
			}
		}
	}
	if x.told && ctx.Err() == nil { // that may come when it is about to begin
		m.broken("%s begins %s, which is cancelled", p.name, t.ID)
	}
	m.again(x, r)
	x.runs = append(x.runs, r)
	g.running++
	m.starts = append(m.starts, r)
	return r
}

// done reports whether a run of t was its last, or none is to come.
func (t *modelTask) done() bool {
	return t.over || t.cancelled || slices.ContainsFunc(t.runs, func(r *modelRun) bool {
		return r.outcome == sources.Done || r.outcome == sources.Dead
	})
}

// again checks that a run of x has a reason, and its number.
func (m *model) again(x *modelTask, r *modelRun) {
	last := &modelRun{judged: true, outcome: sources.Retry, grant: r.grant}
	if n := len(x.runs); n > 0 {
		last = x.runs[n-1]
	}
	failed := last.outcome == sources.Retry || last.outcome == sources.Requeue
	ok := false
	switch {
	case x.over, r.attempt > m.mix.cfg.Retry.Tries:
	case !last.judged: // busy has judged that
		ok = true
	case last.peer != nil && last.unheard():
		ok = r.attempt > x.tried && (r.attempt <= last.attempt || r.attempt == last.attempt+1 && failed)
	case failed:
		ok = r.attempt == last.attempt+1
	case last.outcome == 0: // cut short by a hand-over, at no cost
		ok = r.attempt == last.attempt
	}
	if !ok && !m.mix.stubborn {
		m.broken("%s runs %s, try %d, after try %d, which came to %v (over %v): %v", r.peer.name, x.ID, r.attempt, last.attempt, last.outcome, x.over, last.err)
	}
}

// end is told when a handler has returned.
func (m *model) end(r *modelRun, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.ended, r.err, r.cause = true, err, context.Cause(r.ctx)
	r.grant.running--
	m.note("%s ends %s try %d: %v (ctx: %v)", r.peer.name, r.task.ID, r.attempt, err, r.cause)
	if m.busy[r.task.lane()] == r {
		delete(m.busy, r.task.lane())
	}
	// A cancellation ends the context of its task and of no other; one that came while the task ran has ended it.
	if errors.Is(r.cause, framework.ErrCancelled) && !r.task.cancelled {
		m.broken("%s: the context of %s has ended, and nobody cancelled it", r.peer.name, r.task.ID)
	}
	if r.task.told && r.cause == nil && !r.void {
		m.broken("%s: %s was cancelled while it ran, and its context has not ended", r.peer.name, r.task.ID)
	}
}

// handled is told what a run has come to.
func (m *model) handled(p *mixPeer, e framework.Handled) {
	p.told++
	x, g := m.tasks[e.Task.ID], p.grant(e.Grant)
	i := slices.IndexFunc(x.runs, func(r *modelRun) bool { return r.peer == p && r.ended && !r.judged })
	if p.killed || i < 0 {
		return
	}
	r := x.runs[i]
	r.judged, r.outcome = true, e.Outcome
	m.note("%s %v: %s try %d came to %v", p.name, e.Grant, x.ID, r.attempt, e.Outcome)
	cause := r.cause // what comes later may come too late for the verdict
	void := errors.Is(cause, framework.ErrLost) || errors.Is(cause, framework.ErrStopped)
	left := false
	select {
	case <-framework.HandOver(r.ctx):
		left = errors.Is(r.err, framework.ErrHandedOver)
	default:
	}
	o := e.Outcome
	asked, _ := sources.Asked(r.err)
	ok := true
	switch {
	case g.over:
		ok = false
	case o == 0:
		if !left {
			g.freed = append(g.freed, r)
		}
	case void: // what comes after a loss counts for nothing
		ok = false
	case r.err == nil:
		ok = o == sources.Done
	case errors.Is(cause, framework.ErrCancelled), x.cancelled && o == sources.Dead:
		ok = o == sources.Dead
	case errors.Is(cause, framework.ErrDrainOver) && asked != sources.Dead: // it was cut short, at no cost
		ok = false
	case asked == sources.Dead || r.attempt >= m.mix.cfg.Retry.Tries:
		ok = o == sources.Dead
	case x.Key == "" || m.mix.cfg.Pass:
		ok = o == sources.Requeue
	default:
		ok = o == sources.Retry
	}
	if !ok {
		m.broken("%s: %s try %d returned %v (ctx: %v) and came to %v", p.name, x.ID, r.attempt, r.err, cause, o)
	}
}

// settle is told what the source is told. It returns what to call with the source's answer.
func (m *model) settle(p *mixPeer, id partition.Grant, done []sources.Settlement) (answer func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := p.grant(id)
	if !g.lost.IsZero() && g.lost.Before(time.Now()) {
		m.broken("%s settles %d tasks of %v after its loss", p.name, len(done), id)
	}
	if g.asking.IsZero() {
		g.asking = time.Now()
	}
	seen := map[string]bool{}
	for _, d := range done {
		if seen[d.Task.ID] {
			m.broken("%s settles %s twice at once", p.name, d.Task.ID)
		}
		seen[d.Task.ID] = true
		m.note("%s %v settles %s as %v try %d: %s", p.name, id, d.Task.ID, d.Outcome, d.Attempt, d.Reason)
		m.settlement(p, m.tasks[d.Task.ID], d)
	}
	return func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !g.lost.IsZero() && g.lost.Before(time.Now()) {
			m.broken("%s: a settle of %v goes on %v after its loss", p.name, id, time.Since(g.lost))
		}
		if err != nil {
			return
		}
		g.asking = time.Time{}
		for _, d := range done {
			x := m.tasks[d.Task.ID]
			if d.Outcome == sources.Done || d.Outcome == sources.Dead {
				x.over = true
			} else {
				x.tried = max(x.tried, d.Attempt)
			}
		}
	}
}

// settlement checks what is said of a task: what a run came to, and that it is its fate.
func (m *model) settlement(p *mixPeer, x *modelTask, d sources.Settlement) {
	ran := 0
	for _, r := range x.runs {
		ran = max(ran, r.attempt)
	}
	same := slices.ContainsFunc(x.runs, func(r *modelRun) bool {
		return r.peer == p && r.attempt == d.Attempt && r.outcome == d.Outcome
	})
	waited := x.cancelled && d.Outcome == sources.Dead && d.Attempt <= ran // it was cancelled while it waited
	if !same && !waited && !p.killed {
		m.broken("%s settles %s as %v try %d, and no run came to that", p.name, x.ID, d.Outcome, d.Attempt)
	}
	want, n, sure := m.fate(x)
	final := d.Outcome == sources.Done || d.Outcome == sources.Dead
	if sure && final && (d.Outcome != want || d.Attempt != n) {
		m.broken("%s is %v at try %d (%s), want %v at %d", x.ID, d.Outcome, d.Attempt, d.Reason, want, n)
	}
}

// fetch is told that the source is asked for tasks.
func (m *model) fetch(p *mixPeer, id partition.Grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := p.grant(id); !g.draining.IsZero() && g.draining.Before(time.Now()) {
		m.broken("%s fetches from %v, which drains", p.name, id)
	}
}

// event checks the books of a peer, which its events keep.
func (m *model) event(p *mixPeer, e framework.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	must := func(ok bool) {
		if !ok {
			m.broken("%s: %T%+v does not fit what was told before", p.name, e, e)
		}
	}
	once := func(is *bool, to bool) { must(*is != to); *is = to }
	switch e := e.(type) {
	case framework.Opened:
		once(&p.grant(e.Grant).opened, true)
	case framework.Fetched:
		m.note("%s %v fetched %d", p.name, e.Grant, e.Tasks)
		p.grant(e.Grant).fetched += e.Tasks
		must(e.Tasks <= e.Limit)
	case framework.Handled:
		m.handled(p, e)
	case framework.Settled:
		g := p.grant(e.Grant)
		g.ended += e.Done + e.Dead + e.Requeued
		must(!g.over)
	case framework.Cancelled:
		must(m.tasks[e.Task.ID].cancelled)
	case framework.Draining:
		g := p.grant(e.Grant)
		must(g.draining.IsZero())
		g.draining = time.Now()
		m.note("%s %v drains", p.name, e.Grant)
	case framework.DrainOverdue:
		once(&p.grant(e.Grant).overdue, true)
		m.contextsEnd(p, p.grant(e.Grant))
	case framework.Drained:
		g := p.grant(e.Grant)
		must(!g.draining.IsZero() && g.running == 0 && g.fetched-g.ended == e.GivenBack)
		must(g.overdue || len(g.freed) == 0)
		once(&g.over, true)
		m.note("%s %v drained", p.name, e.Grant)
	case framework.Lost:
		g := p.grant(e.Grant)
		// By a peer that can reach the ledger nothing is lost.
		must(p.troubled || m.mix.badStore+m.mix.badLedger+m.mix.lateStore > 0 || m.mix.stubborn)
		g.lost = time.Now()
		m.note("%s %v lost: %v", p.name, e.Grant, e.Cause)
		m.contextsEnd(p, g)
	case framework.Dropped:
		g := p.grant(e.Grant)
		must(!g.lost.IsZero() && g.running == 0 && g.fetched-g.ended == e.Tasks)
		once(&g.over, true)
	case framework.Halted:
		once(&p.grant(e.Grant).halted, true)
	case framework.Resumed:
		once(&p.grant(e.Grant).halted, false)
	case framework.Limited:
		once(&p.limited, true)
	case framework.Unlimited:
		once(&p.limited, false)
	case framework.Started:
		p.limited = false
	case framework.HandlerStuck:
		must(m.mix.stubborn || p.killed || e.Task.Type == "batch")
	case framework.Buried:
		must(false)
	}
}

// contextsEnd checks that those of the runs of g have ended.
func (m *model) contextsEnd(p *mixPeer, g *modelGrant) {
	for _, r := range m.starts {
		if r.grant == g && !r.ended && r.ctx.Err() == nil {
			m.broken("%s: the context of %s, try %d, has not ended", p.name, r.task.ID, r.attempt)
		}
	}
}

// kill makes nothing of what p does count from now on.
func (m *model) kill(p *mixPeer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.troubled, p.killed = true, true
	p.cut.Store(true)
	for _, r := range m.starts {
		if r.peer == p && !r.ended {
			r.void = true
		}
	}
	for _, g := range p.grants { // what has ended may be in no call yet
		if g.lost.IsZero() && !g.over {
			g.lost = time.Now()
		}
	}
}

// trouble says that p may lose what it has.
func (m *model) trouble(p *mixPeer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.troubled = true
}

// running returns the tasks that run, in their order.
func (m *model) running() (ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.busy {
		ids = append(ids, r.task.ID)
	}
	slices.Sort(ids)
	return ids
}

// partitionOf returns where a task is. Without a key that is not known.
func (m *model) partitionOf(id string) (at partition.ID, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.tasks[id]
	if x == nil || x.Key == "" {
		return 0, false
	}
	at, err := partition.Config{}.WithDefaults().Hash.Of(x.Key, m.mix.partitions)
	if err != nil {
		m.t.Fatal(err)
	}
	return at, true
}

// cancel says that somebody wants a task out of the way, unless it is over.
func (m *model) cancel(id string) (ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.tasks[id]
	if x.over {
		return false
	}
	m.note("cancel %s", id)
	x.cancelled = true
	return true
}

// toldOf says that all peers have been told of that.
func (m *model) toldOf(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks[id].told = true
}

func (m *model) calmDown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calm = true
}

// strikes reports whether one of so many chances in a thousand comes true, and draws a number below n.
func (m *model) strikes(perMille, n int) (bool, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.calm && m.chance.IntN(1000) < perMille, m.chance.IntN(n)
}

// atEnd checks the whole, when nothing is left to do.
func (m *model) atEnd(letters []memsource.DeadLetter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dead := map[string]int{}
	for _, d := range letters {
		dead[d.Task.ID]++
	}
	for id, x := range m.tasks {
		done := slices.ContainsFunc(x.runs, func(r *modelRun) bool { return r.ended && r.err == nil && !r.void })
		if dead[id] > 1 || dead[id] == 0 && !done {
			m.broken("%s is a dead letter %d times, and done: %v", id, dead[id], done)
		}
		if want, n, sure := m.fate(x); sure && (want == sources.Dead) != (dead[id] > 0) {
			m.broken("%s is a dead letter %d times, want %v at try %d", id, dead[id], want, n)
		}
	}
	m.checkRate()
}

// checkRate looks at every interval between two starts: no more begin in it than the rate allows, beyond one of each peer.
func (m *model) checkRate() {
	rate := m.mix.cfg.Rate
	if rate.Tasks == 0 {
		return
	}
	for i, first := range m.starts {
		peers := map[*mixPeer]bool{}
		for n, r := range m.starts[i:] {
			peers[r.peer] = true
			d := r.began.Sub(first.began)
			if most := float64(rate.Tasks)*(d+100*time.Millisecond).Seconds() + float64(len(peers)) + 1e-3; float64(n+1) > most {
				m.broken("%d tasks began in %v, at most %.1f may", n+1, d, most)
				return
			}
		}
	}
}

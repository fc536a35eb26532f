package play

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/checker"
	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// sample is how often the watch looks: takeovers are measured to so much.
const sample = 30 * time.Millisecond

// A watch looks at the ledger from outside and notes for how long partitions had no
// owner that could work.
type watch struct {
	stage  *stage
	ledger peer.OpenLedger
	timing transition.Timing
	stop   chan struct{}
	ended  chan struct{}
	once   sync.Once

	// Of the goroutine that looks.
	last    journal.Time
	open    map[partition.ID]*gap
	owners  map[partition.ID]partition.Session
	session map[partition.Session]*process

	mu      sync.Mutex
	gaps    []checker.Gap
	healthy bool           // every partition has an owner that can work
	worked  bool           // it was so once
	outages []checker.Span // the store's
	stalls  []checker.Span // times when it did not answer
}

// gap is a time without an owner that has not ended.
type gap struct {
	from   journal.Time
	kind   string
	former partition.Session
}

func newWatch(s *stage, layout partition.Config, timing transition.Timing) (*watch, error) {
	open, url := peer.OpenRedis, s.store.URL("")
	if s.cfg.Ledger != nil {
		open, url = s.cfg.Ledger.Open, s.cfg.Ledger.URL(s.cfg.Ledger.Addr())
	}
	l, err := open(url, s.name, layout, timing)
	if err != nil {
		return nil, err
	}
	return &watch{
		stop: make(chan struct{}), ended: make(chan struct{}),
		stage: s, ledger: l, timing: timing.WithDefaults(),
		open: map[partition.ID]*gap{}, owners: map[partition.ID]partition.Session{}, session: map[partition.Session]*process{},
	}, nil
}

// close ends the looking and returns when it has ended.
func (w *watch) close() {
	w.once.Do(func() { close(w.stop) })
	<-w.ended
}

// run looks until the watch is closed.
func (w *watch) run(ctx context.Context) {
	defer close(w.ended)
	defer func() { _ = w.ledger.Close() }()
	ticker := time.NewTicker(sample)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
		asked := journal.Now()
		look, done := context.WithTimeout(ctx, 500*time.Millisecond)
		c, err := w.ledger.Census(look)
		done()
		w.lag(asked, journal.Now())
		if err != nil {
			w.set(false)
			continue
		}
		w.see(c, journal.Now())
	}
}

// lag notes that a census took longer than a peer's call may.
func (w *watch) lag(from, until journal.Time) {
	if time.Duration(until-from) > w.timing.CallTimeout() {
		w.mu.Lock()
		w.stalls = append(w.stalls, checker.Span{From: from, Until: until})
		w.mu.Unlock()
	}
}

// see takes in a census.
func (w *watch) see(c transition.Census, now journal.Time) {
	live := map[partition.Session]bool{}
	for _, seat := range c.Sessions {
		live[seat.Session] = true
	}
	owner := map[partition.ID]partition.Session{}
	for _, g := range c.Grants {
		owner[g.Grant.ID] = g.Session
	}
	healthy := true
	for id := range partition.ID(w.stage.cfg.Partitions) {
		healthy = w.part(id, owner[id], live, now) && healthy
	}
	healthy = w.part(partition.FirstUnit, owner[partition.FirstUnit], live, now) && healthy // the inbox
	w.last = now
	w.set(healthy)
}

// part looks at one partition and reports whether it has an owner that can work.
func (w *watch) part(id partition.ID, owner partition.Session, live map[partition.Session]bool, now journal.Time) bool {
	g := w.open[id]
	failed := w.failed(owner, live)
	if failed == nil {
		if g != nil {
			w.end(id, g, owner, now)
		}
		w.owners[id] = owner
		return true
	}
	if failed.since == 0 {
		failed.since = w.last // it was well when we looked last
	}
	switch {
	case g == nil:
		w.open[id] = &gap{from: failed.since, kind: failed.kind, former: w.owners[id]}
	case owner != "" && owner != g.former && failed.since > g.from:
		// It was taken over, and then that owner failed too: a gap of its own.
		g.from, g.kind, g.former = failed.since, failed.kind, owner
	}
	return false
}

// failed says since when and why a session cannot work, or nil if it can.
func (w *watch) failed(s partition.Session, live map[partition.Session]bool) *away {
	p := w.processOf(s)
	if p != nil {
		p.mu.Lock()
		a := p.away
		p.mu.Unlock()
		if a.since > 0 {
			return &a
		}
	}
	if s == "" || !live[s] {
		return &away{}
	}
	return nil
}

// processOf finds whose session it is. A process says so at the top of its journal.
func (w *watch) processOf(s partition.Session) *process {
	if s == "" {
		return nil
	}
	if p, ok := w.session[s]; ok {
		return p
	}
	w.stage.mu.Lock()
	all := w.stage.all
	w.stage.mu.Unlock()
	known := map[*process]bool{}
	for _, p := range w.session {
		known[p] = true
	}
	for _, p := range all {
		if known[p] {
			continue
		}
		found := errors.New("found")
		_ = journal.ReadUntil(p.journal, func(r journal.Record) error { // it may not be there yet
			if r.Kind != journal.Joined {
				return nil
			}
			w.session[partition.Session(r.Session)] = p
			return found
		})
	}
	return w.session[s]
}

// end notes a gap that has ended.
func (w *watch) end(id partition.ID, g *gap, owner partition.Session, now journal.Time) {
	delete(w.open, id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.worked {
		return // the peers begin
	}
	w.gaps = append(w.gaps, checker.Gap{Part: int(id), Fault: g.kind, Span: checker.Span{From: g.from, Until: now}, Moved: owner != g.former})
}

// bound is how long a partition may be without an owner. Where intervals count the peers, it
// takes four of them until the living have agreed on who is there, and as long again if
// somebody was not counted meanwhile. With a barrier all handlers end before the roll that
// the dead one is still a member of, and again before the next.
func (w *watch) bound() time.Duration {
	bound := w.timing.Takeover() + 8*w.stage.cfg.Interval
	if w.stage.cfg.Barrier {
		bound += 2 * slowest
	}
	return bound
}

// judge says how long a gap may have been: the bound, counted anew from each fault
// that struck another peer meanwhile, since that may have been the successor, and
// longer by the time in which the store was away or did not answer. After it was away
// nobody gains a partition for a grace.
func (w *watch) judge(g checker.Gap, faults []checker.Fault) checker.Gap {
	end := g.Until
	if end == 0 {
		end = w.last
	}
	from := g.From
	for _, f := range faults {
		struck := f.From
		late := f.Kind == Delay || f.Kind == DelayControl // each of its calls may have been the one that failed
		// Before a roll all wait for a peer that cannot settle what it has done.
		waited := w.stage.cfg.Barrier && (f.Kind == CutData || f.Kind == SilentData || f.Kind == DelayData)
		if late || waited {
			struck = min(f.Until, end)
		}
		if slices.ContainsFunc(ofPeers, func(k weighted) bool { return k.kind == f.Kind }) && struck <= end {
			from = max(from, struck)
		}
	}
	g.Bound = time.Duration(from-g.From) + w.bound() + sample
	for _, o := range w.outages {
		if o.From <= end && o.Until+journal.Time(w.timing.Grace()+w.bound()) >= g.From {
			g.Bound += time.Duration(o.Until-o.From) + w.timing.Grace()
		}
	}
	for _, s := range w.stalls {
		g.Bound += max(0, time.Duration(min(s.Until, end)-max(s.From, g.From)))
	}
	if g.Fault == "" {
		g.Fault = w.stage.during(g.From)
	}
	return g
}

// stalled is for how long the store did not answer although nobody had touched it.
func (w *watch) stalled() time.Duration {
	var total time.Duration
	for _, s := range w.stalls {
		if !slices.ContainsFunc(w.outages, func(o checker.Span) bool { return o.From <= s.Until && s.From <= o.Until }) {
			total += time.Duration(s.Until - s.From)
		}
	}
	return total
}

// outage notes that the store was away.
func (w *watch) outage(s checker.Span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages = append(w.outages, s)
}

func (w *watch) set(healthy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.healthy = healthy
	w.worked = w.worked || healthy
}

func (w *watch) ok() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.healthy
}

// all returns the gaps that a closed watch has seen; those that are still open have
// no end.
func (w *watch) all(faults []checker.Fault) []checker.Gap {
	w.mu.Lock()
	defer w.mu.Unlock()
	var gaps []checker.Gap
	for _, g := range w.gaps {
		gaps = append(gaps, w.judge(g, faults))
	}
	for id, g := range w.open {
		gaps = append(gaps, w.judge(checker.Gap{Part: int(id), Fault: g.kind, Span: checker.Span{From: g.from}}, faults))
	}
	return gaps
}

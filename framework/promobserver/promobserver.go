// Package promobserver counts what happens to consumers for Prometheus.
//
//	countoff_tasks_total{consumer,partition,outcome}   runs of handlers: done, retry, requeue, dead, interrupted
//	countoff_buried_total{consumer}                    tasks that became dead letters without a run: that no handler was given, or that were cancelled while they waited
//	countoff_fetched_total{consumer,partition}         tasks that came in
//	countoff_handler_seconds{consumer,outcome}         how long handlers take
//	countoff_settle_seconds{consumer}                  how long the source takes to answer for a batch
//	countoff_failures_total{consumer,op}               calls that failed: start, open, fetch, settle, close, jobs, sync, seal, strategy, hints, count, epochs, unit, units
//	countoff_served{consumer,partition}                1 while it is served here
//	countoff_blocked{consumer,partition}               1 while it is not fetched, because too much waits for its key or its next try
//	countoff_halted{consumer,partition}                1 while nothing of it starts, because the source does not answer for what ended
//	countoff_limited{consumer}                         1 while tasks wait for the consumer's rate, for more than a second
//	countoff_lost_total{consumer}                      partitions that were taken away
//	countoff_stuck_handlers_total{consumer}            handlers that ignored the end of their context
//	countoff_overdue_drains_total{consumer}            drains that took longer than the drain time
//	countoff_lapses_total{consumer}                    times the lease may have run out
//	countoff_rolls_total{consumer,by}                  views seen and rolls sealed by this peer
//	countoff_index, countoff_replicas{consumer}        of the newest view; index -1: not a member, or stopped
//	countoff_weight, countoff_unwell{consumer}         what the peer says of itself, once it has changed; unwell also from the first health check
//	countoff_drained{consumer}                         1 while it is drained (countoff drain), once it was; none once stopped
//	countoff_handover_pause_seconds{consumer}          given away: from the last start here until the ledger took it back
//	countoff_open_seconds{consumer}                    gained: from the grant until it is served; the rest of the pause
//	countoff_takeover_seconds{consumer}                gained: from the view that gave it to us until it is served
//	countoff_takeover_bound_seconds{consumer}          what is promised after the death of a peer
//	countoff_unmoved_gap_seconds{consumer}             kept over a new view, with tasks in hand: from the handler before to the end of the next
//	countoff_units{consumer}                           units whose handler runs here
//	countoff_uncovered{consumer,kind}                  1 while something is wrong: unowned, none-eligible, double, overdue, refused, two-deployments, two-strategies, same-id, unwell, paused
//
// and, of the consumers given to [Observer.Watch], at the moment of the scrape:
//
//	countoff_held_tasks{consumer,partition,state}      running, ready, waiting, unsettled
//	countoff_ready{consumer}                           1 if the consumer is ready; also of the units given to Observer.WatchUnits
package promobserver

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
)

// An Observer counts. One serves any number of consumers.
type Observer struct {
	m metrics

	mu        sync.RWMutex
	consumers map[string]*consumer
	watched   []*framework.Consumer
	seats     []*framework.Units
}

var _ framework.Observer = (*Observer)(nil)

// New returns an observer whose metrics are registered at r, for as long as r is there. A second one is refused, also
// once the consumers of the first have stopped: each needs a registry of its own, or of prometheus.WrapRegistererWith
// another value of a label that all of them have.
func New(r prometheus.Registerer) (*Observer, error) {
	o := &Observer{m: newMetrics(), consumers: map[string]*consumer{}}
	for _, c := range append(o.m.all(), o.scrape()) {
		if err := r.Register(c); err != nil {
			if _, already := errors.AsType[prometheus.AlreadyRegisteredError](err); already {
				err = fmt.Errorf("the registerer has another Observer, and one is for all consumers of a process: %w", err)
			}
			return nil, fmt.Errorf("promobserver: %w", err)
		}
	}
	return o, nil
}

// Observe counts e.
func (o *Observer) Observe(e framework.Event) { o.observe(e) }

// ObserveHandled counts e.
func (o *Observer) ObserveHandled(e framework.Handled) {
	c := o.of(e.Consumer)
	p := c.partition(&o.m, e.Grant.ID)
	p.outcomes[e.Outcome].Inc()
	if d, ok := p.gap.handled(); ok {
		c.unmoved.Observe(d.Seconds())
	}
	c.handler[e.Outcome].Observe(e.Took.Seconds())
}

// observe counts e and reports whether it knows it.
func (o *Observer) observe(e framework.Event) bool {
	return o.tasks(e) || o.grant(e) || o.units(e) || o.consumer(e)
}

// tasks counts the events of tasks; it reports whether e is one.
func (o *Observer) tasks(e framework.Event) bool {
	switch e := e.(type) {
	case framework.Fetched:
		p := o.of(e.Consumer).partition(&o.m, e.Grant.ID)
		p.fetched.Add(float64(e.Tasks))
		p.gap.fetched(e.Tasks)
	case framework.Handled:
		o.ObserveHandled(e)
	case framework.Buried:
		o.m.buried.WithLabelValues(e.Consumer).Add(float64(e.Tasks))
	case framework.Cancelled:
		if !e.Runs { // what runs is told of when it ends
			o.m.buried.WithLabelValues(e.Consumer).Inc()
		}
	case framework.Settled:
		o.of(e.Consumer).settle.Observe(e.Took.Seconds())
	case framework.HandlerStuck:
		o.m.stuck.WithLabelValues(e.Consumer).Inc()
	case framework.Blocked:
		o.m.blocked.WithLabelValues(e.Consumer, e.Grant.ID.String()).Set(1)
	case framework.Unblocked:
		o.m.blocked.WithLabelValues(e.Consumer, e.Grant.ID.String()).Set(0)
	case framework.Halted:
		o.m.halted.WithLabelValues(e.Consumer, e.Grant.ID.String()).Set(1)
	case framework.Resumed:
		o.m.halted.WithLabelValues(e.Consumer, e.Grant.ID.String()).Set(0)
	case framework.FetchFailed:
		o.m.failures.WithLabelValues(e.Consumer, "fetch").Inc()
	case framework.SettleFailed:
		o.m.failures.WithLabelValues(e.Consumer, "settle").Inc()
	case framework.JobsFailed:
		o.m.failures.WithLabelValues(e.Consumer, "jobs").Inc()
	case framework.JobTicked: // its tasks are counted
	default:
		return false
	}
	return true
}

// grant counts the events of a grant; it reports whether e is one.
func (o *Observer) grant(e framework.Event) bool {
	switch e := e.(type) {
	case framework.Opened:
		o.m.served.WithLabelValues(e.Consumer, e.Grant.ID.String()).Set(1)
		o.m.open.WithLabelValues(e.Consumer).Observe(e.Took.Seconds())
		o.of(e.Consumer).partition(&o.m, e.Grant.ID).gap.opened()
		if d, ok := o.of(e.Consumer).gained(e.Grant.ID); ok {
			o.m.takeover.WithLabelValues(e.Consumer).Observe(d.Seconds())
		}
	case framework.OpenFailed:
		o.m.failures.WithLabelValues(e.Consumer, "open").Inc()
	case framework.CloseFailed:
		o.m.failures.WithLabelValues(e.Consumer, "close").Inc()
	case framework.Draining:
		o.m.served.WithLabelValues(e.Consumer, e.Grant.ID.String()).Set(0)
	case framework.DrainOverdue:
		o.m.overdue.WithLabelValues(e.Consumer).Inc()
	case framework.Lost:
		o.gone(e.Where)
		o.m.lost.WithLabelValues(e.Consumer).Inc()
	case framework.Drained: // the coordinator's events have the times
		o.gone(e.Where)
	case framework.Dropped:
		o.gone(e.Where)
	default:
		return false
	}
	return true
}

// gone says that nothing is told of a partition any more: what was is over.
func (o *Observer) gone(w framework.Where) {
	for _, gauge := range []*prometheus.GaugeVec{o.m.served, o.m.blocked, o.m.halted} {
		gauge.WithLabelValues(w.Consumer, w.Grant.ID.String()).Set(0)
	}
}

// units counts the events of units; it reports whether e is one.
func (o *Observer) units(e framework.Event) bool {
	switch e := e.(type) {
	case framework.UnitStarted:
		o.m.units.WithLabelValues(e.Consumer).Inc()
	case framework.UnitEnded:
		o.m.units.WithLabelValues(e.Consumer).Dec()
		if e.Cause == nil && e.Err != nil {
			o.m.failures.WithLabelValues(e.Consumer, "unit").Inc()
		}
	case framework.UnitsTroubled:
		o.m.failures.WithLabelValues(e.Consumer, "units").Inc()
	case framework.UnitsChanged: // nothing to count
	default:
		return false
	}
	return true
}

// consumer counts the events of a consumer; it reports whether e is one.
func (o *Observer) consumer(e framework.Event) bool {
	switch e := e.(type) {
	case framework.Started:
		o.m.bound.WithLabelValues(e.Consumer).Set(e.Takeover.Seconds())
	case framework.StartFailed:
		o.m.failures.WithLabelValues(e.Consumer, "start").Inc()
	case framework.Miscounted:
		o.m.failures.WithLabelValues(e.Consumer, "count").Inc()
	case framework.MajorityMissed:
		o.m.failures.WithLabelValues(e.Consumer, "epochs").Inc()
	case framework.Warned, framework.Stopping, framework.MajorityBack: // nothing to count
	case framework.Checked: // it begins unwell, and is well with the first check that passes; after that it declares what lasts
		if c := o.of(e.Consumer); !c.passed.Load() {
			c.passed.Store(e.Err == nil)
			o.m.unwell.WithLabelValues(e.Consumer).Set(map[bool]float64{false: 1}[e.Err == nil])
		}
	case framework.Limited:
		o.m.limited.WithLabelValues(e.Consumer).Set(1)
	case framework.Unlimited:
		o.m.limited.WithLabelValues(e.Consumer).Set(0)
	case framework.Uncovered:
		o.m.uncovered.WithLabelValues(e.Consumer, string(e.Finding.Kind)).Set(1)
	case framework.Covered:
		o.m.uncovered.WithLabelValues(e.Consumer, string(e.Kind)).Set(0)
	case framework.Relieved:
		o.m.uncovered.DeletePartialMatch(prometheus.Labels{"consumer": e.Consumer})
	case framework.Stopped:
		o.m.index.WithLabelValues(e.Consumer).Set(-1)
		o.m.replicas.WithLabelValues(e.Consumer).Set(0)
		o.m.limited.WithLabelValues(e.Consumer).Set(0)
		o.of(e.Consumer).passed.Store(false)
		o.m.drained.DeleteLabelValues(e.Consumer) // who begins anew while it is drained says so, and nobody that it no longer is
	case framework.Coordinated:
		return e.Event == nil || o.coordinated(e.Consumer, e.Event)
	default:
		return false
	}
	return true
}

// coordinated counts what the coordinator tells; it reports whether it knows e.
func (o *Observer) coordinated(name string, e transition.Event) bool {
	switch e := e.(type) {
	case transition.RollSeen:
		o.m.rolls.WithLabelValues(name, "seen").Inc()
		o.m.index.WithLabelValues(name).Set(float64(e.View.Index))
		o.m.replicas.WithLabelValues(name).Set(float64(e.View.Replicas))
		o.of(name).wished(e.View.Wish)
	case transition.Sealed:
		o.m.rolls.WithLabelValues(name, "sealed").Inc()
	case transition.SealFailed:
		o.m.failures.WithLabelValues(name, "seal").Inc()
	case transition.StrategyFailed:
		o.m.failures.WithLabelValues(name, "strategy").Inc()
	case transition.SyncFailed:
		o.m.failures.WithLabelValues(name, "sync").Inc()
	case transition.HintsLost:
		o.m.failures.WithLabelValues(name, "hints").Inc()
	case transition.Lapsed:
		o.m.lapses.WithLabelValues(name).Inc()
	case transition.Declared:
		o.m.weight.WithLabelValues(name).Set(float64(e.Weight))
		o.m.unwell.WithLabelValues(name).Set(map[bool]float64{false: 1}[e.Well])
	case transition.Dismissed:
		o.m.drained.WithLabelValues(name).Set(1)
	case transition.Recalled:
		o.m.drained.WithLabelValues(name).Set(0)
	case transition.Draining:
		o.of(name).drains(e.Grant)
	case transition.Aborted:
		o.of(name).forget(e.Grant)
	case transition.Released:
		if d, ok := o.of(name).released(e.Grant); ok {
			o.m.pause.WithLabelValues(name).Observe(d.Seconds())
		}
	case transition.Joined, transition.Renamed, transition.Synced, transition.ConfigRefused, transition.GraceOpened, transition.Paused, transition.Resumed, transition.Left,
		transition.BarrierClosed, transition.Served, transition.DrainOverdue, transition.Drained: // told in other words, or not worth a number
	default:
		return false
	}
	return true
}

// of returns what is kept of a consumer.
func (o *Observer) of(name string) *consumer {
	o.mu.RLock()
	c := o.consumers[name]
	o.mu.RUnlock()
	if c != nil {
		return c
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c = o.consumers[name]; c == nil {
		c = newConsumer(&o.m, name)
		o.consumers[name] = c
	}
	return c
}

// A consumer is what the observer keeps of one: the counters of the hot path, so
// that a task costs no search by labels, and since when it waits for partitions.
type consumer struct {
	name    string
	handler [outcomes]prometheus.Observer
	settle  prometheus.Observer
	unmoved prometheus.Observer
	passed  atomic.Bool // a health check, since it began

	mu         sync.RWMutex
	partitions map[partition.ID]*counters
	since      map[partition.ID]time.Time    // wished, not served yet
	drain      map[partition.Grant]time.Time // draining since
}

type counters struct {
	fetched  prometheus.Counter
	outcomes [outcomes]prometheus.Counter
	gap      gap
}

// outcomes is how many there are, with 0 for interrupted.
const outcomes = int(sources.Dead) + 1

func label(o sources.Outcome) string {
	if o == 0 {
		return "interrupted"
	}
	return o.String()
}

func newConsumer(m *metrics, name string) *consumer {
	c := &consumer{
		name:       name,
		settle:     m.settle.WithLabelValues(name),
		unmoved:    m.unmoved.WithLabelValues(name),
		partitions: map[partition.ID]*counters{},
		since:      map[partition.ID]time.Time{},
		drain:      map[partition.Grant]time.Time{},
	}
	for o := range c.handler {
		c.handler[o] = m.handler.WithLabelValues(name, label(sources.Outcome(o)))
	}
	return c
}

func (c *consumer) partition(m *metrics, id partition.ID) *counters {
	c.mu.RLock()
	p := c.partitions[id]
	c.mu.RUnlock()
	if p != nil {
		return p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p = c.partitions[id]; p == nil {
		l := strconv.Itoa(int(id))
		p = &counters{fetched: m.fetched.WithLabelValues(c.name, l)}
		for o := range p.outcomes {
			p.outcomes[o] = m.tasks.WithLabelValues(c.name, l, label(sources.Outcome(o)))
		}
		c.partitions[id] = p
	}
	return p
}

// wished notes what the newest view gives the peer.
func (c *consumer) wished(wish []partition.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	former := c.since
	c.since = make(map[partition.ID]time.Time, len(wish))
	now := time.Now()
	for _, id := range wish {
		at, waits := former[id]
		if p := c.partitions[id]; p != nil && waits && at.IsZero() {
			p.gap.kept()
		}
		if !waits {
			at = now
		}
		c.since[id] = at
	}
}

// gained says how long a partition was wished before it is served.
func (c *consumer) gained(id partition.ID) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.since[id]
	if !ok || at.IsZero() {
		return 0, false
	}
	c.since[id] = time.Time{} // it has been; a later view with it gives nothing new
	return time.Since(at), true
}

func (c *consumer) drains(g partition.Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain[g] = time.Now()
}

func (c *consumer) forget(g partition.Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.drain, g)
}

// released says how long a hand-over kept the partition from being worked on here.
func (c *consumer) released(g partition.Grant) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.drain[g]
	delete(c.drain, g)
	return time.Since(at), ok
}

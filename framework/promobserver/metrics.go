package promobserver

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countoff/countoff/framework"
)

type metrics struct {
	tasks, buried, fetched, failures, lost, stuck, overdue, lapses, rolls                               *prometheus.CounterVec
	served, blocked, halted, limited, index, replicas, bound, uncovered, weight, unwell, drained, units *prometheus.GaugeVec
	handler, settle, pause, open, takeover, unmoved                                                     *prometheus.HistogramVec
}

func newMetrics() metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "countoff", Name: name, Help: help}, append([]string{"consumer"}, labels...))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "countoff", Name: name, Help: help}, append([]string{"consumer"}, labels...))
	}
	// From half a millisecond to half a minute: a settle, a handler, a takeover.
	buckets := prometheus.ExponentialBuckets(0.0005, 2, 17)
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "countoff", Name: name, Help: help, Buckets: buckets},
			append([]string{"consumer"}, labels...))
	}
	return metrics{
		tasks:     counter("tasks_total", "Runs of handlers, by what became of the task.", "partition", "outcome"),
		buried:    counter("buried_total", "Tasks that became dead letters and that no handler was given."),
		fetched:   counter("fetched_total", "Tasks fetched.", "partition"),
		failures:  counter("failures_total", "Calls of stores that failed; they are repeated.", "op"),
		lost:      counter("lost_total", "Partitions that were taken away from this peer."),
		stuck:     counter("stuck_handlers_total", "Handlers that ignored the end of their context."),
		overdue:   counter("overdue_drains_total", "Drains that took longer than the drain time."),
		lapses:    counter("lapses_total", "Times the lease may have run out."),
		rolls:     counter("rolls_total", "Views seen and rolls sealed by this peer.", "by"),
		served:    gauge("served", "1 while the partition is served by this peer.", "partition"),
		blocked:   gauge("blocked", "1 while the partition is not fetched because too many tasks wait for their key or their next try.", "partition"),
		halted:    gauge("halted", "1 while nothing of the partition starts because the source does not answer for what ended.", "partition"),
		limited:   gauge("limited", "1 while tasks wait for the consumer's rate, for more than a second."),
		index:     gauge("index", "This peer's place in the newest roll; -1: not a member."),
		replicas:  gauge("replicas", "Live peers by the newest roll."),
		bound:     gauge("takeover_bound_seconds", "A dead peer's partitions are granted again by then."),
		weight:    gauge("weight", "This peer's share of the work relative to the others, once it has changed."),
		unwell:    gauge("unwell", "1 while this peer says that it is unwell: partitions are for others."),
		drained:   gauge("drained", "1 while this peer is drained: others have its share, see countoff drain."),
		uncovered: gauge("uncovered", "1 while something is wrong about the name; told by the first of its peers that works.", "kind"),
		units:     gauge("units", "Units whose handler runs in this peer."),
		handler:   histogram("handler_seconds", "How long handlers take.", "outcome"),
		settle:    histogram("settle_seconds", "How long the source takes to answer for a batch of outcomes."),
		pause:     histogram("handover_pause_seconds", "A partition given away: from the last start here until the ledger took it back."),
		open:      histogram("open_seconds", "A partition gained: from the grant until it is served."),
		unmoved:   histogram("unmoved_gap_seconds", "A partition kept over a new view, with tasks in hand: from the handler before to the end of the next."),
		takeover:  histogram("takeover_seconds", "A partition gained: from the view that gave it to this peer until it is served."),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.tasks, m.buried, m.fetched, m.failures, m.lost, m.stuck, m.overdue, m.lapses, m.rolls,
		m.served, m.blocked, m.halted, m.limited, m.index, m.replicas, m.bound, m.uncovered, m.weight, m.unwell, m.drained, m.units,
		m.handler, m.settle, m.pause, m.open, m.takeover, m.unmoved,
	}
}

// Watch adds c to the consumers that are asked at each scrape for what they hold
// and whether they are ready. It takes the place of one of the same name.
func (o *Observer) Watch(c *framework.Consumer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched = with(o.watched, c)
}

// WatchUnits adds u to the peers of units that are asked at each scrape whether they are ready.
// It takes the place of one of the same name.
func (o *Observer) WatchUnits(u *framework.Units) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seats = with(o.seats, u)
}

// with returns all and m, without a former one of its name: two would spoil every scrape. A scrape
// under way goes through all as they were.
func with[M interface{ Name() string }](all []M, m M) []M {
	return append(slices.DeleteFunc(slices.Clone(all), func(former M) bool { return former.Name() == m.Name() }), m)
}

// A scraper asks the watched consumers and peers of units.
type scraper struct {
	o            *Observer
	tasks, ready *prometheus.Desc
}

func (o *Observer) scrape() scraper {
	return scraper{
		o:     o,
		tasks: prometheus.NewDesc("countoff_held_tasks", "Tasks in the hands of this peer.", []string{"consumer", "partition", "state"}, nil),
		ready: prometheus.NewDesc("countoff_ready", "1 if the peer is a member and its share is served or waited for.", []string{"consumer"}, nil),
	}
}

func (s scraper) Describe(to chan<- *prometheus.Desc) { to <- s.tasks; to <- s.ready }

func (s scraper) Collect(to chan<- prometheus.Metric) {
	s.o.mu.RLock()
	watched, seats := s.o.watched, s.o.seats
	s.o.mu.RUnlock()
	ready := func(name string, missing error) {
		v := 0.0
		if missing == nil {
			v = 1
		}
		to <- prometheus.MustNewConstMetric(s.ready, prometheus.GaugeValue, v, name)
	}
	for _, u := range seats {
		ready(u.Name(), u.Ready())
	}
	for _, c := range watched {
		ready(c.Name(), c.Ready())
		for _, l := range c.Lanes() {
			id := strconv.Itoa(int(l.Grant.ID))
			for state, n := range map[string]int{"running": l.Running, "ready": l.Ready, "waiting": l.Waiting, "unsettled": l.Unsettled} {
				to <- prometheus.MustNewConstMetric(s.tasks, prometheus.GaugeValue, float64(n), c.Name(), id, state)
			}
		}
	}
}

package promobserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// A new type of event must be counted, or be named as not worth it.
func TestKnowsEveryEventThereIs(t *testing.T) {
	o, err := New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	all := framework.Events()
	for _, e := range transition.Events() {
		all = append(all, framework.Coordinated{Event: e})
	}
	for _, e := range all {
		if !o.observe(e) {
			t.Errorf("%T (%+v) is not known", e, e)
		}
	}
	if o.observe(nil) {
		t.Error("what is no event is known")
	}
}

// read returns the value of a counter or gauge, or the count of a histogram, over
// all label values that contain the given ones.
func read(t *testing.T, r prometheus.Gatherer, name string, values ...string) float64 {
	t.Helper()
	sum, found := find(t, r, name, values...)
	if !found {
		t.Errorf("no %s with %v", name, values)
	}
	return sum
}

// find is read of what may not be there.
func find(t *testing.T, r prometheus.Gatherer, name string, values ...string) (sum float64, found bool) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "countoff_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += l.GetName() + "=" + l.GetValue() + " "
			}
			matches := true
			for _, v := range values {
				matches = matches && strings.Contains(labels, v+" ")
			}
			if matches {
				found = true
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum, found
}

func TestCountsTheLifeOfTwoPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout := partition.Config{Total: 4}
		store, err := memsource.New(memsource.Config{Partitions: layout})
		if err != nil {
			t.Fatal(err)
		}
		ledger := memledger.New(layout, transition.Timing{}, memledger.Options{})
		handler := framework.HandlerFunc(func(_ context.Context, task *framework.Task) error {
			if task.Key == "bad" {
				return framework.Dead(errors.New("no"))
			}
			return nil
		})
		peer := func(name string) (*framework.Consumer, *prometheus.Registry) {
			r := prometheus.NewRegistry()
			o, err := New(r)
			if err != nil {
				t.Fatal(err)
			}
			c, err := framework.New("test", store, handler, framework.WithLedger(ledger), framework.WithPeer(name, 1), framework.WithObserver(o))
			if err != nil {
				t.Fatal(err)
			}
			o.Watch(c)
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			return c, r
		}
		for i := range 20 {
			if err := store.Push(sources.Task{ID: fmt.Sprint(i), Key: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Push(sources.Task{ID: "bad", Key: "bad"}); err != nil {
			t.Fatal(err)
		}
		ann, r := peer("ann")
		time.Sleep(30 * time.Second)
		ben, r2 := peer("ben")
		time.Sleep(30 * time.Second)
		for _, c := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"tasks_total", []string{"consumer=test", "outcome=done"}, 20},
			{"tasks_total", []string{"outcome=dead"}, 1},
			{"fetched_total", nil, 21},
			{"handler_seconds", []string{"outcome=done"}, 20},
			{"served", nil, 2},
			{"handover_pause_seconds", nil, 2},
			{"takeover_seconds", nil, 4},
			{"open_seconds", nil, 4},
			{"replicas", nil, 2},
			{"index", nil, 0},
			{"ready", nil, 1},
			{"held_tasks", []string{"state=running"}, 0},
			{"takeover_bound_seconds", nil, 13.5},
		} {
			if got := read(t, r, c.name, c.labels...); got != c.want {
				t.Errorf("%s %v = %v, want %v", c.name, c.labels, got, c.want)
			}
		}
		if got := read(t, r2, "takeover_seconds"); got != 2 {
			t.Errorf("the other peer took over %v partitions, want 2", got)
		}
		for _, c := range []*framework.Consumer{ann, ben} {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTwoObserversOfOneRegistryAreRefused(t *testing.T) {
	r := prometheus.NewRegistry()
	if _, err := New(r); err != nil {
		t.Fatal(err)
	}
	_, err := New(r)
	if _, already := errors.AsType[prometheus.AlreadyRegisteredError](err); !already || !strings.HasPrefix(err.Error(), "promobserver: the registerer has another Observer") {
		t.Errorf("the second says %v", err)
	}
	labelled := prometheus.NewRegistry()
	for _, app := range []string{"one", "other"} {
		if _, err := New(prometheus.WrapRegistererWith(prometheus.Labels{"app": app}, labelled)); err != nil {
			t.Error(err)
		}
	}
}

// A partition that stays tells its gap once for each new view, if it has tasks in hand.
func TestUnmovedGap(t *testing.T) {
	r := prometheus.NewRegistry()
	o, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	where := framework.Where{Consumer: "n", Grant: partition.Grant{ID: 1, Epoch: 2}}
	seen := func(wish ...partition.ID) {
		o.Observe(framework.Coordinated{Consumer: "n", Event: transition.RollSeen{View: partition.View{Wish: wish}}})
	}
	gaps := func() uint64 {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "countoff_unmoved_gap_seconds" {
				return f.GetMetric()[0].GetHistogram().GetSampleCount()
			}
		}
		return 0
	}
	seen(1)
	o.Observe(framework.Opened{Where: where})
	seen(1, 2)
	o.Observe(framework.Handled{Where: where, Outcome: sources.Done})
	if n := gaps(); n != 0 {
		t.Errorf("nothing was in hand, %d gaps", n)
	}
	o.Observe(framework.Opened{Where: where})
	o.Observe(framework.Fetched{Where: where, Tasks: 3})
	seen(1)
	o.Observe(framework.Handled{Where: where, Outcome: sources.Done})
	o.Observe(framework.Handled{Where: where, Outcome: sources.Done})
	if n := gaps(); n != 1 {
		t.Errorf("%d gaps, want 1", n)
	}
}

// What is told of a partition ends with its grant, however that ends.
func TestAPartitionThatIsGoneIsNotBlocked(t *testing.T) {
	where := framework.Where{Consumer: "n", Grant: partition.Grant{ID: 1, Epoch: 2}}
	for what, ends := range map[string][]framework.Event{
		"handed over": {framework.Draining{Where: where}, framework.Drained{Where: where}},
		"lost":        {framework.Lost{Where: where}},
		// What blocked it may be told by another goroutine than that it is lost.
		"told late": {framework.Lost{Where: where}, framework.Blocked{Where: where}, framework.Halted{Where: where}, framework.Dropped{Where: where}},
	} {
		t.Run(what, func(t *testing.T) {
			r := prometheus.NewRegistry()
			o, err := New(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range append([]framework.Event{framework.Opened{Where: where}, framework.Blocked{Where: where}, framework.Halted{Where: where}}, ends...) {
				o.Observe(e)
			}
			for _, gauge := range []string{"served", "blocked", "halted"} {
				if v := read(t, r, gauge, "partition=1"); v != 0 {
					t.Errorf("countoff_%s is %v", gauge, v)
				}
			}
		})
	}
}

// Dead letters that no handler was given are counted one by one, whatever they are told in.
func TestBuriedTasksAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	o, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3} {
		o.Observe(framework.Buried{Consumer: "n", Buried: sources.Buried{Tasks: n}})
	}
	o.Observe(framework.Cancelled{Where: framework.Where{Consumer: "n"}, Runs: true}) // Handled tells of it
	o.Observe(framework.Cancelled{Where: framework.Where{Consumer: "n"}})
	if v := read(t, r, "buried_total", "consumer=n"); v != 5 {
		t.Errorf("countoff_buried_total is %v, want 5", v)
	}
}

// Who does not look after the name any more tells nothing about it: another peer does.
func TestWhatIsWrongIsToldByWhoLooks(t *testing.T) {
	r := prometheus.NewRegistry()
	o, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(consumer string) bool {
		v, _ := find(t, r, "uncovered", "consumer="+consumer)
		return v == 1
	}
	for _, name := range []string{"n", "m"} {
		e := framework.Uncovered{Consumer: name}
		e.Finding.Kind = "unowned"
		o.Observe(e)
	}
	if !wrong("n") || !wrong("m") {
		t.Error("what is wrong is not told")
	}
	o.Observe(framework.Relieved{Consumer: "n"})
	if wrong("n") || !wrong("m") {
		t.Errorf("of the one that looks no more: %t, of the other: %t", wrong("n"), wrong("m"))
	}
}

// Who has a health check begins unwell and declares nothing before that changes: a check that fails from the start
// would else look as if the peer could not open its partitions.
func TestWhoIsUnwellFromTheStartSaysSo(t *testing.T) {
	sick := errors.New("no disk")
	check := func(err error) framework.Event { return framework.Checked{Consumer: "n", Err: err} }
	declared := func(well bool) framework.Event {
		return framework.Coordinated{Consumer: "n", Event: transition.Declared{Weight: 1, Well: well}}
	}
	for _, c := range []struct {
		name   string
		events []framework.Event
		unwell float64
	}{
		{"from the start", []framework.Event{check(sick)}, 1},
		{"until a check passes, before it is a member", []framework.Event{check(sick), check(nil)}, 0},
		{"well from the start", []framework.Event{check(nil)}, 0},
		{"a failure that may not last", []framework.Event{check(nil), declared(true), check(sick)}, 0},
		{"a failure that lasts", []framework.Event{check(nil), check(sick), declared(false)}, 1},
		{"a pass that may not last", []framework.Event{check(nil), check(sick), declared(false), check(nil)}, 1},
		{"begun anew", []framework.Event{check(nil), framework.Stopped{Consumer: "n"}, check(sick)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := prometheus.NewRegistry()
			o, err := New(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.events {
				o.Observe(e)
			}
			if v := read(t, r, "unwell"); v != c.unwell {
				t.Errorf("countoff_unwell is %v, want %v", v, c.unwell)
			}
		})
	}
}

// A consumer that was stopped while it was drained may begin anew when it no longer is, and hears of nothing then.
func TestWhoStoppedIsNotDrained(t *testing.T) {
	r := prometheus.NewRegistry()
	o, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	tell := func(e transition.Event) { o.Observe(framework.Coordinated{Consumer: "n", Event: e}) }
	for _, want := range []struct {
		event transition.Event
		value float64
	}{{transition.Dismissed{}, 1}, {transition.Recalled{}, 0}, {transition.Dismissed{}, 1}} {
		tell(want.event)
		if got := read(t, r, "drained", "n"); got != want.value {
			t.Errorf("%T: %v", want.event, got)
		}
	}
	o.Observe(framework.Stopped{Consumer: "n"})
	if got, found := find(t, r, "drained", "n"); found {
		t.Errorf("it is stopped, and drained: %v", got)
	}
}

// Of consumers of one name that are watched one after the other, and of one that is watched twice, one
// is asked: a second answer would spoil every scrape.
func TestAConsumerIsWatchedOnce(t *testing.T) {
	r := prometheus.NewRegistry()
	o, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	layout := partition.Config{Total: 1}
	store, err := memsource.New(memsource.Config{Partitions: layout})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := framework.New("x", store, framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil }),
			framework.WithLedger(memledger.New(layout, transition.Timing{}, memledger.Options{})))
		if err != nil {
			t.Fatal(err)
		}
		o.Watch(c)
		o.Watch(c)
	}
	if v := read(t, r, "ready", "consumer=x"); v != 0 {
		t.Errorf("countoff_ready is %v", v)
	}
}

// Peers of units are ready or not, as consumers are: an alarm asks whether anybody is there at all.
func TestUnitsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		o, err := New(r)
		if err != nil {
			t.Fatal(err)
		}
		u, err := framework.NewUnits("sites", framework.UnitsConfig{
			Source:  oneUnit{},
			Handler: func(ctx context.Context, _ framework.Unit) error { <-ctx.Done(); return nil },
			Control: func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
				return memledger.New(layout, transition.Timing{}, memledger.Options{}), nil, nil
			},
			Observer: o,
		})
		if err != nil {
			t.Fatal(err)
		}
		o.WatchUnits(u)
		o.WatchUnits(u)
		if v := read(t, r, "ready", "consumer=sites"); v != 0 {
			t.Errorf("countoff_ready is %v before the start", v)
		}
		if err := u.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if ready, units := read(t, r, "ready", "consumer=sites"), read(t, r, "units", "consumer=sites"); ready != 1 || units != 1 {
			t.Errorf("countoff_ready is %v, countoff_units %v", ready, units)
		}
		if err := u.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

type oneUnit struct{}

func (oneUnit) Layout(context.Context) (partition.Config, error) {
	return partition.Config{Total: 4}.WithDefaults(), nil
}
func (oneUnit) Units(context.Context) ([]string, error) { return []string{"https://example.com"}, nil }

// named are the names of all metrics, with their labels.
func named(t *testing.T) map[string][]string {
	t.Helper()
	o, err := New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string][]string)
	for _, c := range append(o.m.all(), o.scrape()) {
		described := make(chan *prometheus.Desc, 8)
		c.Describe(described)
		close(described)
		for d := range described {
			_, labels, _ := strings.Cut(d.String(), "variableLabels: ")
			there[regexp.MustCompile(`countoff_\w+`).FindString(d.String())] = regexp.MustCompile(`\w+`).FindAllString(labels, -1)
		}
	}
	return there
}

// In OpenMetrics the name of a counter is without its _total: no other metric may have that name, or
// who reads it strictly refuses all there is.
func TestNamesDoNotClashInOpenMetrics(t *testing.T) {
	there := named(t)
	for name := range there {
		family, counter := strings.CutSuffix(name, "_total")
		if _, both := there[family]; counter && both {
			t.Errorf("%s and %s are one family", name, family)
		}
	}
}

// "increase(m[10m]) or m" never sees m: an increase of 0 has the same labels, and "or" takes what stands to its left. So a
// series that begins with 1, and stays there, would be told for as long as it has a single sample.
func TestAnIncreaseOfNothingHidesNoNewSeries(t *testing.T) {
	rules, err := os.ReadFile("../../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	increases := regexp.MustCompile(`increase\([^()]+\)( > 0)?`).FindAllStringSubmatch(string(rules), -1)
	if len(increases) < 5 {
		t.Errorf("there are only %d increases", len(increases))
	}
	for _, i := range increases {
		if i[1] == "" {
			t.Errorf("%s counts also where it is 0", i[0])
		}
	}
}

// A rate is above its limit for as long as its window reaches back to what was: a rule that waits no longer than that
// fires minutes after a fail-over of seconds.
func TestARateThatLastsOutlastsItsWindow(t *testing.T) {
	rules, err := os.ReadFile("../../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	rates := 0
	for _, alert := range strings.Split(string(rules), "- alert:")[1:] {
		lasts := regexp.MustCompile(`\bfor: (\w+)`).FindStringSubmatch(alert)
		for _, window := range regexp.MustCompile(`\brate\([^()]+\[(\w+)\]\)`).FindAllStringSubmatch(alert, -1) {
			rates++
			if lasts == nil {
				t.Errorf("%s does not last", strings.Fields(alert)[0])
				continue
			}
			over, err := time.ParseDuration(window[1])
			if err != nil {
				t.Fatal(err)
			}
			least, err := time.ParseDuration(lasts[1])
			if err != nil {
				t.Fatal(err)
			}
			if least < 2*over {
				t.Errorf("%s is told after %v, and its rate looks back %v", strings.Fields(alert)[0], least, over)
			}
		}
	}
	if rates == 0 {
		t.Error("there are no rates")
	}
}

// The rules for Prometheus ask for metrics that there are, and for labels that these have.
func TestAlertsAskForWhatThereIs(t *testing.T) {
	rules, err := os.ReadFile("../../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	there := named(t)
	alerts := strings.Split(string(rules), "- alert:")[1:]
	if len(alerts) < 9 {
		t.Errorf("there are only %d rules", len(alerts))
	}
	for _, alert := range alerts {
		expr, summary, _ := strings.Cut(alert, "annotations:")
		name := strings.Fields(alert)[0]
		metrics := regexp.MustCompile(`(countoff_\w+)(?:\{(\w+)=)?`).FindAllStringSubmatch(expr, -1)
		if len(metrics) == 0 {
			t.Errorf("%s asks for no metric", name)
		}
		said := regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(summary, -1)
		kept := regexp.MustCompile(`by \((\w+)\)`).FindStringSubmatch(expr)
		for _, m := range metrics {
			labels, ok := there[m[1]]
			if !ok {
				t.Errorf("%s: there is no metric %s", name, m[1])
				continue
			}
			if m[2] != "" && !slices.Contains(labels, m[2]) {
				t.Errorf("%s: %s has no label %s, but %q", name, m[1], m[2], labels)
			}
			if labels = append(labels, "instance"); kept != nil { // which Prometheus gives it
				labels = kept[1:]
			}
			for _, l := range said {
				if !slices.Contains(labels, l[1]) {
					t.Errorf("%s: the label %s, which its text has, is none of %s: %q", name, l[1], m[1], labels)
				}
			}
		}
	}
}

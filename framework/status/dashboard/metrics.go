package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/transition/coverage"
)

// A metric is a gauge of each name, in the text format of Prometheus. Names are of letters that need no escape
// there.
type metric struct {
	name, help string
	of         func(v *view, sample func(value int, labels string))
}

// metrics are what can be said of a name from outside, also while no peer of it lives: to scale from none, and
// to notice that nobody is there.
var metrics = []metric{
	{"up", "1 if the store tells of the name; without, the others are missing.", func(v *view, sample func(int, string)) {
		up := 0
		if v.err == nil {
			up = 1
		}
		sample(up, "")
	}},
	{"peers", "Peers that take part.", known(func(v *view, sample func(int, string)) { sample(v.Present(), "") })},
	{"drained", "Peers that are drained, whether they take part or not.", known(func(v *view, sample func(int, string)) { sample(len(v.status.Drained), "") })},
	{"partitions", "Partitions by state: owned, moving, opening, unowned, double.", known(func(v *view, sample func(int, string)) {
		states := v.States()
		for _, state := range []string{status.Owned, status.Moving, status.Opening, status.Unowned, status.Double} {
			sample(states[state], "state="+state)
		}
	})},
	{"tasks", "Tasks by state: pending, in_flight, delayed, dead. Missing where it is not known what partitions hold.", known(func(v *view, sample func(int, string)) {
		t := v.status.Totals()
		if v.status.TasksUnknown || t.Unknown { // whoever scales by it is to know that it is not all
			return
		}
		sample(t.Pending, "state=pending")
		sample(t.InFlight, "state=in_flight")
		sample(t.Delayed, "state=delayed")
		sample(t.Dead, "state=dead")
	})},
	{"ingress_lines", "Lines in ingress lists, which are tasks that are in no partition yet.", known(func(v *view, sample func(int, string)) {
		if v.status.TasksUnknown || len(v.status.Units) == 0 {
			return
		}
		lines := 0
		for _, u := range v.status.Units {
			if u.Unknown {
				return
			}
			lines += u.Pending
		}
		sample(lines, "")
	})},
	{"to_cancel", "Tasks that are to be cancelled by state: waits, runs. Missing where there are none.", known(func(v *view, sample func(int, string)) {
		if c := v.status.ToCancel; c != nil && c.Trouble == "" {
			sample(c.Waits, "state=waits")
			sample(c.Runs, "state=runs")
		}
	})},
	{"findings", "1 for each kind of what is wrong for longer than it may be.", known(func(v *view, sample func(int, string)) {
		var kinds []coverage.Kind
		for _, f := range v.status.Findings {
			kinds = append(kinds, f.Kind)
		}
		slices.Sort(kinds)
		for _, kind := range slices.Compact(kinds) {
			sample(1, fmt.Sprint("kind=", kind))
		}
	})},
}

// known is of, for views that are of now: what was once is no measurement.
func known(of func(*view, func(int, string))) func(*view, func(int, string)) {
	return func(v *view, sample func(int, string)) {
		if v.err == nil {
			of(v, sample)
		}
	}
}

func (b *Board) metrics(w http.ResponseWriter, r *http.Request) {
	views, err := b.allViews(r.Context())
	if err != nil && len(views) == 0 { // of names that were there it can be said that they are not up
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	var text strings.Builder
	for _, m := range metrics {
		fmt.Fprintf(&text, "# HELP countoff_name_%s %s\n# TYPE countoff_name_%s gauge\n", m.name, m.help, m.name)
		for _, v := range views {
			m.of(v, func(value int, label string) {
				labels := fmt.Sprintf("name=%q", v.name)
				if key, word, ok := strings.Cut(label, "="); ok {
					labels += fmt.Sprintf(",%s=%q", key, word)
				}
				fmt.Fprintf(&text, "countoff_name_%s{%s} %d\n", m.name, labels, value)
			})
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(text.String())) // who is gone reads nothing
}

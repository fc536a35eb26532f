package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
)

// mostEvidence bounds how many violations of one rule are kept whole.
const mostEvidence = 20

// Check says what h came to.
func Check(h *History) *Report {
	c := &check{h: h, report: &Report{ViolationsByRule: map[string]int{}, Pauses: map[string]time.Duration{}}}
	c.index()
	c.finals()
	c.strangers()
	c.overlaps()
	c.tables()
	c.orders()
	c.doubles()
	c.fences()
	c.starts()
	c.gaps()
	c.losses()
	c.pauses()
	for _, t := range h.Troubles {
		c.violate("peer", t)
	}
	return c.report
}

// never is later than everything.
const never = journal.Time(1<<63 - 1)

// A run is one run of a handler.
type run struct {
	began   journal.Record
	ended   *journal.Record
	process *Process
	// settled is when the source had answered for what became of it, and asked when it
	// was asked to; 0: never.
	asked, settled journal.Time
}

// end is when r was over for everybody: its return, or the death of its process.
func (r *run) end() journal.Time {
	end := never
	if r.ended != nil {
		end = r.ended.Time
	}
	if k := r.process.Killed; k > 0 {
		end = min(end, k)
	}
	return end
}

func (r *run) outcome() string {
	if r.ended == nil {
		return ""
	}
	return r.ended.Outcome
}

// final reports whether the handler came to an end that is one.
func (r *run) final() bool { return r.outcome() == journal.Done || r.outcome() == journal.Dead }

func (r *run) evidence() []string {
	s := []string{r.process.Name + ": " + r.began.String()}
	switch {
	case r.ended != nil:
		s = append(s, r.process.Name+": "+r.ended.String())
	case r.process.Killed > 0:
		s = append(s, fmt.Sprintf("%s: killed at %.4fs", r.process.Name, r.process.Killed.Seconds()))
	}
	if r.settled > 0 {
		s = append(s, fmt.Sprintf("%s: settled, answered at %.4fs", r.process.Name, r.settled.Seconds()))
	}
	for _, f := range r.process.Frozen {
		if f.Until > r.began.Time && f.From < r.end() {
			s = append(s, fmt.Sprintf("%s: did not run from %.4fs to %.4fs", r.process.Name, f.From.Seconds(), f.Until.Seconds()))
		}
	}
	return s
}

// A tenure names one ownership.
type tenure struct {
	part  int
	epoch uint64
}

// owned names one ownership of one process.
type owned struct {
	process *Process
	tenure
}

type check struct {
	h      *History
	report *Report

	pushes map[string]*Push
	runs   map[string][]*run // by task, in the order of their beginnings
	keys   map[string][]*run // by key
	lost   map[owned]journal.Record
	opens  map[int][]open // by partition, in the order of their answers
}

// open is an ownership that the store let in.
type open struct {
	journal.Record
	process *Process
}

func (c *check) violate(rule, what string, evidence ...string) {
	c.report.ViolationsByRule[rule]++
	if c.report.ViolationsByRule[rule] <= mostEvidence {
		c.report.Violations = append(c.report.Violations, Violation{rule, what, evidence})
	}
}

// index sorts the records.
func (c *check) index() {
	c.pushes = make(map[string]*Push, len(c.h.Pushes))
	for i := range c.h.Pushes {
		p := &c.h.Pushes[i]
		c.pushes[p.Task] = p
		c.report.Enqueued++
		if p.Acked > 0 {
			c.report.Acked++
		}
	}
	c.runs, c.keys = map[string][]*run{}, map[string][]*run{}
	c.lost, c.opens = map[owned]journal.Record{}, map[int][]open{}
	for i := range c.h.Processes {
		c.process(&c.h.Processes[i])
	}
	early := func(a, b *run) int { return cmp.Compare(a.began.Time, b.began.Time) }
	for _, runs := range c.runs {
		slices.SortFunc(runs, early)
	}
	for _, runs := range c.keys {
		slices.SortFunc(runs, early)
	}
	for _, all := range c.opens {
		slices.SortFunc(all, func(a, b open) int { return cmp.Compare(a.Until, b.Until) })
	}
}

// process takes in what one process wrote down.
func (c *check) process(p *Process) {
	byNumber := map[uint64]*run{}
	// The settlement of a task belongs to its newest run that has ended, in this
	// ownership.
	type delivery struct {
		tenure
		task string
	}
	newest := map[delivery]*run{}
	left := false
	for _, r := range p.Records {
		at := tenure{r.Part, r.Epoch}
		switch r.Kind {
		case journal.Began:
			x := &run{began: r, process: p}
			byNumber[r.Run] = x
			c.begin(x)
		case journal.Ended:
			if x := byNumber[r.Run]; x != nil {
				x.ended = &r
				newest[delivery{at, r.Task}] = x
				if r.Outcome == journal.Retry {
					c.report.Retries++
				}
			}
		case journal.Settled:
			if r.Outcome == journal.Fenced || r.Outcome == journal.Forgot {
				c.report.StaleSettlesTried++
			}
			if r.Outcome != journal.OK {
				continue
			}
			for _, v := range r.Tasks {
				if x := newest[delivery{at, v.Task}]; x != nil && x.settled == 0 {
					x.asked, x.settled = r.Time, r.Until
				}
			}
		case journal.Opened:
			if r.Outcome == journal.OK {
				c.opens[r.Part] = append(c.opens[r.Part], open{r, p})
			}
		case journal.Lost:
			c.report.LostGrants++
			if _, ok := c.lost[owned{p, at}]; !ok {
				c.lost[owned{p, at}] = r
			}
		case journal.Stalled:
			p.Frozen = append(p.Frozen, Span{r.Time, r.Until})
		case journal.Left:
			left = true
		}
	}
	if p.Killed > 0 {
		return
	}
	if !left {
		c.violate("peer", p.Name+" was neither killed nor did it leave")
	}
	for _, x := range byNumber {
		if x.ended == nil {
			c.violate("peer", p.Name+" left while a handler ran", x.evidence()...)
		}
	}
}

// begin takes in a run, and checks that its task is one that was sent.
func (c *check) begin(x *run) {
	r := x.began
	c.report.Runs++
	c.runs[r.Task] = append(c.runs[r.Task], x)
	key := cmp.Or(r.Key, "task "+r.Task)
	c.keys[key] = append(c.keys[key], x)
	switch push := c.pushes[r.Task]; {
	case push == nil:
		c.violate("invented", fmt.Sprintf("task %s was never sent", r.Task), x.evidence()...)
	case push.Refused:
		c.violate("invented", fmt.Sprintf("task %s was refused", r.Task), append(x.evidence(), push.String())...)
	case push.Key != r.Key || push.Seq != r.Seq:
		c.violate("invented", fmt.Sprintf("task %s was sent as number %d of key %q", r.Task, push.Seq, push.Key), x.evidence()...)
	}
}

// forgettable reports whether what the store acknowledged at that time, to a call sent
// at that time, may have been gone by then.
func (c *check) forgettable(sent, acked, by journal.Time) bool {
	return slices.ContainsFunc(c.h.Losses, func(l Loss) bool {
		return acked > l.From && sent <= l.Until && l.At <= by
	})
}

// gone reports whether a task, or its dead letter, that the store acknowledged may be
// gone in the end. stood says whether a store that was looked at had it.
func (c *check) gone(sent, acked journal.Time, stood func(*Store) bool) bool {
	return slices.ContainsFunc(c.h.Losses, func(l Loss) bool {
		return acked > l.From && sent <= l.Until && (l.Held == nil || acked > l.At || stood(l.Held))
	})
}

// letters is how many dead letters of a task there are, or were when somebody looked.
func (c *check) letters(task string) int {
	n := c.h.Left.Dead[task]
	for _, l := range c.h.Losses {
		if l.Held != nil {
			n += l.Held.Dead[task]
		}
	}
	return n
}

// frozen is how long p was seen not to run between two times.
func frozen(p *Process, from, until journal.Time) time.Duration {
	var total time.Duration
	var end journal.Time
	spans := slices.Clone(p.Frozen)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range spans {
		f, u := max(s.From, from, end), min(s.Until, until)
		if u > f {
			total += time.Duration(u - f)
			end = u
		}
	}
	return total
}

package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
)

func (p *Push) String() string {
	return fmt.Sprintf("enqueuer: %s number %d of key %q, sent at %.4fs, acknowledged at %.4fs", p.Task, p.Seq, p.Key, p.Sent.Seconds(), p.Acked.Seconds())
}

// finals checks that what was acknowledged has ended: at least once.
func (c *check) finals() {
	for i := range c.h.Pushes {
		p := &c.h.Pushes[i]
		runs := c.runs[p.Task]
		done := slices.ContainsFunc(runs, (*run).final)
		letters := c.h.Left.Dead[p.Task]
		if letters > 0 {
			c.report.DeadLetters++
		}
		switch {
		case done:
			c.report.Completed++
		case letters > 0:
			c.buried(p, runs)
		}
		if where := c.h.Left.Open[p.Task]; where != "" {
			c.violate("stuck", fmt.Sprintf("task %s is left over in %s", p.Task, where), c.story(p)...)
			continue
		}
		if letters > 1 {
			c.violate("doubled", fmt.Sprintf("task %s has %d dead letters", p.Task, letters), c.story(p)...)
		}
		c.letter(p, runs, letters)
		if done || letters > 0 || p.Acked == 0 {
			continue
		}
		stood := func(s *Store) bool { return s.Open[p.Task] != "" || s.Dead[p.Task] > 0 }
		if c.gone(p.Sent, p.Acked, stood) {
			c.report.Forgotten++
			continue
		}
		c.violate("lost", fmt.Sprintf("task %s was acknowledged and never done", p.Task), c.story(p)...)
	}
}

// strangers checks that nothing stands in the store that nobody sent, or can read.
func (c *check) strangers() {
	for id, where := range c.h.Left.Open {
		if c.pushes[id] == nil {
			c.violate("stuck", fmt.Sprintf("%s is left over in %s, and was never sent", id, where))
		}
	}
	for id := range c.h.Left.Dead {
		if c.pushes[id] == nil {
			c.violate("invented", fmt.Sprintf("%s is a dead letter, and was never sent", id))
		}
	}
}

// letter checks that a dead letter that was acknowledged is there, and that nobody
// got one who was not to.
func (c *check) letter(p *Push, runs []*run, letters int) {
	stood := func(s *Store) bool { return s.Dead[p.Task] > 0 }
	for _, r := range runs {
		if r.outcome() == journal.Dead && r.settled > 0 && letters == 0 && !c.gone(r.asked, r.settled, stood) {
			c.violate("lost", fmt.Sprintf("the dead letter of task %s was acknowledged and is gone", p.Task), c.story(p)...)
			return
		}
	}
}

// buried checks a task that became a dead letter without a handler's word.
func (c *check) buried(p *Push, runs []*run) {
	c.report.Buried++
	interrupted := 0
	for _, r := range runs {
		if _, excuse := c.excuse(r, never); excuse && !r.final() {
			interrupted++
		}
	}
	if interrupted == 0 {
		c.violate("buried", fmt.Sprintf("task %s is a dead letter, and no run of it was interrupted", p.Task), c.story(p)...)
	}
}

// story is everything known of a task.
func (c *check) story(p *Push) []string {
	s := []string{p.String()}
	for _, r := range c.runs[p.Task] {
		s = append(s, r.evidence()...)
		if l, ok := c.lost[owned{r.process, tenure{r.began.Part, r.began.Epoch}}]; ok {
			s = append(s, r.process.Name+": "+l.String())
		}
	}
	for _, l := range c.h.Losses {
		s = append(s, fmt.Sprintf("store: %s, may have forgotten what it acknowledged from %.4fs to %.4fs", l.Why, l.From.Seconds(), l.Until.Seconds()))
	}
	return s
}

// excuse says why a run may be repeated, at that time, although nobody asked for it.
func (c *check) excuse(r *run, at journal.Time) (string, bool) {
	if r.settled > 0 {
		if c.forgettable(r.asked, r.settled, at) {
			return "forgotten", true
		}
		return "", false
	}
	if _, ok := c.lost[owned{r.process, tenure{r.began.Part, r.began.Epoch}}]; ok {
		return "expired", true
	}
	if r.process.Killed > 0 {
		return "crashed", true
	}
	return "", false
}

// doubles checks that each further run of a task has its own excuse in the one
// before.
func (c *check) doubles() {
	for task, runs := range c.runs {
		push := c.pushes[task]
		if push == nil {
			continue
		}
		for i, r := range runs {
			again := never
			if i+1 < len(runs) {
				again = runs[i+1].began.Time
			}
			why, excused := c.excuse(r, again)
			switch why {
			case "crashed":
				c.report.Crashed++
			case "expired":
				c.report.Expired++
			}
			if i+1 == len(runs) || r.outcome() == journal.Retry || c.straddles(runs[i+1]) {
				continue
			}
			c.report.Doubled++
			if !excused {
				c.violate("doubled", fmt.Sprintf("task %s ran again, and its run before was neither interrupted nor unsettled", task), c.story(push)...)
			}
		}
	}
}

// overlaps checks that of one key one handler runs at a time.
func (c *check) overlaps() {
	for key, runs := range c.keys {
		var open []*run // those that have not ended when the next begins
		for _, b := range runs {
			open = slices.DeleteFunc(open, func(a *run) bool { return a.end() <= b.began.Time })
			for _, a := range open {
				if c.notActing(a, b) {
					c.report.ExcusedOverlaps++
					continue
				}
				c.violate("overlap", fmt.Sprintf("two handlers at once on key %q", key), append(a.evidence(), b.evidence()...)...)
			}
			open = append(open, b)
		}
	}
}

// tables checks that handlers which run at once run under one roll, where runs say under
// which they do.
func (c *check) tables() {
	var all, open []*run // open: those that have not ended when the next begins
	for _, runs := range c.runs {
		for _, r := range runs {
			if r.began.Roll > 0 {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b *run) int { return cmp.Compare(a.began.Time, b.began.Time) })
	for _, b := range all {
		open = slices.DeleteFunc(open, func(a *run) bool { return a.end() <= b.began.Time })
		for _, a := range open {
			if a.began.Roll != b.began.Roll && !c.notActing(a, b) {
				c.violate("table", fmt.Sprintf("a handler began under roll %d while another ran under roll %d", b.began.Roll, a.began.Roll),
					append(a.evidence(), b.evidence()...)...)
			}
		}
		open = append(open, b)
	}
}

// notActing reports whether one of two runs that overlap was in a process that could
// not act: it was kept from running longer than the margin of its lease before the
// other began, or it was stopped between its last look at the lease and its first
// word.
func (c *check) notActing(a, b *run) bool {
	if a.process == b.process {
		return false
	}
	if b.began.Epoch > a.began.Epoch {
		return frozen(a.process, a.began.Time, b.began.Time) > c.h.Margin
	}
	return c.straddles(b)
}

// straddles reports whether a run began right after its process had been stopped, so
// that its last look at the lease may have been before. That takes a stop within the
// microseconds between the two: one run in a stop may be so unlucky, and no second.
func (c *check) straddles(r *run) bool {
	const moment = journal.Time(50e6)
	for _, f := range r.process.Frozen {
		if r.began.Time < f.Until || r.began.Time > f.Until+moment || int64(f.Until-f.From) <= int64(c.h.Margin) {
			continue
		}
		began := 0
		for _, x := range r.process.Records {
			if x.Kind == journal.Began && x.Time >= f.Until && x.Time <= f.Until+moment {
				began++
			}
		}
		if began == 1 {
			return true
		}
	}
	return false
}

// orders checks that a key's tasks end for the first time in their order, and that
// none starts before the one before it has.
func (c *check) orders() {
	byKey := map[string][]*Push{} // those that were acknowledged
	for i := range c.h.Pushes {
		if p := &c.h.Pushes[i]; p.Acked > 0 && p.Key != "" {
			byKey[p.Key] = append(byKey[p.Key], p)
		}
	}
	for key, runs := range c.keys {
		if !strings.HasPrefix(key, "task ") {
			c.order(key, byKey[key], runs)
		}
	}
}

// order checks the tasks of one key.
func (c *check) order(key string, tasks []*Push, runs []*run) {
	first := map[string]*run{} // the run that began first
	ends := map[string]*run{}  // the run that came to an end first
	for _, r := range runs {
		if first[r.began.Task] == nil {
			first[r.began.Task] = r
		}
		if e := ends[r.began.Task]; r.final() && (e == nil || r.ended.Time < e.ended.Time) {
			ends[r.began.Task] = r
		}
	}
	slices.SortFunc(tasks, func(a, b *Push) int { return cmp.Compare(a.Seq, b.Seq) })
	for i, p := range tasks {
		after := first[p.Task]
		if after == nil {
			continue
		}
		for _, q := range slices.Backward(tasks[:i]) {
			end := never
			if before := ends[q.Task]; before != nil {
				end = before.ended.Time
			} else if c.letters(q.Task) > 0 || c.forgettable(q.Sent, q.Acked, after.began.Time) {
				continue // it need not have ended: the one before it counts
			}
			if after.began.Time < end {
				c.violate("order", fmt.Sprintf("key %q: number %d began before number %d had ended", key, p.Seq, q.Seq),
					append(c.story(q), c.story(p)...)...)
			}
			break
		}
	}
}

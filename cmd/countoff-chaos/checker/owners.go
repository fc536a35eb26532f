package checker

import (
	"fmt"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
)

// stands returns the ownership that stood against one of the epoch of r when r was
// sent: one with a greater epoch that had been answered before, unless the store may
// have forgotten it.
func (c *check) stands(r journal.Record) *open {
	for i := range c.opens[r.Part] {
		o := &c.opens[r.Part][i]
		if o.Until >= r.Time {
			break
		}
		if o.Epoch > r.Epoch && !c.forgettable(o.Time, o.Until, max(r.Time, r.Until)) {
			return o
		}
	}
	return nil
}

// fences checks that the store refuses an owner after it let in a newer one, and that
// an epoch is worked once.
func (c *check) fences() {
	for i := range c.h.Processes {
		p := &c.h.Processes[i]
		for _, r := range p.Records {
			if r.Outcome != journal.OK || r.Kind != journal.Settled && r.Kind != journal.Opened {
				continue
			}
			o := c.stands(r)
			switch {
			case o == nil:
			case r.Kind == journal.Settled:
				c.report.StaleSettles++
				c.violate("stale", fmt.Sprintf("the settlement of an older owner of partition %d was accepted", r.Part),
					p.Name+": "+r.String(), o.process.Name+": "+o.String())
			default:
				c.violate("epoch", fmt.Sprintf("partition %d let in an older epoch", r.Part),
					p.Name+": "+r.String(), o.process.Name+": "+o.String())
			}
		}
	}
	for part, all := range c.opens {
		who := map[uint64]*open{}
		for i := range all {
			o := &all[i]
			former := who[o.Epoch]
			if former != nil && former.Session != o.Session && !c.forgettable(former.Time, former.Until, o.Until) {
				c.violate("epoch", fmt.Sprintf("epoch %d of partition %d was worked by two sessions", o.Epoch, part),
					former.process.Name+": "+former.String(), o.process.Name+": "+o.String())
			}
			who[o.Epoch] = o
		}
	}
}

// starts checks that nobody starts a handler after a newer owner was let in.
func (c *check) starts() {
	for _, runs := range c.runs {
		for _, r := range runs {
			if o := c.stands(r.began); o != nil && !c.straddles(r) {
				c.violate("stale", fmt.Sprintf("an older owner of partition %d started a handler", r.began.Part),
					append(r.evidence(), o.process.Name+": "+o.String())...)
			}
		}
	}
}

// gaps checks that partitions are owned again in time.
func (c *check) gaps() {
	for _, g := range c.h.Gaps {
		switch {
		case g.Until == 0:
			c.violate("takeover", fmt.Sprintf("partition %d had no owner from %.4fs (%s) to the end", g.Part, g.From.Seconds(), g.Fault))
		case time.Duration(g.Until-g.From) > g.Bound:
			c.violate("takeover", fmt.Sprintf("partition %d had no owner for %.3fs (%s, from %.4fs to %.4fs), the bound is %v",
				g.Part, (g.Until-g.From).Seconds(), g.Fault, g.From.Seconds(), g.Until.Seconds(), g.Bound))
		}
	}
}

// losses counts the grants that peers lost although nothing was done to them in the
// last Patience, and they ran: what does not move should not stop. A slow machine does
// that too, so it is no violation.
func (c *check) losses() {
	for of, r := range c.lost {
		struck := false
		for _, s := range append(of.process.Struck, of.process.Frozen...) {
			struck = struck || s.From <= r.Time && r.Time <= s.Until+journal.Time(c.h.Patience)
		}
		if !struck {
			c.report.LostForNothing++
		}
	}
}

// pauses finds for each kind of fault how long a partition that was handed over stood
// still at most: from the word to drain to the next owner's open stream. A hand-over
// that a crash or a loss broke off is a takeover.
func (c *check) pauses() {
	for i := range c.h.Processes {
		p := &c.h.Processes[i]
		closed := map[tenure]bool{}
		for _, r := range p.Records {
			closed[tenure{r.Part, r.Epoch}] = r.Kind == journal.Closed && r.Outcome == journal.OK
		}
		for _, r := range p.Records {
			if r.Kind != journal.Draining || !closed[tenure{r.Part, r.Epoch}] {
				continue
			}
			kind := c.during(r.Time)
			for _, o := range c.opens[r.Part] {
				if o.Epoch > r.Epoch {
					c.report.Pauses[kind] = max(c.report.Pauses[kind], time.Duration(o.Until-r.Time))
					break
				}
			}
		}
	}
}

// during is the kind of the fault that began last before t.
func (c *check) during(t journal.Time) string {
	kind, from := "none", journal.Time(0)
	for _, f := range c.h.Faults {
		if f.From <= t && f.From > from {
			kind, from = f.Kind, f.From
		}
	}
	return kind
}

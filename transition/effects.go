package transition

import (
	"context"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// carryOut does what the machine says. The lease and the filter come first, so that
// a handler which starts meanwhile finds them right: what is taken away is not
// started on any more when its tenant is told, and what is served is open already.
// Only what a lapse takes away comes before the lease: an answer that is taken in just
// then renews it, and what was lost is not to be believed in again.
func (c *Coordinator) carryOut(inner context.Context, effects []machine.Effect, cause error) {
	c.publish(effects)
	n := lapse(effects)
	c.each(inner, effects[:n], cause)
	c.validUntil.Store(int64(c.machine.ValidUntil()))
	c.each(inner, effects[n:], cause)
}

// lapse returns how many of effects, at their beginning, are those of a lapse.
func lapse(effects []machine.Effect) (n int) {
	for _, e := range effects {
		_, lapsed := e.(machine.Lapsed)
		abort, aborted := e.(machine.Abort)
		if !lapsed && !(aborted && abort.Cause == machine.LeaseLapsed) {
			break
		}
		n++
	}
	return n
}

func (c *Coordinator) each(inner context.Context, effects []machine.Effect, cause error) {
	for _, e := range effects {
		switch e := e.(type) {
		case machine.Sync:
			c.calls.Go(func() { c.sync(inner, e) })
		case machine.Seal:
			c.calls.Go(func() { c.seal(inner, e) })
		case machine.Serve:
			c.cfg.Observer(Served{e.Grant})
			c.cfg.Tenant.Serve(e.Grant)
		case machine.Drain:
			c.cfg.Observer(Draining{e.Grant})
			c.cfg.Tenant.Drain(e.Grant, c.whenDrained(e.Grant))
		case machine.Abort:
			c.abort(e, cause)
		case machine.Adopt:
			c.view.Store(&e.View)
			c.cfg.Observer(RollSeen{e.View})
		case machine.Waits:
			c.cfg.Observer(BarrierClosed{e.Version})
		case machine.Released:
			c.cfg.Observer(Released{e.Grant, c.sinceDrained(e.Grant)})
		case machine.Overdue:
			c.cfg.Observer(DrainOverdue{e.Grant, time.Since(c.grants[e.Grant.ID].since)})
		case machine.Lapsed:
			c.cfg.Observer(Lapsed{len(c.grants)})
		case machine.GraceOpened:
			c.cfg.Observer(GraceOpened{e.Left})
		case machine.Paused:
			c.cfg.Observer(Paused{})
		case machine.Resumed:
			c.cfg.Observer(Resumed{})
		case machine.Dismissed:
			c.cfg.Observer(Dismissed{})
		case machine.Recalled:
			c.cfg.Observer(Recalled{})
		case machine.Declared:
			c.cfg.Observer(Declared{Weight: e.Weight, Well: e.Well})
		case machine.Left:
			c.left(e)
		}
	}
}

// publish keeps the grants and the filter in step with the effects.
func (c *Coordinator) publish(effects []machine.Effect) {
	changed := false
	for _, e := range effects {
		switch e := e.(type) {
		case machine.Serve:
			c.grants[e.Grant.ID] = &holding{grant: e.Grant}
			changed = true
		case machine.Drain:
			c.ends(e.Grant)
			changed = true
		case machine.Abort:
			c.ends(e.Grant)
			changed = true
		}
	}
	if !changed {
		return
	}
	ids := make([]partition.ID, 0, len(c.grants))
	for id, h := range c.grants {
		if !h.ends {
			ids = append(ids, id)
		}
	}
	c.filter.Publish(c.cfg.Config, ids)
}

// ends marks the end of the work on g. An abort of a drain is the end it has
// already.
func (c *Coordinator) ends(g partition.Grant) {
	if h := c.grants[g.ID]; !h.ends {
		h.ends, h.since = true, time.Now()
	}
}

func (c *Coordinator) abort(e machine.Abort, cause error) {
	switch e.Cause {
	case machine.LeaseLapsed:
		cause = ErrLapsed
	case machine.NotMine:
		cause = ErrTaken
	case machine.ShutdownOver:
		cause = ErrShutdown
	case machine.DataLost: // the tenant said why
	}
	c.cfg.Observer(Aborted{e.Grant, cause})
	c.cfg.Tenant.Abort(e.Grant, cause, c.whenDrained(e.Grant))
}

// whenDrained returns what the tenant calls when nothing of g runs any more.
func (c *Coordinator) whenDrained(g partition.Grant) func() {
	return sync.OnceFunc(func() { c.mailbox.put(mail{event: machine.Drained{Grant: g}}) })
}

// drained notes the end of g. It may be heard of twice: a drain ends while its abort
// is under way.
func (c *Coordinator) drained(g partition.Grant) {
	h := c.grants[g.ID]
	if h == nil || h.grant != g || !h.ends {
		return
	}
	delete(c.grants, g.ID)
	c.released[g] = time.Now()
	c.cfg.Observer(Drained{g, time.Since(h.since)})
}

func (c *Coordinator) sinceDrained(g partition.Grant) time.Duration {
	at, ok := c.released[g]
	if !ok {
		return 0
	}
	delete(c.released, g)
	return time.Since(at)
}

func (c *Coordinator) left(e machine.Left) {
	c.over = true
	c.stuck, c.unheard = e.Stuck, e.Unheard
	took := time.Duration(0)
	if !c.stopped.IsZero() {
		took = time.Since(c.stopped)
	}
	c.cfg.Observer(Left{Stuck: e.Stuck, Unheard: e.Unheard, Took: took})
}

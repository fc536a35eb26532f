package framework

import (
	"time"

	"github.com/countoff/countoff/partition"
)

// refused takes note that the source refuses the ownership of l. One that was refused soon after it
// began is opened anew at once; the next, if that happens to it too, after a pause that grows as a
// backoff does. A source that refuses each owner, its own newest as well, would else be asked, and
// the ledger with it, as often as both can answer. The caller holds mu.
func (p *pool) refused(l *lane) {
	if l.phase.lost {
		return
	}
	id, now := l.where.Grant.ID, time.Now()
	r := p.refusals[id]
	if now.Sub(l.times.granted) > l.pause+calm {
		r = refusal{}
	}
	r.pause, r.last = r.again.last, now
	r.again.next()
	p.refusals[id] = r
}

// A refusal is what is kept of the last of a partition.
type refusal struct {
	last  time.Time
	again backoff
	pause time.Duration // before the next ownership is opened
}

// calm is how long an ownership lasts that makes up for those that were refused before.
const calm = 5 * time.Second

// pauseOf is how long the opening of id waits. The caller holds mu.
func (p *pool) pauseOf(id partition.ID, now time.Time) time.Duration {
	r, refused := p.refusals[id]
	if refused && now.Sub(r.last) > calm {
		delete(p.refusals, id)
		return 0
	}
	return r.pause
}

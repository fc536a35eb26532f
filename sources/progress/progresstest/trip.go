package progresstest

import (
	"fmt"
	"slices"

	"github.com/countoff/countoff/sources/progress"
)

// trip does a round trip as a plain pipeline of a read and a settlement, and lets
// other things happen between the two.
func (p *peer) trip(limit int) {
	w := p.w
	var r progress.Request
	_, blocked := p.log.Blocked()
	read := p.log.Need() == progress.NeedRead && !blocked
	upto := ^uint64(0)
	if w.chance(20) {
		upto = p.log.Answered() + uint64(w.rng.IntN(3)) // as if more did not fit
	}
	if limit > 0 {
		p.log.Follow(w.now())
	}
	p.log.Compose(limit, read, upto, &r)
	var content []string
	for _, v := range r.Others {
		content = append(content, p.content[v.Seq])
	}
	fault := w.fault()
	w.say("%v says %s: %s", p, describe(&r), fault)
	if !w.list { // a broker is read whatever the store says
		p.add(&r, p.elements(&r))
	}

	// Copies: what is late must not see how the peer goes on.
	late := r
	late.Done, late.Others, late.Lift = slices.Clone(r.Done), slices.Clone(r.Others), slices.Clone(r.Lift)
	execute := func() progress.Answer {
		a := w.store.Settle(p.tok, &late, content)
		if a.Status == progress.Admitted && p.tok.Epoch != w.installed {
			w.violated("I2: a settlement of %v is admitted, %v stands", p, w.installed)
		}
		return a
	}
	again := func() {
		w.say("the settlement of %v at base %d comes late", p, late.Base)
		execute()
	}
	switch fault {
	case "failed":
		return
	case "late":
		w.late = append(w.late, again)
		return
	case "resent": // the client repeats the whole pipeline, after a broken read
		execute()
	}
	elements := p.elements(&r)
	w.interfere(p)
	if p.over {
		return // a task has killed it meanwhile
	}
	a := execute()
	w.check()
	switch fault {
	case "lost":
		return
	case "twice":
		w.late = append(w.late, again)
	}
	p.answer(&r, a, elements)
}

// elements reads what r asks for: from the list, or from the broker.
func (p *peer) elements(r *progress.Request) []string {
	w := p.w
	switch {
	case r.Fetch == 0:
		return nil
	case w.list:
		return w.store.Read(r.Read-r.Before, int64(r.Fetch))
	}
	var elements []string
	for pos := r.Read; pos < min(w.end, r.Read+int64(r.Fetch)); pos++ {
		elements = append(elements, w.at[pos].element(0, 0))
	}
	return elements
}

func (p *peer) answer(r *progress.Request, a progress.Answer, elements []string) {
	w := p.w
	if a.Status != progress.Admitted {
		w.say("%v is refused: %d", p, a.Status)
		p.lose()
		return
	}
	counts := p.log.Apply(r, a)
	for _, v := range r.Others {
		delete(p.content, v.Seq)
		if t := w.at[v.Position]; v.Outcome == progress.Retry || v.Outcome == progress.Requeue {
			t.answered = max(t.answered, v.Attempt)
		}
	}
	if counts && w.list {
		p.add(r, elements)
	}
}

// add takes in what was read.
func (p *peer) add(r *progress.Request, elements []string) {
	w := p.w
	for i, e := range elements {
		pos := r.Read + int64(i)
		t, _, _ := w.parse(e)
		w.read(p, pos, t)
		if p.log.Add(pos, t.key) {
			p.take(pos, e)
		}
	}
}

func describe(r *progress.Request) string {
	s := fmt.Sprintf("base %d->%d gate %d", r.Before, r.Base, r.Gate)
	if r.Fetch > 0 {
		s += fmt.Sprintf(" read %d+%d", r.Read, r.Fetch)
	}
	if r.Alone != progress.None {
		s += fmt.Sprintf(" alone %d", r.Alone)
	}
	if len(r.Done) > 0 {
		s += fmt.Sprintf(" done %v", r.Done)
	}
	for _, v := range r.Others {
		s += fmt.Sprintf(" %s %d(%d)", outcomes[v.Outcome], v.Position, v.Attempt)
	}
	if len(r.Lift) > 0 {
		s += fmt.Sprintf(" lift %v", r.Lift)
	}
	return s
}

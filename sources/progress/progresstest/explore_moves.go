package progresstest

import (
	"fmt"
	"slices"

	"github.com/countoff/countoff/sources/progress"
)

// A kind is what can happen.
type kind uint8

const (
	pushes    kind = iota
	announces      // a push that tells the owner
	hears          // the announcement n comes
	moves
	claims
	arrives    // a request that is late: n
	opens      // owner, fate
	sends      // owner asks for tasks and says what is to be said; n: so many verdicts fit, 0: all, or onlySays
	executes   // what owner sent reaches the store; fate
	ends       // the handler n of owner, as outcome says
	kills      // the handler n of owner ends its process
	runsAgain  // the retry n of owner is started
	buries     // the letter of what owner withholds is there
	drains     // owner hands over
	closes     // owner, fate
	crashes    // owner
	lapses     // owner
	fallsBack  // the replica hears nothing from here on
	failedOver // and takes over
)

// onlySays is how many verdicts fit where all are said and nothing is asked for.
const onlySays = -1

// A fate is what becomes of a request.
type fate uint8

const (
	fine   fate = iota
	lost        // carried out, and the answer lost
	late        // carried out any time later, or never
	twice       // carried out, and again any time later
	resent      // carried out, the answer lost, and all of it sent again by the client
)

var fates = [...]string{"", "; its answer is lost", "; it is under way", "; it will come twice", "; it is sent again"}

type move struct {
	kind    kind
	owner   int
	n       int
	outcome progress.Outcome
	fate    fate
}

func (m *moment) describe(v move) string {
	who := fmt.Sprint("p", v.owner+1)
	switch v.kind {
	case pushes:
		return fmt.Sprintf("push t%d at %d", len(m.facts), len(m.at))
	case announces:
		return fmt.Sprintf("push t%d at %d and tell p%d", len(m.facts), len(m.at), m.installed)
	case hears:
		w := m.words[v.n]
		return fmt.Sprintf("p%d hears of %s at %d", w.owner+1, w.element, w.pos)
	case moves:
		return "what is delayed moves to the end"
	case claims:
		return fmt.Sprintf("p%d is granted", len(m.owners)+1)
	case arrives:
		l := m.late[v.n]
		if l.trip != nil {
			return fmt.Sprintf("late, of p%d: %s", l.owner+1, describe(&l.trip.request))
		}
		return fmt.Sprintf("late, of p%d: %s", l.owner+1, l.what)
	case opens:
		return who + " opens" + fates[v.fate]
	case sends:
		return who + " sends"
	case executes:
		return who + " says " + describe(&m.owners[v.owner].trip.request) + fates[v.fate]
	case buries:
		return fmt.Sprintf("%s writes the letter of t%d", who, m.owners[v.owner].withheld[0].task)
	case ends, kills, runsAgain:
		r := m.owners[v.owner].lane[v.n]
		switch v.kind {
		case ends:
			return fmt.Sprintf("%s ends t%d at %d: %s", who, r.task, r.pos, outcomes[v.outcome])
		case kills:
			return fmt.Sprintf("t%d kills %s", r.task, who)
		}
		return fmt.Sprintf("%s runs t%d again", who, r.task)
	case drains:
		return who + " drains"
	case closes:
		return who + " closes" + fates[v.fate]
	case crashes:
		return who + " crashes"
	case lapses:
		return who + " loses its lease"
	case fallsBack:
		return "from here on the replica hears nothing"
	}
	return "the store fails over"
}

// moves returns all that can happen, faults last, and whether anything goes on
// without a fault.
func (m *moment) moves() (all []move, goes bool) {
	if len(m.facts) < len(m.x.Keys) {
		all = append(all, move{kind: pushes})
	}
	if len(m.store.state.delayed) > 0 {
		all = append(all, move{kind: moves})
	}
	if m.holder < 0 && len(m.owners) < m.x.Owners {
		all = append(all, move{kind: claims})
	}
	for _, o := range m.owners {
		all = m.goesOn(o, all)
	}
	goes = len(all) > 0
	for i := range m.late {
		all = append(all, move{kind: arrives, n: i})
	}
	if len(m.facts) < len(m.x.Keys) && m.budget.Announce > 0 && m.installed > 0 {
		all = append(all, move{kind: announces})
	}
	for i := range m.words {
		all = append(all, move{kind: hears, n: i})
	}
	all = m.otherEnds(all)
	if m.holder >= 0 && len(m.owners) < m.x.Owners && !m.owners[m.holder].draining && m.owners[m.holder].log != nil {
		all = append(all, move{kind: drains, owner: m.holder})
	}
	return m.faultsNow(all), goes
}

// goesOn appends what o does next where nothing goes wrong.
func (m *moment) goesOn(o *owner, all []move) []move {
	before := len(all)
	switch {
	case o.over || o.ghost && o.log == nil:
		return all
	case o.log == nil:
		return append(all, move{kind: opens, owner: o.index})
	case o.trip != nil:
		all = append(all, move{kind: executes, owner: o.index})
	case m.wants(o).any():
		all = m.sent(o, all)
	}
	busy := false
	for i := range o.lane {
		switch r := &o.lane[i]; {
		case r.state == running && m.poison(r):
			all = append(all, move{kind: kills, owner: o.index, n: i})
			busy = true
		case r.state == running:
			all = append(all, move{kind: ends, owner: o.index, n: i, outcome: progress.Done})
			busy = true
		case r.state == parked && !o.draining:
			all = append(all, move{kind: runsAgain, owner: o.index, n: i})
		}
	}
	if o.draining && !o.ghost && !busy && o.trip == nil && o.log.Seq() == o.log.Answered() {
		all = append(all, move{kind: closes, owner: o.index})
	}
	if len(o.withheld) > 0 {
		if len(all) == before && !o.ghost {
			m.waitsForNobody(o)
		}
		all = append(all, move{kind: buries, owner: o.index})
	}
	return all
}

// sent appends what o may send: all it has to say and ask for, or less.
func (m *moment) sent(o *owner, all []move) []move {
	v := move{kind: sends, owner: o.index}
	all = append(all, v)
	if o.log.Seq()-o.log.Answered() > 1 {
		v.n = 1
		all = append(all, v)
	}
	if w := m.wants(o); w.says && (w.read || m.follows(o)) && o.log.Announced() == progress.None {
		v.n = onlySays
		all = append(all, v)
	}
	return all
}

func (m *moment) poison(r *held) bool { return r.task == m.x.Poison-1 }

// otherEnds appends the ends of handlers that are neither done nor faults.
func (m *moment) otherEnds(all []move) []move {
	b := &m.budget
	for _, o := range m.owners {
		if o.over {
			continue
		}
		for i := range o.lane {
			r := &o.lane[i]
			if r.state != running || m.poison(r) {
				continue
			}
			v := move{kind: ends, owner: o.index, n: i}
			if b.Retry > 0 {
				v.outcome = progress.Retry
				all = append(all, v)
			}
			if b.Requeue > 0 && m.x.Keys[r.task] == 0 && !m.x.Away {
				v.outcome = progress.Requeue
				all = append(all, v)
			}
			if b.Dead > 0 && !m.x.Away {
				v.outcome = progress.Dead
				all = append(all, v)
			}
		}
	}
	return all
}

// faultsNow appends what may go wrong.
func (m *moment) faultsNow(all []move) []move {
	if m.faults == 0 {
		return all
	}
	b := &m.budget
	for _, v := range slices.Clone(all) {
		if v.kind != opens && v.kind != executes && v.kind != closes {
			continue
		}
		for f := lost; f <= resent; f++ {
			if v.fate = f; *b.of(f) > 0 && (f != resent || v.kind == executes) {
				all = append(all, v)
			}
		}
	}
	if h := m.holder; h >= 0 {
		if b.Crash > 0 {
			all = append(all, move{kind: crashes, owner: h})
		}
		if b.Lapse > 0 {
			all = append(all, move{kind: lapses, owner: h})
		}
	}
	if b.Failover > 0 {
		all = append(all, move{kind: fallsBack})
	}
	if m.replica != nil {
		all = append(all, move{kind: failedOver})
	}
	return all
}

// of returns the budget that f is paid from.
func (b *Budget) of(f fate) *int {
	switch f {
	case late:
		return &b.Late
	case twice:
		return &b.Twice
	}
	return &b.Lose
}

// pay takes a fault off the budget.
func (m *moment) pay(of *int) {
	*of--
	m.faults--
}

// do lets v happen.
func (m *moment) do(v move) {
	if v.fate != fine {
		m.pay(m.budget.of(v.fate))
	}
	switch v.kind {
	case pushes:
		m.push()
	case announces:
		m.announce()
	case hears:
		m.hear(v.n)
	case moves:
		m.moved()
	case claims:
		m.holder = len(m.owners)
		m.owners = append(m.owners, newOwner(m))
	case arrives:
		m.arrive(v.n)
	case crashes:
		m.pay(&m.budget.Crash)
		m.lose(m.owners[v.owner])
	case lapses:
		m.pay(&m.budget.Lapse)
		m.holder = -1
		m.lapse(m.owners[v.owner])
	case fallsBack:
		m.budget.Failover--
		m.replica = &replica{m.store.state.clone(), slices.Clone(m.at), m.installed, m.newest}
	case failedOver:
		m.faults--
		m.failOver()
	default:
		m.act(m.owners[v.owner], v)
	}
	// Words that can change nothing any more make no other moment.
	m.words = slices.DeleteFunc(m.words, func(w word) bool {
		o := m.owners[w.owner]
		return o.over || o.ghost || o.draining || o.log != nil && w.pos < o.log.Read()
	})
}

// act lets an owner do v.
func (m *moment) act(o *owner, v move) {
	switch v.kind {
	case opens:
		m.open(o, v.fate)
	case sends:
		m.send(o, v.n)
	case executes:
		m.reach(o, v.fate)
	case ends:
		m.finish(o, v.n, v.outcome)
	case kills:
		m.lose(o)
	case runsAgain:
		m.begins(o, &o.lane[v.n])
	case buries:
		m.bury(o)
	case drains:
		o.draining = true
	case closes:
		m.close(o, v.fate)
	}
}

package progresstest

import (
	"fmt"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// An owner is one ownership of the log in an exploration. It works on the log as a
// runtime does, and always wants as many tasks as it can run.
type owner struct {
	index    int
	epoch    partition.Epoch
	log      *progress.Log   // nil: not open yet
	tried    map[int64]Tried // as found at the open; never changed
	read     []held          // read and not handed out
	lane     []held          // handed out and not final, in this order
	content  []content       // of verdicts that were not answered
	withheld []held          // ended its peers too often, and its letter is still to be written
	trip     *trip           // sent, and not carried out
	need     progress.Need   // what could give the log more to hand out
	heard    string          // the element that was announced
	unsure   bool            // the last request was not answered: it is said again

	draining bool
	ghost    bool // lost its lease and does not know: starts nothing
	over     bool // never changes again
}

// Whether a task that is held runs.
type standing uint8

const (
	waiting standing = iota
	running
	parked // failed, and waits for its retry
)

type held struct {
	pos     int64
	task    int
	attempt int // of the run that is on, or was last
	crashes int
	state   standing
}

type content struct {
	seq  uint64
	body string
}

// A trip is a round trip under way: the list was read, the settlement has not come
// to the store yet. It never changes.
type trip struct {
	request  progress.Request
	content  []string
	elements []string
	confirms int64 // what was announced and is to be among the elements, or progress.None
}

// An element is what the log keeps of a task.
type element struct{ task, tries, crashes int }

func (e element) String() string {
	return string([]byte{'0' + byte(e.task), '0' + byte(e.tries), '0' + byte(e.crashes)})
}

func (m *moment) parse(s string) element {
	if len(s) != 3 || int(s[0]-'0') >= len(m.facts) {
		m.violated("M: an element %q", s)
	}
	return element{int(s[0] - '0'), int(s[1] - '0'), int(s[2] - '0')}
}

func newOwner(m *moment) *owner {
	n := len(m.owners)
	return &owner{index: n, epoch: partition.Epoch(n + 1)}
}

func (o *owner) String() string { return fmt.Sprint("p", o.index+1) }

func (o *owner) token() partition.Token { return partition.Token{Epoch: o.epoch, Session: "s"} }

func (o *owner) clone() *owner {
	if o.over {
		return o
	}
	c := *o
	if o.log != nil {
		c.log = o.log.Clone()
	}
	c.read, c.lane, c.content = slices.Clone(o.read), slices.Clone(o.lane), slices.Clone(o.content)
	c.withheld = slices.Clone(o.withheld)
	return &c
}

func (m *moment) open(o *owner, f fate) {
	if f == late || f == twice {
		m.late = append(m.late, &message{what: "open", owner: o.index})
	}
	if f == late {
		return
	}
	a := m.install(o)
	switch {
	case f == lost:
		return
	case a.Refused:
		m.lose(o)
		return
	}
	cfg := progress.Config{Window: m.x.Window, Lifted: m.x.Lifted}
	o.log, o.tried = progress.New(cfg, a.Opened), a.Tried
	for _, l := range a.Lifted {
		e := l.Element
		if m.x.Away {
			e = element{task: m.at[l.Position]}.String()
		}
		o.log.AddLifted(l.Position, m.x.Keys[m.parse(e).task])
		m.take(o, l.Position, e)
	}
	m.hand(o)
}

// take takes in an element that may still have to run.
func (m *moment) take(o *owner, pos int64, s string) {
	e := m.parse(s)
	m.isAt(o, pos, e.task)
	r := held{pos: pos, task: e.task, attempt: e.tries, crashes: e.crashes}
	if had, ok := o.tried[pos]; ok {
		m.charged(o, e.task, had.Crashes)
		if m.x.Letter && had.Crashes >= crashLimit {
			m.withhold(o, r)
			return
		}
		o.log.Tried(pos, had.Tries, time.Time{})
		r.attempt = max(e.tries, had.Tries)
		r.crashes += had.Crashes
	}
	if r.crashes > 0 {
		o.log.Accused(pos)
	}
	if r.crashes < crashLimit {
		o.read = append(o.read, r)
		return
	}
	m.facts[e.task].finals++
	m.facts[e.task].elsewhere = m.x.Away
	o.content = append(o.content, content{o.log.Settle(pos, progress.Dead, 0), element{e.task, r.attempt, r.crashes}.String()})
}

// withhold takes in r, which nobody may start, and whose letter is still to be written.
func (m *moment) withhold(o *owner, r held) {
	o.log.Withhold(r.pos)
	o.withheld = append(o.withheld, r)
	m.facts[r.task].finals = 1
}

// bury says that what was withheld first is dead: its letter is there.
func (m *moment) bury(o *owner) {
	r := o.withheld[0]
	o.withheld = slices.Delete(o.withheld, 0, 1)
	m.facts[r.task].elsewhere = true
	o.content = append(o.content, content{o.log.Settle(r.pos, progress.Dead, 0), element{r.task, r.attempt, r.crashes}.String()})
}

// hand gives o what may start, and starts what is first of its key.
func (m *moment) hand(o *owner) {
	if o.over || o.ghost || o.draining || o.log == nil {
		return
	}
	for {
		o.need = progress.NeedNothing
		free := m.free(o)
		if free == 0 {
			return
		}
		got := o.log.Hand(time.Time{}, free, nil)
		if o.log.Permit(o.log.WantsPermit()); o.log.WantsPermit() { // no other log of the process has it
			got = o.log.Hand(time.Time{}, free-len(got), got)
		}
		if o.need = o.log.Need(); len(got) == 0 {
			return
		}
		for _, pos := range got {
			i := slices.IndexFunc(o.read, func(r held) bool { return r.pos == pos })
			if i < 0 {
				m.violated("%v is handed position %d, which it has not read or which is final", o, pos)
			}
			o.lane = append(o.lane, o.read[i])
			o.read = slices.Delete(o.read, i, i+1)
		}
		m.startable(o)
	}
}

// startable starts what nothing of its key is before.
func (m *moment) startable(o *owner) {
	busy := map[uint64]bool{}
	for i := range o.lane {
		r := &o.lane[i]
		key := m.x.Keys[r.task]
		if r.state == waiting && !busy[key] {
			m.begins(o, r)
		}
		busy[key] = key != 0
	}
}

func (m *moment) begins(o *owner, r *held) {
	r.state = running
	r.attempt++
	m.started(o, r)
}

// free is how many more handlers o can run.
func (m *moment) free(o *owner) int {
	n := m.x.Limit
	for i := range o.lane {
		if o.lane[i].state == running {
			n--
		}
	}
	return max(0, n)
}

// A wish is what o would ask the store for.
type wish struct {
	limit      int
	read, says bool
}

func (w wish) any() bool { return w.limit > 0 || w.says }

func (m *moment) wants(o *owner) wish {
	w := wish{says: o.log.Seq() != o.log.Answered()}
	if o.log.Announced() != progress.None {
		w.limit, w.read = max(1, m.free(o)), true
		return w
	}
	if o.ghost || o.draining {
		return w
	}
	_, blocked := o.log.Blocked()
	switch {
	case o.need == progress.NeedRead && !blocked && (o.unsure || m.news(o)):
		w.limit, w.read = m.free(o), true
	case o.need == progress.NeedRoundTrip:
		w.limit = m.free(o)
	}
	return w
}

// asks reports whether o would take more.
func (m *moment) asks(o *owner) bool { return !o.ghost && !o.draining && m.free(o) > 0 }

// follows reports whether o's log would choose now what runs next.
func (m *moment) follows(o *owner) bool {
	if !m.asks(o) {
		return false
	}
	c := o.log.Clone()
	c.Follow(time.Time{})
	return c.String() != o.log.String()
}

// news reports whether the log is not as o knows it: a bell or a sweep tells.
func (m *moment) news(o *owner) bool {
	if m.x.Away {
		return o.log.Read() != m.end()
	}
	return o.log.Read()-o.log.Base() != int64(len(m.store.state.pending)) || m.store.state.n < o.log.Seen()
}

// send reads the list and sends a settlement, which has not come to the store yet.
func (m *moment) send(o *owner, fits int) {
	w, upto := m.wants(o), ^uint64(0)
	switch {
	case fits == onlySays:
		w = wish{says: true}
	case fits > 0:
		upto = o.log.Answered() + uint64(fits)
	}
	if fits != onlySays && m.asks(o) {
		o.log.Follow(time.Time{})
	}
	t := &trip{confirms: progress.None}
	if w.read {
		t.confirms = o.log.Announced()
	}
	o.log.Compose(w.limit, w.read, upto, &t.request)
	for _, v := range t.request.Others {
		i := slices.IndexFunc(o.content, func(c content) bool { return c.seq == v.Seq })
		if i < 0 {
			m.violated("%v says verdict %d again, which was answered", o, v.Seq)
		}
		t.content = append(t.content, o.content[i].body)
	}
	t.elements = m.elements(&t.request)
	if m.x.Away { // a broker is read whatever the store says
		m.add(o, &t.request, t.elements)
	}
	o.trip, o.unsure = t, true
}

// elements reads what r asks for: from the list, or from the broker.
func (m *moment) elements(r *progress.Request) []string {
	switch {
	case r.Fetch == 0:
		return nil
	case !m.x.Away:
		return m.store.Read(r.Read-r.Before, int64(r.Fetch))
	}
	var all []string
	for pos := r.Read; pos < min(m.end(), r.Read+int64(r.Fetch)); pos++ {
		all = append(all, element{task: m.at[pos]}.String())
	}
	return all
}

// add takes in what was read.
func (m *moment) add(o *owner, r *progress.Request, elements []string) {
	for i, e := range elements {
		pos := r.Read + int64(i)
		task := m.parse(e).task
		if m.store.broken == "announcement believed" && pos < o.log.Read() {
			continue // this was asked for before it was announced
		}
		if pos == o.log.Announced() {
			if e != o.heard {
				return
			}
			m.isAt(o, pos, task)
			o.log.Confirm()
			continue
		}
		m.isAt(o, pos, task)
		if o.log.Add(pos, m.x.Keys[task]) {
			m.take(o, pos, e)
		}
	}
}

// reach lets what o has sent come to the store.
func (m *moment) reach(o *owner, f fate) {
	t := o.trip
	o.trip = nil
	if f == late || f == twice {
		m.late = append(m.late, &message{owner: o.index, trip: t})
	}
	if f == late {
		m.hand(o)
		return
	}
	a := m.execute(o, t)
	switch f {
	case lost:
		m.hand(o)
		return
	case resent:
		again := *t
		again.elements = m.elements(&t.request)
		t, a = &again, m.execute(o, t)
	}
	if a.Status != progress.Admitted {
		m.lose(o)
		return
	}
	o.unsure = false
	counts := o.log.Apply(&t.request, a)
	for _, v := range t.request.Others {
		o.content = slices.DeleteFunc(o.content, func(c content) bool { return c.seq == v.Seq })
		if v.Outcome == progress.Retry || v.Outcome == progress.Requeue {
			if f := &m.facts[m.at[v.Position]]; v.Attempt > f.answered {
				f.answered = v.Attempt
			}
		}
	}
	if counts && !m.x.Away {
		m.add(o, &t.request, t.elements)
		if t.confirms != progress.None && t.confirms == o.log.Announced() {
			m.lose(o) // the store forgot
			return
		}
	}
	m.hand(o)
}

// hear lets an owner hear what was announced to it.
func (m *moment) hear(i int) {
	w := m.words[i]
	m.words = slices.Delete(m.words, i, i+1)
	o := m.owners[w.owner]
	if e := m.parse(w.element); !o.over && !o.ghost && !o.draining && o.log != nil && o.log.Announce(w.pos, m.x.Keys[e.task]) {
		o.heard = w.element
		o.read = append(o.read, held{pos: w.pos, task: e.task})
		if m.store.broken == "announcement believed" {
			o.log.Confirm()
		}
		m.hand(o)
	}
}

// finish ends a handler.
func (m *moment) finish(o *owner, i int, as progress.Outcome) {
	r := o.lane[i]
	t := &m.facts[r.task]
	t.running = 0
	if as == progress.Retry {
		o.lane[i].state = parked
	} else {
		o.lane = slices.Delete(o.lane, i, i+1)
	}
	switch as {
	case progress.Done:
		t.done++
		t.finals++
	case progress.Dead:
		m.budget.Dead--
		t.finals++
	case progress.Requeue:
		m.budget.Requeue--
		t.requeued = true
	case progress.Retry:
		m.budget.Retry--
	}
	seq := o.log.Settle(r.pos, as, r.attempt)
	if as != progress.Done {
		o.content = append(o.content, content{seq, element{r.task, r.attempt, r.crashes}.String()})
	}
	if !o.draining {
		m.startable(o)
		m.hand(o)
	}
}

func (m *moment) close(o *owner, f fate) {
	if f == late || f == twice {
		m.late = append(m.late, &message{what: "close", owner: o.index})
	}
	if f == late {
		return
	}
	m.uninstall(o)
	if f != lost {
		o.over = true
		m.holder = -1
	}
}

// lose ends an ownership: its process, or all it does.
func (m *moment) lose(o *owner) {
	m.rough = true
	m.lapse(o)
	o.over, o.trip = true, nil
	if m.holder == o.index {
		m.holder = -1
	}
}

// lapse ends o's lease: its handlers have returned by the time anybody else can have
// the log, and it starts nothing; but it may say what it still knows.
func (m *moment) lapse(o *owner) {
	m.rough, o.ghost = true, true
	for i := range o.lane {
		if t := &m.facts[o.lane[i].task]; t.running == o.index+1 {
			t.running = 0
		}
	}
	o.lane = nil
}

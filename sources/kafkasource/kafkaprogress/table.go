package kafkaprogress

import (
	"slices"
	"sort"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// A table is what is known of one partition: the rules of docs/protocol.md on a value, as
// the scripts of redisprogress have them on keys. It has no clock.
type table struct {
	token    partition.Token // zero: nobody has it open
	epoch    partition.Epoch // the greatest that had
	base     int64           // everything below is finished or lifted
	writes   int64           // how often it was changed
	gate     int64           // everything below may be started
	suspects int64           // everything open below was perhaps running when its peer died
	alone    int64           // runs with nothing beside it, or None
	life     string          // of the log
	lifted   []int64         // open below the base, ascending
	tries    map[int64]tried // of open positions
	done     []span          // finished from the base on, ascending, apart
}

// A tried is what is known of the runs of an open task.
type tried struct {
	tries, waits, crashes int
	due                   time.Time // zero: at once
	why                   string    // the first error
}

// A span is the positions p with from <= p < to.
type span struct{ from, to int64 }

func newTable(base int64) *table {
	return &table{base: base, gate: base, alone: progress.None, tries: make(map[int64]tried)}
}

// open reports whether x is not finished.
func (t *table) open(x int64) bool {
	if x < t.base {
		_, lifted := slices.BinarySearch(t.lifted, x)
		return lifted
	}
	i := t.after(x)
	return i == 0 || t.done[i-1].to <= x
}

// after is the first span that begins behind x.
func (t *table) after(x int64) int {
	return sort.Search(len(t.done), func(i int) bool { return t.done[i].from > x })
}

// lowest is the lowest open position: a log that is read again from there loses nothing.
func (t *table) lowest() int64 {
	if len(t.lifted) > 0 {
		return t.lifted[0]
	}
	return t.base
}

// install makes tok the owner. It reports false if the same or a greater epoch stands
// under another token.
func (t *table) install(tok partition.Token) bool {
	if t.token == tok {
		return true
	}
	if tok.Epoch <= t.epoch {
		return false
	}
	if a := t.alone; a != progress.None && t.open(a) {
		// Only this task can have ended its owner: nothing else is a suspect.
		was := t.tries[a]
		was.crashes++
		t.tries[a] = was
	} else if !t.token.IsZero() {
		t.suspects = max(t.suspects, t.gate)
	}
	// What a compacted log has lost was never ended by name, and the base has passed it.
	for x := range t.tries {
		if !t.open(x) {
			delete(t.tries, x)
		}
	}
	t.token, t.epoch, t.alone = tok, tok.Epoch, progress.None
	t.writes++
	return true
}

// reset moves the base of a log that was cut, or is another one of the same name.
func (t *table) reset(base int64, life string) {
	switch {
	case base < t.base || t.life != "" && t.life != life:
		// Positions are used a second time: nothing of what is known is true of them.
		t.lifted, t.done, t.suspects, t.alone = nil, nil, 0, progress.None
		clear(t.tries)
		t.base, t.gate = base, base
	default:
		t.raise(base, nil)
		for x := range t.tries {
			if !t.open(x) {
				delete(t.tries, x)
			}
		}
		t.gate = max(t.gate, base)
	}
	t.life = life
	t.writes++
}

// settle carries out r. It reports whether anything is different now. now is the instant
// that delays count from.
func (t *table) settle(r *progress.Request, content []progress.Content, now time.Time) (a progress.Answer, changed bool) {
	if t.writes < r.Seen {
		return progress.Answer{Status: progress.Forgot}, false
	}
	changed = len(r.Done)+len(r.Others)+len(r.Lift) > 0 || r.Base > t.base || r.Gate > t.gate || r.Alone != progress.None
	before := t.base
	t.effects(r, content, now)
	t.raise(r.Base, r.Lift)
	if t.alone != progress.None && !t.open(t.alone) {
		t.alone = progress.None
	}
	if x := r.Alone; x != progress.None && t.open(x) && t.tries[x].tries == r.AloneTries {
		t.alone = x
	}
	t.gate = max(t.gate, r.Gate)
	if changed {
		t.writes++
	}
	return progress.Answer{Status: progress.Admitted, Before: before, Base: t.base, Writes: t.writes, Gate: t.gate}, changed
}

// effects carries out the verdicts, each tied to its position being open. Retries come
// first, so that one that ended since leaves nothing.
func (t *table) effects(r *progress.Request, content []progress.Content, now time.Time) {
	floor := max(t.base, r.Base)
	for i, v := range r.Others {
		was := t.tries[v.Position]
		if v.Outcome != progress.Retry || !t.open(v.Position) || v.Attempt <= was.tries {
			continue
		}
		was.tries, was.waits, was.due = v.Attempt, content[i].Waits, time.Time{}
		if d := content[i].Delay; d > 0 {
			was.due = now.Add(d)
		}
		if was.why == "" {
			was.why = content[i].Error
		}
		t.tries[v.Position] = was
		if t.alone == v.Position {
			t.alone = progress.None
		}
	}
	for _, x := range r.Done {
		t.finish(x, floor)
	}
	for _, v := range r.Others {
		if v.Outcome != progress.Retry {
			t.finish(v.Position, floor)
		}
	}
}

// finish takes in that x has ended. Below floor nobody asks for it again.
func (t *table) finish(x, floor int64) {
	if !t.open(x) {
		return
	}
	if i, lifted := slices.BinarySearch(t.lifted, x); lifted {
		t.lifted = slices.Delete(t.lifted, i, i+1)
	}
	delete(t.tries, x)
	if x < floor {
		return
	}
	i := t.after(x)
	left, right := i > 0 && t.done[i-1].to == x, i < len(t.done) && t.done[i].from == x+1
	switch {
	case left && right:
		t.done[i-1].to = t.done[i].to
		t.done = slices.Delete(t.done, i, i+1)
	case left:
		t.done[i-1].to++
	case right:
		t.done[i].from--
	default:
		t.done = slices.Insert(t.done, i, span{x, x + 1})
	}
}

// raise moves the base, with what is stuck.
func (t *table) raise(base int64, lift []int64) {
	if base <= t.base {
		return
	}
	for _, x := range lift {
		if x >= base || !t.open(x) {
			continue
		}
		if i, there := slices.BinarySearch(t.lifted, x); !there {
			t.lifted = slices.Insert(t.lifted, i, x)
		}
	}
	for len(t.done) > 0 && t.done[0].to <= base {
		t.done = t.done[1:]
	}
	if len(t.done) > 0 {
		t.done[0].from = max(t.done[0].from, base)
	}
	t.base = base
}

// clear ends the ownership of tok.
func (t *table) clear() {
	t.token, t.gate, t.alone = partition.Token{}, t.base, progress.None
	t.writes++
}

// found is what an owner finds. now is the instant that delays count to.
func (t *table) found(now time.Time) progress.Found {
	f := progress.Found{
		Opened: progress.Opened{Base: t.base, Suspects: t.suspects, Gate: max(t.gate, t.base), Writes: t.writes},
		Tried:  make(map[int64]progress.Tried, len(t.tries)),
		Lifted: slices.Clone(t.lifted), Life: t.life,
	}
	for _, s := range t.done {
		for x := s.from; x < s.to; x++ {
			f.Done = append(f.Done, x)
		}
	}
	for x, was := range t.tries {
		tried := progress.Tried{Tries: was.tries, Waits: was.waits, Crashes: was.crashes, FirstError: was.why}
		if was.due.After(now) {
			tried.NotBefore = was.due
		}
		f.Tried[x] = tried
	}
	return f
}

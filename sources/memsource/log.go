package memsource

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A log is the store's side of one partition. Each method is one atomic step,
// harmless when it is repeated or comes late.
type log struct {
	crashLimit int

	mu      sync.Mutex // never held over a wait
	fence   partition.Token
	epoch   partition.Epoch // the greatest that was opened
	writes  uint64          // what was written under a fence: a smaller number later means that something was lost
	base    int64           // position of entries[0]; all before are finished
	entries []entry
	delayed []entry // by the time they are due
	dead    []DeadLetter
	changed chan struct{}
}

// An entry is a task and what is known of it. Its position never changes and is
// never used again.
type entry struct {
	task     sources.Task // as it was pushed; its Delivery is shared by copies of the log
	due      time.Time    // of a delayed one: when it is appended; of an open one: its retry must not start earlier
	tries    int          // runs that ended
	waits    int          // of those, the ones that waited
	crashes  int
	firstErr string
	finished bool
	started  bool // handed out under the token that stands
	suspect  bool // started under a token that was never closed: it may be what ended the peer
}

func newLog(crashLimit int) *log {
	return &log{crashLimit: crashLimit, changed: make(chan struct{})}
}

// wake ends the waiting of everybody who looked before.
func (l *log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *log) push(t sources.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.NotBefore.After(time.Now()) {
		l.delay(entry{task: t, due: t.NotBefore})
	} else {
		l.entries = append(l.entries, entry{task: t})
	}
	l.wake()
}

// delay sorts e in, after those due at the same time.
func (l *log) delay(e entry) {
	i := len(l.delayed)
	for i > 0 && l.delayed[i-1].due.After(e.due) {
		i--
	}
	l.delayed = slices.Insert(l.delayed, i, e)
}

// promote appends what is due.
func (l *log) promote(now time.Time) {
	for len(l.delayed) > 0 && !l.delayed[0].due.After(now) {
		e := l.delayed[0]
		e.due = time.Time{}
		l.delayed = slices.Delete(l.delayed, 0, 1)
		l.entries = append(l.entries, e)
	}
}

// at returns the entry at a position if it is still open. Every effect goes
// through it: a settlement that comes twice, or late, finds the position finished
// and does nothing.
func (l *log) at(pos int64) *entry {
	i := pos - l.base
	if i < 0 || i >= int64(len(l.entries)) || l.entries[i].finished {
		return nil
	}
	return &l.entries[i]
}

// finish ends the task at pos and drops the finished head of the log.
func (l *log) finish(pos int64) {
	l.entries[pos-l.base] = entry{finished: true}
	n := 0
	for n < len(l.entries) && l.entries[n].finished {
		n++
	}
	l.entries = l.entries[n:]
	l.base += int64(n)
}

func (l *log) bury(pos int64, attempt int, reason string) {
	e := l.at(pos)
	l.dead = append(l.dead, DeadLetter{Task: e.delivery(time.Time{}, max(attempt, e.tries)-e.waits), Reason: reason, At: time.Now()})
	l.finish(pos)
}

// delivery is the task as it is handed out, with a Delivery of its own.
func (e *entry) delivery(notBefore time.Time, attempt int) sources.Task {
	t := e.task
	t.Delivery = &sources.Delivery{Attempt: attempt, Waits: e.waits, Crashes: e.crashes, FirstError: e.firstErr, NotBefore: notBefore, Headers: t.Headers}
	return t
}

// admit is the fence. seen is the number of writes the caller was told of: if
// there are fewer, the store was set back since.
func (l *log) admit(tok partition.Token, seen uint64) error {
	if l.writes < seen {
		return sources.ErrForgot
	}
	if l.fence != tok {
		return sources.ErrFenced
	}
	return nil
}

// open installs tok as the fence and returns the number of writes.
func (l *log) open(g partition.Grant, tok partition.Token) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fence == tok {
		return l.writes, nil // a repeated or late open must not make suspects of what its own owner has started since
	}
	if tok.Epoch <= l.epoch {
		return 0, &sources.FencedError{Grant: g, Stored: l.epoch}
	}
	l.accuse()
	l.unstart()
	l.fence, l.epoch = tok, tok.Epoch
	l.writes++
	l.wake()
	return l.writes, nil
}

// accuse looks for what may have ended an owner that never closed. Being started
// is no proof: only a task is charged that was under suspicion before, so that it
// was handed out alone, and that had nothing beside it.
func (l *log) accuse() {
	now := time.Now()
	var started []int64
	for i, e := range l.entries {
		if e.started && !e.due.After(now) { // what waits for its retry was not running
			started = append(started, l.base+int64(i))
		}
	}
	if len(started) == 1 {
		pos := started[0]
		if e := l.at(pos); e.suspect {
			if e.crashes++; e.crashes >= l.crashLimit {
				l.bury(pos, 0, fmt.Sprintf("its peer crashed %d times while it ran alone", e.crashes))
				return
			}
		}
	}
	for _, pos := range started {
		l.at(pos).suspect = true
	}
}

// unstart forgets what was handed out.
func (l *log) unstart() {
	for i := range l.entries {
		l.entries[i].started = false
	}
}

// A look is the answer of read.
type look struct {
	tasks   []found
	next    int64 // every open task before it is in tasks or was read before
	writes  uint64
	due     time.Time // when something will be appended; zero: nothing is delayed
	changed <-chan struct{}
}

type found struct {
	pos     int64
	task    sources.Task
	suspect bool
}

// read returns the open tasks from position from on, at most limit of them, to the owner
// of g.
func (l *log) read(g partition.Grant, tok partition.Token, seen uint64, from int64, limit int) (look, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(tok, seen); err != nil {
		return look{}, err
	}
	now := time.Now()
	l.promote(now)
	a := look{next: max(from, l.base), writes: l.writes, changed: l.changed}
	for end := l.base + int64(len(l.entries)); a.next < end && len(a.tasks) < limit; a.next++ {
		e := l.at(a.next)
		if e == nil {
			continue
		}
		var notBefore time.Time
		if e.due.After(now) {
			notBefore = e.due
		}
		t := e.delivery(notBefore, e.tries-e.waits+1)
		t.Grant, t.Token, t.Receipt = g, tok, sources.Receipt(a.next)
		a.tasks = append(a.tasks, found{pos: a.next, task: t, suspect: e.suspect})
	}
	if len(l.delayed) > 0 {
		a.due = l.delayed[0].due
	}
	return a, nil
}

// start records that the tasks at the positions are handed out.
func (l *log) start(tok partition.Token, seen uint64, positions []int64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(tok, seen); err != nil {
		return 0, err
	}
	for _, pos := range positions {
		if e := l.at(pos); e != nil {
			e.started = true
		}
	}
	l.writes++
	return l.writes, nil
}

// settle records outcomes.
func (l *log) settle(tok partition.Token, seen uint64, done []sources.Settlement) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(tok, seen); err != nil {
		return 0, err
	}
	for _, s := range done {
		pos := int64(s.Task.Receipt)
		e := l.at(pos)
		if e == nil {
			continue
		}
		if e.firstErr == "" && s.Outcome != sources.Done {
			e.firstErr = cmp.Or(s.Task.FirstError, s.Reason)
		}
		switch s.Outcome {
		case sources.Done:
			l.finish(pos)
		case sources.Dead:
			e.waits = s.Waits
			l.bury(pos, s.Attempt, s.Reason)
		case sources.Requeue:
			again := *e
			again.tries, again.waits, again.due = max(e.tries, s.Attempt), s.Waits, time.Now().Add(s.Delay)
			again.started, again.suspect = false, false
			l.finish(pos)
			l.delay(again)
		case sources.Retry:
			if s.Attempt > e.tries { // retry 1, come late, must not overwrite retry 2
				e.tries, e.waits, e.due = s.Attempt, s.Waits, time.Now().Add(s.Delay)
			}
			e.suspect = false // it came back
		}
	}
	l.writes++
	return l.writes, nil
}

// close clears the fence. What was started and not settled is no suspect: its
// owner lived to say so.
func (l *log) close(tok partition.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fence != tok {
		return
	}
	l.unstart()
	l.fence = partition.Token{}
	l.writes++
}

func (l *log) deadLetters() []DeadLetter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.dead)
}

func (l *log) pending() (open, delayed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if !e.finished {
			open++
		}
	}
	return open, len(l.delayed)
}

func (l *log) clone() *log {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := newLog(l.crashLimit)
	c.copy(l)
	return c
}

// restore makes l what c is. c is nobody else's: a snapshot is not written to.
func (l *log) restore(c *log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copy(c)
	l.wake()
}

func (l *log) copy(c *log) {
	l.fence, l.epoch, l.writes, l.base = c.fence, c.epoch, c.writes, c.base
	l.entries, l.delayed, l.dead = slices.Clone(c.entries), slices.Clone(c.delayed), slices.Clone(c.dead)
}

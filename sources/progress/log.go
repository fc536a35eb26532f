package progress

import (
	"math"
	"time"
)

// A Config says how much of a log is held at once.
type Config struct {
	// Window is the most positions between the base and the end of what was read.
	// Default 2,048.
	Window int
	// Lifted is the most open positions that may be carried past the base. At the
	// cap nothing more is read. Default 8 windows, or 8,192 if that is less.
	Lifted int
}

// liftBatch bounds how many payloads one request moves inside the store.
const liftBatch = 64

// WithDefaults returns c with zero fields filled in.
func (c Config) WithDefaults() Config {
	if c.Window == 0 {
		c.Window = 2048
	}
	if c.Lifted == 0 {
		c.Lifted = min(8*c.Window, 8192)
	}
	return c
}

// Opened is what the store said when the fence was installed.
type Opened struct {
	Base     int64   // everything below is finished or lifted
	Suspects int64   // everything open below was perhaps running when its peer died
	Gate     int64   // everything below may be started
	Writes   int64   // the store's number of writes
	Done     []int64 // finished positions from Base on, ascending
}

// A Log is one ownership of one log. It is not safe for concurrent use.
//
// A position goes buffered -> running -> (parked ->) settled -> said -> known, to parked at once if it must
// not start yet; one that nobody may start goes buffered -> withheld -> settled.
// Settled is final in memory, said was sent to the store, known was answered. Below
// the base only open positions are kept, in lifted.
type Log struct {
	cfg      Config
	base     int64 // as last answered
	read     int64 // positions below were read
	seen     int64
	gate     int64 // as last answered
	suspects int64 // open positions below are suspects, but see waited
	done     []int64
	waited   map[uint64]struct{} // what was added behind them in their keys had not begun when its peer died

	ring   []entry // of positions from base on, ascending; a power of two
	first  uint64  // absolute index of the oldest entry
	end    uint64  // absolute index after the newest
	next   uint64  // nothing before it is buffered
	lifted []entry // ascending
	ahead  int     // nothing before it in lifted is buffered

	queue    []Verdict // given, not answered
	sent     int       // so many of them were sent
	seq      uint64
	answered uint64

	announced int64 // the newest entry, which was not read yet; None: there is no such

	running int // handed out
	parked  int // handed out to wait for its time, or failed: the caller waits for its retry
	held    int // suspects not handed out
	need    Need

	solo  int64 // the suspect that is handed out, until its end is answered
	alone int64 // the suspect that was chosen to run with nothing beside it
	told  bool  // ... and the store has answered that it knows
	// permit says that no other log of this process runs an accused task.
	permit, wanted bool
	due            map[int64]time.Time // of what was not handed out
	keys           map[uint64]struct{} // scratch
}

type state uint8

const (
	buffered state = iota + 1
	running
	parked
	withheld
	settled
	said
	known
)

// open reports whether a task of this state may still run.
func (s state) open() bool { return s <= withheld }

type entry struct {
	pos     int64
	key     uint64
	tries   int32
	state   state
	named   bool // its end must be said by name: the store keeps something of it beside the log
	suspect bool
	accused bool // a crash was counted against it
	passed  bool // its key goes on without it
}

// New returns the log as o found it. What was lifted is added next, then what is
// read.
func New(cfg Config, o Opened) *Log {
	return &Log{
		cfg: cfg.WithDefaults(), base: o.Base, read: o.Base, seen: o.Writes, gate: o.Gate, suspects: o.Suspects,
		done: o.Done, ring: make([]entry, 64), announced: None, solo: None, alone: None,
	}
}

// Base is the base as last answered.
func (l *Log) Base() int64 { return l.base }

// Read is the first position that was not read.
func (l *Log) Read() int64 { return l.read }

// Seen is the store's number of writes as last answered.
func (l *Log) Seen() int64 { return l.seen }

// Seq is the number of the last verdict, Answered that of the last one answered.
func (l *Log) Seq() uint64 { return l.seq }

// Answered is the Seq of the last verdict that the store has answered.
func (l *Log) Answered() uint64 { return l.answered }

// Lowest is the lowest position that is not known to be finished: a log that is
// read again from there loses nothing.
func (l *Log) Lowest() int64 {
	if len(l.lifted) > 0 {
		return l.lifted[0].pos
	}
	return l.base
}

// AddLifted adds a position that an earlier owner carried past the base, in
// ascending order, before anything is read. key is a hash, 0 for none.
func (l *Log) AddLifted(pos int64, key uint64) {
	e := entry{pos: pos, key: key, state: buffered, named: true, suspect: pos < l.suspects && !l.hasWaited(key)}
	if e.suspect {
		l.held++
	}
	l.lifted = append(l.lifted, e)
}

// Add adds the position that was read next: not below Read, in ascending order. It
// returns false if it is finished already.
func (l *Log) Add(pos int64, key uint64) bool {
	e := entry{pos: pos, key: key, state: buffered, suspect: pos < l.suspects && !l.hasWaited(key)}
	if l.finished(pos) {
		e.state, e.suspect = known, false
	}
	if e.suspect {
		l.held++
	}
	l.append(e)
	l.read = pos + 1
	return e.state == buffered
}

// finished reports whether an earlier owner has finished pos, which is not below any asked
// for before.
func (l *Log) finished(pos int64) bool {
	for len(l.done) > 0 && l.done[0] < pos {
		l.done = l.done[1:]
	}
	return len(l.done) > 0 && l.done[0] == pos
}

func (l *Log) append(e entry) {
	if int(l.end-l.first) == len(l.ring) {
		l.grow()
	}
	*l.at(l.end) = e
	l.end++
}

// Announce adds the position that comes next before it is read: whoever pushed the task
// has said what it is and whose the log was, and the store knows that it may be started.
// It returns false if it is to be read first.
//
// It may be started, but nothing is said of it before it is read all the same, and is what
// was announced (Confirm). A store that fell back may have another task in its place, of
// which what became of this one would be believed:
//
//	the owner hears t1 at 5 and runs it · the store's replica, which has not heard of t1,
//	takes over · t2 is pushed, to 5 · the owner says that 5 is done: t2 is lost
//
// A fetched task needs no such look, because its owner has written to the store since it
// was pushed: a replica without the task is without that write, see Seen.
//
// Nothing is announced while suspects are held or one runs alone: what runs beside them is
// for Hand to say, of what was read.
func (l *Log) Announce(pos int64, key uint64) bool {
	if pos != l.read || l.announced != None || pos < l.suspects || l.finished(pos) ||
		l.held > 0 || l.solo != None || l.room(l.first) <= 0 {
		return false
	}
	l.append(entry{pos: pos, key: key, state: buffered})
	l.announced = pos
	l.gate = max(l.gate, pos+1)
	return true
}

// Announced is the position that was announced and not read yet, or None.
func (l *Log) Announced() int64 { return l.announced }

// Confirm says that the announced position was read, and that it holds what was announced.
func (l *Log) Confirm() {
	l.read = l.announced + 1
	l.announced = None
}

// Skip says that there are no elements below pos that were not read: a log may
// have gaps.
func (l *Log) Skip(pos int64) { l.read = max(l.read, pos) }

// Tried says that the store counts tries or crashes of pos, and that it must not
// start before due (zero: at once). It is called before anything behind pos is added.
//
// A task that was tried and is open holds back its key, so that what stands behind it
// had not begun when its peer died, and is no suspect: a peer reads on behind such keys,
// thousands of tasks. One had begun all the same if a run of pos ended well and the peer
// died before the store knew. Then, if that one killed it, it does so once more: now pos
// runs alone, nothing begins before its end is answered, and at the next opening pos
// shields nobody.
func (l *Log) Tried(pos int64, tries int, due time.Time) {
	e := l.find(pos)
	if e == nil {
		return
	}
	e.named, e.tries = true, clamp(tries)
	if tries > 0 && e.suspect && e.key != 0 {
		if l.waited == nil {
			l.waited = make(map[uint64]struct{})
		}
		l.waited[e.key] = struct{}{}
	}
	if !due.IsZero() {
		if l.due == nil {
			l.due = make(map[int64]time.Time)
		}
		l.due[pos] = due
	}
}

// Passed says that the key of pos, which is open and was tried, goes on without it: so what stands
// behind it may have begun when the last peer died, and is suspect after all.
func (l *Log) Passed(pos int64) {
	e := l.find(pos)
	if e == nil {
		return
	}
	e.passed = true
	if !l.hasWaited(e.key) {
		return
	}
	key := e.key
	delete(l.waited, key)
	for e := range l.all {
		if e.key == key && e.state == buffered && e.pos < l.suspects && !e.suspect {
			e.suspect = true
			l.held++
		}
	}
}

func (l *Log) hasWaited(key uint64) bool {
	_, ok := l.waited[key]
	return ok
}

// Tries is the highest number of tries that Tried or a Retry has told of pos.
func (l *Log) Tries(pos int64) int {
	if e := l.find(pos); e != nil {
		return int(e.tries)
	}
	return 0
}

// Accused says that a crash was counted against pos. The next one must not count
// against anybody beside it: it runs alone only with a permit. See Permit.
func (l *Log) Accused(pos int64) {
	if e := l.find(pos); e != nil {
		e.accused = true
	}
}

// Permit says whether a task that is accused of a crash may run alone now. The
// caller gives the permit to one log of the process at a time. Without it, tasks of
// several partitions would be alone side by side, each in its own: the one that
// kills the process would take the others along, and after a few rounds they were
// dead letters as well.
func (l *Log) Permit(ok bool) { l.permit = ok }

// WantsPermit reports whether the last Hand found a task that may only run with a
// permit, or whether the permit that was given is still in use.
func (l *Log) WantsPermit() bool { return l.wanted || l.permit && (l.solo != None || l.alone != None) }

// Named says that the store keeps something of pos beside the log, so that its end
// must be said by name.
func (l *Log) Named(pos int64) {
	if e := l.find(pos); e != nil {
		e.named = true
	}
}

// Withhold says that pos, which was just added, is never to be started: its owner settles it when it
// can, and it is open until then. Nothing waits for it meanwhile but the base.
func (l *Log) Withhold(pos int64) {
	e := l.find(pos)
	if e == nil || e.state != buffered {
		return
	}
	if e.suspect {
		l.held--
	}
	delete(l.due, pos)
	e.state, e.suspect, e.named = withheld, false, true
}

// Settle takes in what became of a task and returns the Seq that must be answered
// until the store knows it. It is idempotent: what is known already returns 0. A
// Retry counts only if its attempt is greater than any before.
func (l *Log) Settle(pos int64, o Outcome, attempt int) uint64 {
	e := l.find(pos)
	if e == nil || e.state == known {
		return 0
	}
	if !e.state.open() || o == Retry && attempt <= int(e.tries) {
		return l.seq // said before; perhaps not answered yet
	}
	switch e.state {
	case buffered: // nobody ran it: the stream itself found that it is dead
		if e.suspect {
			l.held--
		}
		delete(l.due, pos)
	case running:
		l.running--
	case parked:
		l.parked--
	}
	e.suspect = false // it came back
	e.state = settled
	if o == Retry {
		e.state, e.named, e.tries = parked, true, clamp(attempt)
		l.parked++
	}
	l.seq++
	l.queue = append(l.queue, Verdict{Seq: l.seq, Position: pos, Outcome: o, Attempt: attempt})
	return l.seq
}

func clamp(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// at returns the entry of an absolute index.
func (l *Log) at(i uint64) *entry { return &l.ring[i&uint64(len(l.ring)-1)] }

func (l *Log) grow() {
	ring := make([]entry, 2*len(l.ring))
	for i := l.first; i < l.end; i++ {
		ring[i&uint64(len(ring)-1)] = *l.at(i)
	}
	l.ring = ring
}

// find returns the entry of pos, or nil if it is finished and forgotten, or was
// never read. Most logs have no gaps: then the first guess is right.
func (l *Log) find(pos int64) *entry {
	if l.first == l.end || pos < l.at(l.first).pos {
		return l.findLifted(pos)
	}
	if i := l.first + uint64(pos-l.at(l.first).pos); i < l.end && l.at(i).pos == pos {
		return l.at(i)
	}
	lo, hi := l.first, l.end
	for lo < hi {
		if mid := lo + (hi-lo)/2; l.at(mid).pos < pos {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < l.end && l.at(lo).pos == pos {
		return l.at(lo)
	}
	return nil
}

// findLifted is find among the lifted ones, which are below all others.
func (l *Log) findLifted(pos int64) *entry {
	lo, hi := 0, len(l.lifted)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); l.lifted[mid].pos < pos {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(l.lifted) && l.lifted[lo].pos == pos {
		return &l.lifted[lo]
	}
	return nil
}

// Suspect says that pos, which was just added, was perhaps running when its peer died:
// for logs whose suspects are not all below one position, see Opened.Suspects.
func (l *Log) Suspect(pos int64) {
	if e := l.find(pos); e != nil && e.state == buffered && !e.suspect && !l.hasWaited(e.key) {
		e.suspect = true
		l.held++
	}
}

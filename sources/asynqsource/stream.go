package asynqsource

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// A stream is one ownership of one queue. The round trips are in trip.go: they are
// numbered.
//
// A progress.Log knows what may be handed out. Its positions are counted by the stream,
// in the order in which tasks came: the store knows them by their ids.
type stream struct {
	*logstream.Stream
	source *Source
	token  partition.Token
	first  *sources.Delivery // of all tasks without a past and without headers
	fence  string            // token as the store has it
	queue  string
	keys   keys
	waiter *waiter
	trip   trip // of the goroutine, and of Close after it

	// The stream's lock guards the rest.
	items   map[int64]*item    // open tasks, by position
	open    map[string]int64   // their positions, by id
	content map[uint64]content // of verdicts that are not answered, by Seq, but those of a light item.end
	suspect map[string]bool    // they were perhaps running when their peer died
	number  int64              // of the last trip
	seen    int64              // of the last trip that was answered
	atEnd   bool               // pending was empty when it was last looked at
	paused  bool               // somebody has paused the queue
	look    time.Time          // when to look again whatever happens
	lease   time.Time          // when asynq's leases are extended next
	// keepLocks: the locks of unique tasks outlive their end here, see router.
	keepLocks bool
	// See group.go.
	sets   map[string]time.Time // that asynq has taken out of groups and not made tasks of, by key, and when
	noSets chan struct{}        // made by Close, closed when there are none
}

// An item is an open task: it is in asynq's list of active ones.
type item struct {
	id        string
	raw       string // its message, as it is in the store or will be by the next trip
	key       string
	uniqueKey string
	retention int64
	crashes   int
	native    *native // what asynq said of its last run, and of those that are not recorded yet
	end       content // of the verdict that it is done
}

// content is what a verdict carries beside the outcome.
type content struct {
	native  *native // asynq's own script says it
	message string  // the new message; empty: none is needed
	delay   time.Duration
	reason  string
	waits   int   // how many of its runs waited
	quiet   bool  // the run is not counted among those that failed
	keep    int64 // seconds for which a finished task is kept
	lock    string
}

// mostWords is how many words on failed runs of a task are kept until they are recorded: while the store does not answer
// it may fail thousands of times, and each word has its payload. The framework records the last one, and one before at most.
const mostWords = 8

// say takes in what asynq said of the last run.
func (it *item) say(n *native) {
	n.former, it.native = it.native, n
	for kept := 0; n != nil; n = n.former {
		if n.is(kindRetry) {
			kept++
		}
		if kept == mostWords {
			n.former = nil
		}
	}
}

// said is what asynq said of a run; nil: nothing.
func (it *item) said(attempt int) *native {
	for n := it.native; n != nil; n = n.former {
		if n.attempt == attempt {
			return n
		}
	}
	return nil
}

// message is the message after a run: a task that is retried at once may run again, and be said to, before
// the first word on it is recorded.
func (it *item) message(attempt int) string {
	for n := it.native; n != nil; n = n.former {
		if n.attempt <= attempt && n.is(kindRetry) {
			return n.message()
		}
	}
	return it.raw
}

// recorded takes in what became of a run: the message is that now.
func (it *item) recorded(attempt int, message string) {
	it.raw = message
	for n := &it.native; *n != nil; n = &(*n).former {
		if (*n).attempt <= attempt {
			*n = nil
			return
		}
	}
}

// weight is about how much of a round trip it takes.
func (c *content) weight() int {
	if c.native != nil {
		return len(c.native.message())
	}
	return len(c.message)
}

// everything is a position that is never reached: whatever was taken may be started.
const everything = 1 << 62

func newStream(src *Source, g partition.Grant, tok partition.Token, queue string, o opened) *stream {
	s := &stream{
		source: src, token: tok, fence: tok.String(), queue: queue, keys: keysOf(queue),
		first:   &sources.Delivery{Grant: g, Token: tok, Attempt: 1},
		items:   make(map[int64]*item),
		open:    make(map[string]int64),
		content: make(map[uint64]content),
		suspect: o.suspects,
		number:  o.number,
		seen:    o.number,
	}
	log := progress.New(progress.Config{Window: src.cfg.Window}, progress.Opened{Gate: everything, Writes: o.number})
	s.Stream = logstream.New(s, g, log, &src.permit)
	s.waiter = newWaiter(src, s)
	s.Start(s.waiter.run)
	return s
}

// A past is what is known of a task that becomes active.
type past struct {
	since int64 // when it became pending, in nanoseconds; 0: not known
	had   bool  // it was tried
	tried progress.Tried
}

// parsePast reads the third word of fetch.lua on a task.
func parsePast(word string, now time.Time) (p past, err error) {
	since, rest, had := strings.Cut(word, " ")
	p.since, _ = strconv.ParseInt(since, 10, 64) // some enqueue without
	if !had {
		return p, nil
	}
	clock, tries, _ := strings.Cut(rest, " ")
	store, err := strconv.ParseInt(clock, 10, 64)
	if err == nil {
		p.tried, err = progress.ParseTried(tries, now, store)
	}
	p.had = true
	return p, err
}

// take takes in a task that has become active. The caller holds the lock.
func (s *stream) take(id, raw string, p past) {
	if _, known := s.open[id]; known {
		return // it was told again
	}
	pos := s.Log.Read()
	m, err := parseMessage(raw)
	if err == nil && m.id != id {
		err = errMessage
	}
	if err == nil {
		err = s.source.cfg.name(&m)
	}
	if err == nil && m.queue != s.queue { // somebody has renamed the queue: asynq would look for the run in the former
		raw = string(appendText([]byte(raw), fieldQueue, s.queue))
	}
	t, had := p.tried, p.had
	it := &item{id: id, raw: raw, key: m.key, uniqueKey: m.uniqueKey, retention: m.retention, crashes: t.Crashes}
	s.items[pos], s.open[id] = it, pos
	s.Log.Add(pos, logstream.KeyHash(m.key))
	s.Log.Named(pos)
	if s.suspect[id] {
		delete(s.suspect, id)
		s.Log.Suspect(pos)
	}
	if had {
		s.Log.Tried(pos, t.Tries, t.NotBefore)
	}
	if t.Crashes > 0 {
		s.Log.Accused(pos)
	}
	if err != nil {
		// Nobody can run it: asynq's own server would only say so, again and again.
		seq := s.note(pos, progress.Dead, 0, content{message: archived(raw, err.Error(), time.Now())})
		s.Bury(seq, sources.Buried{ID: id, Reason: err.Error()})
		return
	}
	if m.born.IsZero() && p.since > 0 {
		m.born = time.Unix(0, p.since)
	}
	d := s.first
	if had || m.retried > 0 || m.headers != nil {
		d = &sources.Delivery{
			Grant: s.Grant, Token: s.token, Attempt: max(m.retried, t.Attempts()) + 1, Waits: t.Waits, Crashes: t.Crashes,
			FirstError: t.FirstError, NotBefore: t.NotBefore, Headers: m.headers,
		}
	}
	*s.Held.Next() = sources.Task{
		ID: id, Type: m.typ, Key: m.key, Payload: m.payload, Born: sources.MomentOf(m.born), Receipt: sources.Receipt(pos), Delivery: d,
	}
}

// note notes a verdict. The caller holds the lock.
func (s *stream) note(pos int64, o progress.Outcome, attempt int, c content) uint64 {
	former := s.Log.Seq()
	seq := s.Log.Settle(pos, o, attempt)
	if s.Log.Seq() != former {
		s.content[seq] = c
	}
	return seq
}

// poke leaves a value in c, where one may lie already.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ring says that there may be something new in pending.
func (s *stream) ring() {
	s.Mu.Lock()
	s.atEnd = false
	s.Mu.Unlock()
	s.Nudge()
}

// Trouble returns why the source refuses to fetch.
func (s *stream) Trouble() error { return s.source.refused() }

// Beside returns nothing: see [logstream.Driver].
func (s *stream) Beside(time.Time, int) (none []sources.Task, never time.Time) { return none, never }

// raw returns the message of a task that the stream has handed out and that is not
// finished.
func (s *stream) raw(pos int64) (string, bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	it := s.items[pos]
	if it == nil || s.Ended() {
		return "", false
	}
	return it.message(math.MaxInt), true
}

// said notes what asynq said of a run of a task, the last one.
func (s *stream) said(pos int64, attempt int, n *native) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if it := s.items[pos]; it != nil {
		n.restore(it.raw)
		n.attempt = attempt
		it.say(n)
	}
}

// Close ends the ownership: what was settled is said to the end, then the fence is
// cleared and what is open given back. See [sources.Stream].
func (s *stream) Close(ctx context.Context) error {
	first := s.Stop()
	if first {
		s.waiter.close()
	}
	s.awaitSets(ctx)
	s.Wait(ctx)
	err := s.Finish(ctx)
	if first { // after the fence: the next owner need not wait for what stops here
		s.source.leave(s)
	}
	return err
}

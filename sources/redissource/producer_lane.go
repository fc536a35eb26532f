package redissource

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

const (
	batchMessages = 1024    // most messages in one script
	batchBytes    = 2 << 20 // about the most bytes in one script
	flushBatches  = 64      // most new scripts in one pipeline
)

// A lane sends messages, one pipeline after the other: what comes while one is under
// way travels with the next. Its goroutine lives while there is something to send.
type lane struct {
	p    *Producer
	wake chan struct{} // something new, for a run that waits to try again

	mu      sync.Mutex
	asked   time.Time // when what is under way was sent; zero: nothing is
	closed  bool
	running bool
	tracks  map[partition.ID]*track
	keys    map[partition.ID]*Keys
	ready   []*track // have messages waiting and no batch under way
}

// A track is what shares a mark, and so goes one batch after the other: on a cluster
// one partition, since the keys of a script must be of one node, else all of them.
type track struct {
	mark    string
	next    int64 // position of the next message
	waiting []*item
	busy    bool  // a batch is under way, or waits to be repeated
	silent  error // why the last attempt had no answer; nil: it had one
}

// A batch is what one script pushes. It is repeated as it is until it is answered or
// given up.
type batch struct {
	push
	track   *track
	items   []*item
	tries   int
	unknown bool      // an attempt may have been executed
	again   time.Time // not before
}

func newLane(p *Producer) *lane {
	return &lane{p: p, wake: make(chan struct{}, 1), tracks: make(map[partition.ID]*track), keys: make(map[partition.ID]*Keys)}
}

// submit takes it in, unless the lane is closed.
func (l *lane) submit(it *item) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	id := l.trackOf(it)
	q := l.tracks[id]
	if q == nil {
		q = &track{mark: KeysOf(l.p.name, id).Mark(l.p.session)}
		l.tracks[id] = q
	}
	q.waiting = append(q.waiting, it)
	if len(q.waiting) == 1 && !q.busy {
		l.ready = append(l.ready, q)
	}
	if !l.running {
		l.running = true
		l.p.running.Go(l.run)
	} else {
		nudge(l.wake)
	}
	return true
}

// drop takes it out unless it may have reached the store, and returns how it stands.
func (l *lane) drop(it *item) standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	it.dropped = true
	return l.standing(it)
}

// standing returns how it stands with it. The store answers, as far as what waits behind others can tell, if the last
// attempt for its partition had an answer, and what is under way has not waited for half of its time. The caller holds mu.
func (l *lane) standing(it *item) standing {
	s := standing{sent: it.sent}
	if q := l.tracks[l.trackOf(it)]; q != nil {
		s.silent = q.silent
	}
	s.answers = s.silent == nil && (l.asked.IsZero() || it.deadline.Sub(l.asked) <= l.p.timeout/2)
	return s
}

// trackOf returns where its track is in tracks.
func (l *lane) trackOf(it *item) partition.ID {
	if l.p.oneServer {
		return 0
	}
	return it.part
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// run sends until nothing is left.
func (l *lane) run() {
	var repeat []*batch // unanswered or refused for a while
	for {
		now := time.Now()
		var due []*batch
		repeat = slices.DeleteFunc(repeat, func(b *batch) bool {
			if b.again.After(now) {
				return false
			}
			b.again = now // which may be long after
			if l.expire(b, redisconfig.Explain(b.err)) && l.claim(b) {
				due = append(due, b)
			}
			return true
		})
		due = l.form(due, now)
		if len(due) == 0 {
			if len(repeat) == 0 {
				if l.rest() {
					return
				}
				continue
			}
			if !l.pause(repeat) {
				for _, b := range repeat {
					l.end(b, b.failed(l.p.cutError()))
				}
				repeat = nil
			}
			continue
		}
		repeat = append(repeat, l.send(due)...)
	}
}

// rest ends the run if nothing waits.
func (l *lane) rest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = len(l.ready) > 0
	return !l.running
}

// pause waits until one of repeat is due or something new came. It returns false if
// nothing is to be tried again.
func (l *lane) pause(repeat []*batch) bool {
	first := repeat[0].again
	for _, b := range repeat[1:] {
		if b.again.Before(first) {
			first = b.again
		}
	}
	timer := time.NewTimer(time.Until(first))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.wake:
	case <-l.p.trying.Done():
		return false
	}
	return true
}

// form appends to due a batch for each track that is ready.
func (l *lane) form(due []*batch, now time.Time) []*batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	over := l.p.over()
	for n := 0; len(l.ready) > 0 && n < flushBatches; n++ {
		q := l.ready[0]
		l.ready = l.ready[1:]
		b := &batch{track: q}
		size := 0
		for len(q.waiting) > 0 && len(b.items) < batchMessages && size < batchBytes {
			it := q.waiting[0]
			q.waiting = q.waiting[1:]
			switch {
			case it.dropped: // its caller knows
			case over:
				it.call.finish(it, false, l.p.cutError())
			case !it.deadline.After(now):
				it.call.finish(it, false, l.p.late(l.standing(it)))
			default:
				it.sent = true
				b.items = append(b.items, it)
				size += len(it.body)
			}
		}
		if len(b.items) == 0 {
			if len(q.waiting) > 0 {
				l.ready = append(l.ready, q)
			}
			continue
		}
		q.busy = true
		l.encode(b)
		due = append(due, b)
	}
	return due
}

// encode sorts the messages by partition, takes their positions and writes the
// script's arguments.
func (l *lane) encode(b *batch) {
	slices.SortStableFunc(b.items, func(x, y *item) int { return cmp.Compare(x.part, y.part) })
	head := pushHead{
		first: b.track.next, last: b.track.next + int64(len(b.items)) - 1, life: markLife,
		backlog: l.p.backlog, total: l.p.config.Total,
	}
	b.track.next += int64(len(b.items))
	var targets []pushTarget
	for i, it := range b.items {
		if i == 0 || it.part != b.items[i-1].part {
			targets = append(targets, pushTarget{keys: l.keysOf(it.part)})
		}
		targets[len(targets)-1].count++
		head.each = head.each || it.special != nil
	}
	b.keys, b.args = head.arguments(b.track.mark, targets, len(b.items))
	for _, it := range b.items {
		s := it.special
		switch {
		case !head.each:
			b.args = append(b.args, it.body)
		case s == nil:
			b.args = append(b.args, "now", 0, "", "", it.body)
		case s.ttl == 0:
			b.args = append(b.args, s.what, s.ms, "", "", it.body)
		default:
			b.keys = append(b.keys, l.keysOf(it.part).Unique(s.unique))
			b.args = append(b.args, s.what, s.ms, s.ttl, s.lock, it.body)
		}
	}
}

// keysOf returns the keys of a partition; they are put together once.
func (l *lane) keysOf(id partition.ID) *Keys {
	k := l.keys[id]
	if k == nil {
		made := KeysOf(l.p.name, id)
		k = &made
		l.keys[id] = k
	}
	return k
}

// send sends batches in one pipeline, ends those that have an answer and returns the
// others, each with the time of its next attempt.
func (l *lane) send(batches []*batch) (repeat []*batch) {
	pushes := make([]*push, len(batches))
	for i, b := range batches {
		pushes[i] = &b.push
		b.tries++
	}
	l.asks(time.Now())
	l.p.pusher.send(l.p.trying, pushes) // whose end breaks off no push: the client looks at it between its attempts
	l.asks(time.Time{})
	for _, b := range batches {
		err := b.err
		switch {
		case err == nil:
			l.done(b)
		case redisconfig.Lasting(err):
			b.unknown = b.unknown || b.maybe || brokenOff(err)
			l.end(b, b.failed(redisconfig.Explain(err)))
		default:
			b.unknown = b.unknown || b.maybe || !notExecuted(err)
			why := redisconfig.Explain(err)
			for _, it := range b.items {
				it.call.miss(it, why)
			}
			l.missed(b, why)
			b.again = time.Now().Add(backoff(b.tries))
			if l.expire(b, why) {
				repeat = append(repeat, b)
			}
		}
	}
	return repeat
}

// missed notes why an attempt does not count. What the store has surely not executed is as if it had not been sent:
// its callers may take it out.
func (l *lane) missed(b *batch, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.track.silent = why
	for _, it := range b.items {
		it.sent = b.unknown
	}
}

// claim takes those out of b, which is to be repeated, whose callers have gone and were told that they were not sent, and
// reports whether any are left.
func (l *lane) claim(b *batch) bool {
	left := l.claimed(b)
	switch {
	case len(left) == 0:
		l.free(b.track)
		return false
	case len(left) < len(b.items):
		b.items = left
		l.encode(b)
	}
	return true
}

func (l *lane) claimed(b *batch) []*item {
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []*item
	for _, it := range b.items {
		if b.unknown || !it.dropped {
			it.sent = true
			left = append(left, it)
		}
	}
	return left
}

func (l *lane) asks(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = since
}

// done hands out the answer of an executed script.
func (l *lane) done(b *batch) {
	l.mu.Lock()
	b.track.silent = nil
	l.mu.Unlock()
	a := b.answer
	if a.status != "OK" {
		l.end(b, fmt.Errorf("%w: push: answer %q %q", ErrUnknown, a.status, a.detail))
		return
	}
	for i, it := range b.items {
		letter := byte('+')
		if i < len(a.detail) {
			letter = a.detail[i]
		}
		it.call.finish(it, letter == '=', l.p.refused(letter))
	}
	l.free(b.track)
}

// late is why what waits behind others was not sent: the store has answered for them to the end, or has not.
func (p *Producer) late(s standing) error {
	if s.answers {
		return fmt.Errorf("not sent within %v: what was enqueued before it took that long: enqueue fewer at once, or raise Timeout", p.timeout)
	}
	who := "the store"
	if p.pusher.replicas > 0 {
		who = fmt.Sprintf("the store, or from %d of its replicas,", p.pusher.replicas)
	}
	if s.silent == nil {
		return fmt.Errorf("no answer from %s for %v", who, p.timeout)
	}
	return fmt.Errorf("no answer from %s for %v: %s", who, p.timeout, s.silent.Error()) // by others, see item.left
}

// overdue is why a message is given up while a request is under way: its own, or one that it waits behind.
func (p *Producer) overdue(it *item, s standing) error {
	switch {
	case it.few == nil && it.last != nil:
		return it.last
	case !s.sent:
		return p.late(s)
	}
	return p.late(standing{})
}

// refused returns the error of a message that the script pushed or not.
func (p *Producer) refused(letter byte) error {
	switch letter {
	case '+', '=':
		return nil
	case 'f':
		return ErrBacklog
	case 'r':
		return fmt.Errorf("the name has another number of partitions now, this producer counts %d: make a new one: %w",
			p.config.Total, partition.ErrConfig)
	case 'w':
		return errWrongType
	}
	return fmt.Errorf("%w: push: answer %q", ErrUnknown, letter)
}

// failed returns what the callers of a batch that was given up are told.
func (b *batch) failed(err error) error {
	if b.unknown && !errors.Is(err, ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// expire fails the messages whose time ends before the next attempt, each with its own, and
// reports whether any are left. What may have been executed is repeated as it is, and who left it
// was told so; from what was not they are taken out.
func (l *lane) expire(b *batch, err error) bool {
	var left []*item
	for _, it := range b.items {
		if it.deadline.Before(b.again) {
			if l.p.over() { // which may have broken off the last attempt
				err = l.p.cutError()
			}
			it.call.finish(it, false, b.failed(err))
		} else {
			left = append(left, it)
		}
	}
	switch {
	case len(left) == 0:
		l.free(b.track)
		return false
	case len(left) < len(b.items) && !b.unknown:
		b.items = left
		l.encode(b)
	}
	return true
}

// end fails all messages of b.
func (l *lane) end(b *batch, err error) {
	for _, it := range b.items {
		it.call.finish(it, false, err)
	}
	l.free(b.track)
}

// free lets the next batch of a track go.
func (l *lane) free(q *track) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.busy = false
	if len(q.waiting) > 0 {
		l.ready = append(l.ready, q)
	} else {
		q.waiting = nil
	}
}

// backoff returns how long to wait before attempt tries+1: 5 ms, doubled each time,
// at most 500 ms, with a jitter of a fifth.
func backoff(tries int) time.Duration {
	d := min(5*time.Millisecond<<min(tries-1, 10), 500*time.Millisecond)
	return d - d/5 + rand.N(2*d/5)
}

// brokenOff reports whether err ended the script in its middle, with what it had pushed by then: a right of
// the user that only some messages, or only its last lines, need.
func brokenOff(err error) bool {
	return redisconfig.Forbidden(err) && strings.Contains(err.Error(), " on @user_script:") // where it ended
}

// notExecuted reports whether err says that the store did not do what it was asked.
// Everything else but an answer leaves it unknown.
func notExecuted(err error) bool {
	var refusal redis.Error
	return errors.As(err, &refusal) || neverSent(err)
}

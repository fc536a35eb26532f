package redissource

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// A stream is one ownership of one partition. The round trips are in stream_io.go.
type stream struct {
	*logstream.Stream
	source *Source
	token  partition.Token
	keys   Keys
	store  *redisprogress.Log
	first  *sources.Delivery // of all tasks without a past and without headers
	trip   trip              // of the goroutine, and of Close after it

	// The stream's lock guards the rest.
	content map[uint64]redisprogress.Content // of verdicts that are not answered
	tried   map[int64]redisprogress.Tried    // of positions that were not read yet
	locks   map[int64]redisprogress.Lock     // of open tasks
	rings   uint64                           // bells heard
	heard   string                           // the element that was announced, until it is read
	portion portion                          // of the next read
	atEnd   bool                             // all there was is read, and the next push rings
	due     time.Time                        // of the next delayed task; zero: none
	looked  time.Time                        // when that was asked for
}

func newStream(src *Source, g partition.Grant, tok partition.Token, keys Keys, store *redisprogress.Log, o redisprogress.Opened,
	layout partition.Config) *stream {
	s := &stream{
		source: src, token: tok, keys: keys, store: store,
		first:   &sources.Delivery{Grant: g, Token: tok, Attempt: 1},
		content: make(map[uint64]redisprogress.Content),
		tried:   o.Tried,
		locks:   make(map[int64]redisprogress.Lock),
	}
	s.Stream = logstream.New(s, g, progress.New(src.limits(), o.Opened), &src.permit)
	now := time.Now()
	s.next(now, o.Due)
	for _, l := range o.Lifted {
		s.take(l.Position, l.Envelope, now, true)
	}
	src.waker.add(s)
	s.Start(s.tickers(layout)...)
	return s
}

// take takes in one element of the log. The caller holds the lock, or nobody else knows s.
func (s *stream) take(pos int64, element string, now time.Time, lifted bool) {
	var e envelope
	err := e.parse(element)
	var tried redisprogress.Tried
	had := false
	if len(s.tried) > 0 {
		tried, had = s.tried[pos]
		delete(s.tried, pos)
	}
	if lifted {
		s.Log.AddLifted(pos, logstream.KeyHash(e.key))
	} else if !s.Log.Add(pos, logstream.KeyHash(e.key)) {
		return // finished by an earlier owner
	}
	if had {
		s.Log.Tried(pos, tried.Tries, tried.NotBefore)
	}
	if tried.Crashes+e.crashes > 0 {
		s.Log.Accused(pos)
	}
	if e.unique {
		s.locks[pos] = lockOf(pos, s.keys, &e)
		s.Log.Named(pos)
	}
	if err != nil {
		seq := s.settle(pos, progress.Dead, 0, redisprogress.Content{Body: buryUnread(pos, element, tried, err, true, now)})
		s.Bury(seq, sources.Buried{Position: pos, Reason: err.Error()})
		return
	}
	deliver(s.Held.Next(), &e, pos, delivery(&e, tried, had, s.first))
}

// settle records a verdict. The caller holds the lock.
func (s *stream) settle(pos int64, o progress.Outcome, attempt int, c redisprogress.Content) uint64 {
	before := s.Log.Seq()
	seq := s.Log.Settle(pos, o, attempt)
	if s.Log.Seq() != before && o != progress.Done {
		s.content[seq] = c
	}
	return seq
}

// ring says that there may be something new in the list, and what it is if the bell says so.
func (s *stream) ring(says string) {
	s.Mu.Lock()
	if says != "" {
		s.announce(says)
	}
	s.rings++
	s.atEnd = false
	s.Mu.Unlock()
	s.Nudge()
}

// announce takes in the one task that a bell tells of, if a Fetch waits for it at the end of
// the list: it starts while it is read, and not after. See [progress.Log.Announce].
//
// The token is the one that stood when the task was pushed: who has lost the partition by
// then hears of a task of somebody else. The caller holds the lock.
func (s *stream) announce(says string) {
	token, rest, _ := strings.Cut(says, " ")
	place, element, found := strings.Cut(rest, " ")
	pos, err := strconv.ParseInt(place, 10, 64)
	if !found || err != nil || token != s.token.String() || !s.atEnd || !s.Waits() || s.Fresh() {
		return
	}
	var e envelope
	if e.parse(element) != nil || e.unique || e.tries+e.crashes > 0 || !s.Log.Announce(pos, logstream.KeyHash(e.key)) {
		return
	}
	s.heard = strings.Clone(element) // a handler may write to its payload, although it must not
	deliver(s.Held.Next(), &e, pos, delivery(&e, redisprogress.Tried{}, false, s.first))
	s.Look()
}

// idle reports how long the list should be, how often the log was written at least, and
// whether anything is delayed, while a Fetch waits for the list to grow.
func (s *stream) idle() (i idler, ok bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return idler{s, s.Log.Read() - s.Log.Base(), s.Log.Seen(), !s.due.IsZero()}, s.Waits() && s.atEnd
}

// Trouble says nothing: see [logstream.Driver].
func (s *stream) Trouble() error { return nil }

// Beside says when the next delayed task is due: it comes by the log.
func (s *stream) Beside(now time.Time, _ int) (none []sources.Task, due time.Time) {
	if s.due.After(now) {
		due = s.due
	}
	return nil, due
}

// Record takes in one settlement. The caller holds the lock.
func (s *stream) Record(d *sources.Settlement, now time.Time) (uint64, error) {
	t := d.Task
	pos := int64(t.Receipt)
	if d.Outcome == sources.Done {
		return s.settle(pos, progress.Done, d.Attempt, redisprogress.Content{}), nil
	}
	// A smaller number of runs never takes the place of a greater, whether that came
	// with the task or with a retry since. (Of retries the log itself sees to it.)
	attempt := max(d.Attempt, t.Run()-1, s.Log.Tries(pos))
	switch d.Outcome {
	case sources.Retry:
		if d.Attempt < 1 {
			return 0, errors.New("a retry that does not say how often it has run")
		}
		return s.settle(pos, progress.Retry, d.Attempt, redisprogress.Content{Delay: d.Delay, Waits: d.Waits, Error: logstream.Short(logstream.FirstError(t, d.Reason))}), nil
	case sources.Requeue:
		_, unique := s.locks[pos]
		body := enclose(t, attempt-d.Waits, logstream.Short(logstream.FirstError(t, d.Reason)), unique)
		return s.settle(pos, progress.Requeue, attempt, redisprogress.Content{Delay: d.Delay, Body: body}), nil
	case sources.Dead:
		return s.settle(pos, progress.Dead, attempt, redisprogress.Content{Body: bury(d, attempt-d.Waits, now)}), nil
	}
	return 0, errors.New("a settlement without an outcome")
}

// Close ends the ownership: what was settled is said to the end, then the fence is
// cleared. It returns after the stream's goroutines, which the client's own timeouts
// bound.
func (s *stream) Close(ctx context.Context) error {
	first := s.Stop()
	s.Wait(ctx)
	if first {
		s.source.waker.cancels.remove(s)
		s.source.waker.remove(s)
	}
	return s.Finish(ctx)
}
